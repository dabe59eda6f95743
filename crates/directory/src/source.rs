//! Reports about addresses, and the trait of their sources.
//!
//! A *place* is a port of this daemon or the peer behind a link ([`Place`]). Reports are the only
//! input of the directory from other hosts. A *source* here is a source of reports, not an input of
//! a service as in `fabric`. It collects reports in the order of the events; its owner
//! (`link::io::addresses`) takes them and passes them to
//! [`Directory::apply`](crate::Directory::apply). A report is not verified here: the source
//! authenticates the peer as far as its link does, and the directory compares epochs. A source must
//! repeat the claims of a place on request; it need not remove duplicates. All calls are made in
//! the shard of links. A source that stops reporting leaves old claims in place: it reports an
//! unreachable place by [`Report::Reachable`].

use crate::{Key, Place};

/// A report of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report<K> {
    /// A place became reachable or unreachable. The claims of an unreachable place are kept and
    /// followed only if no reachable place claims the address.
    Reachable {
        /// The place.
        place: Place,
        /// Whether it is reachable.
        up: bool,
    },
    /// A place claims an address.
    Claimed {
        /// The place.
        place: Place,
        /// The address.
        key: K,
        /// Time of day at which the address appeared there, in ns; see
        /// [`Directory`](crate::Directory).
        epoch: u64,
    },
    /// A place withdraws its claim, of any epoch; without a claim there the report has no effect.
    Withdrawn {
        /// The place.
        place: Place,
        /// The address.
        key: K,
    },
}

impl<K> Report<K> {
    /// Returns the place that the report is about.
    pub const fn place(&self) -> Place {
        match self {
            Self::Reachable { place, .. }
            | Self::Claimed { place, .. }
            | Self::Withdrawn { place, .. } => *place,
        }
    }
}

/// A source of reports: the tunnels of a socket, a static table, a distributed store. A source that
/// fails reports nothing, and the directory keeps its state.
pub trait Source<K: Key> {
    /// Moves all pending reports to `reports`, in the order of the events.
    fn take_reports(&mut self, reports: &mut Vec<Report<K>>);

    /// Reports the claims of a place again, with the next [`Source::take_reports`]. The directory
    /// needs this after it had no room for a claim
    /// ([`Directory::needs_repeat`](crate::Directory::needs_repeat)).
    fn repeat(&mut self, place: Place);
}
