//! Health of a tunnel: reachability, round trip, loss, and the longest datagram that reaches the
//! peer.
//!
//! Heartbeats leave every [`HEARTBEAT_NS`] (500 ms); the peer answers each at once. After
//! [`HEARTBEATS_MISSED`] (3) unanswered heartbeats in a row, and no frame of the peer meanwhile,
//! the tunnel is down: `crate::tunnel` begins a new handshake (if encrypted), and heartbeats
//! continue; the next answer sets it up. The path is poor when the tunnel goes down, and after
//! [`HEARTBEATS_POOR`] (8) lost heartbeats of the last [`HEARTBEATS_KEPT`] (32) since the path was
//! last good; it is good again after [`HEARTBEATS_GOOD`] (4, and more after repeated changes)
//! answered in a row.
//!
//! Some heartbeats are padded to the datagram length in use, or to candidates for it: the longest
//! answered length is used (packetization layer path MTU discovery, as RFC 8899 describes it). When
//! [`LENGTH_CHECKS_MISSED`] (3) padded heartbeats in a row are not answered while short ones are,
//! the length falls at once to 1280 bytes of IPv6 packet, or from there or below to the minimum
//! that IPv4 requires of every host ([`DATAGRAM_BYTES_MIN`] (548 bytes)), and the search begins
//! anew. If the length in use is not answered in a search, the longest answered length replaces it.
//!
//! Delivery reports of the peer give the loss of datagrams. At [`LOSSY_OF_10000`] (0.2 %) or more,
//! and until it stayed at 0.05 % or less for [`CLEAN_NS`] (10 s), senders cut TCP segments before
//! they pack them, because one lost datagram costs the whole segment.
//!
//! The module sends nothing: [`Health::tick`] calls back with the lengths to send, and
//! [`Health::record_answer`] takes the answers. `crate::tunnel` calls both in the shard of links
//! and publishes the results. The module does not measure bandwidth and does not choose between
//! paths; `ethernet` chooses, by the reported state of the links and the metric.

use std::collections::VecDeque;

use crate::limits::{
    ANSWER_NS_MAX, CLEAN_NS, CLEAN_OF_10000, DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN,
    DATAGRAM_BYTES_SAFE, FLAP_NS, HEARTBEAT_NS, HEARTBEATS_GOOD, HEARTBEATS_GOOD_MAX,
    HEARTBEATS_KEPT, HEARTBEATS_MISSED, HEARTBEATS_POOR, LENGTH_CHECK_NS, LENGTH_CHECKS_MISSED,
    LOSS_SAMPLE, LOSSY_OF_10000, PROBE_BURST_NS, PROBE_BURSTS, SEARCH_NS, SHORTER_NS,
};

/// Candidate lengths, in bytes of UDP payload: every hundred bytes up to 1200; MTUs of 1280, 1400,
/// 1420, 1440, 1450, 1460, 1480, 1492, 1500, 4000, 8000, 9000, 16 Ki, 32 Ki and 64 Ki less IPv6's
/// headers; and of 1500 and 9000 less IPv4's.
const LENGTHS: [usize; 24] = [
    548, 652, 752, 852, 952, 1_052, 1_152, 1_232, 1_352, 1_372, 1_392, 1_402, 1_412, 1_432, 1_444,
    1_452, 1_472, 3_952, 7_952, 8_952, 8_972, 16_336, 32_720, 65_488,
];

/// A short heartbeat that was sent.
#[derive(Debug, Clone, Copy)]
struct Heartbeat {
    /// When the heartbeat was sent, in ns of the caller's clock.
    time: u64,
    /// Whether its answer arrived.
    answered: bool,
}

/// Changes caused by a tick or an answer; `None` in a field means no change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// The peer answers again (true), or no longer does (false).
    pub up: Option<bool>,
    /// The new length of the longest datagram, in bytes of UDP payload.
    pub datagram: Option<usize>,
    /// The path became poor (true), or good again (false).
    pub poor: Option<bool>,
}

