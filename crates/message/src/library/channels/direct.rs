//! Large messages read out of the sender's own memory, where the host allows that: one copy.
//!
//! An offer says where its bytes lie in the sender's address space. The receiver reads them there
//! itself ([`Direct`]), a bounded step at a time and in turn with other events, and tells the
//! sender that it took them. Whatever fails on the way, the message is pulled through the channel
//! as any other, from its beginning.
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
//! ([`Sender::withdraw`](causeway_ring::channel::Sender::withdraw)). The receiver looks at the
//! count after it has read: it knows of nothing but bytes that were read before.

use std::cell::Cell;

use causeway_ring::channel::{Event, Head, Receiver};

use super::event;
use crate::library::{Arrival, Buffer, pieces};
use crate::limits::{DIRECT_PLACES_MAX, DIRECT_STEP_BYTES};
use crate::split::{PeerId, Token};

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

/// Reads the memory of the process at the other end of a channel.
pub trait Direct: std::fmt::Debug + Send {
    /// Fills `into` with the bytes of these places, which are as many; gives how many it got. Fewer
    /// than all: they cannot be had so.
    ///
    /// # Errors
    /// Nothing of that process can.
    fn read(&self, from: &[Place], into: &mut [u8]) -> Result<usize, Never>;

    /// The time, in nanoseconds since whenever: to compare how long this takes with how long the
    /// channel does.
    fn now_ns(&self) -> u64;
}

/// What was read so, of all partners.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Messages that were read out of their senders' memory.
    pub messages: u64,
    /// Those that were begun so and came through the channel.
    pub fell_back: u64,
    /// Partners whose memory could not be read at all.
    pub refused: u64,
    /// Partners that nobody vouched for.
    pub unknown: u64,
}

/// Bytes of an offer: a count, and two words for each place.
const OFFER_BYTES_MAX: usize = 8 + 16 * DIRECT_PLACES_MAX;

/// An offer's bytes.
#[derive(Debug)]
pub(super) struct Told {
    bytes: [u8; OFFER_BYTES_MAX],
    len: usize,
}

impl Told {
    /// Where all of this lies; none if in too many places.
    pub(super) fn of<B: Buffer>(data: &B, withdrawn: u64) -> Option<Self> {
        let mut told = Self { bytes: [0; OFFER_BYTES_MAX], len: 0 };
        let mut fits = told.put(withdrawn).is_some();
        pieces(data, 0, data.len(), |piece| {
            let place = [piece.as_ptr().addr() as u64, piece.len() as u64];
            fits = fits && place.into_iter().all(|word| told.put(word).is_some());
        });
        fits.then_some(told)
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

/// An offer that said where its bytes lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offered {
    /// The sender's name for it.
    pub(super) name: u64,
    /// What the sender had withdrawn before.
    withdrawn: u64,
    places: [Place; DIRECT_PLACES_MAX],
}

impl Offered {
    /// From its event; none if it says nothing of the kind, or nonsense.
    pub(super) fn of(event: &Event, receiver: &Receiver) -> Option<Self> {
        let [_, name, len] = event.head.words;
        if event.len > OFFER_BYTES_MAX {
            return None;
        }
        let mut bytes = [0; OFFER_BYTES_MAX];
        let copied = receiver.copy(event, 0, &mut bytes);
        let (words, rest) = bytes.get(..copied)?.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let withdrawn = words.next().filter(|_| rest.is_empty())?;
        let mut places = [Place::default(); DIRECT_PLACES_MAX];
        let mut sum = 0_u64;
        for place in &mut places {
            let Some(at) = words.next() else { break };
            *place = Place { at, len: words.next()? };
            at.checked_add(place.len)?;
            sum = sum.checked_add(place.len)?;
        }
        (sum == len).then_some(Self { name, withdrawn, places })
    }

    /// Where its bytes from `at` on lie, so many; gives in how many places.
    fn cut(&self, at: usize, len: usize, into: &mut [Place; DIRECT_PLACES_MAX]) -> usize {
        let (mut skip, mut left, mut count) = (at as u64, len as u64, 0_usize);
        for place in &self.places {
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
        count
    }
}

/// A message that is being read.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) peer: PeerId,
    /// The receive that it is for.
    pub(super) token: Token,
    offered: Offered,
    at: usize,
    end: usize,
    /// Something of the step that is being taken could not be had.
    failed: Cell<bool>,
    /// The partner's memory is not to be read.
    pub(super) never: Cell<bool>,
}

/// How a step ended.
#[derive(Debug)]
pub(super) enum Stepped {
    /// More is to be read.
    On,
    /// All is there; to be told.
    Read(Head),
    /// It is to be pulled, by this.
    Failed(Head),
}

impl Reading {
    pub(super) fn new(peer: PeerId, token: Token, offered: Offered, len: u32) -> Self {
        let (failed, never) = (Cell::new(false), Cell::new(false));
        Self { peer, token, offered, at: 0, end: len as usize, failed, never }
    }

    fn step(&self) -> usize {
        self.end.saturating_sub(self.at).min(DIRECT_STEP_BYTES)
    }

    /// The next step, as it is put to the library half.
    pub(super) fn arrival(&self) -> Arrival {
        let len = u32::try_from(self.step()).unwrap_or(u32::MAX);
        Arrival::Chunk { peer: self.peer, token: self.token, len }
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
        let mut places = [Place::default(); DIRECT_PLACES_MAX];
        let count = self.offered.cut(self.at.saturating_add(at), into.len(), &mut places);
        let places = places.get(..count).unwrap_or_default();
        let read = direct.map_or(Ok(0), |direct| direct.read(places, into));
        self.never.set(self.never.get() || read.is_err());
        let whole = read == Ok(into.len());
        // In this order: what is changed after the count is not in what was read.
        if !whole || receiver.withdrawn() != self.offered.withdrawn {
            self.failed.set(true);
            return 0;
        }
        into.len()
    }

    /// The step was taken, or what there was of it.
    pub(super) fn stepped(&mut self) -> Stepped {
        if self.failed.get() {
            let len = u32::try_from(self.end).unwrap_or(u32::MAX);
            return Stepped::Failed(event::pull(self.offered.name, self.token, len));
        }
        self.at = self.at.saturating_add(self.step());
        if self.at < self.end {
            return Stepped::On;
        }
        Stepped::Read(event::taken(self.offered.name, self.end))
    }
}
