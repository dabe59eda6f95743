//! Large messages read out of the sender's own memory, where the host allows that: one copy.
//!
//! An offer says where its bytes lie in the sender's address space. The receiver reads them there
//! itself ([`Direct`]), a bounded step at a time and in turn with other events, and tells the
//! sender that it took them. The sender may help it ([`super::help`]). Whatever fails on the way,
//! the message is pulled through the channel as any other, from its beginning.
//!
//! # Trust
//! Whose memory is read is not the partner's to say: who sets the channel up vouches for it. A
//! sender may say any places; it is its own memory that is read there, and never more than it
//! offered. What it changes meanwhile is what it sent. Only who is given a [`Direct`] tells its
//! own addresses.
//!
//! # When the sender's bytes may change
//! Not before it is told that they were taken; it may give the message up before (it took too
//! long, or the endpoint is closed), and counts that in the channel first
//! ([`Sender::withdraw`](causeway_channel::Sender::withdraw)). The receiver looks at the
//! count after it has read: it knows of nothing but bytes that were read before.

use std::cell::Cell;
use std::ops::Range;

use causeway_channel::{Event, Head, Receiver};
use causeway_wire::mx::{PeerId, Token};

use super::event;
use crate::library::{Arrival, Buffer, pieces};
use crate::limits::{DIRECT_PLACES_MAX, DIRECT_STEP_BYTES, SHARED_PART_BYTES};

/// Bytes of a process's memory, by their address there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// Of the first.
    pub at: u64,
    /// How many.
    pub len: u64,
}

/// A process's memory cannot be read: not now, and not later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Never;

/// Reads and writes the memory of the process at the other end of a channel.
pub trait Direct: std::fmt::Debug + Send {
    /// Fills `into` with the bytes of these places, which are as many; gives how many it got. Fewer
    /// than all: they cannot be had so. They are of that process only if it [`lives`](Self::lives)
    /// afterwards.
    ///
    /// # Errors
    /// Nothing of that process can.
    fn read(&self, from: &[Place], into: &mut [u8]) -> Result<usize, Never>;

    /// Writes `from` to these places, which take as many; gives how many it wrote. Only while that
    /// process [`lives`](Self::lives).
    ///
    /// # Errors
    /// Nothing can be written to that process.
    fn write(&self, to: &[Place], from: &[u8]) -> Result<usize, Never>;

    /// Whether that process has not ended.
    fn lives(&self) -> bool;

    /// The time, in nanoseconds since whenever: to compare how long this takes with how long the
    /// channel does.
    fn now_ns(&self) -> u64;
}

/// What was read so, of all partners.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Messages that were read out of their senders' memory.
    pub messages: u64,
    /// Those of which their senders wrote a part.
    pub helped: u64,
    /// Those that were begun so and came through the channel.
    pub fell_back: u64,
    /// Partners whose memory could not be read at all.
    pub refused: u64,
    /// Partners that nobody vouched for.
    pub unknown: u64,
}

/// Bytes that tell places: a word, and two for each place.
const TOLD_BYTES_MAX: usize = 8 + 16 * DIRECT_PLACES_MAX;

/// A word, and where bytes lie, as an event tells it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    bytes: [u8; TOLD_BYTES_MAX],
    len: usize,
}

impl Told {
    /// Where the first `len` bytes lie; none if in too many places.
    pub(super) fn of<B: Buffer>(data: &B, len: usize, word: u64) -> Option<Self> {
        let mut told = Self { bytes: [0; TOLD_BYTES_MAX], len: 0 };
        let mut fits = told.put(word).is_some();
        pieces(data, 0, len, |piece| {
            let place = [piece.as_ptr().addr() as u64, piece.len() as u64];
            fits = fits && place.into_iter().all(|word| told.put(word).is_some());
        });
        fits.then_some(told)
    }

    /// With another word.
    pub(super) fn with(mut self, word: u64) -> Self {
        if let Some(first) = self.bytes.first_chunk_mut() {
            *first = word.to_le_bytes();
        }
        self
    }

