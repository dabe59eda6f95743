//! Chains that are reused for frames which wait, so that the memory of a waiting frame is allocated
//! once.
//!
//! `crate::pending` and `crate::resume` copy the chain of a frame that must wait
//! ([`SpareChains::copy_of`]), and put the copy back when the frame is delivered or dropped. At
//! most [`PENDING_PER_QUEUE_MAX`] (1,024) unused chains are kept for the group; further chains are
//! freed, and without one a new one is allocated. A chain is a list of guest addresses: the module
//! neither reads guest memory nor returns a chain to its ring. All of it runs in the dispatcher's
//! thread of the group.

use causeway_ring::Chain;

use crate::limits::PENDING_PER_QUEUE_MAX;

/// Unused chains with their capacity.
#[derive(Debug, Default)]
pub(crate) struct SpareChains(Vec<Chain>);

impl SpareChains {
    /// Returns a copy of a popped chain. The popped chain itself may own room for the longest chain ever
    /// seen.
    pub(crate) fn copy_of(&mut self, popped: &Chain) -> Chain {
        let mut chain = self.0.pop().unwrap_or_default();
        chain.copy_from(popped);
        chain
    }

    /// Takes a chain back that is not needed any more.
    pub(crate) fn put(&mut self, chain: Chain) {
        if self.0.len() < PENDING_PER_QUEUE_MAX {
            self.0.push(chain);
        }
    }
}
