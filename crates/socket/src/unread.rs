//! Packets that a receiver's kernel still queues, by its own accounting. Free of I/O.
//!
//! Linux queues each packet in its own `sk_buff`, and refuses a packet that would take the overhead
//! of its queue beyond `buf_alloc` (`virtio_transport_inc_rx_pkt`); the connection then loses data
//! or dies although credit in bytes was left. The service therefore holds packets back before that
//! limit: at most `buf_alloc` / [`SKB_OVERHEAD_BYTES`] (576) packets are unread, and at least 1.
//!
//! Each side of a connection has an [`Unread`]: delivery adds packets, credit of the side consumes
//! them ([`crate::conn`]), and `crate::deliver` and `crate::transmit` ask for credit once more than
//! half of the room is used. The count is an upper bound: packets that the kernel merged, and
//! packets of a run that was consumed in part, count as unread. At most [`UNREAD_RUNS_MAX`] (64)
//! runs are kept; the count itself has no limit. The module does not know kernels with another
//! accounting: their guests are held back by the same count. It runs in the dispatcher's thread
//! that owns the connection.

use std::collections::VecDeque;

use crate::limits::{SKB_OVERHEAD_BYTES, UNREAD_RUNS_MAX};

/// Consecutive packets, up to the byte count at which the last packet ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// Bytes delivered up to its end, modulo 2^32.
    end: u32,
    /// Packets in the run.
    packets: u32,
}

/// The unconsumed packets of one direction of a connection, in bounded memory: runs are merged in
/// pairs, and a run counts as consumed only as a whole.
#[derive(Debug, Default)]
pub struct Unread {
    /// Runs, the oldest first.
    runs: VecDeque<Run>,
    /// Unconsumed packets of all runs.
    packets: u32,
    /// Bytes delivered, modulo 2^32.
    delivered: u32,
    /// Packets were added since [`Self::is_high`] last returned true.
    grown: bool,
}

impl Unread {
    /// Counts a delivered packet of `bytes`.
    pub fn add(&mut self, bytes: u32) {
        self.delivered = self.delivered.wrapping_add(bytes);
        self.packets = self.packets.saturating_add(1);
        self.grown = true;
        if self.runs.len() >= UNREAD_RUNS_MAX {
            self.merge();
        }
        self.runs.push_back(Run { end: self.delivered, packets: 1 });
    }

    /// Merges runs in pairs, so that half as many remain.
    fn merge(&mut self) {
        let runs = std::mem::take(&mut self.runs);
        let mut old = runs.into_iter();
        while let Some(first) = old.next() {
            let run = old.next().map_or(first, |second| Run {
                end: second.end,
                packets: first.packets.saturating_add(second.packets),
            });
            self.runs.push_back(run);
        }
    }

    /// Records that the receiver has consumed all bytes up to `fwd_cnt`. Returns the number of
    /// packets that this consumed.
    pub fn consume(&mut self, fwd_cnt: u32) -> u32 {
        let before = self.packets;
        while let Some(run) = self.runs.front() {
            // An end less than half the counter range ahead of `fwd_cnt` is not consumed.
            let ahead = run.end.wrapping_sub(fwd_cnt);
            if ahead != 0 && ahead <= u32::MAX / 2 {
                break;
            }
            self.packets = self.packets.saturating_sub(run.packets);
            self.runs.pop_front();
        }
        before.saturating_sub(self.packets)
    }

    /// Returns the packets that a receiver with a buffer of `buf_alloc` bytes still accepts. The
    /// first packet is always accepted.
    pub fn room(&self, buf_alloc: u32) -> usize {
        let most = (buf_alloc / SKB_OVERHEAD_BYTES).max(1);
        most.saturating_sub(self.packets) as usize
    }

    /// Returns whether half of the receiver's room is used and packets were added since it last
    /// returned true: a credit request is then worth its cost.
    pub fn is_high(&mut self, buf_alloc: u32) -> bool {
        let high = self.grown && self.packets > buf_alloc / SKB_OVERHEAD_BYTES / 2;
        self.grown &= !high;
        high
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unread_default_buffer_accepts_as_many_packets_as_linux() {
        let mut unread = Unread::default();
        let taken = (0..1000).take_while(|_| {
            let room = unread.room(256 << 10) > 0;
            unread.add(1);
            room
        });
        assert_eq!(taken.count(), 455);
        assert_eq!(unread.consume(456), 456);
        assert_eq!(unread.room(256 << 10), 455);
        assert_eq!(unread.room(0), 1, "a first packet is taken whatever the buffer");
    }

    proptest! {
        /// Never fewer than the exact count, for all sizes and starting points; zero once all is
        /// consumed.
        #[test]
        fn counts_no_packet_as_consumed_too_early(
            start: u32,
            steps in prop::collection::vec((0_u32..5000, 0_u32..3, any::<bool>()), 1..600),
        ) {
            let mut unread = Unread { delivered: start, ..Unread::default() };
            let mut exact = VecDeque::new();
            let (mut delivered, mut consumed) = (0_u64, 0_u64);
            for (bytes, part, consume) in steps {
                delivered += u64::from(bytes);
                exact.push_back(delivered);
                unread.add(bytes);
                if consume {
                    consumed += (delivered - consumed) * u64::from(part) / 3;
                    unread.consume(start.wrapping_add(consumed as u32));
                    while exact.front().is_some_and(|end| *end <= consumed) {
                        exact.pop_front();
                    }
                }
                prop_assert!(unread.packets as usize >= exact.len());
                prop_assert!(unread.runs.len() <= UNREAD_RUNS_MAX);
            }
            unread.consume(start.wrapping_add(delivered as u32));
            prop_assert_eq!(unread.packets, 0);
        }
    }
}