/// The health of one tunnel.
#[derive(Debug)]
pub struct Health {
    /// Whether the peer answers.
    up: bool,
    /// Short heartbeats, oldest first.
    heartbeats: VecDeque<Heartbeat>,
    /// When the next short heartbeat is sent.
    next_heartbeat: u64,
    /// Smoothed round trip, in ns; `None` before the first answer.
    rtt: Option<u64>,
    /// Smoothed deviation of the round trip, in ns.
    variation: u64,
    /// When the peer last proved that it receives our datagrams: by an answer, or by a frame, which
    /// a peer sends only while it considers us up.
    proven: u64,
    /// Whether the path is poor: `ethernet` prefers another path to the peer.
    poor: bool,
    /// How often the path became poor within [`FLAP_NS`] (1 min).
    flaps: u32,
    /// Since when the path has been good.
    good_since: u64,
    /// The longest datagram in use, in bytes of UDP payload.
    datagram: usize,
    /// Whether a datagram of that length was answered.
    verified: bool,
    /// The longest answered length since the search began.
    answered: usize,
    /// When that length replaces a longer length in use; `u64::MAX` for never.
    decide: u64,
    /// The longest datagram that leaves this host.
    longest: usize,
    /// Datagrams that the peer reported since loss was last computed: sent, and lost.
    reported: (u64, u64),
    /// Until when segments are cut at least; `None` while they are not cut.
    lossy: Option<u64>,
    /// When the next padded heartbeat of the length in use is due.
    next_check: u64,
    /// When the last padded heartbeat of the length in use was sent; `None` once it is answered.
    check: Option<u64>,
    /// Consecutive unanswered padded heartbeats of the length in use.
    unanswered: u32,
    /// When the next burst of candidate lengths is sent.
    next_probes: u64,
    /// Bursts left in this search.
    probe_bursts_left: u32,
}

impl Health {
    /// Returns the health of a tunnel whose datagrams may have `longest` bytes of UDP payload when
    /// they leave this host.
    pub fn new(longest: usize) -> Self {
        let longest = longest.clamp(DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX);
        Self {
            up: false,
            heartbeats: VecDeque::with_capacity(HEARTBEATS_KEPT),
            next_heartbeat: 0,
            rtt: None,
            variation: 0,
            proven: 0,
            poor: false,
            flaps: 0,
            good_since: 0,
            datagram: DATAGRAM_BYTES_SAFE.min(longest),
            verified: false,
            answered: 0,
            decide: u64::MAX,
            longest,
            reported: (0, 0),
            lossy: None,
            next_check: 0,
            check: None,
            unanswered: 0,
            next_probes: u64::MAX,
            probe_bursts_left: 0,
        }
    }

    /// Forgets all that was measured, for a tunnel that goes dormant.
    pub fn reset(&mut self) {
        *self = Self::new(self.longest);
    }

    /// Returns whether the peer answers.
    pub const fn is_up(&self) -> bool {
        self.up
    }

    /// Returns the smoothed round trip, in ns; `None` before the first answer.
    pub const fn rtt(&self) -> Option<u64> {
        self.rtt
    }

    /// Returns whether the path is poor: the tunnel went down, or lost many heartbeats, and has not
    /// recovered yet.
    pub const fn is_poor(&self) -> bool {
        self.poor
    }

    /// Returns how long an answer may take, in ns: four deviations above the smoothed round trip,
    /// as TCP's retransmission timer (RFC 6298).
    fn answer_timeout(&self) -> u64 {
        let rtt = self.rtt.unwrap_or(0);
        rtt.saturating_add(self.variation.saturating_mul(4)).min(ANSWER_NS_MAX)
    }

    /// Records a frame of the peer: a peer sends frames only while it considers us up.
    pub const fn record_frame(&mut self, now: u64) {
        self.proven = now;
    }

    /// Returns how many of the recorded heartbeats should have been answered by `now`, and how many
    /// of these were not.
    pub fn loss(&self, now: u64) -> (usize, usize) {
        self.loss_since(0, now)
    }

    /// As [`Health::loss`], for heartbeats sent since a time.
    fn loss_since(&self, since: u64, now: u64) -> (usize, usize) {
        let wait = self.answer_timeout().max(HEARTBEAT_NS);
        let all = self.heartbeats.iter().filter(|heartbeat| heartbeat.time >= since);
        let due = all
            .filter(|heartbeat| heartbeat.answered || heartbeat.time.saturating_add(wait) <= now);
        due.fold((0, 0), |(all, lost): (usize, usize), heartbeat| {
            (all.saturating_add(1), lost.saturating_add(usize::from(!heartbeat.answered)))
        })
    }

