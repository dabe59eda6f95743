//! Chains that are reused for frames which wait (`crate::pending`, `crate::resume`), so that the
//! memory of a waiting frame is allocated once. At most [`PENDING_PER_QUEUE_MAX`] are kept.

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
