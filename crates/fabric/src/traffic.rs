//! The traffic matrix: frames, messages, bytes and rates of each address pair, as VNET's VTTIF
//! infers them.
//!
//! A service counts the accepted frames of its group ([`TrafficMatrix::count`]), and the messages
//! that it sums up elsewhere ([`TrafficMatrix::collect`]); the control plane reads the matrix
//! ([`TrafficMatrix::view`]). A rate is bytes per second over the last complete window of
//! [`TRAFFIC_WINDOW_NS`] (1 s) or longer; bytes are those of frames, without virtio-net headers,
//! and the payload of messages. The controller of the forwarding service adds the traffic that
//! services exchange past it ([`ReadDirectTraffic`], [`add_direct`]), in the thread of the request.
//!
//! The matrix influences no forwarding decision, keeps no history and is lost when the daemon ends.
//! The matrix holds [`TRAFFIC_PAIRS_MAX`] (4,096) pairs: when it is full, a further pair removes
//! the pairs without traffic for [`TRAFFIC_SILENT_NS`] (60 s), at most once a second; without room,
//! frames and messages of further pairs are counted only as uncounted. A flooded frame counts once,
//! as a pair with the group address. The dispatcher's thread of the group counts; a view is a copy
//! that it makes for the thread of the request.
//!
//! # Budget
//! Consecutive frames of one pair cost one hash look-up together.

use std::collections::HashMap;

use causeway_model::{Mac, Name, TrafficPair, TrafficView, TypedRequest};
use causeway_wire::ethernet;

use crate::keyed::{Keyed, keyed};
use crate::limits::{TRAFFIC_PAIRS_MAX, TRAFFIC_SILENT_NS, TRAFFIC_SWEEP_NS, TRAFFIC_WINDOW_NS};

/// Asks a controller for the traffic of a group that its service forwards past the service that
/// forwards the group's frames.
#[derive(Debug, Clone)]
pub struct ReadDirectTraffic(pub Name);

impl TypedRequest for ReadDirectTraffic {
    type Answer = TrafficView;
}

/// The messages of a pair in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageSums {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of payload.
    pub bytes: u64,
}

/// Counters of one pair.
#[derive(Debug, Clone, Copy, Default)]
struct PairCounters {
    /// Number of the ingress of the last traffic.
    from: u32,
    /// Frames since the pair was entered.
    frames: u64,
    /// Bytes of these.
    bytes: u64,
    /// Messages since the pair was entered.
    messages: MessageSums,
    /// Bytes of frames and messages in the window that began at `window_ns`.
    window_ns: u64,
    window_bytes: u64,
    /// Bytes per second in the last complete window.
    rate: f64,
    /// Time of the last traffic.
    seen_ns: u64,
}

impl PairCounters {
    /// Closes the window if it is over.
    fn roll(&mut self, now_ns: u64) {
        let elapsed = now_ns.saturating_sub(self.window_ns);
        if elapsed >= TRAFFIC_WINDOW_NS {
            self.rate = self.window_bytes as f64 * 1e9 / elapsed as f64;
            (self.window_ns, self.window_bytes) = (now_ns, 0);
        }
    }

    /// Adds a run of frames.
    fn add(&mut self, run: &PairRun, now_ns: u64) {
        self.roll(now_ns);
        self.from = run.from;
        self.frames = self.frames.wrapping_add(run.frames);
        self.bytes = self.bytes.wrapping_add(run.bytes);
        self.window_bytes = self.window_bytes.wrapping_add(run.bytes);
        self.seen_ns = now_ns;
    }

    /// Adds messages of a period that ends now.
    fn collect(&mut self, from: u32, sums: MessageSums, now_ns: u64) {
        self.from = from;
        self.messages.messages = self.messages.messages.wrapping_add(sums.messages);
        self.messages.bytes = self.messages.bytes.wrapping_add(sums.bytes);
        self.window_bytes = self.window_bytes.wrapping_add(sums.bytes);
        self.roll(now_ns);
        self.seen_ns = now_ns;
    }
}

/// Consecutive frames of one pair that are not in the table yet.
#[derive(Debug, Clone, Copy, Default)]
struct PairRun {
    /// Number of the ingress.
    from: u32,
    /// Source address, as a number.
    source: u64,
    /// Destination address, as a number.
    destination: u64,
    frames: u64,
    bytes: u64,
}

/// The traffic matrix of a service in a group.
#[derive(Debug)]
pub struct TrafficMatrix {
    /// By source and destination address, as numbers.
    cells: Keyed<(u64, u64), PairCounters>,
    /// Frames of the current pair, not yet in `cells`.
    run: PairRun,
    /// Time of the last search for silent pairs; 0 before the first.
    swept_ns: u64,
    /// Frames and messages of pairs that found no room.
    uncounted: u64,
}