    /// Returns the longest datagram to send, in bytes of UDP payload.
    pub const fn datagram(&self) -> usize {
        self.datagram
    }

    /// Sends the next heartbeat at once, after a handshake.
    pub fn wake(&mut self) {
        self.next_heartbeat = 0;
    }

    /// Sets the peer down: without a session it cannot answer.
    pub const fn set_down(&mut self) {
        self.up = false;
    }

    /// Returns the time at which [`Health::tick`] has work, in ns of the caller's clock.
    pub fn deadline(&self) -> u64 {
        let long = self.next_probes.min(self.next_check).min(self.decide);
        let long = if self.up { long } else { u64::MAX };
        self.next_heartbeat.min(long)
    }

    /// Sends the heartbeats that are due: calls `send` with the length of each datagram in bytes, 0
    /// for the shortest possible. All carry the time `now`.
    pub fn tick(&mut self, now: u64, mut send: impl FnMut(usize)) -> Changes {
        let mut changes = Changes::default();
        if now >= self.next_heartbeat {
            let silence = HEARTBEAT_NS.saturating_mul(HEARTBEATS_MISSED);
            let silence = silence.saturating_add(self.answer_timeout());
            if self.up && self.proven.saturating_add(silence) <= now {
                self.up = false;
                changes.up = Some(false);
            }
            changes.poor = self.update_poor(now);
            if self.heartbeats.len() >= HEARTBEATS_KEPT {
                self.heartbeats.pop_front();
            }
            self.heartbeats.push_back(Heartbeat { time: now, answered: false });
            self.next_heartbeat = now.saturating_add(HEARTBEAT_NS);
            send(0);
        }
        if self.up {
            changes.datagram = self.tick_lengths(now, &mut send);
        }
        changes
    }

    /// Updates whether the path is poor. Returns the new state if it changed.
    fn update_poor(&mut self, now: u64) -> Option<bool> {
        let wait = self.answer_timeout().max(HEARTBEAT_NS);
        if !self.poor {
            if now.saturating_sub(self.good_since) >= FLAP_NS {
                self.flaps = 0;
            }
            // Losses from before the path became good are not counted twice.
            let (_, lost) = self.loss_since(self.good_since, now);
            let lossy = lost >= HEARTBEATS_POOR;
            let fell = !self.up && self.rtt.is_some();
            if !lossy && !fell {
                return None;
            }
            self.poor = true;
            self.flaps = self.flaps.saturating_add(1);
            return Some(true);
        }
        let due = self
            .heartbeats
            .iter()
            .rev()
            .filter(|b| b.answered || b.time.saturating_add(wait) <= now);
        let steady = due.take_while(|heartbeat| heartbeat.answered).count();
        let doublings = self.flaps.saturating_sub(1).min(8);
        let needed = (HEARTBEATS_GOOD << doublings).min(HEARTBEATS_GOOD_MAX);
        if !self.up || steady < needed {
            return None;
        }
        (self.poor, self.good_since) = (false, now);
        Some(false)
    }

    /// Runs the timers of the datagram length. Returns the new length if it changed.
    fn tick_lengths(&mut self, now: u64, send: &mut impl FnMut(usize)) -> Option<usize> {
        if now >= self.next_check {
            self.next_check = now.saturating_add(LENGTH_CHECK_NS);
            if self.check.is_some() {
                self.unanswered = self.unanswered.saturating_add(1);
                if self.unanswered >= LENGTH_CHECKS_MISSED {
                    return self.shrink(now);
                }
            }
            if self.verified {
                self.check = Some(now);
                send(self.datagram);
            }
        }
        if now >= self.decide {
            self.decide = u64::MAX;
            if !self.verified {
                return self.shorten();
            }
        }
        if now >= self.next_probes {
            if self.probe_bursts_left == 0 {
                self.probe_bursts_left = PROBE_BURSTS;
            }
            self.probe_bursts_left = self.probe_bursts_left.saturating_sub(1);
            let pause = if self.probe_bursts_left == 0 { SEARCH_NS } else { PROBE_BURST_NS };
            self.next_probes = now.saturating_add(pause);
            if self.decide == u64::MAX && !self.verified {
                let wait = SHORTER_NS.saturating_add(self.answer_timeout());
                self.decide = now.saturating_add(wait);
            }
            // All shorter lengths too, as long as the length in use is not verified.
            let least = if self.verified { self.datagram.saturating_add(1) } else { 0 };
            let may = |length: &usize| (least..self.longest).contains(length);
            LENGTHS.iter().copied().filter(may).for_each(&mut *send);
            if self.datagram < self.longest || !self.verified {
                send(self.longest);
            }
        }
        None
    }

