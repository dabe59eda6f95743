//! A message that both sides copy, each from another end.
//!
//! Where its bytes lie at both sides is not the channel's to know; here is only whose turn it is.
//! One word says how far each side came. Each takes its next parts by exchanging the word, so none
//! is ever taken twice, and whoever finds nothing left knows that the other has the rest. A sender
//! that copies says so in the same exchange (`BUSY`) and takes it back after: only a receiver that
//! sees it taken back may give its memory up. What it cannot copy it gives back, and the receiver
//! takes it. The steps are written over [`Cell`] so that the checker in `tests/loom_shared.rs` runs
//! the code that runs in production.
//!
//! The end that a side takes from ([`End`]) goes with the side, not with who sends: what a processor
//! copied one way is then what it copies the other way, and still in its cache. Half a round trip of
//! 1 MiB takes 53 us so, and 75 where who receives takes from the front (two processors with a cache
//! line of 0.05 us).
//!
//! # The word
//! | bits | what |
//! |---|---|
//! | 0 to 21 | parts that were taken from the front |
//! | 21 to 42 | parts, from the first on, that were not taken from the back |
//! | 42 | the sender copies |
//! | 43 to 64 | which message; 0: none |
//!
//! # Trust
//! The peer may write anything there. What contradicts our own part of it ends the sharing
//! ([`Broken`]); what does not is at worst a part that it says it copied and did not, or did where
//! it could have at any time.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::{Broken, Side};

/// Bits of a count of parts.
const COUNT_BITS: u32 = 21;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
const BUSY: u64 = 1 << (2 * COUNT_BITS);
const NUMBER_AT: u32 = 2 * COUNT_BITS + 1;
/// The highest number of a message.
const NUMBER_MAX: u32 = u32::MAX >> (NUMBER_AT - 32);
/// How often an exchange is tried: the other side changes the word once for each part of its own.
const TRIES: u32 = 64;

/// Most parts of a message: those of 4 GiB, 4 KiB each.
pub const PARTS_MAX: u32 = 1 << 20;

/// A word that two sides exchange.
pub trait Cell {
    /// Loads it.
    fn load(&self, order: Ordering) -> u64;
    /// Stores it.
    fn store(&self, value: u64, order: Ordering);
    /// Stores `new` if it is `current`; else says what it is.
    ///
    /// # Errors
    /// It is something else.
    fn exchange(&self, current: u64, new: u64) -> Result<(), u64>;
}

/// From where a side takes parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// From the first on.
    Front,
    /// From the last on.
    Back,
}

impl End {
    /// That of a side.
    pub fn of(side: Side) -> Self {
        match side {
            Side::First => Self::Front,
            Side::Second => Self::Back,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Front => Self::Back,
            Self::Back => Self::Front,
        }
    }
}

/// How many parts are taken at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// At least, while there are as many; and of a message of few parts, half of it.
    pub least: u32,
    /// At most. Between them half of what is left, so that both sides end together.
    pub most: u32,
}

impl Most {
    fn of(self, left: u32, parts: u32) -> u32 {
        let least = self.least.min(parts / 2).max(1);
        (left / 2).min(self.most).max(least).min(left)
    }
}

/// What the word says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Said {
    front: u32,
    back: u32,
    busy: bool,
    number: u32,
}

impl Said {
    fn of(word: u64) -> Self {
        Self {
            front: (word & COUNT) as u32,
            back: (word >> COUNT_BITS & COUNT) as u32,
            busy: word & BUSY != 0,
            number: (word >> NUMBER_AT) as u32,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.front)
            | u64::from(self.back) << COUNT_BITS
            | if self.busy { BUSY } else { 0 }
            | u64::from(self.number) << NUMBER_AT
    }

    fn left(self) -> u32 {
        self.back.saturating_sub(self.front)
    }

    /// How far an end came.
    fn at(self, end: End) -> u32 {
        match end {
            End::Front => self.front,
            End::Back => self.back,
        }
    }

    /// With an end that far.
    fn with(self, end: End, at: u32) -> Self {
        match end {
            End::Front => Self { front: at, ..self },
            End::Back => Self { back: at, ..self },
        }
    }

