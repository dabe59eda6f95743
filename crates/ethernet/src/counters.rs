//! Counters of one port or bundle. Directions are the guest's: "transmit" counts frames that the
//! guest sent.
//!
//! The modules of the data path count; `causeway port show` and `causeway stats` print the counters
//! by name, and the names are part of the interface. The dispatcher of the group owns the counters,
//! so they are plain integers without atomics. They start at 0 with the port or bundle, survive a
//! reconnect of the guest, and end with the daemon. A flooded frame counts once as transmitted and
//! once at each receiver; a dropped frame counts under one [`DropReason`] only.

use std::collections::BTreeMap;

/// Name of the counter of contested addresses.
pub(crate) const CONTESTED: &str = "contested_addresses_total";

/// Why a frame was dropped. A frame of a link has its bundle as sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The virtio-net header is invalid, or asks for an offload that was not negotiated. Counted at
    /// the sender.
    BadHeader,
    /// Shorter than the virtio-net and Ethernet headers (from a link: than the Ethernet header).
    /// Counted at the sender.
    Runt,
    /// Longer than the MTU of the sender or the receiver; counted at the port whose MTU it exceeds.
    /// Or longer than a link carries, or than any frame may be (65,557 bytes); counted at the
    /// sender.
    TooBig,
    /// The source address is not the port's (with `learn`: is the configured address of another
    /// port), or a link brings a frame from the address of a running port. For both, also a group
    /// address or zero. Counted at the sender.
    SpoofedSource,
    /// No port or peer of the group has the destination address, and there is no other learning
    /// port and no link to flood the frame to. Also a frame of a guest to the address of hellos.
    /// Counted at the sender.
    UnknownDestination,
    /// The destination is at the port that sent the frame. Counted at the sender.
    SamePort,
    /// The receiver's guest does not run the device, or its receive ring broke a rule while the
    /// batch was delivered. Counted at the receiver.
    ReceiverDown,
    /// The receiver has no buffers, and the bound on pending frames or on their waiting time is
    /// reached, or the frame does not wait because it has several receivers; counted at the
    /// receiver. Or the socket or queue of a link has no room; counted at the sender.
    NoBuffer,
    /// Longer than the next buffer of a receiver without mergeable buffers, than the whole receive
    /// ring of a receiver, or than 1,025 mergeable buffers. Counted at the receiver.
    BufferTooSmall,
    /// The sender's memory cannot be read. Counted at the sender.
    SenderFault,
    /// The sender's device stopped while the frame was pending. Counted at the sender.
    SenderDown,
    /// The links to the peer are down. Counted at the sender.
    LinkDown,
    /// The group forwards by routes, and no route fits the frame or leads to an existing port or
    /// link. Counted at the sender.
    NoRoute,
    /// The frame has crossed the most links that a frame may cross (8). Counted at the bundle by
    /// which it arrived.
    TooManyHops,
    /// The frame came by a link and would leave by another, neither of which is for transit.
    /// Counted at the ingress.
    NoTransit,
    /// A copy of a flooded frame that arrived by another path. Counted at the bundle that brought
    /// the copy.
    Duplicate,
    /// A link-local frame, which a bridge does not forward (IEEE 802.1Q, 8.6.3), or a MAC control
    /// frame to a `raw` link. Counted at the sender.
    LinkLocal,
    /// A flooded frame that one link keeps bringing, as a loop does. Counted at its bundle.
    Storm,
    /// The frame came by a standby link: another daemon forwards for its network segment. Counted
    /// at its bundle.
    Standby,
}

impl DropReason {
    /// Every reason, in the order of the counters.
    pub const ALL: [Self; 19] = [
        Self::BadHeader,
        Self::Runt,
        Self::TooBig,
        Self::SpoofedSource,
        Self::UnknownDestination,
        Self::SamePort,
        Self::ReceiverDown,
        Self::NoBuffer,
        Self::BufferTooSmall,
        Self::SenderFault,
        Self::SenderDown,
        Self::LinkDown,
        Self::NoRoute,
        Self::TooManyHops,
        Self::NoTransit,
        Self::Duplicate,
        Self::LinkLocal,
        Self::Storm,
        Self::Standby,
    ];

    /// Returns whether the sender broke a rule; the frame would be invalid for any receiver.
    pub const fn is_senders_fault(self) -> bool {
        matches!(self, Self::BadHeader | Self::Runt | Self::SpoofedSource | Self::SenderFault)
    }

