//! Cooperative copy: sender and receiver copy one message together, each from its own end.
//!
//! `message` uses it for a long message between two processes of a host; each process copies
//! between its own memory and the memory of the other. The channel does not know the position of
//! the message's bytes; this module only distributes *parts*, pieces of the message with a size
//! that both sides agreed on, at most [`PARTS_MAX`] (2^20). It copies no bytes, does not block, and
//! each direction has one cooperative copy at a time: [`ReceiverShare::begin`] ends an earlier one,
//! whose sender then finds [`SenderStep::Over`]. Each share is used in the thread of its process
//! that polls the endpoint. `message` copies a message of more parts in another way.
//!
//! A single word holds the progress of both sides. Each side takes its next parts by
//! compare-and-exchange of the word, so no part is taken twice, and a side that finds no part left
//! knows that the other has the rest. A sender that copies sets `BUSY` in the same exchange and
//! clears it afterwards: the receiver may release its memory only after it sees the bit cleared.
//! The sender returns parts that it cannot copy, and the receiver takes them. After `TRIES` (64)
//! failed exchanges the receiver reports [`BrokenChannel`], and the sender stops. The steps are
//! generic over [`Cell`], so that the model checker in `tests/loom_shared.rs` runs the production
//! code.
//!
//! The end from which a side takes ([`CopyEnd`]) belongs to the side, not to the role: so a
//! processor copies the same bytes in both directions of a ping-pong, and still has them in its
//! cache. Half a round trip of 1 MiB takes 53 us, compared with 75 us if the receiver always takes
//! from the front (two processors with a transfer of 0.05 us per line).
//!
//! # The word
//! | bits (the last excluded) | content |
//! |---|---|
//! | 0 to 21 | number of parts taken from the front |
//! | 21 to 42 | number of parts, from the first on, not taken from the back |
//! | 42 | the sender copies |
//! | 43 to 64 | number of the message; 0: none |
//!
//! # Trust
//! The peer may write any value. A value that contradicts the own progress ends the copy
//! ([`BrokenChannel`]). Any other false value is at worst a part that the peer claims to have
//! copied, or a write where the peer could have written at any time.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::{BrokenChannel, Side};

/// Width of a part count, in bits.
const COUNT_BITS: u32 = 21;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
const BUSY: u64 = 1 << (2 * COUNT_BITS);
const NUMBER_AT: u32 = 2 * COUNT_BITS + 1;
/// Largest number of a message.
const NUMBER_MAX: u32 = u32::MAX >> (NUMBER_AT - 32);
/// Maximum number of attempts of an exchange: a correct peer changes the word once for each of its
/// steps. After them the receiver reports [`BrokenChannel`].
const TRIES: u32 = 64;

/// Maximum number of parts of a message: those of 4 GiB in parts of 4 KiB.
pub const PARTS_MAX: u32 = 1 << 20;

/// A word that both sides compare and exchange.
pub trait Cell {
    /// Loads the word.
    fn load(&self, order: Ordering) -> u64;
    /// Stores the word.
    fn store(&self, value: u64, order: Ordering);
    /// Stores `new` if the word equals `current`.
    ///
    /// # Errors
    /// The actual word, if it differs.
    fn exchange(&self, current: u64, new: u64) -> Result<(), u64>;
}

/// The end from which a side takes parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyEnd {
    /// Ascending from the first part.
    Front,
    /// Descending from the last part.
    Back,
}

impl CopyEnd {
    /// Returns the end of a side.
    pub fn of(side: Side) -> Self {
        match side {
            Side::First => Self::Front,
            Side::Second => Self::Back,
        }
    }

    /// Returns the opposite end.
    fn other(self) -> Self {
        match self {
            Self::Front => Self::Back,
            Self::Back => Self::Front,
        }
    }
}

/// Limits of the number of parts that a side takes at a time. Between them a side takes half of the
/// rest, so that both sides finish together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareSize {
    /// Minimum, as long as parts remain; at most half of the message.
    pub least: u32,
    /// Maximum.
    pub most: u32,
}

impl ShareSize {
    /// Returns the number of parts to take if `left` of `parts` parts remain.
    fn of(self, left: u32, parts: u32) -> u32 {
        let least = self.least.min(parts / 2).max(1);
        (left / 2).min(self.most).max(least).min(left)
    }
}

/// The fields of the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SharedWord {
    /// Parts taken from the front.
    front: u32,
    /// Parts not taken from the back, counted from the first part.
    back: u32,
    /// Whether the sender copies.
    busy: bool,
    /// Number of the message.
    number: u32,
}

impl SharedWord {
    /// Decodes a word.
    fn of(word: u64) -> Self {
        Self {
            front: (word & COUNT) as u32,
            back: (word >> COUNT_BITS & COUNT) as u32,
            busy: word & BUSY != 0,
            number: (word >> NUMBER_AT) as u32,
        }
    }