    /// With so many more taken from an end; and which.
    fn take(self, end: End, parts: u32) -> (Self, Range<u32>) {
        match end {
            End::Front => {
                let front = self.front.saturating_add(parts);
                (Self { front, ..self }, self.front..front)
            }
            End::Back => {
                let back = self.back.saturating_sub(parts);
                (Self { back, ..self }, back..self.back)
            }
        }
    }
}

/// What the receiver does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// Copies these.
    Copy(Range<u32>),
    /// The sender copies what is left, and will tell when it is there or not.
    Wait,
    /// All is there.
    Done,
}

/// The receiver's side of a message that is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taking {
    end: End,
    number: u32,
    parts: u32,
    /// How far we came.
    own: u32,
}

impl Taking {
    /// Shares a message of so many parts, at most [`PARTS_MAX`], of which the receiver takes from
    /// `end`; `last` is the number of the one before. The sender is to be told the number afterwards.
    pub fn begin<C: Cell>(cell: &C, end: End, last: u32, parts: u32) -> Self {
        let number = if last >= NUMBER_MAX { 1 } else { last.saturating_add(1) };
        let parts = parts.min(PARTS_MAX);
        let said = Said { front: 0, back: parts, busy: false, number };
        cell.store(said.word(), Ordering::Release);
        Self { end, number, parts, own: said.at(end) }
    }

    /// The number that names it to the sender.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What the word says, if the sender keeps the rules.
    fn said(&self, word: u64) -> Result<Said, Broken> {
        let said = Said::of(word);
        let fits = said.number == self.number && said.at(self.end) == self.own;
        let fits = fits && said.back <= self.parts && said.front <= said.back;
        if fits { Ok(said) } else { Err(Broken) }
    }

    /// Changes the word: gives what it said, and what it says.
    fn change<C: Cell>(
        &mut self,
        cell: &C,
        how: impl Fn(Said) -> Said,
    ) -> Result<(Said, Said), Broken> {
        let mut word = cell.load(Ordering::Acquire);
        for _ in 0..TRIES {
            let was = self.said(word)?;
            let is = how(was);
            match cell.exchange(word, is.word()) {
                Ok(()) => {
                    self.own = is.at(self.end);
                    return Ok((was, is));
                }
                Err(other) => word = other,
            }
        }
        Err(Broken)
    }

    /// Takes the next parts to copy.
    ///
    /// # Errors
    /// The sender broke the rules.
    pub fn take<C: Cell>(&mut self, cell: &C, most: Most) -> Result<Turn, Broken> {
        let (end, all) = (self.end, self.parts);
        let next = |said: Said| said.take(end, most.of(said.left(), all));
        let (was, _) = self.change(cell, |said| next(said).0)?;
        let (_, parts) = next(was);
        Ok(match (parts.is_empty(), was.busy) {
            (false, _) => Turn::Copy(parts),
            (true, true) => Turn::Wait,
            (true, false) => Turn::Done,
        })
    }

    /// Whether the sender copies at this moment.
    ///
    /// # Errors
    /// The sender broke the rules.
    pub fn is_copied<C: Cell>(&self, cell: &C) -> Result<bool, Broken> {
        Ok(self.said(cell.load(Ordering::Acquire))?.busy)
    }

    /// Leaves nothing to be taken; says whether the sender copies at this moment. Only when it does
    /// not ([`Self::is_copied`]) nothing is written any more.
    pub fn end<C: Cell>(&mut self, cell: &C) -> bool {
        let end = self.end;
        match self.change(cell, |said| said.with(end, said.at(end.other()))) {
            Ok((was, _)) => was.busy,
            Err(Broken) => {
                // Nobody takes anything of a message that is none.
                cell.store(0, Ordering::Release);
                false
            }
        }
    }
}

/// The sender's side of a message that is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Giving {
    end: End,
    number: u32,
    parts: u32,
    /// How far the receiver was when this side took its last, and how many it took since.
    seen: Option<u32>,
    since: u32,
}

/// What the sender may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Copy these, and then [`Giving::copied`].
    Copy(Range<u32>),
    /// The receiver took nothing since the last two: wait for it. It may be no more.
    Wait,
    /// Nothing is left, or it is another message's time.
    Over,
}

