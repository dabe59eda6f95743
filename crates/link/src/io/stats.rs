//! Counters of one link, shared by the shard that sends and the shard that receives.
//!
//! Counters are relaxed atomics: a view may be a few frames old, its counters may not add up, and
//! it never blocks a sender. The carriers count sent and refused frames in the threads of the
//! groups (except the carrier of a link that is not open, `ClosedCarrier`), `LinkInbox` received
//! frames and drops at a full mailbox in the shard of links; `super::view` reads there. Datagrams
//! that the core drops are counted by [`crate::refusal`], drops inside the group by `ethernet`,
//! which also counts each frame that a carrier refused, at its sender. Counters wrap at 2^64, begin
//! at 0 when the link is added, and are kept while it is reopened.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a frame, or a datagram, was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The kernel's send buffer, or the queue of a stream, was full.
    NoRoom,
    /// The host refused to send: no route, or a closed port at the peer.
    Unreachable,
    /// The frame is longer than the link carries (either direction), the host refused the datagram
    /// as too long, or a frame for a stream is shorter than an Ethernet header.
    TooBig,
    /// The link was down, or went down while the frame was queued. The frames of a datagram that a
    /// used-up session cannot seal count once together.
    Down,
    /// The sender's memory was unmapped while the frame was read.
    SenderFault,
    /// The group's mailbox was full.
    Busy,
    /// The received frame is shorter than an Ethernet header.
    Runt,
    /// A stream lost its framing: its connection was closed.
    OutOfStep,
    /// A MAC control frame (PAUSE), which no guest may send to the physical network.
    MacControl,
    /// The outer header of a `vnet` or `vxlan` datagram reports congestion for a frame whose
    /// transport is Not-ECT (RFC 6040); tunnels count such a frame by [`crate::refusal`].
    Congestion,
}

impl Loss {
    const ALL: [Self; 10] = [
        Self::NoRoom,
        Self::Unreachable,
        Self::TooBig,
        Self::Down,
        Self::SenderFault,
        Self::Busy,
        Self::Runt,
        Self::OutOfStep,
        Self::MacControl,
        Self::Congestion,
    ];

    /// Returns the middle part of the counter's name: `drop_NAME_total`.
    const fn name(self) -> &'static str {
        match self {
            Self::NoRoom => "no_room",
            Self::Unreachable => "unreachable",
            Self::TooBig => "too_big",
            Self::Down => "down",
            Self::SenderFault => "sender_fault",
            Self::Busy => "group_busy",
            Self::Runt => "runt",
            Self::OutOfStep => "out_of_step",
            Self::MacControl => "mac_control",
            Self::Congestion => "congestion",
        }
    }
}

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
    /// Counts frames sent, their bytes, and the datagrams or records that carried them.
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

    /// Returns all counters by name, as `causeway link show` prints them.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let plain = [
            ("receive_packets_total", get(&self.receive.packets)),
            ("receive_bytes_total", get(&self.receive.bytes)),
            ("transmit_packets_total", get(&self.transmit.packets)),
            ("transmit_bytes_total", get(&self.transmit.bytes)),
            ("transmit_datagrams_total", get(&self.transmit_datagrams)),
        ];
        let losses = Loss::ALL.iter().zip(&self.losses);
        let losses = losses.map(|(why, cell)| (format!("drop_{}_total", why.name()), get(cell)));
        plain.into_iter().map(|(name, n)| (name.to_owned(), n)).chain(losses).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_have_a_counter_per_loss() {
        let stats = LinkStats::default();
        for (index, why) in Loss::ALL.into_iter().enumerate() {
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
