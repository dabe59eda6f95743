//! Counters of one port or bundle. Directions are the guest's: "transmit" counts frames that the
//! guest sent.
//!
//! The modules of the data path count; `causeway port show`, `causeway stats` and the metrics show
//! the counters by name, and the names are part of the interface. The dispatcher of the group owns
//! the counters, so they are plain integers without atomics. They start at 0 with the port or
//! bundle, survive a reconnect of the guest, and end with the port or bundle. A flooded frame
//! counts once as transmitted and once at each port that it reaches, as delivered or as dropped; a
//! frame that a link does not take is a drop of its sender. A drop counts under one [`DropReason`]
//! only.

use std::collections::BTreeMap;

use causeway_model::{CounterDefinition, CounterTable, drop_reasons};

/// Name of the counter of contested addresses.
pub(crate) const CONTESTED: &str = "contested_addresses_total";

drop_reasons! {
    /// Why a frame was dropped. A frame of a link has its bundle as sender.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum DropReason {
        /// The virtio-net header is invalid, or asks for an offload that was not negotiated. Counted at
        /// the sender.
        BadHeader => "bad_header",
        /// Shorter than the virtio-net and Ethernet headers (from a link: than the Ethernet header).
        /// Counted at the sender.
        Runt => "runt",
        /// Longer than the MTU of the sender or the receiver; counted at the port whose MTU it exceeds.
        /// Or longer than a link carries, or than any frame may be (65,557 bytes); counted at the
        /// sender.
        TooBig => "too_big",
        /// The source address is not the port's (with `learn`: is the configured address of another
        /// port), or a link brings a frame from the address of a running port. For both, also a group
        /// address or zero. Counted at the sender.
        SpoofedSource => "spoofed_source",
        /// No port or peer of the group has the destination address, and there is no other learning
        /// port and no link to flood the frame to. Also a frame of a guest to the address of hellos.
        /// Counted at the sender.
        UnknownDestination => "unknown_destination",
        /// The destination is at the port that sent the frame. Counted at the sender.
        SamePort => "same_port",
        /// The receiver's guest does not run the device, or its receive ring broke a rule while the
        /// batch was delivered. Counted at the receiver.
        ReceiverDown => "receiver_down",
        /// The receiver has no buffers, and the bound on pending frames or on their waiting time is
        /// reached, or the frame does not wait because it has several receivers; counted at the
        /// receiver. Or the socket or queue of a link has no room; counted at the sender.
        NoBuffer => "no_buffer",
        /// Longer than the next buffer of a receiver without mergeable buffers, than the whole receive
        /// ring of a receiver, or than 1,025 mergeable buffers. Counted at the receiver.
        BufferTooSmall => "buffer_too_small",
        /// The sender's memory cannot be read. Counted at the sender.
        SenderFault => "sender_fault",
        /// The sender's device stopped while the frame was pending. Counted at the sender.
        SenderDown => "sender_down",
        /// The links to the peer are down. Counted at the sender.
        LinkDown => "link_down",
        /// The group forwards by routes, and no route fits the frame or leads to an existing port or
        /// link. Counted at the sender.
        NoRoute => "no_route",
        /// The frame has crossed the most links that a frame may cross (8). Counted at the bundle by
        /// which it arrived.
        TooManyHops => "too_many_hops",
        /// The frame came by a link and would leave by another, neither of which is for transit.
        /// Counted at the ingress.
        NoTransit => "no_transit",
        /// A copy of a flooded frame that arrived by another path. Counted at the bundle that brought
        /// the copy.
        Duplicate => "duplicate",
        /// A link-local frame, which a bridge does not forward (IEEE 802.1Q, 8.6.3), or a MAC control
        /// frame to a `raw` link. Counted at the sender.
        LinkLocal => "link_local",
        /// A flooded frame that one link keeps bringing, as a loop does. Counted at its bundle.
        Storm => "storm",
        /// The frame came by a standby link: another daemon forwards for its network segment. Counted
        /// at its bundle.
        Standby => "standby",
    }
}

impl DropReason {
    /// Returns the name of the reason's counter.
    pub fn counter(self) -> &'static str {
        Self::COUNTERS.get(self as usize).map_or("drop_total", |(name, _)| *name)
    }

    /// Returns whether the sender broke a rule; the frame would be invalid for any receiver.
    pub const fn is_senders_fault(self) -> bool {
        matches!(self, Self::BadHeader | Self::Runt | Self::SpoofedSource | Self::SenderFault)
    }
}

/// The counter of flooded frames that did not wake a dormant link.
pub(crate) const WITHHELD: &str = "floods_withheld_total";

/// The counter of contested addresses.
const CONTESTED_COUNTER: CounterDefinition = (
    CONTESTED,
    "Claims of peers to this guest's address while it runs here; at a link, claims by its peer.",
);

/// The counter of withheld floods.
const WITHHELD_COUNTER: CounterDefinition = (
    WITHHELD,
    "Flooded frames that were not sent, because the link is dormant and the frame resolves no address, or the peer has no guest in the group.",
);

/// Names and meanings of the counters beside the drops, in the order of [`PortCounters::plain`].
const PLAIN: &[CounterDefinition] = &[
    ("receive_packets_total", "Frames delivered to the guest."),
    ("receive_bytes_total", "Bytes delivered to the guest, without virtio-net headers."),
    ("transmit_packets_total", "Frames that the guest sent, dropped frames included."),
    ("transmit_bytes_total", "Bytes that the guest sent, without virtio-net headers."),
    ("receive_held_total", "Frames that waited for buffers of this guest."),
    ("receive_checksummed_total", "Frames for this guest with a checksum completed in software."),
    ("receive_cut_total", "Frames for this guest that were cut into segments in software."),
    CONTESTED_COUNTER,
];

/// Names and meanings of all counters, for the registration of the service.
pub(crate) const TABLES: &[CounterTable] = &[
    CounterTable::of_ports(PLAIN),
    CounterTable::of_ports(DropReason::COUNTERS),
    CounterTable::of_links(&[CONTESTED_COUNTER, WITHHELD_COUNTER]),
    CounterTable::of_links(DropReason::COUNTERS),
];

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

    /// Returns the values of the counters in [`PLAIN`].
    fn plain(&self) -> [u64; PLAIN.len()] {
        [
            self.receive_packets,
            self.receive_bytes,
            self.transmit_packets,
            self.transmit_bytes,
            self.held,
            self.checksummed,
            self.cut,
            self.contested,
        ]
    }

    /// Returns the counters by name, as `causeway port show` prints them.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let values = self.plain().into_iter().chain(self.drops);
        let names = PLAIN.iter().chain(DropReason::COUNTERS);
        names.zip(values).map(|((name, _), value)| ((*name).to_owned(), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_reasons_have_counters_of_their_own() {
        let mut counters = PortCounters::default();
        for (index, why) in DropReason::ALL.iter().copied().enumerate() {
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