    /// Records the answer to a heartbeat sent at `time` with `length` bytes, 0 for the shortest
    /// possible.
    pub fn record_answer(&mut self, now: u64, time: u64, length: usize) -> Changes {
        let mut changes = Changes::default();
        if length == 0 {
            let Some(heartbeat) =
                self.heartbeats.iter_mut().rev().find(|heartbeat| heartbeat.time == time)
            else {
                return changes;
            };
            if std::mem::replace(&mut heartbeat.answered, true) {
                return changes;
            }
            self.measure(now.saturating_sub(time));
            self.proven = now;
            if !self.up {
                self.up = true;
                changes.up = Some(true);
                self.search(now);
            }
        } else {
            if self.check == Some(time) && length == self.datagram {
                (self.check, self.unanswered) = (None, 0);
            }
            // Late answers do not count: the path may have changed since.
            let fresh = now.saturating_sub(time) < SEARCH_NS;
            if fresh && self.up && length <= self.longest {
                self.answered = self.answered.max(length);
                self.verified |= length >= self.datagram;
            }
            if fresh && length > self.datagram && length <= self.longest && self.up {
                self.datagram = length;
                (self.check, self.unanswered) = (None, 0);
                changes.datagram = Some(length);
            }
        }
        changes
    }

    /// Updates the smoothed round trip and its deviation by a measured round trip, in ns.
    fn measure(&mut self, trip: u64) {
        let Some(rtt) = self.rtt else {
            (self.rtt, self.variation) = (Some(trip), trip / 2);
            return;
        };
        let differs = rtt.abs_diff(trip);
        let variation = self.variation;
        self.variation = variation.saturating_sub(variation / 4).saturating_add(differs / 4);
        // Weight 7/8 for the history, 1/8 for the sample (RFC 6298).
        self.rtt = Some(rtt.saturating_sub(rtt / 8).saturating_add(trip / 8));
    }

    /// Adds a report of the peer: of `sent` datagrams, `arrived` arrived. Returns whether to cut
    /// segments, if that changed.
    pub fn record_delivery(&mut self, now: u64, sent: u64, arrived: u64) -> Option<bool> {
        let (all, lost) = self.reported;
        let (all, lost) =
            (all.saturating_add(sent), lost.saturating_add(sent.saturating_sub(arrived)));
        self.reported = (all, lost);
        if all < LOSS_SAMPLE {
            return None;
        }
        self.reported = (0, 0);
        let of_10000 = lost.saturating_mul(10_000).checked_div(all)?;
        let was = self.lossy.is_some();
        if of_10000 >= LOSSY_OF_10000 || (was && of_10000 > CLEAN_OF_10000) {
            self.lossy = Some(now.saturating_add(CLEAN_NS));
        } else if self.lossy.is_some_and(|until| until <= now) {
            self.lossy = None;
        }
        (self.lossy.is_some() != was).then_some(!was)
    }

    /// Returns whether senders should cut segments.
    pub const fn is_lossy(&self) -> bool {
        self.lossy.is_some()
    }

    /// Shortens datagrams after long ones were lost or rejected by the underlay, and restarts the
    /// search. Returns the new length, if it changed.
    pub fn shrink(&mut self, now: u64) -> Option<usize> {
        self.search(now.saturating_add(PROBE_BURST_NS));
        let before = self.datagram;
        // If even 1280 bytes of IPv6 do not arrive, only the shortest datagrams are sure to.
        let short =
            if before > DATAGRAM_BYTES_SAFE { DATAGRAM_BYTES_SAFE } else { DATAGRAM_BYTES_MIN };
        self.datagram = short.min(self.longest);
        (before != self.datagram).then_some(self.datagram)
    }

