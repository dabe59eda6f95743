//! The request window of pulls: how many blocks of a peer are requested at the same time.
//!
//! The window has 4 blocks at first, at least 2 after a loss, and at most 32
//! ([`BLOCKS_REQUESTED`]); a block has up to eight frames. It is shared by all pulls from one peer,
//! and independent of the congestion window for messages to the peer. Losses within one round trip
//! count as one loss.
//!
//! The window neither detects losses nor sends requests: [`pull`](crate::pull) does, and reports
//! both arrivals and losses here. Initial value and bounds are constants; the state is one per
//! peer, in [`peer`](crate::peer), and starts anew with the peer. The caller reports only blocks
//! that were requested once ([`RequestWindow::arrived`]) and reads [`RequestWindow::blocks`] before
//! each request; a window below the blocks in flight cancels none. All on the thread of the NIC.

use crate::limits::{BLOCKS_REQUESTED, WindowLimits};

/// Maximum number of requested blocks that have not arrived, for all pulls from one peer.
///
/// Congestion control as in RFC 5681: slow start until the first loss, then congestion avoidance; a
/// loss halves the window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestWindow {
    /// Current window, in blocks.
    blocks: usize,
    /// Slow start threshold in blocks.
    threshold: usize,
    /// Blocks that arrived since the window grew.
    arrived_since: usize,
    /// Losses before this time belong to the loss that halved the window.
    halved_until: u64,
}

impl RequestWindow {
    /// Creates the initial window.
    pub(crate) const fn new() -> Self {
        let WindowLimits { initial, most, .. } = BLOCKS_REQUESTED;
        Self { blocks: initial, threshold: most, arrived_since: 0, halved_until: 0 }
    }

    /// Returns the window in blocks.
    pub(crate) const fn blocks(&self) -> usize {
        self.blocks
    }

    /// Records the arrival of a block that was requested once.
    pub(crate) fn arrived(&mut self) {
        self.arrived_since = self.arrived_since.saturating_add(1);
        if self.blocks < self.threshold || self.arrived_since >= self.blocks {
            self.blocks = self.blocks.saturating_add(1).min(BLOCKS_REQUESTED.most);
            self.arrived_since = 0;
        }
    }

    /// Records a loss. `trip_ns` is the round trip of a block.
    pub(crate) fn lost(&mut self, now: u64, trip_ns: u64) {
        if now < self.halved_until {
            return;
        }
        self.halved_until = now.saturating_add(trip_ns.max(1));
        self.blocks = self.blocks.wrapping_shr(1).max(BLOCKS_REQUESTED.least);
        (self.threshold, self.arrived_since) = (self.blocks, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_window_grows_and_is_halved_once_for_a_round_trip() {
        let WindowLimits { initial: first, least, most } = BLOCKS_REQUESTED;
        let mut window = RequestWindow::new();
        assert_eq!(window.blocks(), first);
        (first..most).for_each(|_| window.arrived());
        assert_eq!(window.blocks(), most);
        (0..1000).for_each(|_| window.arrived());
        assert_eq!(window.blocks(), most, "the maximum is kept");
        window.lost(100, 50);
        window.lost(149, 50);
        assert_eq!(window.blocks(), most / 2, "both belong to one loss");
        (1..most / 2).for_each(|_| window.arrived());
        assert_eq!(window.blocks(), most / 2, "congestion avoidance is slower");
        window.arrived();
        assert_eq!(window.blocks(), most / 2 + 1);
        (2..20).for_each(|at| window.lost(at * 100, 50));
        assert_eq!(window.blocks(), least);
    }
}