    /// Encodes the fields.
    fn word(self) -> u64 {
        u64::from(self.front)
            | u64::from(self.back) << COUNT_BITS
            | if self.busy { BUSY } else { 0 }
            | u64::from(self.number) << NUMBER_AT
    }

    /// Returns the number of parts that no side has taken.
    fn left(self) -> u32 {
        self.back.saturating_sub(self.front)
    }

    /// Returns the progress of an end.
    fn at(self, end: CopyEnd) -> u32 {
        match end {
            CopyEnd::Front => self.front,
            CopyEnd::Back => self.back,
        }
    }

    /// Returns the fields with the progress of an end replaced.
    fn with(self, end: CopyEnd, at: u32) -> Self {
        match end {
            CopyEnd::Front => Self { front: at, ..self },
            CopyEnd::Back => Self { back: at, ..self },
        }
    }

    /// Returns the fields after taking `parts` parts from an end, and these parts.
    fn take(self, end: CopyEnd, parts: u32) -> (Self, Range<u32>) {
        match end {
            CopyEnd::Front => {
                let front = self.front.saturating_add(parts);
                (Self { front, ..self }, self.front..front)
            }
            CopyEnd::Back => {
                let back = self.back.saturating_sub(parts);
                (Self { back, ..self }, back..self.back)
            }
        }
    }
}

/// Next step of the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverStep {
    /// Copy these parts.
    Copy(Range<u32>),
    /// The sender copies the rest, and reports its end.
    Wait,
    /// All parts are copied.
    Done,
}

/// The receiver's side of a cooperative copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverShare {
    /// The end from which the receiver takes.
    end: CopyEnd,
    /// Number of the message.
    number: u32,
    /// Number of parts of the message.
    parts: u32,
    /// Own progress.
    own: u32,
}

impl ReceiverShare {
    /// Starts the copy of a message of `parts` parts, at most [`PARTS_MAX`] (2^20): further parts
    /// would never be taken. The receiver takes from `end`; `last` is the number of the previous
    /// message. The caller must pass the new number to the sender afterwards.
    pub fn begin<C: Cell>(cell: &C, end: CopyEnd, last: u32, parts: u32) -> Self {
        let number = if last >= NUMBER_MAX { 1 } else { last.saturating_add(1) };
        let parts = parts.min(PARTS_MAX);
        let fields = SharedWord { front: 0, back: parts, busy: false, number };
        cell.store(fields.word(), Ordering::Release);
        Self { end, number, parts, own: fields.at(end) }
    }

    /// Returns the number of the message.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the fields of the word, if the sender follows the rules.
    fn fields(&self, word: u64) -> Result<SharedWord, BrokenChannel> {
        let fields = SharedWord::of(word);
        let fits = fields.number == self.number && fields.at(self.end) == self.own;
        let fits = fits && fields.back <= self.parts && fields.front <= fields.back;
        if fits { Ok(fields) } else { Err(BrokenChannel) }
    }

    /// Changes the word. Returns its fields before and after.
    fn change<C: Cell>(
        &mut self,
        cell: &C,
        how: impl Fn(SharedWord) -> SharedWord,
    ) -> Result<(SharedWord, SharedWord), BrokenChannel> {
        let mut word = cell.load(Ordering::Acquire);
        for _ in 0..TRIES {
            let was = self.fields(word)?;
            let is = how(was);
            match cell.exchange(word, is.word()) {
                Ok(()) => {
                    self.own = is.at(self.end);
                    return Ok((was, is));
                }
                Err(other) => word = other,
            }
        }
        Err(BrokenChannel)
    }

    /// Takes the next parts to copy.
    ///
    /// # Errors
    /// [`BrokenChannel`] if the sender violated the rules.
    pub fn take<C: Cell>(
        &mut self,
        cell: &C,
        most: ShareSize,
    ) -> Result<ReceiverStep, BrokenChannel> {
        let (end, all) = (self.end, self.parts);
        let next = |fields: SharedWord| fields.take(end, most.of(fields.left(), all));
        let (was, _) = self.change(cell, |fields| next(fields).0)?;
        let (_, parts) = next(was);
        Ok(match (parts.is_empty(), was.busy) {
            (false, _) => ReceiverStep::Copy(parts),
            (true, true) => ReceiverStep::Wait,
            (true, false) => ReceiverStep::Done,
        })
    }

    /// Returns whether the sender copies at present (`BUSY`).
    ///
    /// # Errors
    /// [`BrokenChannel`] if the sender violated the rules.
    pub fn is_copied<C: Cell>(&self, cell: &C) -> Result<bool, BrokenChannel> {
        Ok(self.fields(cell.load(Ordering::Acquire))?.busy)
    }