impl Giving {
    /// The message of that number, of so many parts, of which the sender takes from `end`.
    pub fn of(end: End, number: u32, parts: u32) -> Self {
        Self { end, number, parts: parts.min(PARTS_MAX), seen: None, since: 0 }
    }

    fn said(&self, word: u64) -> Option<Said> {
        let said = Said::of(word);
        let fits = said.number == self.number && self.number > 0 && said.back <= self.parts;
        (fits && said.left() > 0).then_some(said)
    }

    /// Takes the next parts to copy.
    pub fn next<C: Cell>(&mut self, cell: &C, most: Most) -> Next {
        let mut word = cell.load(Ordering::Acquire);
        for _ in 0..TRIES {
            let Some(said) = self.said(word) else { return Next::Over };
            let other = said.at(self.end.other());
            let since = if self.seen == Some(other) { self.since } else { 0 };
            if since >= 2 {
                return Next::Wait;
            }
            let (is, parts) = said.take(self.end, most.of(said.left(), self.parts));
            match cell.exchange(word, Said { busy: true, ..is }.word()) {
                Ok(()) => {
                    (self.seen, self.since) = (Some(other), since.saturating_add(1));
                    return Next::Copy(parts);
                }
                Err(other) => word = other,
            }
        }
        Next::Over
    }

