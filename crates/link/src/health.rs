//! Whether a peer answers, how fast, how much is lost, and how long a datagram may be.
//!
//! Heartbeats leave in steady time; the peer answers each at once. Some are padded to the length
//! of the longest datagram in use, or to one that might be: the longest that is answered is used.
//! When long ones are no longer answered while short ones are, datagrams become short at once and
//! the search begins anew.

use std::collections::VecDeque;

use crate::limits::{
    DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_SAFE, HEARTBEAT_NS, HEARTBEATS_KEPT, HEARTBEATS_MISSED,
    LENGTH_CHECK_NS, LENGTH_CHECKS_MISSED, SEARCH_NS, VOLLEY_NS, VOLLEYS,
};

/// Lengths that are common on the way, in bytes of UDP payload: MTUs of 1280, 1400, 1420, 1440,
/// 1450, 1460, 1480, 1492, 1500, 4000, 8000, 9000, 16 Ki, 32 Ki and 64 Ki less IPv6's headers, and
/// of 1500 and 9000 less IPv4's.
const LENGTHS: [usize; 17] = [
    1_232, 1_352, 1_372, 1_392, 1_402, 1_412, 1_432, 1_444, 1_452, 1_472, 3_952, 7_952, 8_952,
    8_972, 16_336, 32_720, 65_488,
];

#[derive(Debug, Clone, Copy)]
struct Beat {
    time: u64,
    answered: bool,
}

/// What an answer changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// The peer answers again, or no longer does.
    pub up: Option<bool>,
    /// The longest datagram is another.
    pub datagram: Option<usize>,
}

/// The health of one tunnel.
#[derive(Debug)]
pub struct Health {
    up: bool,
    /// Short heartbeats, the oldest first.
    beats: VecDeque<Beat>,
    next_beat: u64,
    rtt: Option<u64>,
    /// The longest datagram that gets there.
    datagram: usize,
    /// The longest that leaves this host.
    longest: usize,
    next_check: u64,
    /// The last look whether long datagrams get there, and how many before it were missed.
    check: Option<u64>,
    missed: u32,
    next_volley: u64,
    volleys_left: u32,
}

impl Health {
    /// Of a tunnel whose datagrams may be `longest` bytes when they leave this host.
    pub fn new(longest: usize) -> Self {
        let longest = longest.clamp(DATAGRAM_BYTES_SAFE, DATAGRAM_BYTES_MAX);
        Self {
            up: false,
            beats: VecDeque::with_capacity(HEARTBEATS_KEPT),
            next_beat: 0,
            rtt: None,
            datagram: DATAGRAM_BYTES_SAFE,
            longest,
            next_check: 0,
            check: None,
            missed: 0,
            next_volley: u64::MAX,
            volleys_left: 0,
        }
    }

    /// Whether the peer answers.
    pub const fn is_up(&self) -> bool {
        self.up
    }

    /// The smoothed round trip, in ns.
    pub const fn rtt(&self) -> Option<u64> {
        self.rtt
    }

    /// Of the last heartbeats that should have been answered by `now`: how many, and how many
    /// were not.
    pub fn loss(&self, now: u64) -> (usize, usize) {
        let due =
            self.beats.iter().filter(|b| b.answered || b.time.saturating_add(HEARTBEAT_NS) <= now);
        due.fold((0, 0), |(all, lost): (usize, usize), beat| {
            (all.saturating_add(1), lost.saturating_add(usize::from(!beat.answered)))
        })
    }

    /// The longest datagram to be sent, in bytes of UDP payload.
    pub const fn datagram(&self) -> usize {
        self.datagram
    }

    /// A session was agreed on: the next heartbeat leaves at once.
    pub fn wake(&mut self) {
        self.next_beat = 0;
    }

    /// The peer cannot answer any more: there is no session.
    pub const fn give_up(&mut self) {
        self.up = false;
    }

    /// When [`Health::tick`] has something to do.
    pub fn deadline(&self) -> u64 {
        let long = if self.up { self.next_volley.min(self.next_check) } else { u64::MAX };
        self.next_beat.min(long)
    }

    /// Sends what is due: `send` gets the length of each heartbeat's datagram in bytes, 0 for as
    /// short as it may be. All carry the time `now`.
    pub fn tick(&mut self, now: u64, mut send: impl FnMut(usize)) -> Changes {
        let mut changes = Changes::default();
        if now >= self.next_beat {
            let last = self.beats.iter().rev().take(HEARTBEATS_MISSED);
            if self.up
                && last.clone().count() == HEARTBEATS_MISSED
                && last.clone().all(|b| !b.answered)
            {
                self.up = false;
                changes.up = Some(false);
            }
            if self.beats.len() >= HEARTBEATS_KEPT {
                self.beats.pop_front();
            }
            self.beats.push_back(Beat { time: now, answered: false });
            self.next_beat = now.saturating_add(HEARTBEAT_NS);
            send(0);
        }
        if self.up {
            changes.datagram = self.tick_lengths(now, &mut send);
        }
        changes
    }

