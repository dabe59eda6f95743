//! The group's policy, as the adapters' shard applies it.
//!
//! The forwarding service publishes the policy in a cell (`fabric::station`). [`GroupPolicy`] reads
//! the state of the cell, one load, before each call that executes work of an adapter, and after a
//! change gives the rules to the subnet: queue pairs, datagrams and multicast then obey them. For
//! frames, [`crate::switch`] reads the state before each frame. So a change applies to frames that
//! are sent after the operator's command returned, and to messages from the next turn on.

use std::sync::Arc;

use causeway_fabric::station::{Denial, PolicyCell, PolicyState, StationPolicy};
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

/// The policy of a group and the state that the subnet has.
#[derive(Debug, Default)]
pub(crate) struct GroupPolicy {
    cell: PolicyCell,
    adopted: PolicyState,
}

impl GroupPolicy {
    /// Returns the cell in which the forwarding service publishes.
    pub(crate) fn cell(&self) -> PolicyCell {
        self.cell.clone()
    }

    /// Returns whether frames between two adapters may go directly.
    #[inline]
    pub(crate) fn is_direct(&self) -> bool {
        self.cell.state().is_direct()
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