    /// The parts that [`Self::next`] gave were copied; or could not be, then nothing else is to be.
    /// True: the receiver may have come to its end, and is to be told.
    pub fn copied<C: Cell>(&self, cell: &C, parts: Range<u32>, well: bool) -> bool {
        let before = match self.end {
            End::Front => parts.start,
            End::Back => parts.end,
        };
        let mut word = cell.load(Ordering::Acquire);
        for _ in 0..TRIES {
            let said = Said::of(word);
            if said.number != self.number {
                return false;
            }
            let is = if well { said } else { said.with(self.end, before) };
            match cell.exchange(word, Said { busy: false, ..is }.word()) {
                Ok(()) => return said.left() == 0,
                Err(other) => word = other,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    struct Word(AtomicU64);

    impl Cell for Word {
        fn load(&self, order: Ordering) -> u64 {
            self.0.load(order)
        }
        fn store(&self, value: u64, order: Ordering) {
            self.0.store(value, order);
        }
        fn exchange(&self, current: u64, new: u64) -> Result<(), u64> {
            let (yes, no) = (Ordering::AcqRel, Ordering::Acquire);
            self.0.compare_exchange(current, new, yes, no).map(drop)
        }
    }

    const FOUR: Most = Most { least: 4, most: 4 };

    fn word() -> Word {
        Word(AtomicU64::new(0))
    }

    #[test]
    fn every_part_is_taken_once_whoever_is_faster() {
        for (parts, turns) in [(1, 1), (2, 1), (3, 2), (256, 1), (257, 3), (PARTS_MAX, 2)] {
            for end in [End::Front, End::Back] {
                let cell = word();
                let most = Most { least: 4, most: 16 };
                let mut taking = Taking::begin(&cell, end, 7, parts);
                let mut giving = Giving::of(end.other(), taking.number(), parts);
                let (mut left, mut turn) = (0..parts, 0);
                let took = |left: &mut Range<u32>, range: &Range<u32>, by: End| match by {
                    End::Front => {
                        assert_eq!(std::mem::replace(&mut left.start, range.end), range.start)
                    }
                    End::Back => {
                        assert_eq!(std::mem::replace(&mut left.end, range.start), range.end)
                    }
                };
                loop {
                    turn += 1;
                    if turn % (turns + 1) == 0 {
                        match giving.next(&cell, most) {
                            Next::Copy(range) => {
                                took(&mut left, &range, end.other());
                                assert_eq!(taking.is_copied(&cell), Ok(true));
                                assert_eq!(giving.copied(&cell, range, true), left.is_empty());
                            }
                            Next::Over => assert!(left.is_empty()),
                            Next::Wait => {}
                        }
                    } else if let Turn::Copy(range) = taking.take(&cell, most).unwrap() {
                        took(&mut left, &range, end);
                    } else {
                        break;
                    }
                }
                assert!(left.is_empty());
                assert_eq!(taking.take(&cell, most), Ok(Turn::Done));
            }
        }
    }

    #[test]
    fn a_sender_does_not_run_ahead_of_a_receiver_that_takes_nothing() {
        let cell = word();
        let mut taking = Taking::begin(&cell, End::Front, 0, 64);
        let mut giving = Giving::of(End::Back, taking.number(), 64);
        for at in [60, 56] {
            assert_eq!(giving.next(&cell, FOUR), Next::Copy(at..at + 4));
            assert!(!giving.copied(&cell, at..at + 4, true));
        }
        assert_eq!(giving.next(&cell, FOUR), Next::Wait);
        assert_eq!(taking.take(&cell, FOUR), Ok(Turn::Copy(0..4)));
        assert_eq!(giving.next(&cell, FOUR), Next::Copy(52..56));
    }

    #[test]
    fn what_could_not_be_copied_is_given_back_and_another_message_is_left_alone() {
        for (end, first, last) in [(End::Front, 0..4, 4..8), (End::Back, 4..8, 0..4)] {
            let cell = word();
            let mut taking = Taking::begin(&cell, end, NUMBER_MAX, 8);
            assert_eq!(taking.number(), 1, "they begin anew");
            let mut giving = Giving::of(end.other(), 1, 8);
            assert_eq!(giving.next(&cell, FOUR), Next::Copy(last.clone()));
            assert_eq!(taking.take(&cell, FOUR), Ok(Turn::Copy(first)));
            assert_eq!(taking.take(&cell, FOUR), Ok(Turn::Wait));
            assert!(giving.copied(&cell, last.clone(), false), "the receiver waits");
            assert_eq!(taking.take(&cell, FOUR), Ok(Turn::Copy(last.clone())));
            // One that is late for its message.
            let mut next = Taking::begin(&cell, end, 1, 8);
            assert_eq!(giving.next(&cell, FOUR), Next::Over);
            assert!(!giving.copied(&cell, last, false));
            let all = [next.take(&cell, FOUR), next.take(&cell, FOUR), next.take(&cell, FOUR)];
            assert!(matches!(all, [Ok(Turn::Copy(_)), Ok(Turn::Copy(_)), Ok(Turn::Done)]));
        }
    }

    #[test]
    fn a_receiver_that_ends_it_knows_whether_it_is_written_to() {
        let cell = word();
        let mut taking = Taking::begin(&cell, End::Front, 0, 64);
        let mut giving = Giving::of(End::Back, 1, 64);
        let Next::Copy(range) = giving.next(&cell, FOUR) else { panic!("nothing to copy") };
        assert!(taking.end(&cell));
        assert_eq!(taking.is_copied(&cell), Ok(true));
        assert!(giving.copied(&cell, range, true));
        assert_eq!(taking.is_copied(&cell), Ok(false));
        assert_eq!(giving.next(&cell, FOUR), Next::Over);
        assert!(!taking.end(&cell));
    }

    #[test]
    fn hostile_words_end_the_sharing_and_nothing_else() {
        let honest = Said { front: 4, back: 8, busy: false, number: 1 };
        let lies = [
            0,
            u64::MAX,
            Said { number: 2, ..honest }.word(),
            Said { front: 5, ..honest }.word(),
            Said { back: 9, ..honest }.word(),
            Said { back: 3, ..honest }.word(),
        ];
        for lie in lies {
            let cell = word();
            let mut taking = Taking::begin(&cell, End::Front, 0, 8);
            taking.take(&cell, FOUR).unwrap();
            cell.store(lie, Ordering::Relaxed);
            assert_eq!(taking.take(&cell, FOUR), Err(Broken));
            assert_eq!(taking.is_copied(&cell), Err(Broken));
            assert!(!taking.end(&cell));
            assert_eq!(taking.is_copied(&cell), Err(Broken));
            assert_eq!(Giving::of(End::Back, 1, 3).next(&cell, FOUR), Next::Over);
        }
    }
}
