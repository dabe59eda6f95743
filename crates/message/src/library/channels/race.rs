//! Which way is faster for a large message that is alone: read out of its sender's memory, or through
//! the channel. That depends on where its bytes are: just written by the other processor, untouched
//! since the last time, or in no cache at all; only the clock knows. So both are timed, the faster
//! one taken, and the other one tried again now and then: a few times in a row, of which the last
//! counts, because each way leaves caches as it is faster with the next time.

use crate::limits::{RACE_AGAIN, RACE_TRIALS};
use crate::split::{PeerId, Token};

/// What a KiB took each way of late, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Race {
    read: Option<u64>,
    pulled: Option<u64>,
    /// Messages since the slower way was tried.
    count: u32,
    /// While it is: which.
    trial: Option<Trial>,
}

/// The slower way's turn.
#[derive(Debug, Clone, Copy)]
struct Trial {
    reads: bool,
    /// Messages that are still to go this way, and of which the time is still to be heard.
    left: u32,
    unheard: u32,
}

/// A message that is timed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timed {
    pub(super) peer: PeerId,
    /// The receive that it is for.
    pub(super) token: Token,
    /// It is read, else it comes through the channel.
    pub(super) read: bool,
    pub(super) len: u32,
    /// What has not come yet, in bytes.
    pub(super) left: u32,
    /// When it was begun, in nanoseconds.
    pub(super) since: u64,
}

impl Race {
    /// Whether the next message is to be read.
    pub(super) fn reads(&mut self) -> bool {
        let (Some(read), Some(pulled)) = (self.read, self.pulled) else {
            return self.pulled.is_some();
        };
        let faster = read <= pulled;
        if let Some(trial) = &mut self.trial {
            if trial.left > 0 {
                trial.left = trial.left.saturating_sub(1);
                return trial.reads;
            }
            // What became of its last message is not known: it went another way in the end.
            self.trial = None;
        }
        self.count = self.count.saturating_add(1);
        if self.count >= RACE_AGAIN {
            self.count = 0;
            let left = RACE_TRIALS.saturating_sub(1);
            self.trial = Some(Trial { reads: !faster, left, unheard: RACE_TRIALS });
            return !faster;
        }
        faster
    }

    /// A message took so long. One that was held up by something else counts for little.
    pub(super) fn took(&mut self, timed: &Timed, now: u64) {
        let whole = now.saturating_sub(timed.since).saturating_mul(1024);
        let Some(new) = whole.checked_div(timed.len.into()) else { return };
        let known = if timed.read { &mut self.read } else { &mut self.pulled };
        if let Some(trial) = self.trial.as_mut().filter(|trial| trial.reads == timed.read) {
            trial.unheard = trial.unheard.saturating_sub(1);
            if trial.unheard == 0 {
                *known = Some(new);
                self.trial = None;
            }
            return;
        }
        *known = Some(match *known {
            None => new,
            Some(old) => {
                let most = old.saturating_add(old >> 2).saturating_add(1);
                old.midpoint(new.min(most))
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of 64 KiB of which those that are read take `read` microseconds, others `pulled`:
    /// how many were read.
    fn run(race: &mut Race, messages: u32, read: u64, pulled: u64) -> u32 {
        let reads = |_: &u32| {
            let reads = race.reads();
            let (peer, token, len) = (PeerId(1), Token(1), 1 << 16);
            let timed = Timed { peer, token, read: reads, len, left: 0, since: 5 };
            race.took(&timed, 5 + 1000 * if reads { read } else { pulled });
            reads
        };
        (0..messages).filter(reads).count() as u32
    }

    #[test]
    fn the_faster_way_is_taken_and_the_other_tried_now_and_then() {
        let mut race = Race::default();
        assert_eq!(run(&mut race, 2, 10, 30), 1, "both are tried");
        let turn = RACE_AGAIN + RACE_TRIALS - 1;
        assert_eq!(run(&mut race, 10 * turn, 10, 30), 10 * (turn - RACE_TRIALS));
        let slower = run(&mut race, 10 * turn, 90, 30);
        assert!(slower <= 10 * RACE_TRIALS + 10, "{slower} were read though it had become slow");
    }

    #[test]
    fn a_way_that_is_slow_the_first_time_alone_is_found_to_be_the_faster_one() {
        let mut race = Race::default();
        run(&mut race, 2, 90, 30);
        let mut before = false;
        for _ in 0..3 * RACE_AGAIN {
            let reads = race.reads();
            // Bytes that the other way has moved lie in the other processor's cache.
            let us = if !reads {
                30
            } else if before {
                20
            } else {
                90
            };
            let (peer, token, len) = (PeerId(1), Token(1), 1 << 16);
            race.took(&Timed { peer, token, read: reads, len, left: 0, since: 0 }, 1000 * us);
            before = reads;
        }
        assert!(before && race.reads(), "{race:?}");
    }

    #[test]
    fn one_that_was_held_up_changes_little() {
        let mut race = Race::default();
        run(&mut race, 50, 10, 30);
        race.took(
            &Timed {
                peer: PeerId(1),
                token: Token(1),
                read: true,
                len: 1 << 16,
                left: 0,
                since: 0,
            },
            50_000_000,
        );
        assert_eq!(run(&mut race, 20, 10, 30), 20);
    }
}
