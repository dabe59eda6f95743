//! Counters of a port, and the names by which `causeway port show` and `causeway stats` print them.
//!
//! Directions are the member's, as at a port of kind `net`: *transmit* counts frames that the host
//! sent by the interface, *receive* frames that the group sent to it. The carrier counts in the
//! thread of the forwarding service, [`crate::receive`] in that of the TAP service, so the counters
//! are atomic; they wrap. They start at 0 with the port, and go on when its interface is opened
//! again. The frames of the port that the forwarding service drops have the names that it gives
//! them (`fabric::carrier::Carrier::count_drop`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use causeway_model::{CounterDefinition, CounterTable};

/// What is counted; the order of [`COUNTERS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    ReceivePackets,
    ReceiveBytes,
    ReceiveCut,
    TransmitPackets,
    TransmitBytes,
    TransmitWaits,
    ReceiverDown,
    NoBuffer,
    TooBig,
    Runt,
    SpoofedSource,
    BadHeader,
    SenderFault,
}

/// Names and meanings, in the order of [`Counter`].
const COUNTERS: &[CounterDefinition] = &[
    ("receive_packets_total", "Frames written to the interface."),
    ("receive_bytes_total", "Bytes of the frames written to the interface."),
    ("receive_cut_total", "Frames to the interface that were cut into segments in software."),
    (
        "transmit_packets_total",
        "Frames that the host sent by the interface, dropped frames included.",
    ),
    ("transmit_bytes_total", "Bytes of the frames that the host sent by the interface."),
    ("transmit_waits_total", "Times at which frames of the host began to wait for room."),
    ("drop_receiver_down_total", "Frames to the interface while it was missing or down."),
    ("drop_no_buffer_total", "Frames to the interface for which the kernel had no room."),
    ("drop_too_big_total", "Frames longer than the MTU of the port."),
    ("drop_runt_total", "Frames of the host shorter than an Ethernet header."),
    (
        "drop_spoofed_source_total",
        "Frames of the host from another source address than the port's, without learn; with learn, \
         from the address of another port.",
    ),
    ("drop_bad_header_total", "Frames that the kernel refused to take."),
    (
        "drop_sender_fault_total",
        "Frames to the interface whose bytes could not be read from the sender's memory.",
    ),
];

/// Names and meanings, for the registration of the service.
pub(crate) const TABLES: &[CounterTable] = &[CounterTable::of_ports(COUNTERS)];

/// The counters of a port.
#[derive(Debug, Default)]
pub(crate) struct TapStats {
    own: [AtomicU64; COUNTERS.len()],
    /// Drops of the forwarding service, by the name of the counter.
    drops: Mutex<BTreeMap<&'static str, u64>>,
}

impl TapStats {
    /// Adds to a counter.
    pub(crate) fn add(&self, counter: Counter, count: usize) {
        if let Some(sum) = self.own.get(counter as usize) {
            sum.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    /// Counts a frame that the forwarding service dropped.
    pub(crate) fn add_drop(&self, counter: &'static str) {
        let mut drops = self.drops.lock().unwrap_or_else(PoisonError::into_inner);
        let count = drops.entry(counter).or_default();
        *count = count.wrapping_add(1);
    }

    /// Returns all counters by name.
    pub(crate) fn by_name(&self) -> BTreeMap<String, u64> {
        let values = self.own.iter().map(|sum| sum.load(Ordering::Relaxed));
        let own = COUNTERS.iter().zip(values).map(|((name, _), sum)| ((*name).to_owned(), sum));
        let mut all: BTreeMap<String, u64> = own.collect();
        let drops = self.drops.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, count) in &*drops {
            let sum = all.entry((*name).to_owned()).or_default();
            *sum = sum.wrapping_add(*count);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tap_counters_include_the_drops_of_the_forwarding_service() {
        let stats = TapStats::default();
        stats.add(Counter::SenderFault, 2);
        stats.add(Counter::ReceivePackets, 5);
        stats.add_drop("drop_sender_fault_total");
        stats.add_drop("drop_unknown_destination_total");
        let all = stats.by_name();
        assert_eq!((all["receive_packets_total"], all["drop_sender_fault_total"]), (5, 3));
        assert_eq!(all["drop_unknown_destination_total"], 1);
        assert_eq!(all.len(), COUNTERS.len() + 1);
    }
}