    fn put(&mut self, word: u64) -> Option<()> {
        let end = self.len.checked_add(8)?;
        self.bytes.get_mut(self.len..end)?.copy_from_slice(&word.to_le_bytes());
        self.len = end;
        Some(())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Where a message lies, in the partner's memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places([Place; DIRECT_PLACES_MAX]);

impl Places {
    /// The word and the places that an event tells, of `len` bytes; none if it says nonsense.
    pub(super) fn told(event: &Event, receiver: &Receiver, len: u64) -> Option<(u64, Self)> {
        if event.len > TOLD_BYTES_MAX {
            return None;
        }
        let mut bytes = [0; TOLD_BYTES_MAX];
        let copied = receiver.copy(event, 0, &mut bytes);
        let (words, rest) = bytes.get(..copied)?.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let word = words.next().filter(|_| rest.is_empty())?;
        let mut places = [Place::default(); DIRECT_PLACES_MAX];
        let mut sum = 0_u64;
        for place in &mut places {
            let Some(at) = words.next() else { break };
            *place = Place { at, len: words.next()? };
            at.checked_add(place.len)?;
            sum = sum.checked_add(place.len)?;
        }
        (sum == len).then_some((word, Self(places)))
    }

    /// Gives `of` where the bytes from `at` on lie, so many.
    pub(super) fn cut<T>(&self, at: usize, len: usize, of: impl FnOnce(&[Place]) -> T) -> T {
        let Self(places) = self;
        let mut into = [Place::default(); DIRECT_PLACES_MAX];
        let (mut skip, mut left, mut count) = (at as u64, len as u64, 0_usize);
        for place in places {
            let over = skip.min(place.len);
            skip = skip.saturating_sub(over);
            let len = place.len.saturating_sub(over).min(left);
            if len > 0
                && let Some(next) = into.get_mut(count)
            {
                *next = Place { at: place.at.saturating_add(over), len };
                left = left.saturating_sub(len);
                count = count.saturating_add(1);
            }
        }
        of(into.get(..count).unwrap_or_default())
    }
}

/// An offer that said where its bytes lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offered {
    /// The sender's name for it.
    pub(super) name: u64,
    /// What the sender had withdrawn before.
    withdrawn: u64,
    places: Places,
    len: u64,
}

impl Offered {
    /// From its event; none if it says nothing of the kind, or nonsense.
    pub(super) fn of(event: &Event, receiver: &Receiver) -> Option<Self> {
        let [_, name, len] = event.head.words;
        let (withdrawn, places) = Places::told(event, receiver, len)?;
        Some(Self { name, withdrawn, places, len })
    }

    /// Whether that is so many bytes, at least: a liar gives two offers one name.
    pub(super) fn has(&self, len: u32) -> bool {
        self.len >= len.into()
    }
}

/// A message that is being read.
///
/// Where it is shared, what is in place lies at one end of it, not always the first: only who has
/// nothing in place, or cannot read, or has lost where it goes, takes steps of its own after that.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) peer: PeerId,
    /// The receive that it is for.
    pub(super) token: Token,
    offered: Offered,
    /// Where it is received, if its sender may help.
    pub(super) into: Option<Told>,
    /// Bytes that are in place.
    done: usize,
    /// The next step: its first byte, and how many; none yet, before it is begun.
    at: usize,
    step: usize,
    end: usize,
    /// Bytes that it still has before others.
    turn: usize,
    /// The next step is there: the sender wrote it.
    there: bool,
    /// Something of the step that is being taken could not be had.
    failed: Cell<bool>,
    /// The partner's memory is not to be read.
    pub(super) never: Cell<bool>,
}

/// How a step ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stepped {
    /// More is to be read.
    On,
    /// All is there.
    Read,
    /// It is to be pulled.
    Failed,
}

