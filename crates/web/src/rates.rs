//! Rates of ports and links between two samples, from their counters.
//!
//! The daemon's uptime is the clock. A counter that became smaller belongs to an object that was
//! added again, and counts from 0. Between samples of two processes of the daemon there is no rate.
//!
//! [`crate::state`] calls the functions for each port and link of a sample, in the poller's thread.
//! They keep nothing: the poller keeps the sample before. The caller passes a positive period. A
//! sum that exceeds 64 bits is cut; there is no other error. Counters are found by name: those of a
//! kind that the lists do not name have no rate, and drops are those that begin with `drop_` or
//! `reject_`.

use std::collections::BTreeMap;

use causeway_model::InfoView;
use serde::Serialize;

/// Counters of bytes that a guest, or this host to a peer, sent.
const SENT_BYTES: [&str; 3] =
    ["transmit_bytes_total", "request_bytes_total", "sent_frame_bytes_total"];
/// Counters of frames, packets and messages sent.
const SENT: [&str; 3] = ["transmit_packets_total", "requests_total", "sent_frames_total"];
/// Counters of bytes received.
const RECEIVED_BYTES: [&str; 3] =
    ["receive_bytes_total", "received_bytes_total", "received_frame_bytes_total"];
/// Counters of frames, packets and messages received.
const RECEIVED: [&str; 3] =
    ["receive_packets_total", "received_messages_total", "received_frames_total"];

/// Counters by name.
pub type Counters = BTreeMap<String, u64>;

/// Rates of a port or a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Bytes sent in a second.
    pub sent_bytes: f64,
    /// Frames, packets or messages sent in a second.
    pub sent_packets: f64,
    /// Bytes received in a second.
    pub received_bytes: f64,
    /// Frames, packets or messages received in a second.
    pub received_packets: f64,
    /// Frames dropped and connects rejected in a second.
    pub drops: f64,
}

/// A reason of drops.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Drops {
    /// Name of the counter, without `_total`.
    pub reason: String,
    /// Drops since the object was added.
    pub total: u64,
    /// Drops in a second; absent without two samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
}

/// Returns the time between two samples in seconds; `None` if they have no common clock.
pub fn seconds_between(before: &InfoView, now: &InfoView) -> Option<f64> {
    let seconds = now.uptime_seconds - before.uptime_seconds;
    (before.pid == now.pid && seconds > 0.0).then_some(seconds)
}

/// First words of counters of drops and rejected connects; the counters of stream and datagram ports
/// name the direction first.
const DROPS: [&str; 4] = ["drop_", "reject_", "receive_drop_", "transmit_drop_"];

/// Returns whether a counter counts drops of frames or rejected connects, by its first words.
pub fn is_drop(counter: &str) -> bool {
    DROPS.iter().any(|words| counter.starts_with(words))
}

/// Returns the rates over `seconds`, which is positive. `before` is empty for a new object.
pub fn rates(before: &Counters, now: &Counters, seconds: f64) -> Rates {
    let sum = |names: &[&str]| {
        let grown = names.iter().map(|name| growth(before, now, name));
        grown.fold(0, u64::saturating_add) as f64 / seconds
    };
    let drops = now.keys().filter(|name| is_drop(name)).map(|name| growth(before, now, name));
    Rates {
        sent_bytes: sum(&SENT_BYTES),
        sent_packets: sum(&SENT),
        received_bytes: sum(&RECEIVED_BYTES),
        received_packets: sum(&RECEIVED),
        drops: drops.fold(0, u64::saturating_add) as f64 / seconds,
    }
}

/// Returns the reasons that dropped anything, the most frequent first. `before` and `seconds` are
/// those of the last sample.
pub fn drops(before: Option<(&Counters, f64)>, now: &Counters) -> Vec<Drops> {
    let reasons = now.iter().filter(|(name, total)| is_drop(name) && **total > 0);
    let mut all: Vec<Drops> = reasons
        .map(|(name, total)| Drops {
            reason: name.strip_suffix("_total").unwrap_or(name).to_owned(),
            total: *total,
            rate: before.map(|(before, seconds)| growth(before, now, name) as f64 / seconds),
        })
        .collect();
    all.sort_by_key(|drops| std::cmp::Reverse(drops.total));
    all
}

/// Returns the growth of a counter; that of a counter that began anew is its value.
fn growth(before: &Counters, now: &Counters, name: &str) -> u64 {
    let value = now.get(name).copied().unwrap_or(0);
    let old = before.get(name).copied().unwrap_or(0);
    value.checked_sub(old).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(all: &[(&str, u64)]) -> Counters {
        all.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn rates_are_of_every_kind_and_a_smaller_counter_counts_from_zero() {
        let before = counters(&[("transmit_bytes_total", 1000), ("receive_bytes_total", 900)]);
        let now = counters(&[
            ("transmit_bytes_total", 3000),
            ("receive_bytes_total", 100),
            ("request_bytes_total", 500),
            ("drop_a_total", 4),
            ("reject_b_total", 2),
            ("received_frames_total", 10),
        ]);
        let rates = rates(&before, &now, 2.0);
        assert_eq!((rates.sent_bytes, rates.received_bytes), (1250.0, 50.0));
        assert_eq!((rates.received_packets, rates.drops), (5.0, 3.0));
    }

    #[test]
    fn rates_of_drops_name_their_reasons_and_leave_out_zeros() {
        let now = counters(&[("drop_a_total", 4), ("drop_b_total", 0), ("reject_c_total", 9)]);
        let before = counters(&[("drop_a_total", 2)]);
        let found = drops(Some((&before, 2.0)), &now);
        let reasons: Vec<_> = found.iter().map(|d| (d.reason.as_str(), d.total, d.rate)).collect();
        assert_eq!(reasons, [("reject_c", 9, Some(4.5)), ("drop_a", 4, Some(1.0))]);
        assert_eq!(drops(None, &now)[0].rate, None);
        // Counters of stream ports.
        let now = counters(&[
            ("receive_drop_no_room_total", 2),
            ("transmit_drop_runt_total", 1),
            ("receive_packets_total", 7),
        ]);
        let found = drops(None, &now);
        let reasons: Vec<_> = found.iter().map(|d| (d.reason.as_str(), d.total)).collect();
        assert_eq!(reasons, [("receive_drop_no_room", 2), ("transmit_drop_runt", 1)]);
        assert_eq!(rates(&Counters::default(), &now, 1.0).drops, 3.0);
    }
}
