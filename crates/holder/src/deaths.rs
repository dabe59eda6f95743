//! Counts the ends of causewayd during a frontend's command, to disconnect the frontend that causes
//! them.
//!
//! A frontend whose command was in flight when [`DEATHS_MAX`] (3) causewayds ended is disconnected,
//! because the command probably ended them. After a restart the set-up of all frontends is replayed
//! at about the same time, and an adapter whose recorded state ends causewayd does so while
//! commands of other frontends are in flight. An end during the replay of another frontend
//! therefore counts apart, up to [`SHARED_DEATHS_MAX`] (12): each adapter with such a state ends
//! causewayd once, because the next causewayd discards the record, and a command that ends
//! causewayd only during replays is still found.
//!
//! A vhost-user relay ([`crate::relay`]) has one [`Deaths`] for its pending message, a vfio-user
//! relay ([`crate::vfio::relay`]) one for each command in flight; an answer of causewayd ends the
//! count. Relays count each end of a connection to causewayd, whatever its cause. [`Replays`] is
//! shared by the threads of all relays of a holder; each reports the begin and end of its replay by
//! [`crate::route::RouteWatch`]. The module disconnects nothing, and no call blocks.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::limits::{DEATHS_MAX, SHARED_DEATHS_MAX};

/// The replays of all frontends of a holder.
#[derive(Debug, Default)]
pub struct Replays {
    /// Replays in progress.
    active: AtomicUsize,
    /// The last generation of causewayd that ended during a replay.
    ended: AtomicU64,
}

impl Replays {
    /// Notes the begin of a replay.
    pub fn begin(&self) {
        self.active.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes the end of a replay, with the generation of causewayd if causewayd ended before.
    pub fn end(&self, ended: Option<u64>) {
        // First, so that a relay that finds no replay in progress finds the generation.
        if let Some(generation) = ended {
            self.ended.fetch_max(generation, Ordering::AcqRel);
        }
        self.active.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns whether a generation of causewayd that has just ended did so during a replay of any
    /// frontend.
    pub fn include_end_of(&self, generation: u64) -> bool {
        self.active.load(Ordering::Acquire) > 0 || self.ended.load(Ordering::Acquire) == generation
    }
}

/// The number of causewayds that ended while one command was in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deaths {
    /// Ends while no other frontend was replayed.
    alone: u32,
    /// Ends during the replay of another frontend.
    shared: u32,
}

impl Deaths {
    /// Counts an end of causewayd; `is_shared`: another frontend's set-up was replayed meanwhile.
    pub fn count(&mut self, is_shared: bool) {
        let count = if is_shared { &mut self.shared } else { &mut self.alone };
        *count = count.saturating_add(1);
    }

    /// Returns whether the command has reached a limit: its frontend must be disconnected.
    pub fn are_too_many(&self) -> bool {
        self.alone >= DEATHS_MAX || self.shared >= SHARED_DEATHS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_during_replays_of_others_are_bounded_apart() {
        let mut deaths = Deaths::default();
        (1..DEATHS_MAX).for_each(|_| deaths.count(false));
        (1..SHARED_DEATHS_MAX).for_each(|_| deaths.count(true));
        assert!(!deaths.are_too_many());
        let (mut alone, mut shared) = (deaths, deaths);
        alone.count(false);
        shared.count(true);
        assert!(alone.are_too_many() && shared.are_too_many());
    }

    #[test]
    fn deaths_of_a_generation_belong_to_its_replays() {
        let replays = Replays::default();
        replays.begin();
        assert!(replays.include_end_of(3), "a replay in progress");
        replays.begin();
        replays.end(None);
        replays.end(Some(3));
        assert!(replays.include_end_of(3) && !replays.include_end_of(4));
    }
}