impl Reading {
    pub(super) fn new(
        (peer, token): (PeerId, Token),
        offered: Offered,
        into: Option<Told>,
        len: u32,
    ) -> Self {
        let (failed, never) = (Cell::new(false), Cell::new(false));
        let (end, turn, there) = (len as usize, DIRECT_STEP_BYTES, false);
        Self {
            peer,
            token,
            offered,
            into,
            done: 0,
            at: 0,
            step: 0,
            end,
            turn,
            there,
            failed,
            never,
        }
    }

    /// Whether it has a step to take.
    pub(super) fn is_begun(&self) -> bool {
        self.step > 0
    }

    /// How many parts it has, where it is shared.
    pub(super) fn parts(&self) -> u32 {
        u32::try_from(self.end.div_ceil(SHARED_PART_BYTES)).unwrap_or(u32::MAX)
    }

    /// Whether its next step comes before those of others.
    pub(super) fn has_turn(&mut self) -> bool {
        let left = self.turn.checked_sub(self.step);
        self.turn = left.unwrap_or(DIRECT_STEP_BYTES.saturating_sub(self.step));
        left.is_some()
    }

    /// The next step is of bytes that nobody else copies.
    pub(super) fn next_step(&mut self) {
        self.at = self.done;
        self.step = self.end.saturating_sub(self.at).min(DIRECT_STEP_BYTES);
    }

    /// The next step is these parts.
    pub(super) fn next_parts(&mut self, parts: &Range<u32>) {
        let byte = |part: u32| (part as usize).saturating_mul(SHARED_PART_BYTES).min(self.end);
        self.at = byte(parts.start);
        self.step = byte(parts.end).saturating_sub(self.at);
    }

    /// All that is left is there.
    pub(super) fn is_there(&mut self) {
        (self.at, self.step) = (0, self.end.saturating_sub(self.done));
        self.there = true;
    }

    /// The next step, as it is put to the library half.
    pub(super) fn arrival(&self) -> Arrival {
        let [at, len] = [self.at, self.step].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        Arrival::Part { peer: self.peer, token: self.token, at, len }
    }

    /// Reads bytes of this step, from its byte `at` on; gives how many. Without a `direct`: none any
    /// more.
    pub(super) fn read(
        &self,
        direct: Option<&dyn Direct>,
        receiver: &Receiver,
        at: usize,
        into: &mut [u8],
    ) -> usize {
        let len = into.len();
        let read = match direct {
            None => Ok(0),
            Some(_) if self.there => Ok(len),
            Some(direct) => self
                .offered
                .places
                .cut(self.at.saturating_add(at), len, |places| direct.read(places, into)),
        };
        // With the last bytes: all before was of the same process then.
        let last = self.done.saturating_add(self.step) >= self.end;
        let gone = last && direct.is_some_and(|direct| !direct.lives());
        self.never.set(self.never.get() || read.is_err() || gone);
        let whole = read == Ok(len) && !gone;
        // In this order: what is changed after the count is not in what was read.
        if !whole || receiver.withdrawn() != self.offered.withdrawn {
            self.failed.set(true);
            return 0;
        }
        len
    }

    /// The step was taken, or what there was of it.
    pub(super) fn stepped(&mut self) -> Stepped {
        if self.failed.get() {
            return Stepped::Failed;
        }
        self.done = self.done.saturating_add(self.step);
        if self.done < self.end { Stepped::On } else { Stepped::Read }
    }

    /// What the sender is told when all was read.
    pub(super) fn taken(&self) -> Head {
        event::taken(self.offered.name, self.end)
    }

    /// What it is asked for when not.
    pub(super) fn pull(&self) -> Head {
        let len = u32::try_from(self.end).unwrap_or(u32::MAX);
        event::pull(self.offered.name, self.token, len)
    }

    /// What it is asked for when it may help, and where to.
    pub(super) fn help(&self, number: u32) -> Option<(Head, Told)> {
        let into = self.into?.with(number.into());
        Some((event::help(self.offered.name, self.token, self.end), into))
    }
}
