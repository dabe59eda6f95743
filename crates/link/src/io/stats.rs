//! Counters of one link, shared by the shard that sends and the shard that receives.
//!
//! Counters are relaxed atomics: a view may be a few frames old, its counters may not add up, and
//! it never blocks a sender. The carriers count sent and refused frames in the threads of the
//! groups (except the carrier of a link that is not open, `ClosedCarrier`); in the shard of links
//! `LinkInbox` counts received frames and drops at a full mailbox, the sources count the received
//! frames that they refuse (runts, congestion, lost framing), streams count their writes there and
//! the frames that were queued at the end of a connection, and `super::view` reads. Datagrams that
//! the core drops are counted by [`crate::refusal`], drops inside the group by `ethernet`, which
//! also counts each frame that a carrier refused, at its sender. Counters wrap at 2^64, begin at 0
//! when the link is added, and are kept while it is reopened.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_model::{CounterDefinition, CounterTable, drop_reasons};

use crate::refusal::Refusal;

drop_reasons! {
    /// Why a frame, or a datagram, was dropped.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Loss {
        /// The kernel's send buffer, or the queue of a stream, was full.
        NoRoom => "no_room",
        /// The host refused to send: no route, or a closed port at the peer.
        Unreachable => "unreachable",
        /// The frame is longer than the link carries (either direction), the host refused the
        /// datagram as too long, or a frame for a stream is shorter than an Ethernet header.
        TooBig => "too_big",
        /// The link was down, or went down while the frame was queued. The frames of a datagram
        /// that a used-up session cannot seal count once together.
        Down => "down",
        /// The sender's memory was unmapped while the frame was read.
        SenderFault => "sender_fault",
        /// The group's mailbox was full.
        Busy => "group_busy",
        /// The received frame is shorter than an Ethernet header.
        Runt => "runt",
        /// A stream lost its framing: its connection was closed.
        OutOfStep => "out_of_step",
        /// A MAC control frame (PAUSE), which no guest may send to the physical network.
        MacControl => "mac_control",
        /// The outer header of a `vnet` or `vxlan` datagram reports congestion for a frame whose
        /// transport is Not-ECT (RFC 6040); tunnels count such a frame among their refusals.
        Congestion => "congestion",
    }
}

/// Names and meanings of the counters beside the drops, in the order of [`LinkStats::plain`].
const PLAIN: &[CounterDefinition] = &[
    ("receive_packets_total", "Frames received from the peer."),
    ("receive_bytes_total", "Bytes of the frames received from the peer."),
    ("transmit_packets_total", "Frames sent to the peer."),
    ("transmit_bytes_total", "Bytes of the frames sent to the peer."),
    ("transmit_datagrams_total", "Datagrams or records that carried the sent frames."),
];

/// Values that the view of a link adds (`super::view`).
const VIEW: &[CounterDefinition] = &[
    ("connections_failed_total", "Connections to the peer that failed."),
    ("handshakes_total", "Completed handshakes with the peer."),
    ("addresses_told", "Addresses that this host advertises to the peer."),
    ("addresses_heard", "Addresses that the peer advertises."),
    (
        "addresses_foreign_total",
        "Addresses of the peer that a verified claim of the cluster gives to another host: not followed.",
    ),
    ("fragmented_frames", "Incomplete frames whose fragments are kept."),
    (
        "segments_cut",
        "1 while the tunnel cuts long segments because its path loses packets, else 0.",
    ),
    ("waiting_frames", "Frames that wait for the session of a dormant link."),
    (
        "drop_unanswered_total",
        "Frames that waited for the session of a dormant link and were dropped, because the peer did not answer.",
    ),
    ("standby", "1 while another daemon forwards for the link's network segment, else 0."),
];

/// Names and meanings of all counters, for the registration of the service.
pub(crate) const TABLES: &[CounterTable] = &[
    CounterTable::of_links(PLAIN),
    CounterTable::of_links(Loss::COUNTERS),
    CounterTable::of_links(Refusal::COUNTERS),
    CounterTable::of_links(VIEW),
];

/// The counters of one link. They wrap at 2^64. Directions are this host's: "transmit" counts
/// frames to the peer.
#[derive(Debug, Default)]
pub struct LinkStats {
    /// Frames sent to the peer.
    transmit: DirectionStats,
    /// Frames received from the peer, also those that the mailbox then refused.
    receive: DirectionStats,
    /// Datagrams or records that carried the sent frames.
    transmit_datagrams: AtomicU64,
    /// By [`Loss`], in the order of [`Loss::ALL`].
    losses: [AtomicU64; Loss::ALL.len()],
}

/// Frames and bytes in one direction.
#[derive(Debug, Default)]
struct DirectionStats {
    /// Frames.
    packets: AtomicU64,
    /// Bytes of these frames.
    bytes: AtomicU64,
}

impl DirectionStats {
    fn add(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl LinkStats {
    /// Counts frames sent, their bytes (0 for a batch of which the host refused a part), and the
    /// datagrams, records or write calls that carried them.
    pub fn add_transmitted(&self, frames: u64, bytes: u64, datagrams: u64) {
        self.transmit.add(frames, bytes);
        self.transmit_datagrams.fetch_add(datagrams, Ordering::Relaxed);
    }

    /// Counts frames received, and their bytes.
    pub fn add_received(&self, frames: u64, bytes: u64) {
        self.receive.add(frames, bytes);
    }

    /// Counts dropped frames.
    pub fn add_drops(&self, why: Loss, count: u64) {
        if let Some(cell) = self.losses.get(why as usize) {
            cell.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Returns the counters in [`PLAIN`].
    fn plain(&self) -> [&AtomicU64; PLAIN.len()] {
        let Self { transmit, receive, transmit_datagrams, .. } = self;
        [&receive.packets, &receive.bytes, &transmit.packets, &transmit.bytes, transmit_datagrams]
    }

    /// Returns all counters by name, as `causeway link show` prints them.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let cells = self.plain().into_iter().chain(&self.losses);
        let named = PLAIN.iter().chain(Loss::COUNTERS).zip(cells);
        named.map(|((name, _), cell)| ((*name).to_owned(), cell.load(Ordering::Relaxed))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_have_a_counter_per_loss() {
        let stats = LinkStats::default();
        for (index, why) in Loss::ALL.iter().copied().enumerate() {
            assert_eq!(why as usize, index);
            stats.add_drops(why, index as u64 + 1);
        }
        stats.add_transmitted(2, 100, 1);
        let names = stats.by_name();
        assert_eq!(names.len(), 5 + Loss::ALL.len());
        assert_eq!((names["drop_no_room_total"], names["drop_runt_total"]), (1, 7));
        assert_eq!((names["transmit_packets_total"], names["transmit_datagrams_total"]), (2, 1));
    }
}
