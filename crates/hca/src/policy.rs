//! The group's policy, as the adapters' shard applies it.
//!
//! The forwarding service (`ethernet`) publishes the policy in a cell (`fabric::station`), in its
//! own thread. The adapters' shard, in its dispatcher's thread, reads the state of the cell, one
//! load: `crate::call` in each call of a port, before its work ([`GroupPolicy::adopt`]), which
//! after a change gives the rules to the subnet, so that queue pairs, datagrams and multicast obey
//! them; and [`crate::switch`] for each frame ([`GroupPolicy::is_direct`],
//! [`GroupPolicy::is_open`]). So a change applies to frames that are sent after the operator's
//! command returned, and to messages from the next call on. `crate::trace` asks for the decision
//! alone ([`GroupPolicy::check`]).
//!
//! The module decides only. The engine makes a denied request of a reliable connection wait as
//! unanswered and loses a denied datagram (`verbs::policy`); a frame that may not go directly goes
//! to the forwarding service, which drops it if its rules say so. Before the first publication no
//! frame goes directly. In a daemon without a forwarding service no value exists, and every adapter
//! reaches every other.

use std::sync::Arc;

use causeway_fabric::station::{Denial, FramePath, PolicyCell, PolicyState, StationPolicy};
use causeway_mlx5::Function;
use causeway_model::Mac;
use causeway_verbs::{Subnet, policy};

/// The rules of the group, for the subnet.
#[derive(Debug)]
struct SubnetPolicy(Arc<dyn StationPolicy>);

impl policy::Policy for SubnetPolicy {
    fn check(
        &self,
        source: [u8; 6],
        destination: [u8; 6],
        receiver: [u8; 6],
    ) -> Result<(), policy::Denial> {
        self.0.check(Mac(source), Mac(destination), Mac(receiver)).map_err(|denial| match denial {
            Denial::Route(number) => policy::Denial::Route(number),
            Denial::NoRoute => policy::Denial::NoRoute,
        })
    }
}

/// The policy of a group, and the states of it that the subnet and the switch have.
#[derive(Debug, Default)]
pub(crate) struct GroupPolicy {
    cell: PolicyCell,
    /// The state that the subnet has.
    adopted: PolicyState,
    /// The state whose observed stations are `observed`.
    observed_state: PolicyState,
    observed: Arc<[Mac]>,
}

impl GroupPolicy {
    /// Returns the cell in which the forwarding service publishes.
    pub(crate) fn cell(&self) -> PolicyCell {
        self.cell.clone()
    }

    /// Returns whether a frame between two adapters may go directly.
    #[inline]
    pub(crate) fn is_direct(&mut self, source: [u8; 6], destination: [u8; 6]) -> bool {
        let state = self.cell.state();
        match state.frames() {
            FramePath::Direct => true,
            FramePath::Service => false,
            FramePath::Unobserved => !self.is_observed(state, source, destination),
        }
    }

    /// Returns whether all frames between adapters may go directly.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.cell.state().frames() == FramePath::Direct
    }

    /// Returns whether a capture observes the sender or the receiver of a frame.
    #[cold]
    fn is_observed(&mut self, state: PolicyState, source: [u8; 6], destination: [u8; 6]) -> bool {
        if state != self.observed_state {
            // The list is read after the state: a later change has a later state.
            self.observed_state = state;
            self.observed = self.cell.observed();
        }
        self.observed.iter().any(|mac| mac.0 == source || mac.0 == destination)
    }

    /// Decides whether the present rules admit traffic of an adapter to another.
    ///
    /// # Errors
    /// The denial.
    pub(crate) fn check(
        &self,
        source: [u8; 6],
        destination: [u8; 6],
    ) -> Result<(), policy::Denial> {
        let rules = self.cell.policy().filter(|_| source != destination).map(SubnetPolicy);
        rules
            .map_or(Ok(()), |rules| policy::Policy::check(&rules, source, destination, destination))
    }

    /// Gives the subnet the rules if they have changed.
    #[inline]
    pub(crate) fn adopt(&mut self, subnet: &mut Subnet<Function>) {
        let state = self.cell.state();
        if state != self.adopted {
            // The rules are read after the state: a later change has a later state.
            self.adopted = state;
            self.set(subnet);
        }
    }

    #[cold]
    fn set(&self, subnet: &mut Subnet<Function>) {
        let rules = self.cell.policy().map(SubnetPolicy);
        subnet.set_policy(rules.map(|rules| Box::new(rules) as Box<dyn policy::Policy>));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_sends_frames_of_observed_adapters_only_to_the_service() {
        let mut policy = GroupPolicy::default();
        let mac = |number| [2, 0, 0, 0, 0, number];
        let cell = policy.cell();
        let mut direct =
            |pairs: [(u8, u8); 3]| pairs.map(|(from, to)| policy.is_direct(mac(from), mac(to)));
        let pairs = [(1, 2), (1, 3), (3, 2)];
        assert_eq!(direct(pairs), [false; 3], "nothing was published");
        cell.publish(None, Arc::default());
        assert_eq!(direct(pairs), [true; 3]);
        cell.publish(None, [Mac(mac(3))].into());
        assert_eq!(direct(pairs), [true, false, false]);
        cell.publish(None, [Mac(mac(1))].into());
        assert_eq!(direct(pairs), [false, false, true]);
        cell.publish(None, Arc::default());
        assert_eq!(direct(pairs), [true; 3]);
    }
}
