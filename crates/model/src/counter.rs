//! Names and meanings of counters.
//!
//! A service registers a [`CounterTable`] for the objects that it counts: ports, links or forwards.
//! The daemon derives the help texts of `GET /metrics` from the tables. The values are maps by the
//! same names (`counters` of [`PortView`](crate::PortView) and [`LinkView`](crate::LinkView)).
//!
//! A counter ends with `_total`; a name without the ending is a value that also falls (a gauge).
//! The second last word is the unit if it is one (`receive_bytes_total`). Counters of one cause
//! that differ by the reason begin with a word of [`REASON_PREFIXES`].
//!
//! The tables are constants. Nothing here compares them with the counters that a service reports,
//! or checks that names differ: a counter that no table has is reported all the same, with a text
//! that says so, and of several meanings of a name the daemon prints each. `daemon::metrics` reads
//! the tables, and [`REASON_PREFIXES`] for the label `reason`, in the thread of the request that
//! samples; `causeway top` finds drops, refusals and resets by [`REASON_PREFIXES`].

/// Name and meaning of a counter. The meaning is a sentence, as a documentation comment has it.
pub type CounterDefinition = (&'static str, &'static str);

/// The beginnings of names that end with a reason, and the word that stands for all reasons:
/// `drop_no_route_total` is one of the `drops`.
pub const REASON_PREFIXES: &[(&str, &str)] = &[
    ("socket_drop_", "socket_drops"),
    ("socket_refused_", "socket_refusals"),
    ("transmit_drop_", "transmit_drops"),
    ("receive_drop_", "receive_drops"),
    ("drop_", "drops"),
    ("reject_", "rejects"),
    ("reset_", "resets"),
    ("refused_", "refusals"),
];

/// Splits a counter whose name has a reason into the counter of all reasons and the reason:
/// `drop_no_route_total` becomes `drops_total` and `no_route`.
pub fn split_reason(name: &str) -> Option<(String, &str)> {
    let of = |(prefix, all): &(&str, &str)| {
        let reason = name.strip_prefix(prefix)?.strip_suffix("_total")?;
        Some((format!("{all}_total"), reason))
    };
    REASON_PREFIXES.iter().find_map(of)
}

/// The objects that a table of counters concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedObject {
    /// Ports of the service's kinds.
    Port,
    /// Links.
    Link,
    /// Forwards.
    Forward,
}

impl CountedObject {
    /// Returns the word for the object in names of metrics and in texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Port => "port",
            Self::Link => "link",
            Self::Forward => "forward",
        }
    }
}

/// Counters of a service.
#[derive(Debug, Clone, Copy)]
pub struct CounterTable {
    /// The objects that have the counters.
    pub of: CountedObject,
    /// The counters.
    pub counters: &'static [CounterDefinition],
}

impl CounterTable {
    /// Describes counters of ports.
    pub const fn of_ports(counters: &'static [CounterDefinition]) -> Self {
        Self { of: CountedObject::Port, counters }
    }

    /// Describes counters of forwards.
    pub const fn of_forwards(counters: &'static [CounterDefinition]) -> Self {
        Self { of: CountedObject::Forward, counters }
    }

    /// Describes counters of links.
    pub const fn of_links(counters: &'static [CounterDefinition]) -> Self {
        Self { of: CountedObject::Link, counters }
    }

    /// Returns the meaning of a counter, or `None` if the table does not have it.
    pub fn help(&self, name: &str) -> Option<&'static str> {
        self.counters.iter().find(|(known, _)| *known == name).map(|(_, help)| help.trim())
    }
}

/// Declares the reasons of drops: an enumeration, and a counter `drop_NAME_total` for each reason,
/// whose meaning is the documentation comment of the reason.
#[macro_export]
macro_rules! drop_reasons {
    (
        $(#[$meta:meta])*
        $vis:vis enum $reasons:ident {
            $($(#[doc = $doc:literal])+ $reason:ident => $name:literal,)+
        }
    ) => {
        $(#[$meta])*
        $vis enum $reasons {
            $($(#[doc = $doc])+ $reason,)+
        }

        impl $reasons {
            /// Every reason, in the order of the counters.
            pub const ALL: &'static [Self] = &[$(Self::$reason),+];

            /// The counter of each reason, in the order of [`Self::ALL`].
            pub const COUNTERS: &'static [$crate::CounterDefinition] =
                &[$((concat!("drop_", $name, "_total"), concat!($($doc),+))),+];

            /// Returns the reason as it stands in a counter's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)+
                }
            }
        }
    };
}