    /// Returns the reason as it stands in a counter's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadHeader => "bad_header",
            Self::Runt => "runt",
            Self::TooBig => "too_big",
            Self::SpoofedSource => "spoofed_source",
            Self::UnknownDestination => "unknown_destination",
            Self::SamePort => "same_port",
            Self::ReceiverDown => "receiver_down",
            Self::NoBuffer => "no_buffer",
            Self::BufferTooSmall => "buffer_too_small",
            Self::SenderFault => "sender_fault",
            Self::SenderDown => "sender_down",
            Self::LinkDown => "link_down",
            Self::NoRoute => "no_route",
            Self::TooManyHops => "too_many_hops",
            Self::NoTransit => "no_transit",
            Self::Duplicate => "duplicate",
            Self::LinkLocal => "link_local",
            Self::Storm => "storm",
            Self::Standby => "standby",
        }
    }
}

/// The counters of one port. They only grow, and wrap at 2^64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortCounters {
    /// Frames delivered to the guest.
    pub receive_packets: u64,
    /// Bytes delivered to the guest, without virtio-net headers.
    pub receive_bytes: u64,
    /// Frames that the guest sent, dropped frames included.
    pub transmit_packets: u64,
    /// Bytes that the guest sent, without virtio-net headers.
    pub transmit_bytes: u64,
    /// Frames that waited for buffers of this guest.
    pub held: u64,
    /// Frames for this guest with a checksum completed in software.
    pub checksummed: u64,
    /// Frames for this guest that were cut into segments in software.
    pub cut: u64,
    /// Claims of peers to this guest's address while it runs here; at a link, claims by its peer.
    pub contested: u64,
    /// Dropped frames, by [`DropReason`].
    drops: [u64; DropReason::ALL.len()],
}

impl PortCounters {
    /// Counts frames and bytes that were delivered to the guest.
    #[inline]
    pub fn count_received(&mut self, frames: usize, bytes: usize) {
        self.receive_packets = self.receive_packets.wrapping_add(frames as u64);
        self.receive_bytes = self.receive_bytes.wrapping_add(bytes as u64);
    }

    /// Counts frames and bytes that the guest sent.
    #[inline]
    pub fn count_transmitted(&mut self, frames: usize, bytes: usize) {
        self.transmit_packets = self.transmit_packets.wrapping_add(frames as u64);
        self.transmit_bytes = self.transmit_bytes.wrapping_add(bytes as u64);
    }

    /// Counts a dropped frame.
    pub fn count_drop(&mut self, why: DropReason) {
        if let Some(count) = self.drops.get_mut(why as usize) {
            *count = count.wrapping_add(1);
        }
    }

    /// Returns the number of frames that were dropped for `why`.
    pub fn drops(&self, why: DropReason) -> u64 {
        self.drops.get(why as usize).copied().unwrap_or(0)
    }

    /// Returns the counters by name, as `causeway port show` prints them.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let plain = [
            ("receive_packets_total", self.receive_packets),
            ("receive_bytes_total", self.receive_bytes),
            ("transmit_packets_total", self.transmit_packets),
            ("transmit_bytes_total", self.transmit_bytes),
            ("receive_held_total", self.held),
            ("receive_checksummed_total", self.checksummed),
            ("receive_cut_total", self.cut),
            (CONTESTED, self.contested),
        ];
        let drops =
            DropReason::ALL.map(|why| (format!("drop_{}_total", why.name()), self.drops(why)));
        plain.into_iter().map(|(name, n)| (name.to_owned(), n)).chain(drops).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_reasons_have_counters_of_their_own() {
        let mut counters = PortCounters::default();
        for (index, why) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, index);
            for _ in 0..=index {
                counters.count_drop(why);
            }
        }
        counters.count_received(1, 100);
        counters.count_transmitted(1, 60);
        let names = counters.by_name();
        assert_eq!(names.len(), 8 + DropReason::ALL.len());
        assert_eq!(names["drop_bad_header_total"], 1);
        assert_eq!(names["drop_sender_fault_total"], 10);
        assert_eq!(names["drop_sender_down_total"], 11);
        assert_eq!((names["receive_bytes_total"], names["transmit_packets_total"]), (100, 1));
    }
}