    /// Falls back to the longest answered length, because the length in use is not answered.
    fn shorten(&mut self) -> Option<usize> {
        let before = self.datagram;
        self.datagram = self.answered.clamp(DATAGRAM_BYTES_MIN, self.longest);
        self.verified = self.answered >= self.datagram;
        if !self.verified {
            self.search(self.next_check.min(self.next_heartbeat));
        }
        (before != self.datagram).then_some(self.datagram)
    }

    /// Begins a new search for the longest datagram at the time `at`.
    fn search(&mut self, at: u64) {
        (self.check, self.unanswered) = (None, 0);
        (self.verified, self.answered, self.decide) = (false, 0, u64::MAX);
        self.next_probes = at;
        self.probe_bursts_left = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `ms` milliseconds. `path` returns the longest datagram that is answered, 0 for none.
    fn play(health: &mut Health, from: u64, ms: u64, path: impl Fn(u64) -> usize) -> Vec<Changes> {
        let mut all = Vec::new();
        for now in (from..from + ms).map(|ms| ms * 1_000_000) {
            let mut sent = Vec::new();
            all.push(health.tick(now, |length| sent.push(length)));
            for length in sent {
                if length.max(100) <= path(now / 1_000_000) {
                    all.push(health.record_answer(now, now, length));
                }
            }
        }
        all.retain(|changes| *changes != Changes::default());
        all
    }

    #[test]
    fn health_peer_is_up_at_the_first_answer_and_down_after_three_missed() {
        let mut health = Health::new(1_472);
        let changes = play(&mut health, 0, 4_000, |ms| if ms < 1_900 { 1_472 } else { 0 });
        let ups: Vec<_> = changes.iter().filter_map(|changes| changes.up).collect();
        assert_eq!(ups, [true, false]);
        assert!(!health.is_up());
        assert_eq!(health.rtt(), Some(0));
        assert_eq!(health.loss(4_000_000_000), (8, 4));
    }

    /// Runs a path whose answers arrive `rtt` ms later, except where `lost`. Returns the changes.
    fn delayed(health: &mut Health, ms: u64, rtt: u64, lost: impl Fn(u64) -> bool) -> Vec<Changes> {
        let (mut all, mut answers) = (Vec::new(), VecDeque::new());
        for now in 0..ms {
            let mut sent = Vec::new();
            all.push(health.tick(now * 1_000_000, |length| sent.push(length)));
            for length in sent.into_iter().filter(|_| !lost(now)) {
                answers.push_back((now + rtt, now, length));
            }
            while answers.front().is_some_and(|(at, ..)| *at <= now) {
                let (at, time, length) = answers.pop_front().unwrap();
                all.push(health.record_answer(at * 1_000_000, time * 1_000_000, length));
            }
        }
        all.retain(|changes| *changes != Changes::default());
        all
    }

    #[test]
    fn a_long_round_trip_is_no_silence() {
        for rtt in [1_400, 1_600, 3_000, 6_000] {
            let mut health = Health::new(1_472);
            let changes = delayed(&mut health, 60_000, rtt, |_| false);
            let ups: Vec<_> = changes.iter().filter_map(|changes| changes.up).collect();
            assert_eq!(ups, [true], "round trip of {rtt} ms");
            assert_eq!(health.loss(60_000_000_000).1, 0, "round trip of {rtt} ms");
        }
    }

    #[test]
    fn frames_of_the_peer_prove_it_alive_while_heartbeats_are_lost() {
        let mut health = Health::new(1_472);
        play(&mut health, 0, 1_000, |_| 1_472);
        for second in 1..20 {
            health.record_frame(second * 1_000_000_000);
            let changes = play(&mut health, second * 1_000, 1_000, |_| 0);
            assert!(changes.iter().all(|changes| changes.up.is_none()), "second {second}");
        }
        assert!(health.is_poor(), "another path is better");
        let changes = play(&mut health, 20_000, 3_000, |_| 0);
        assert!(changes.iter().any(|changes| changes.up == Some(false)), "neither comes");
    }

    #[test]
    fn health_cuts_segments_above_the_loss_limit() {
        let mut health = Health::new(1_472);
        let second = |n: u64| n * 1_000_000_000;
        assert_eq!(health.record_delivery(second(1), 100_000, 99_990), None, "clean");
        assert_eq!(health.record_delivery(second(2), 1_000, 900), None, "too few");
        assert_eq!(health.record_delivery(second(3), 5_000, 5_000), Some(true));
        // Lower, but not clean.
        assert_eq!(health.record_delivery(second(20), 10_000, 9_990), None);
        assert_eq!(health.record_delivery(second(25), 10_000, 10_000), None, "not for long enough");
        assert_eq!(health.record_delivery(second(31), 10_000, 10_000), Some(false));
        assert_eq!(health.record_delivery(second(32), 10_000, u64::MAX), None, "nonsense");
    }

    #[test]
    fn a_lossy_path_does_not_come_and_go() {
        let mut health = Health::new(1_472);
        // Four of five heartbeats are lost, after a good start.
        let changes = delayed(&mut health, 120_000, 10, |ms| ms > 5_000 && ms / 500 % 5 != 0);
        let poor: Vec<_> = changes.iter().filter_map(|changes| changes.poor).collect();
        assert_eq!(poor, [true]);
        // A path that fails once is good again after two seconds; a path that keeps failing, later.
        let mut health = Health::new(1_472);
        let changes = delayed(&mut health, 60_000, 10, |ms| ms / 1_000 % 10 > 6);
        let flips = changes.iter().filter(|changes| changes.poor.is_some()).count();
        assert!(flips <= 8, "{flips}");
        let mut health = Health::new(1_472);
        let changes = delayed(&mut health, 12_000, 10, |ms| (3_000..6_000).contains(&ms));
        let poor: Vec<_> = changes.iter().filter_map(|changes| changes.poor).collect();
        assert_eq!(poor, [true, false]);
    }

    #[test]
    fn health_finds_the_longest_datagram_at_once() {
        for (longest, path, found) in [
            (1_472, 1_472, 1_472),
            (1_472, 1_412, 1_412),
            (8_972, 1_472, 1_472),
            (65_507, 65_507, 65_507),
            (1_000, 1_472, 1_000),
        ] {
            let mut health = Health::new(longest);
            play(&mut health, 0, 100, |_| path);
            assert_eq!(health.datagram(), found);
        }
    }

    #[test]
    fn a_path_below_what_ipv6_asks_for_is_found_and_left_again() {
        for (path, found) in [(1_172, 1_152), (1_000, 952), (548, 548)] {
            let mut health = Health::new(1_472);
            play(&mut health, 0, 4_000, |_| path);
            assert_eq!((health.datagram(), health.is_up()), (found, true), "{path}");
            play(&mut health, 4_000, 180_000, |_| 1_472);
            assert_eq!(health.datagram(), 1_472, "{path}");
        }
        // A path that becomes narrow later.
        let mut health = Health::new(1_472);
        play(&mut health, 0, 30_000, |ms| if ms < 5_000 { 1_472 } else { 700 });
        assert_eq!((health.datagram(), health.is_up()), (652, true));
    }

    #[test]
    fn health_detects_a_smaller_mtu_while_short_heartbeats_pass() {
        let mut health = Health::new(8_972);
        let changes = play(&mut health, 0, 30_000, |ms| if ms < 10_500 { 8_972 } else { 1_400 });
        let lengths: Vec<_> = changes.iter().filter_map(|changes| changes.datagram).collect();
        assert_eq!(lengths.last(), Some(&1_392), "{lengths:?}");
        assert!(lengths.contains(&1_232) && lengths.contains(&8_972));
        assert!(health.is_up());
        // A wider path is found by the next search.
        play(&mut health, 30_000, 61_000, |_| 8_972);
        assert_eq!(health.datagram(), 8_972);
    }

    #[test]
    fn hostile_answers_change_nothing() {
        let mut health = Health::new(1_472);
        assert_eq!(health.record_answer(5, 3, 0), Changes::default());
        assert_eq!(health.record_answer(5, 3, 1_472), Changes::default());
        play(&mut health, 0, 10, |_| 100);
        assert!(health.is_up());
        assert_eq!(health.record_answer(20_000_000, 0, 60_000), Changes::default());
        assert_eq!(health.record_answer(20_000_000, 0, 0), Changes::default(), "answered before");
    }
}