impl Default for TrafficMatrix {
    fn default() -> Self {
        Self { cells: keyed(), run: PairRun::default(), swept_ns: 0, uncounted: 0 }
    }
}

impl TrafficMatrix {
    /// Counts frames and bytes of the pair `(source, destination)`, which arrived by ingress `from`
    /// of the service. Addresses are numbers ([`ethernet::number`]).
    #[inline]
    pub fn count(
        &mut self,
        from: u32,
        (source, destination): (u64, u64),
        (frames, bytes): (u64, u64),
        now_ns: u64,
    ) {
        let run = &self.run;
        if (run.from, run.source, run.destination) != (from, source, destination) {
            self.commit_run(now_ns);
            self.run = PairRun { from, source, destination, frames: 0, bytes: 0 };
        }
        self.run.frames = self.run.frames.wrapping_add(frames);
        self.run.bytes = self.run.bytes.wrapping_add(bytes);
    }

    /// Adds the current run to the table.
    pub fn commit_run(&mut self, now_ns: u64) {
        let run = std::mem::take(&mut self.run);
        if run.frames == 0 {
            return;
        }
        match self.cell((run.source, run.destination), now_ns, now_ns) {
            Some(cell) => cell.add(&run, now_ns),
            None => self.uncounted = self.uncounted.wrapping_add(run.frames),
        }
    }

    /// Counts the messages of the pair `(source, destination)` in the period from `since_ns` to
    /// `now_ns`. Addresses are numbers.
    pub fn collect(
        &mut self,
        from: u32,
        pair: (u64, u64),
        sums: MessageSums,
        (since_ns, now_ns): (u64, u64),
    ) {
        match self.cell(pair, since_ns, now_ns) {
            Some(cell) => cell.collect(from, sums, now_ns),
            None => self.uncounted = self.uncounted.wrapping_add(sums.messages),
        }
    }

    /// Returns the counters of a pair, which are entered if there is room, with a window that
    /// begins at `since_ns`.
    fn cell(&mut self, pair: (u64, u64), since_ns: u64, now_ns: u64) -> Option<&mut PairCounters> {
        if self.cells.len() >= TRAFFIC_PAIRS_MAX && !self.cells.contains_key(&pair) {
            self.sweep(now_ns);
            if self.cells.len() >= TRAFFIC_PAIRS_MAX {
                return None;
            }
        }
        let fresh = PairCounters { window_ns: since_ns, ..PairCounters::default() };
        Some(self.cells.entry(pair).or_insert(fresh))
    }

    /// Forgets silent pairs. Scans the whole table, at most once in [`TRAFFIC_SWEEP_NS`] (1 s).
    fn sweep(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.swept_ns) >= TRAFFIC_SWEEP_NS || self.swept_ns == 0 {
            self.swept_ns = now_ns.max(1);
            self.cells.retain(|_, cell| now_ns.saturating_sub(cell.seen_ns) < TRAFFIC_SILENT_NS);
        }
    }

    /// Returns the matrix, busiest pair first.
    pub fn view(&mut self, group: Name, now_ns: u64, name: impl Fn(u32) -> String) -> TrafficView {
        self.commit_run(now_ns);
        let pair = |(&(source, destination), cell): (&(u64, u64), &mut PairCounters)| {
            cell.roll(now_ns);
            TrafficPair {
                source: Mac(ethernet::address(source)),
                destination: Mac(ethernet::address(destination)),
                from: name(cell.from),
                frames_total: cell.frames,
                bytes_total: cell.bytes,
                messages_total: cell.messages.messages,
                message_bytes_total: cell.messages.bytes,
                bytes_per_second: cell.rate,
            }
        };
        let mut pairs: Vec<TrafficPair> = self.cells.iter_mut().map(pair).collect();
        sort(&mut pairs);
        TrafficView {
            group,
            window_seconds: TRAFFIC_WINDOW_NS as f64 / 1e9,
            pairs,
            uncounted_frames_total: self.uncounted,
        }
    }
}

/// Sorts pairs, the busiest first.
fn sort(pairs: &mut [TrafficPair]) {
    pairs.sort_by(|a, b| {
        let busier = b.bytes_per_second.total_cmp(&a.bytes_per_second);
        let ends = |p: &TrafficPair| (p.source, p.destination);
        let bytes = |p: &TrafficPair| p.bytes_total.saturating_add(p.message_bytes_total);
        busier.then(bytes(b).cmp(&bytes(a))).then(ends(a).cmp(&ends(b)))
    });
}

