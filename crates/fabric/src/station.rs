//! Stations: members of a group that another service serves, and the group's policy for them.
//!
//! A station is a port of another service (an adapter of a guest in `hca`, a port of `stream` or
//! `tap`) that joins the service that forwards the group's frames with a
//! [`Membership`](crate::carrier::Membership) of its own. Like a port, and unlike a link, it has
//! one address and the name of its port: routes and captures name the port, no other member may
//! send from the address, and frames to unknown addresses do not go there, unless the station
//! stands for several addresses ([`Station::learns`]).
//!
//! The two services may run in different threads. The forwarding service publishes the group's
//! policy in a [`PolicyCell`], which `hca` reads: which stations may reach each other at all
//! ([`StationPolicy`]), and which frames between two stations may skip the forwarding service
//! ([`FramePath`]): with a policy none; else all but those of stations that are observed by a
//! capture. Before the first publication none may. All frames of `stream` and `tap` pass the
//! forwarding service. The state of the cell is one atomic word, which costs a reader one load;
//! only a reader that found a changed state takes the lock of the values. A writer stores the
//! values before the state, so that a reader that found a state finds its values, or later ones.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_model::Mac;

use crate::link_id::LinkId;

/// First identifier of stations; the link service counts from 1.
const FIRST_STATION: u32 = 1 << 31;

/// Returns an identifier for a new station, different from those of all other stations and links of
/// the process.
pub fn next_id() -> LinkId {
    static JOINED: AtomicU32 = AtomicU32::new(0);
    LinkId(FIRST_STATION | JOINED.fetch_add(1, Ordering::Relaxed))
}

/// Why traffic between two stations is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Denial {
    /// The route of this number matches, and does not lead to the receiver.
    Route(u64),
    /// The group forwards by routes, and no route matches.
    NoRoute,
}

/// The rules of a group for traffic between its stations, at one time.
pub trait StationPolicy: Send + Sync + fmt::Debug {
    /// Decides whether traffic of station `source` to the address `destination` reaches station
    /// `receiver`. The two addresses differ for multicast.
    ///
    /// # Errors
    /// The [`Denial`].
    fn check(&self, source: Mac, destination: Mac, receiver: Mac) -> Result<(), Denial>;
}

/// The values with which a station is a member.
#[derive(Debug, Clone)]
pub struct Station {
    /// The address of the station; the only address from which it sends unless it `learns`.
    pub address: Mac,
    /// Whether further addresses are behind the station, which are learnt from its frames: frames
    /// to unknown addresses go there too.
    pub learns: bool,
    /// Cell in which the forwarding service publishes the group's policy.
    pub policy: PolicyCell,
}

/// Version of a group's policy. Any two publications have different states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PolicyState(u64);

/// Bit of a state: frames between stations may skip the forwarding service.
const DIRECT: u64 = 1;
/// Bit of a state: frames may skip it if neither of their stations is observed.
const OBSERVED: u64 = 2;
/// Difference of the states of two publications.
const STEP: u64 = 4;

/// The frames between stations that may skip the forwarding service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FramePath {
    /// None: the service filters them.
    Service,
    /// Those of stations that are not among [`PolicyCell::observed`].
    Unobserved,
    /// All.
    Direct,
}

impl PolicyState {
    /// Returns which frames between two stations may skip the forwarding service.
    #[inline]
    pub const fn frames(self) -> FramePath {
        match self.0 & (DIRECT | OBSERVED) {
            DIRECT => FramePath::Direct,
            OBSERVED => FramePath::Unobserved,
            _ => FramePath::Service,
        }
    }
}

/// The policy of a group, shared by the service that publishes it and the service of the stations.
#[derive(Debug, Clone, Default)]
pub struct PolicyCell(Arc<Published>);

/// The published values.
#[derive(Debug, Default)]
struct Published {
    state: AtomicU64,
    values: Mutex<Values>,
}

/// The values behind a state.
#[derive(Debug, Default)]
struct Values {
    /// `None` if all stations may reach each other.
    policy: Option<Arc<dyn StationPolicy>>,
    /// Addresses of stations with a capture.
    observed: Arc<[Mac]>,
}

impl PolicyCell {
    /// Publishes a policy (`None` denies nothing) and the addresses of observed stations. One
    /// thread at a time publishes.
    pub fn publish(&self, policy: Option<Arc<dyn StationPolicy>>, observed: Arc<[Mac]>) {
        let path = match (policy.is_none(), observed.is_empty()) {
            (true, true) => DIRECT,
            (true, false) => OBSERVED,
            (false, _) => 0,
        };
        *self.values() = Values { policy, observed };
        let last = self.0.state.load(Ordering::Relaxed) & !(DIRECT | OBSERVED);
        self.0.state.store(last.wrapping_add(STEP) | path, Ordering::Release);
    }

    fn values(&self) -> MutexGuard<'_, Values> {
        self.0.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state of the latest publication.
    #[inline]
    pub fn state(&self) -> PolicyState {
        PolicyState(self.0.state.load(Ordering::Acquire))
    }

    /// Returns the policy. `None` denies nothing.
    pub fn policy(&self) -> Option<Arc<dyn StationPolicy>> {
        self.values().policy.clone()
    }

    /// Returns the addresses of the observed stations.
    pub fn observed(&self) -> Arc<[Mac]> {
        self.values().observed.clone()
    }

    /// Returns whether `other` is the same cell.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Closed;

    impl StationPolicy for Closed {
        fn check(&self, _: Mac, _: Mac, _: Mac) -> Result<(), Denial> {
            Err(Denial::NoRoute)
        }
    }

    #[test]
    fn station_policy_changes_its_state_with_each_publication() {
        let cell = PolicyCell::default();
        let reader = cell.clone();
        let first = reader.state();
        assert_eq!(first.frames(), FramePath::Service, "nothing was published");
        assert!(reader.policy().is_none());
        cell.publish(None, Arc::default());
        let second = reader.state();
        assert!(second.frames() == FramePath::Direct && second != first);
        cell.publish(None, Arc::default());
        assert_ne!(reader.state(), second);
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        cell.publish(None, [mac].into());
        assert_eq!(reader.state().frames(), FramePath::Unobserved);
        assert_eq!(*reader.observed(), [mac]);
        cell.publish(Some(Arc::new(Closed)), [mac].into());
        assert_eq!(reader.state().frames(), FramePath::Service);
        assert_eq!(reader.policy().unwrap().check(mac, mac, mac), Err(Denial::NoRoute));
    }
}