    fn tick_lengths(&mut self, now: u64, send: &mut impl FnMut(usize)) -> Option<usize> {
        if now >= self.next_check {
            self.next_check = now.saturating_add(LENGTH_CHECK_NS);
            if self.check.is_some() {
                self.missed = self.missed.saturating_add(1);
                if self.missed >= LENGTH_CHECKS_MISSED {
                    return self.shrink(now);
                }
            }
            if self.datagram > DATAGRAM_BYTES_SAFE {
                self.check = Some(now);
                send(self.datagram);
            }
        }
        if now >= self.next_volley {
            if self.volleys_left == 0 {
                self.volleys_left = VOLLEYS;
            }
            self.volleys_left = self.volleys_left.saturating_sub(1);
            let pause = if self.volleys_left == 0 { SEARCH_NS } else { VOLLEY_NS };
            self.next_volley = now.saturating_add(pause);
            let may =
                |length: &usize| (self.datagram.saturating_add(1)..self.longest).contains(length);
            LENGTHS.iter().copied().filter(may).for_each(&mut *send);
            if self.datagram < self.longest {
                send(self.longest);
            }
        }
        None
    }

    /// The peer answered a heartbeat of that time and length.
    pub fn answered(&mut self, now: u64, time: u64, length: usize) -> Changes {
        let mut changes = Changes::default();
        if length == 0 {
            let Some(beat) = self.beats.iter_mut().rev().find(|beat| beat.time == time) else {
                return changes;
            };
            if std::mem::replace(&mut beat.answered, true) {
                return changes;
            }
            let trip = now.saturating_sub(time);
            // Seven parts of what was, one of what is.
            self.rtt = Some(match self.rtt {
                Some(rtt) => rtt.saturating_sub(rtt / 8).saturating_add(trip / 8),
                None => trip,
            });
            if !self.up {
                self.up = true;
                changes.up = Some(true);
                self.search(now);
            }
        } else {
            if self.check == Some(time) && length == self.datagram {
                (self.check, self.missed) = (None, 0);
            }
            // Late answers do not count: the path may have changed since.
            let fresh = now.saturating_sub(time) < SEARCH_NS;
            if fresh && length > self.datagram && length <= self.longest && self.up {
                self.datagram = length;
                (self.check, self.missed) = (None, 0);
                changes.datagram = Some(length);
            }
        }
        changes
    }

    /// Long datagrams do not get there, as was found here or said by the underlay. Says the new
    /// length, where it is new.
    pub fn shrink(&mut self, now: u64) -> Option<usize> {
        self.search(now.saturating_add(VOLLEY_NS));
        let changed = self.datagram != DATAGRAM_BYTES_SAFE;
        self.datagram = DATAGRAM_BYTES_SAFE;
        changed.then_some(self.datagram)
    }

    fn search(&mut self, at: u64) {
        (self.check, self.missed) = (None, 0);
        self.next_volley = at;
        self.volleys_left = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `ms` milliseconds; `path` says the longest datagram that comes back, 0 for none.
    fn play(health: &mut Health, from: u64, ms: u64, path: impl Fn(u64) -> usize) -> Vec<Changes> {
        let mut all = Vec::new();
        for now in (from..from + ms).map(|ms| ms * 1_000_000) {
            let mut sent = Vec::new();
            all.push(health.tick(now, |length| sent.push(length)));
            for length in sent {
                if length.max(100) <= path(now / 1_000_000) {
                    all.push(health.answered(now, now, length));
                }
            }
        }
        all.retain(|changes| *changes != Changes::default());
        all
    }

    #[test]
    fn a_peer_is_up_at_the_first_answer_and_down_after_three_missed() {
        let mut health = Health::new(1_472);
        let changes = play(&mut health, 0, 4_000, |ms| if ms < 1_900 { 1_472 } else { 0 });
        let ups: Vec<_> = changes.iter().filter_map(|changes| changes.up).collect();
        assert_eq!(ups, [true, false]);
        assert!(!health.is_up());
        assert_eq!(health.rtt(), Some(0));
        assert_eq!(health.loss(4_000_000_000), (8, 4));
    }

    #[test]
    fn the_longest_datagram_is_found_at_once() {
        for (longest, path, found) in [
            (1_472, 1_472, 1_472),
            (1_472, 1_412, 1_412),
            (8_972, 1_472, 1_472),
            (65_507, 65_507, 65_507),
            (1_000, 1_472, 1_232),
        ] {
            let mut health = Health::new(longest);
            play(&mut health, 0, 100, |_| path);
            assert_eq!(health.datagram(), found);
        }
    }

    #[test]
    fn a_path_that_becomes_narrow_is_noticed_while_short_heartbeats_pass() {
        let mut health = Health::new(8_972);
        let changes = play(&mut health, 0, 30_000, |ms| if ms < 10_500 { 8_972 } else { 1_400 });
        let lengths: Vec<_> = changes.iter().filter_map(|changes| changes.datagram).collect();
        assert_eq!(lengths.last(), Some(&1_392), "{lengths:?}");
        assert!(lengths.contains(&1_232) && lengths.contains(&8_972));
        assert!(health.is_up());
        // And wide again, at the next search.
        play(&mut health, 30_000, 61_000, |_| 8_972);
        assert_eq!(health.datagram(), 8_972);
    }

    #[test]
    fn hostile_answers_change_nothing() {
        let mut health = Health::new(1_472);
        assert_eq!(health.answered(5, 3, 0), Changes::default());
        assert_eq!(health.answered(5, 3, 1_472), Changes::default());
        play(&mut health, 0, 10, |_| 100);
        assert!(health.is_up());
        assert_eq!(health.answered(20_000_000, 0, 60_000), Changes::default());
        assert_eq!(health.answered(20_000_000, 0, 0), Changes::default(), "answered before");
    }
}
