//! Direct reads: a large message is copied once, out of the sender's memory, where the host permits
//! it.
//!
//! An offer carries the addresses of its segments in the sender's process. The receiver reads them
//! by [`RemoteMemory`], in bounded steps between other events, and reports the end to the sender.
//! The sender may copy a part ([`super::cooperative_copy`]). After any failure the message is
//! pulled through the channel from its first byte.
//!
//! # Trust
//! The creator of the channel vouches for the process that is read; the peer cannot choose it. A
//! sender may send any addresses: they refer to its own memory, and the length is bounded by the
//! offer. Bytes that it changes meanwhile are bytes that it sent. An endpoint sends its own
//! addresses only to a peer for which it has a [`RemoteMemory`].
//!
//! # When the sender's bytes may change
//! After the receiver reported the end. A sender that cancels earlier (timeout, or the endpoint is
//! closed) first increments a counter in the channel
//! ([`Sender::withdraw`](causeway_channel::Sender::withdraw)). The receiver checks that counter
//! after each read and discards bytes that were read after a withdrawal.
//!
//! # Limits
//! Messages from [`DIRECT_BYTES_MIN`](crate::limits::DIRECT_BYTES_MIN) (32 KiB) on, in at most
//! [`DIRECT_PLACES_MAX`] (8) segments; a message with more segments is offered without addresses
//! and pulled. A step has at most [`DIRECT_STEP_BYTES`] (1 MiB), and runs in the thread that calls
//! [`Library::progress`](crate::library::Library::progress), under the endpoint's lock. This module
//! neither chooses the path nor orders the steps (`channels::read_schedule`), and opens no process:
//! implementations of [`RemoteMemory`] are in `causeway-endpoint`.

use std::cell::Cell;
use std::ops::Range;

use causeway_channel::{Event, EventHead, Receiver};
use causeway_wire::mx::{PeerId, Token};

use super::event;
use crate::library::{Buffer, TransportEvent, pieces};
use crate::limits::{DIRECT_PLACES_MAX, DIRECT_STEP_BYTES, SHARED_PART_BYTES};

/// Address range in another process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteRange {
    /// Address of the first byte.
    pub at: u64,
    /// Length, in bytes.
    pub len: u64,
}

/// The process's memory is inaccessible for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inaccessible;

/// Access to the memory of the process at the other end of a channel.
pub trait RemoteMemory: std::fmt::Debug + Send {
    /// Fills `into` from the ranges, which add up to its length, and returns the number of
    /// bytes. A short count means that the rest is inaccessible. The bytes belong to that process
    /// only if it [`lives`](Self::lives) afterwards.
    ///
    /// # Errors
    /// [`Inaccessible`] if the process's memory cannot be read at all.
    fn read(&self, from: &[RemoteRange], into: &mut [u8]) -> Result<usize, Inaccessible>;

    /// Writes `from` to the ranges, which add up to its length, and returns the number of
    /// bytes. Call it only while the process [`lives`](Self::lives).
    ///
    /// # Errors
    /// [`Inaccessible`] if the process's memory cannot be written at all.
    fn write(&self, to: &[RemoteRange], from: &[u8]) -> Result<usize, Inaccessible>;

    /// Returns whether the process has not ended.
    fn lives(&self) -> bool;

    /// Returns the time in ns from any origin, to compare the duration of both paths.
    fn now_ns(&self) -> u64;
}

/// Counters of direct reads, over all peers. They wrap at 2^64.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DirectCounters {
    /// Messages that were read directly.
    pub messages: u64,
    /// Those of which the sender copied a part.
    pub helped: u64,
    /// Messages with a failed direct read, which were pulled through the channel.
    pub fell_back: u64,
    /// Peers with inaccessible memory.
    pub refused: u64,
    /// Peers without access to their memory from the start.
    pub unknown: u64,
}

/// Maximum bytes of an encoded list: a number, and two words per segment.
const ENCODED_BYTES_MAX: usize = 8 + 16 * DIRECT_PLACES_MAX;

/// A number and a list of segments, encoded for an event.
#[derive(Debug, Clone, Copy)]
pub(super) struct EncodedPlaces {
    bytes: [u8; ENCODED_BYTES_MAX],
    len: usize,
}