/// Adds the pairs of another service to a view. A pair of both has the sums of both.
pub fn add_direct(view: &mut TrafficView, direct: TrafficView) {
    let places: HashMap<(Mac, Mac), usize> = (view.pairs.iter().enumerate())
        .map(|(at, pair)| ((pair.source, pair.destination), at))
        .collect();
    for pair in direct.pairs {
        let at = places.get(&(pair.source, pair.destination)).copied();
        let Some(known) = at.and_then(|at| view.pairs.get_mut(at)) else {
            view.pairs.push(pair);
            continue;
        };
        known.frames_total = known.frames_total.wrapping_add(pair.frames_total);
        known.bytes_total = known.bytes_total.wrapping_add(pair.bytes_total);
        known.messages_total = known.messages_total.wrapping_add(pair.messages_total);
        known.message_bytes_total =
            known.message_bytes_total.wrapping_add(pair.message_bytes_total);
        known.bytes_per_second += pair.bytes_per_second;
    }
    view.uncounted_frames_total =
        view.uncounted_frames_total.wrapping_add(direct.uncounted_frames_total);
    sort(&mut view.pairs);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn view(traffic: &mut TrafficMatrix, now_ns: u64) -> TrafficView {
        traffic.view("g".parse().unwrap(), now_ns, |place| format!("p{place}"))
    }

    #[test]
    fn traffic_pairs_are_counted_with_their_rates() {
        let mut traffic = TrafficMatrix::default();
        for _ in 0..10 {
            traffic.count(1, (0xa, 0xb), (1, 100), SECOND);
        }
        traffic.count(2, (0xb, 0xa), (1, 60), SECOND);
        traffic.count(1, (0xa, 0xb), (1, 100), SECOND + 1);
        let seen = view(&mut traffic, 2 * SECOND + 1);
        assert_eq!(seen.pairs.len(), 2);
        let busiest = &seen.pairs[0];
        assert_eq!((busiest.frames_total, busiest.bytes_total), (11, 1100));
        assert_eq!(busiest.from, "p1");
        assert!((busiest.bytes_per_second - 1000.0).abs() < 1.0, "{busiest:?}");
        view(&mut traffic, 4 * SECOND);
        let later = view(&mut traffic, 6 * SECOND);
        assert_eq!(later.pairs[0].bytes_per_second, 0.0, "silent since");
    }

    #[test]
    fn hostile_addresses_do_not_grow_the_traffic_matrix() {
        let mut traffic = TrafficMatrix::default();
        for n in 0..2 * TRAFFIC_PAIRS_MAX as u64 {
            traffic.count(1, (n, n), (1, 60), SECOND);
        }
        let seen = view(&mut traffic, SECOND);
        assert_eq!(seen.pairs.len(), TRAFFIC_PAIRS_MAX);
        assert_eq!(seen.uncounted_frames_total, TRAFFIC_PAIRS_MAX as u64);
        let later = SECOND + TRAFFIC_SILENT_NS + TRAFFIC_SWEEP_NS;
        traffic.count(1, (7, 8), (1, 60), later);
        assert_eq!(view(&mut traffic, later).pairs.len(), 1, "silent pairs were replaced");
    }

    #[test]
    fn traffic_of_messages_has_the_rate_of_its_period() {
        let mut traffic = TrafficMatrix::default();
        let sums = MessageSums { messages: 5, bytes: 8000 };
        for second in 1..4 {
            let period = (second * SECOND, (second + 1) * SECOND);
            traffic.collect(1, (0xa, 0xb), sums, period);
        }
        let seen = view(&mut traffic, 4 * SECOND + 1);
        let pair = &seen.pairs[0];
        assert_eq!((pair.messages_total, pair.message_bytes_total), (15, 24_000));
        assert_eq!((pair.frames_total, pair.bytes_total), (0, 0));
        assert!((pair.bytes_per_second - 8000.0).abs() < 1.0, "{pair:?}");
        // A burst long ago is no present traffic.
        traffic.collect(1, (0xa, 0xc), sums, (SECOND, 81 * SECOND));
        let rate = view(&mut traffic, 81 * SECOND).pairs[0].bytes_per_second;
        assert!((rate - 100.0).abs() < 1.0, "{rate}");
    }

    #[test]
    fn traffic_of_two_services_is_added_by_pair() {
        let mut traffic = TrafficMatrix::default();
        traffic.count(1, (0xa, 0xb), (1, 100), SECOND);
        let mut seen = view(&mut traffic, SECOND);
        traffic.collect(1, (0xa, 0xb), MessageSums { messages: 1, bytes: 9 }, (0, SECOND));
        traffic.count(1, (0xb, 0xa), (1, 500), SECOND);
        let direct = view(&mut traffic, SECOND);
        add_direct(&mut seen, direct);
        let totals = |pair: &TrafficPair| (pair.bytes_total, pair.messages_total);
        assert_eq!(seen.pairs.iter().map(totals).collect::<Vec<_>>(), [(500, 0), (200, 1)]);
    }
}