    /// Ends the copy: no further parts can be taken. Returns whether the sender copies at present;
    /// only after [`Self::is_copied`] returns false the sender writes no more.
    pub fn end<C: Cell>(&mut self, cell: &C) -> bool {
        let end = self.end;
        match self.change(cell, |fields| fields.with(end, fields.at(end.other()))) {
            Ok((was, _)) => was.busy,
            Err(BrokenChannel) => {
                // Word 0 has no message, so no part can be taken.
                cell.store(0, Ordering::Release);
                false
            }
        }
    }
}

/// The sender's side of a cooperative copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderShare {
    /// The end from which the sender takes.
    end: CopyEnd,
    /// Number of the message.
    number: u32,
    /// Number of parts of the message.
    parts: u32,
    /// Progress of the receiver when this side last took parts, and the number of times it took
    /// since.
    seen: Option<u32>,
    since: u32,
}

/// Next step of the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SenderStep {
    /// Copy these parts, then call [`SenderShare::copied`].
    Copy(Range<u32>),
    /// The receiver took no parts since the last two steps of this side, so it may be stopped: wait
    /// for it.
    Wait,
    /// No parts remain, or the word belongs to another message.
    Over,
}

impl SenderShare {
    /// Joins the copy of message `number` with `parts` parts. The sender takes from `end`.
    pub fn of(end: CopyEnd, number: u32, parts: u32) -> Self {
        Self { end, number, parts: parts.min(PARTS_MAX), seen: None, since: 0 }
    }

    /// Returns the fields of the word, if it belongs to this message and parts remain.
    fn fields(&self, word: u64) -> Option<SharedWord> {
        let fields = SharedWord::of(word);
        let fits = fields.number == self.number && self.number > 0 && fields.back <= self.parts;
        (fits && fields.left() > 0).then_some(fields)
    }

    /// Takes the next parts to copy.
    pub fn next<C: Cell>(&mut self, cell: &C, most: ShareSize) -> SenderStep {
        let mut word = cell.load(Ordering::Acquire);
        for _ in 0..TRIES {
            let Some(fields) = self.fields(word) else { return SenderStep::Over };
            let other = fields.at(self.end.other());
            let since = if self.seen == Some(other) { self.since } else { 0 };
            if since >= 2 {
                return SenderStep::Wait;
            }
            let (is, parts) = fields.take(self.end, most.of(fields.left(), self.parts));
            match cell.exchange(word, SharedWord { busy: true, ..is }.word()) {
                Ok(()) => {
                    (self.seen, self.since) = (Some(other), since.saturating_add(1));
                    return SenderStep::Copy(parts);
                }
                Err(other) => word = other,
            }
        }
        SenderStep::Over
    }