impl EncodedPlaces {
    /// Encodes the number `word` and the addresses of the first `len` bytes of `data`, or returns
    /// `None` if the bytes lie in more than [`DIRECT_PLACES_MAX`] (8) segments. The number is the
    /// sender's count of withdrawals (offer), or the number of the cooperative copy (help).
    pub(super) fn of<B: Buffer>(data: &B, len: usize, word: u64) -> Option<Self> {
        let mut encoded = Self { bytes: [0; ENCODED_BYTES_MAX], len: 0 };
        let mut fits = encoded.put(word).is_some();
        pieces(data, 0, len, |piece| {
            let place = [piece.as_ptr().addr() as u64, piece.len() as u64];
            fits = fits && place.into_iter().all(|word| encoded.put(word).is_some());
        });
        fits.then_some(encoded)
    }

    /// Replaces the number.
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

/// Segments of a message in the peer's memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerPlaces([RemoteRange; DIRECT_PLACES_MAX]);

impl PeerPlaces {
    /// Decodes number and segments of an event; `None` if it is invalid or the lengths do not add
    /// up to `len`.
    pub(super) fn decode(event: &Event, receiver: &Receiver, len: u64) -> Option<(u64, Self)> {
        if event.len > ENCODED_BYTES_MAX {
            return None;
        }
        let mut bytes = [0; ENCODED_BYTES_MAX];
        let copied = receiver.copy(event, 0, &mut bytes);
        let (words, rest) = bytes.get(..copied)?.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let word = words.next().filter(|_| rest.is_empty())?;
        let mut places = [RemoteRange::default(); DIRECT_PLACES_MAX];
        let mut sum = 0_u64;
        for place in &mut places {
            let Some(at) = words.next() else { break };
            *place = RemoteRange { at, len: words.next()? };
            at.checked_add(place.len)?;
            sum = sum.checked_add(place.len)?;
        }
        (sum == len).then_some((word, Self(places)))
    }

    /// Calls `of` with the ranges of `len` bytes from byte `at` on.
    pub(super) fn cut<T>(&self, at: usize, len: usize, of: impl FnOnce(&[RemoteRange]) -> T) -> T {
        let Self(places) = self;
        let mut into = [RemoteRange::default(); DIRECT_PLACES_MAX];
        let (mut skip, mut left, mut count) = (at as u64, len as u64, 0_usize);
        for place in places {
            let over = skip.min(place.len);
            skip = skip.saturating_sub(over);
            let len = place.len.saturating_sub(over).min(left);
            if len > 0
                && let Some(next) = into.get_mut(count)
            {
                *next = RemoteRange { at: place.at.saturating_add(over), len };
                left = left.saturating_sub(len);
                count = count.saturating_add(1);
            }
        }
        of(into.get(..count).unwrap_or_default())
    }
}

/// An offer with addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct DirectOffer {
    /// The sender's name for it.
    pub(super) name: u64,
    /// The sender's count of withdrawals at the time of the offer.
    withdrawn: u64,
    /// Segments of the message in the sender's process.
    places: PeerPlaces,
    /// Length of the message, in bytes.
    len: u64,
}

impl DirectOffer {
    /// Decodes an offer; `None` without valid addresses.
    pub(super) fn of(event: &Event, receiver: &Receiver) -> Option<Self> {
        let [_, name, len] = event.head.words;
        let (withdrawn, places) = PeerPlaces::decode(event, receiver, len)?;
        Some(Self { name, withdrawn, places, len })
    }

    /// Returns whether the offer has `len` bytes. A hostile sender may give one name to two offers.
    pub(super) fn has(&self, len: u32) -> bool {
        self.len >= len.into()
    }
}

/// A direct read in progress.
///
/// In a cooperative copy, the copied bytes need not be a prefix. Steps without help follow only if
/// no byte was copied, or the message will be pulled, or its memory was withdrawn.
#[derive(Debug)]
pub(super) struct DirectRead {
    pub(super) peer: PeerId,
    /// The receive that it serves.
    pub(super) token: Token,
    /// The sender's segments.
    offered: DirectOffer,
    /// Segments of the receive, if the sender may help.
    pub(super) into: Option<EncodedPlaces>,
    /// Copied bytes.
    done: usize,
    /// First byte of the next step, and its length; 0 before the read began.
    at: usize,
    step: usize,
    /// Length of the message to read, in bytes.
    end: usize,
    /// Bytes left in the current turn.
    turn: usize,
    /// The sender copied the next step already.
    is_copied: bool,
    /// A byte of the current step was inaccessible.
    failed: Cell<bool>,
    /// The peer's memory is inaccessible.
    pub(super) never: Cell<bool>,
}

