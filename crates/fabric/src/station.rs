//! Stations: members of a group that another service serves, and the group's policy for them.
//!
//! A station is a port of another service (an adapter of a guest) that joins the service that
//! forwards the group's frames with a [`Membership`](crate::carrier::Membership) of its own. Like a
//! port, and unlike a link, it has one address and the name of its port: routes and captures name
//! the port, no other member may send from the address, and frames to unknown addresses do not go
//! there.
//!
//! The two services may run in different threads. The forwarding service publishes the group's
//! policy in a [`PolicyCell`], which the service of the stations reads: whether frames between two
//! stations may skip the forwarding service ([`PolicyState::is_direct`]), and which stations may
//! reach each other at all ([`StationPolicy`]). A cell is not direct until its first publication.
//! The state is one atomic word, which costs a reader one load; only a reader that found a changed
//! state takes the lock of the policy. A writer stores the policy before the state, so that a
//! reader that found a state finds its policy, or a later one.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use causeway_model::Mac;

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
    /// The only address from which the station sends.
    pub address: Mac,
    /// Cell in which the forwarding service publishes the group's policy.
    pub policy: PolicyCell,
}

/// Version of a group's policy. Any two publications have different states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PolicyState(u64);

/// Bit of a state: frames between stations may skip the forwarding service.
const DIRECT: u64 = 1;
/// Difference of the states of two publications.
const STEP: u64 = 2;

impl PolicyState {
    /// Returns whether frames between two stations may skip the forwarding service, because the
    /// service neither filters nor observes them.
    #[inline]
    pub const fn is_direct(self) -> bool {
        self.0 & DIRECT != 0
    }
}

/// The policy of a group, shared by the service that publishes it and the service of the stations.
#[derive(Debug, Clone, Default)]
pub struct PolicyCell(Arc<Published>);

/// The published values.
#[derive(Debug, Default)]
struct Published {
    state: AtomicU64,
    /// `None` if all stations may reach each other.
    policy: Mutex<Option<Arc<dyn StationPolicy>>>,
}

impl PolicyCell {
    /// Publishes a policy; `None` denies nothing. One thread at a time publishes.
    pub fn publish(&self, is_direct: bool, policy: Option<Arc<dyn StationPolicy>>) {
        *self.0.policy.lock().unwrap_or_else(PoisonError::into_inner) = policy;
        let last = self.0.state.load(Ordering::Relaxed) & !DIRECT;
        let state = last.wrapping_add(STEP) | u64::from(is_direct);
        self.0.state.store(state, Ordering::Release);
    }

    /// Returns the state of the latest publication.
    #[inline]
    pub fn state(&self) -> PolicyState {
        PolicyState(self.0.state.load(Ordering::Acquire))
    }

    /// Returns the policy. `None` denies nothing.
    pub fn policy(&self) -> Option<Arc<dyn StationPolicy>> {
        self.0.policy.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        assert!(!first.is_direct() && reader.policy().is_none(), "nothing was published");
        cell.publish(true, None);
        let second = reader.state();
        assert!(second.is_direct() && second != first);
        cell.publish(true, None);
        assert_ne!(reader.state(), second);
        cell.publish(false, Some(Arc::new(Closed)));
        assert!(!reader.state().is_direct());
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        assert_eq!(reader.policy().unwrap().check(mac, mac, mac), Err(Denial::NoRoute));
    }
}
