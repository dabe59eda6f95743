//! Counters of the Ethernet side, for the driver's queries and for the operator.
//!
//! A counter wraps at 2^64. The counters start at zero when the function is made; a reset of the
//! function keeps [`EthernetCounters`], and clears the count of frames without a receive entry that
//! the driver queries for each counter set. A frame to several transport interfaces (the driver's
//! receivers, TIR) counts in [`EthernetCounters::received`] for each copy, and may count as dropped
//! for others. `transmit` counts sends, `receive` counts the rest, both in the dispatcher's turn;
//! the operator sees the counters by `causeway hca show`, the driver by its queries.

use causeway_wire::ethernet::{BROADCAST, is_group};

/// The kind of a frame's destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cast {
    Unicast,
    Multicast,
    Broadcast,
}

impl Cast {
    /// Returns the kind of a frame that begins with `head`.
    pub fn of(head: &[u8]) -> Self {
        match head.first_chunk() {
            Some(&BROADCAST) => Self::Broadcast,
            Some(to) if is_group(*to) => Self::Multicast,
            _ => Self::Unicast,
        }
    }
}

/// Frames and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Frames.
    pub frames: u64,
    /// Bytes, with Ethernet headers and without check sequences.
    pub bytes: u64,
}

/// Frames by the kind of their destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrafficByCast {
    /// Frames to one adapter.
    pub unicast: Traffic,
    /// Frames to a group.
    pub multicast: Traffic,
    /// Frames to all adapters.
    pub broadcast: Traffic,
}

impl TrafficByCast {
    /// Counts a frame.
    pub(crate) fn count(&mut self, cast: Cast, bytes: usize) {
        let traffic = match cast {
            Cast::Unicast => &mut self.unicast,
            Cast::Multicast => &mut self.multicast,
            Cast::Broadcast => &mut self.broadcast,
        };
        traffic.frames = traffic.frames.wrapping_add(1);
        traffic.bytes = traffic.bytes.wrapping_add(bytes as u64);
    }

    /// Returns the sums over all kinds.
    pub fn total(&self) -> Traffic {
        let all = [self.unicast, self.multicast, self.broadcast];
        all.iter().fold(Traffic::default(), |sum, traffic| Traffic {
            frames: sum.frames.wrapping_add(traffic.frames),
            bytes: sum.bytes.wrapping_add(traffic.bytes),
        })
    }
}

/// Counters of the Ethernet side of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EthernetCounters {
    /// Frames taken from send queues, before they are cut; without refused ones and without entries
    /// that failed.
    pub sent: TrafficByCast,
    /// Frames put into receive queues, after they were cut; also those without room for their
    /// completion, which count as [`Self::down`] too.
    pub received: TrafficByCast,
    /// Frames of send queues that were dropped because their offload request did not agree with
    /// their headers, or because they were shorter than 14 bytes.
    pub refused_sends: u64,
    /// Frames that found no posted receive entry.
    pub out_of_buffer: u64,
    /// Frames that were longer than the MTU or than their receive entry.
    pub too_long: u64,
    /// Frames that no address filter or flow entry accepted.
    pub filtered: u64,
    /// Frames that found no receive queue in the ready state, and those whose receive queue failed.
    pub down: u64,
    /// Frames that were lost because the memory of their sender was revoked before the copy.
    pub lost: u64,
    /// Frames, or rests of frames, that were not delivered because the frame had too many
    /// deliveries (`DELIVERIES_PER_FRAME_MAX`, 4,096).
    pub over_limit: u64,
    /// Receive queues that failed: a counter or entry could not be read, or an entry named memory
    /// without permission. The frame counts as [`Self::down`].
    pub failed_receives: u64,
}