    /// Reports the end of a copy of `parts`; with `is_copied` false they are returned, and the
    /// sender must not take more. Returns true if the receiver may have finished and must be
    /// notified.
    pub fn copied<C: Cell>(&self, cell: &C, parts: Range<u32>, is_copied: bool) -> bool {
        let before = match self.end {
            CopyEnd::Front => parts.start,
            CopyEnd::Back => parts.end,
        };
        let mut word = cell.load(Ordering::Acquire);
        for _ in 0..TRIES {
            let fields = SharedWord::of(word);
            if fields.number != self.number {
                return false;
            }
            let is = if is_copied { fields } else { fields.with(self.end, before) };
            match cell.exchange(word, SharedWord { busy: false, ..is }.word()) {
                Ok(()) => return fields.left() == 0,
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

    const FOUR: ShareSize = ShareSize { least: 4, most: 4 };

    fn word() -> Word {
        Word(AtomicU64::new(0))
    }

    #[test]
    fn shared_parts_are_taken_once_at_any_speed() {
        for (parts, turns) in [(1, 1), (2, 1), (3, 2), (256, 1), (257, 3), (PARTS_MAX, 2)] {
            for end in [CopyEnd::Front, CopyEnd::Back] {
                let cell = word();
                let most = ShareSize { least: 4, most: 16 };
                let mut taking = ReceiverShare::begin(&cell, end, 7, parts);
                let mut giving = SenderShare::of(end.other(), taking.number(), parts);
                let (mut left, mut turn) = (0..parts, 0);
                let took = |left: &mut Range<u32>, range: &Range<u32>, by: CopyEnd| match by {
                    CopyEnd::Front => {
                        assert_eq!(std::mem::replace(&mut left.start, range.end), range.start)
                    }
                    CopyEnd::Back => {
                        assert_eq!(std::mem::replace(&mut left.end, range.start), range.end)
                    }
                };
                loop {
                    turn += 1;
                    if turn % (turns + 1) == 0 {
                        match giving.next(&cell, most) {
                            SenderStep::Copy(range) => {
                                took(&mut left, &range, end.other());
                                assert_eq!(taking.is_copied(&cell), Ok(true));
                                assert_eq!(giving.copied(&cell, range, true), left.is_empty());
                            }
                            SenderStep::Over => assert!(left.is_empty()),
                            SenderStep::Wait => {}
                        }
                    } else if let ReceiverStep::Copy(range) = taking.take(&cell, most).unwrap() {
                        took(&mut left, &range, end);
                    } else {
                        break;
                    }
                }
                assert!(left.is_empty());
                assert_eq!(taking.take(&cell, most), Ok(ReceiverStep::Done));
            }
        }
    }

    #[test]
    fn shared_sender_does_not_run_ahead_of_a_stopped_receiver() {
        let cell = word();
        let mut taking = ReceiverShare::begin(&cell, CopyEnd::Front, 0, 64);
        let mut giving = SenderShare::of(CopyEnd::Back, taking.number(), 64);
        for at in [60, 56] {
            assert_eq!(giving.next(&cell, FOUR), SenderStep::Copy(at..at + 4));
            assert!(!giving.copied(&cell, at..at + 4, true));
        }
        assert_eq!(giving.next(&cell, FOUR), SenderStep::Wait);
        assert_eq!(taking.take(&cell, FOUR), Ok(ReceiverStep::Copy(0..4)));
        assert_eq!(giving.next(&cell, FOUR), SenderStep::Copy(52..56));
    }

    #[test]
    fn shared_failed_parts_are_returned_and_other_messages_unaffected() {
        for (end, first, last) in [(CopyEnd::Front, 0..4, 4..8), (CopyEnd::Back, 4..8, 0..4)] {
            let cell = word();
            let mut taking = ReceiverShare::begin(&cell, end, NUMBER_MAX, 8);
            assert_eq!(taking.number(), 1, "numbers wrap");
            let mut giving = SenderShare::of(end.other(), 1, 8);
            assert_eq!(giving.next(&cell, FOUR), SenderStep::Copy(last.clone()));
            assert_eq!(taking.take(&cell, FOUR), Ok(ReceiverStep::Copy(first)));
            assert_eq!(taking.take(&cell, FOUR), Ok(ReceiverStep::Wait));
            assert!(giving.copied(&cell, last.clone(), false), "the receiver waits");
            assert_eq!(taking.take(&cell, FOUR), Ok(ReceiverStep::Copy(last.clone())));
            // The sender is late: the word belongs to the next message.
            let mut next = ReceiverShare::begin(&cell, end, 1, 8);
            assert_eq!(giving.next(&cell, FOUR), SenderStep::Over);
            assert!(!giving.copied(&cell, last, false));
            let all = [next.take(&cell, FOUR), next.take(&cell, FOUR), next.take(&cell, FOUR)];
            assert!(matches!(
                all,
                [Ok(ReceiverStep::Copy(_)), Ok(ReceiverStep::Copy(_)), Ok(ReceiverStep::Done)]
            ));
        }
    }

    #[test]
    fn shared_receiver_that_ends_sees_whether_the_sender_writes() {
        let cell = word();
        let mut taking = ReceiverShare::begin(&cell, CopyEnd::Front, 0, 64);
        let mut giving = SenderShare::of(CopyEnd::Back, 1, 64);
        let SenderStep::Copy(range) = giving.next(&cell, FOUR) else { panic!("nothing to copy") };
        assert!(taking.end(&cell));
        assert_eq!(taking.is_copied(&cell), Ok(true));
        assert!(giving.copied(&cell, range, true));
        assert_eq!(taking.is_copied(&cell), Ok(false));
        assert_eq!(giving.next(&cell, FOUR), SenderStep::Over);
        assert!(!taking.end(&cell));
    }

    #[test]
    fn hostile_words_end_the_copy_only() {
        let honest = SharedWord { front: 4, back: 8, busy: false, number: 1 };
        let lies = [
            0,
            u64::MAX,
            SharedWord { number: 2, ..honest }.word(),
            SharedWord { front: 5, ..honest }.word(),
            SharedWord { back: 9, ..honest }.word(),
            SharedWord { back: 3, ..honest }.word(),
        ];
        for lie in lies {
            let cell = word();
            let mut taking = ReceiverShare::begin(&cell, CopyEnd::Front, 0, 8);
            taking.take(&cell, FOUR).unwrap();
            cell.store(lie, Ordering::Relaxed);
            assert_eq!(taking.take(&cell, FOUR), Err(BrokenChannel));
            assert_eq!(taking.is_copied(&cell), Err(BrokenChannel));
            assert!(!taking.end(&cell));
            assert_eq!(taking.is_copied(&cell), Err(BrokenChannel));
            assert_eq!(SenderShare::of(CopyEnd::Back, 1, 3).next(&cell, FOUR), SenderStep::Over);
        }
    }
}
