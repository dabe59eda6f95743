//! Boards that we were sent something of and do not know: the daemon is to be asked whether it knows
//! them. However many there seem to be, few are asked about, and none waits twice.

use std::collections::VecDeque;

use causeway_message::split::NicId;

use crate::limits::{ASKED_MAX, ASKED_NS};

/// See above.
#[derive(Debug, Default)]
pub struct Strangers {
    /// To be asked about; at most [`ASKED_MAX`].
    waiting: VecDeque<NicId>,
    /// Those that it was asked about since then.
    asked: Vec<NicId>,
    since_ns: u64,
}

impl Strangers {
    /// A board that we do not know sent something.
    #[cold]
    pub fn met(&mut self, now_ns: u64, board: NicId) {
        if now_ns.saturating_sub(self.since_ns) >= ASKED_NS {
            // Who was not known then may be now; who still waits is asked about anyway.
            (self.since_ns, self.asked) = (now_ns, self.waiting.iter().copied().collect());
        }
        if self.asked.len() < ASKED_MAX && !self.asked.contains(&board) {
            self.asked.push(board);
            self.waiting.push_back(board);
        }
    }

    /// Whether there is nobody to be asked about.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next one that is to be asked about.
    #[inline]
    pub fn next(&mut self) -> Option<NicId> {
        self.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_asked_about_once_in_a_while() {
        let mut strangers = Strangers::default();
        for at in [0, 1, ASKED_NS - 1] {
            strangers.met(at, NicId(7));
        }
        assert_eq!((strangers.next(), strangers.next()), (Some(NicId(7)), None));
        strangers.met(ASKED_NS, NicId(7));
        assert_eq!(strangers.next(), Some(NicId(7)));
    }

    #[test]
    fn hostile_hosts_with_many_addresses_leave_few_to_be_asked_about() {
        let mut strangers = Strangers::default();
        for turn in 0..1000 {
            for board in 0..2 * ASKED_MAX as u64 {
                strangers.met(turn * ASKED_NS, NicId(board));
            }
            assert!(strangers.waiting.len() <= ASKED_MAX, "{turn}: {}", strangers.waiting.len());
            strangers.next().expect("somebody");
        }
        while strangers.next().is_some() {}
        assert!(strangers.is_empty());
    }
}