/// Result of a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadStep {
    /// More bytes are left.
    On,
    /// All bytes are copied.
    Read,
    /// The message must be pulled.
    Failed,
}

impl DirectRead {
    pub(super) fn new(
        (peer, token): (PeerId, Token),
        offered: DirectOffer,
        into: Option<EncodedPlaces>,
        len: u32,
    ) -> Self {
        let (failed, never) = (Cell::new(false), Cell::new(false));
        let (end, turn, is_copied) = (len as usize, DIRECT_STEP_BYTES, false);
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
            is_copied,
            failed,
            never,
        }
    }

    /// Returns whether a step was assigned.
    pub(super) fn is_begun(&self) -> bool {
        self.step > 0
    }

    /// Returns the number of parts in a cooperative copy.
    pub(super) fn parts(&self) -> u32 {
        u32::try_from(self.end.div_ceil(SHARED_PART_BYTES)).unwrap_or(u32::MAX)
    }

    /// Returns whether its next step precedes other reads.
    pub(super) fn has_turn(&mut self) -> bool {
        let left = self.turn.checked_sub(self.step);
        self.turn = left.unwrap_or(DIRECT_STEP_BYTES.saturating_sub(self.step));
        left.is_some()
    }

    /// Sets the next step of a read without help.
    pub(super) fn next_step(&mut self) {
        self.at = self.done;
        self.step = self.end.saturating_sub(self.at).min(DIRECT_STEP_BYTES);
    }

    /// Sets the next step to these parts.
    pub(super) fn next_parts(&mut self, parts: &Range<u32>) {
        let byte = |part: u32| (part as usize).saturating_mul(SHARED_PART_BYTES).min(self.end);
        self.at = byte(parts.start);
        self.step = byte(parts.end).saturating_sub(self.at);
    }

    /// Records that the sender copied all remaining bytes.
    pub(super) fn is_there(&mut self) {
        (self.at, self.step) = (0, self.end.saturating_sub(self.done));
        self.is_copied = true;
    }

    /// Returns the next step as an event for the library.
    pub(super) fn arrival(&self) -> TransportEvent {
        let [at, len] = [self.at, self.step].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        TransportEvent::Part { peer: self.peer, token: self.token, at, len }
    }

    /// Reads bytes of this step from its byte `at` on, and returns their number; 0 without
    /// `direct`.
    pub(super) fn read(
        &self,
        direct: Option<&dyn RemoteMemory>,
        receiver: &Receiver,
        at: usize,
        into: &mut [u8],
    ) -> usize {
        let len = into.len();
        let read = match direct {
            None => Ok(0),
            Some(_) if self.is_copied => Ok(len),
            Some(direct) => self
                .offered
                .places
                .cut(self.at.saturating_add(at), len, |places| direct.read(places, into)),
        };
        // If the process lives at the end, all earlier bytes were its own, too.
        let last = self.done.saturating_add(self.step) >= self.end;
        let gone = last && direct.is_some_and(|direct| !direct.lives());
        self.never.set(self.never.get() || read.is_err() || gone);
        let whole = read == Ok(len) && !gone;
        // The counter is read after the bytes: later changes are not among them.
        if !whole || receiver.withdrawn() != self.offered.withdrawn {
            self.failed.set(true);
            return 0;
        }
        len
    }

    /// Records the end of the current step.
    pub(super) fn stepped(&mut self) -> ReadStep {
        if self.failed.get() {
            return ReadStep::Failed;
        }
        self.done = self.done.saturating_add(self.step);
        if self.done < self.end { ReadStep::On } else { ReadStep::Read }
    }

    /// Returns the event that reports the end to the sender.
    pub(super) fn taken(&self) -> EventHead {
        event::taken(self.offered.name, self.end)
    }

    /// Returns the event that pulls the message instead.
    pub(super) fn pull(&self) -> EventHead {
        let len = u32::try_from(self.end).unwrap_or(u32::MAX);
        event::pull(self.offered.name, self.token, len)
    }

    /// Returns the event that invites the sender to help, with the receiver's segments.
    pub(super) fn help(&self, number: u32) -> Option<(EventHead, EncodedPlaces)> {
        let into = self.into?.with(number.into());
        Some((event::help(self.offered.name, self.token, self.end), into))
    }
}
