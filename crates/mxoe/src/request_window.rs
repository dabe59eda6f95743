//! How much of what a peer offers is asked for at a time: more while nothing is lost.

use crate::limits::BLOCKS_ASKED;

/// Blocks that may be asked for and not be there, of all pulls from one peer.
///
/// As TCP does it (RFC 5681): a block more for each that comes, from the first loss on a block
/// more for as many as there are, and half of them after a loss.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestWindow {
    blocks: usize,
    /// Up to here it grows with each block.
    steep: usize,
    /// Blocks that came since it grew last.
    came: usize,
    /// Until then, what is lost was lost before it was halved.
    halved_until: u64,
}

impl RequestWindow {
    /// Nothing is known yet.
    pub(crate) const fn new() -> Self {
        let (first, _, most) = BLOCKS_ASKED;
        Self { blocks: first, steep: most, came: 0, halved_until: 0 }
    }

    /// How many there may be now.
    pub(crate) const fn blocks(&self) -> usize {
        self.blocks
    }

    /// A block came that was asked for once.
    pub(crate) fn came(&mut self) {
        let (_, _, most) = BLOCKS_ASKED;
        self.came = self.came.saturating_add(1);
        if self.blocks < self.steep || self.came >= self.blocks {
            self.blocks = self.blocks.saturating_add(1).min(most);
            self.came = 0;
        }
    }

    /// Something was lost; `trip_ns` is how long a block takes.
    pub(crate) fn lost(&mut self, now: u64, trip_ns: u64) {
        if now < self.halved_until {
            return;
        }
        let (_, least, _) = BLOCKS_ASKED;
        self.halved_until = now.saturating_add(trip_ns.max(1));
        self.blocks = self.blocks.wrapping_shr(1).max(least);
        (self.steep, self.came) = (self.blocks, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_while_nothing_is_lost_and_is_halved_once_for_a_round_trip() {
        let (first, least, most) = BLOCKS_ASKED;
        let mut breadth = RequestWindow::new();
        assert_eq!(breadth.blocks(), first);
        (first..most).for_each(|_| breadth.came());
        assert_eq!(breadth.blocks(), most);
        (0..1000).for_each(|_| breadth.came());
        assert_eq!(breadth.blocks(), most, "no more than that");
        breadth.lost(100, 50);
        breadth.lost(149, 50);
        assert_eq!(breadth.blocks(), most / 2, "one loss");
        (1..most / 2).for_each(|_| breadth.came());
        assert_eq!(breadth.blocks(), most / 2, "slowly now");
        breadth.came();
        assert_eq!(breadth.blocks(), most / 2 + 1);
        (2..20).for_each(|at| breadth.lost(at * 100, 50));
        assert_eq!(breadth.blocks(), least);
    }
}
