//! Help texts of counters, from the tables that services registered.
//!
//! [`HelpTexts`] does not change after it was made. A counter without a text gets a sentence that
//! says so. If services count different things by one name, the text has the part of each, after
//! the name of its kind of port or service; equal texts appear once.
//!
//! [`crate::services`] collects the tables; [`super::families`] asks for the text of a new family.
//! It runs in the thread of the request that samples, and cannot fail.

use causeway_fabric::ServiceRegistration;
use causeway_model::{CountedObject, CounterTable};

/// The tables of counters of all services.
#[derive(Debug, Clone, Default)]
pub struct HelpTexts(Vec<(&'static str, CounterTable)>);

impl HelpTexts {
    /// Collects the tables of `services`.
    pub fn of_services(services: &[ServiceRegistration]) -> Self {
        let of = |service: &ServiceRegistration| {
            let kind = service.kinds.first().map_or(service.name, |kind| kind.name);
            service.counters.iter().map(move |table| (kind, *table))
        };
        Self(services.iter().flat_map(of).collect())
    }

    /// Returns the meaning of a counter. Services that count different things by one name each have
    /// a part of the text.
    pub fn of(&self, object: CountedObject, name: &str) -> String {
        let mut found: Vec<(&str, &str)> = Vec::new();
        for (kind, table) in self.0.iter().filter(|(_, table)| table.of == object) {
            if let Some(help) = table.help(name)
                && found.iter().all(|(_, known)| *known != help)
            {
                found.push((kind, help));
            }
        }
        match &found[..] {
            [] => format!("Counter {name} of a service that does not describe it."),
            [(_, help)] => (*help).to_owned(),
            several => {
                let part = |(kind, help): &(&str, &str)| format!("{kind}: {help}");
                several.iter().map(part).collect::<Vec<_>>().join(" ")
            }
        }
    }

    /// Returns the meaning of counters that differ by their reason.
    pub fn of_reasons(&self, object: CountedObject, family: &str) -> String {
        let what = match family {
            "drops_total" => "Frames, datagrams and packets that were dropped",
            "rejects_total" => "Connects that were refused",
            "resets_total" => "Connections that were reset",
            "refusals_total" => "Datagrams and requests that were refused",
            "socket_drops_total" => "Datagrams that the link's socket dropped",
            "socket_refusals_total" => "Datagrams of no link that the link's socket refused",
            "transmit_drops_total" => "Messages of the guest that were dropped",
            "receive_drops_total" => "Messages to the guest that were dropped",
            _ => "Events",
        };
        format!("{what} at the {}, by reason.", object.name())
    }

    /// Returns every described counter: the kind, the object, the name and the meaning.
    pub fn all(
        &self,
    ) -> impl Iterator<Item = (&'static str, CountedObject, &'static str, &'static str)> {
        let of = |(kind, table): &(&'static str, CounterTable)| {
            let (kind, object) = (*kind, table.of);
            table.counters.iter().map(move |(name, help)| (kind, object, *name, help.trim()))
        };
        self.0.iter().flat_map(of)
    }
}
