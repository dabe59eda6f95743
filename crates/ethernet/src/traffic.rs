//! The traffic matrix: frames, bytes and rates of each address pair, as VNET's VTTIF infers them.
//!
//! `classify` and `link_rx` count accepted frames of one group; the control plane reads the matrix
//! ([`TrafficMatrix::view`]). A rate is bytes per second over the last complete window of
//! [`TRAFFIC_WINDOW_NS`] (1 s) or longer; bytes are those of frames, without virtio-net headers.
//!
//! The matrix influences no forwarding decision, keeps no history and is lost when the daemon ends.
//! It holds [`TRAFFIC_PAIRS_MAX`] (4,096) pairs: when it is full, pairs without frames for
//! [`TRAFFIC_SILENT_NS`] (60 s) are replaced, and frames of further pairs are counted only as
//! uncounted. A flooded frame counts once, as a pair with the group address.
//!
//! # Budget
//! Consecutive frames of one pair cost one hash look-up together. The number of pairs is bounded: a
//! silent pair is replaced, and frames of further pairs count as uncounted.

use causeway_fabric::keyed::{Keyed, keyed};
use causeway_model::{Mac, Name};
use causeway_model::{TrafficPair, TrafficView};
use causeway_wire::ethernet;

use crate::limits::{TRAFFIC_PAIRS_MAX, TRAFFIC_SILENT_NS, TRAFFIC_SWEEP_NS, TRAFFIC_WINDOW_NS};
use crate::route::SwitchIndex;

/// Counters of one pair.
#[derive(Debug, Clone, Copy, Default)]
struct PairCounters {
    /// Switch index of the ingress of the last frame.
    from: SwitchIndex,
    /// Frames since the pair was entered.
    frames: u64,
    /// Bytes since the pair was entered.
    bytes: u64,
    /// Bytes in the window that began at `window_ns`.
    window_ns: u64,
    window_bytes: u64,
    /// Bytes per second in the last complete window.
    rate: f64,
    /// Time of the last frame.
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
}

/// Consecutive frames of one pair that are not in the table yet.
#[derive(Debug, Clone, Copy, Default)]
struct PairRun {
    /// Switch index of the ingress.
    from: SwitchIndex,
    /// Source address, as a number.
    source: u64,
    /// Destination address, as a number.
    destination: u64,
    frames: u64,
    bytes: u64,
}

/// The traffic matrix of a group.
#[derive(Debug)]
pub struct TrafficMatrix {
    /// By source and destination address, as numbers.
    cells: Keyed<(u64, u64), PairCounters>,
    /// Frames of the current pair, not yet in `cells`.
    run: PairRun,
    /// Time of the last search for silent pairs; 0 before the first.
    swept_ns: u64,
    /// Frames of pairs that found no room.
    uncounted: u64,
}

impl Default for TrafficMatrix {
    fn default() -> Self {
        Self { cells: keyed(), run: PairRun::default(), swept_ns: 0, uncounted: 0 }
    }
}

impl TrafficMatrix {
    /// Counts frames and bytes of the pair `(source, destination)`. Addresses are numbers
    /// ([`ethernet::number`]).
    #[inline]
    pub fn count(
        &mut self,
        from: SwitchIndex,
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
        let key = (run.source, run.destination);
        if let Some(cell) = self.cells.get_mut(&key) {
            return cell.add(&run, now_ns);
        }
        if self.cells.len() >= TRAFFIC_PAIRS_MAX {
            self.sweep(now_ns);
            if self.cells.len() >= TRAFFIC_PAIRS_MAX {
                self.uncounted = self.uncounted.wrapping_add(run.frames);
                return;
            }
        }
        let mut cell = PairCounters { window_ns: now_ns, ..PairCounters::default() };
        cell.add(&run, now_ns);
        self.cells.insert(key, cell);
    }

    /// Forgets silent pairs. Scans the whole table, at most once in [`TRAFFIC_SWEEP_NS`] (1 s).
    fn sweep(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.swept_ns) >= TRAFFIC_SWEEP_NS || self.swept_ns == 0 {
            self.swept_ns = now_ns.max(1);
            self.cells.retain(|_, cell| now_ns.saturating_sub(cell.seen_ns) < TRAFFIC_SILENT_NS);
        }
    }

    /// Returns the matrix, busiest pair first.
    pub fn view(
        &mut self,
        group: Name,
        now_ns: u64,
        name: impl Fn(SwitchIndex) -> String,
    ) -> TrafficView {
        self.commit_run(now_ns);
        let pair = |(&(source, destination), cell): (&(u64, u64), &mut PairCounters)| {
            cell.roll(now_ns);
            TrafficPair {
                source: Mac(ethernet::address(source)),
                destination: Mac(ethernet::address(destination)),
                from: name(cell.from),
                frames_total: cell.frames,
                bytes_total: cell.bytes,
                bytes_per_second: cell.rate,
            }
        };
        let mut pairs: Vec<TrafficPair> = self.cells.iter_mut().map(pair).collect();
        pairs.sort_by(|a, b| {
            let busier = b.bytes_per_second.total_cmp(&a.bytes_per_second);
            let ends = |p: &TrafficPair| (p.source, p.destination);
            busier.then(b.bytes_total.cmp(&a.bytes_total)).then(ends(a).cmp(&ends(b)))
        });
        TrafficView {
            group,
            window_seconds: TRAFFIC_WINDOW_NS as f64 / 1e9,
            pairs,
            uncounted_frames_total: self.uncounted,
        }
    }
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
}
