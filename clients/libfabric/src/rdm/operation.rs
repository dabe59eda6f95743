//! Operations: what a request of the engine is made for.

use std::cell::UnsafeCell;
use std::collections::HashSet;
use std::ptr::NonNull;

use causeway_message::library::{RequestId, Source};

use super::done::Report;
use super::multi::Multi;
use super::parcel::{HEAD_BYTES, Head, Place};
use super::receive::Told;
use crate::abi::FI_INJECT;
use crate::limits::NUMBERS_MAX;

/// Heads that are allocated at a time.
const CHUNK: usize = 256;
/// Bits of a name that are the number of an operation.
const NUMBER_BITS: u32 = 20;

/// What is done when a request ends.
#[derive(Debug)]
pub enum Task {
    /// None: the next that is free, or `u32::MAX`.
    Free(u32),
    /// A message of the application.
    Send(Report),
    /// Something of ours that nobody asks about.
    Quiet,
    /// What asks another to do something: if it fails, so does the call of that name.
    Ask(u32),
    /// What somebody asked for, which comes out of registered memory: the partner's number, and the
    /// memory's key.
    Reply(u32, u64),
    /// A connect to an address.
    Connect(u64),
    /// A receive, where what follows a notice goes, and whom alone it is from.
    Receive(Report, Place, Option<Source>),
    /// What follows the notice of a receive: so many bytes.
    Body(Told, usize),
    /// A buffer for many messages.
    Multi(Box<Multi>),
    /// A long message into such a buffer, by its operation.
    Part(u32, Told, usize),
    /// A read, a write or an atomic operation: the reply is waited for, of whom the book has there.
    /// And the operation that sends what is written, if that is much: it may have ended.
    Call(Report, usize, Option<u32>),
    /// Somebody's long write into memory of ours.
    Served(Served),
}

impl Task {
    /// Whether it sends.
    pub fn sends(&self) -> bool {
        matches!(self, Self::Send(_) | Self::Quiet | Self::Ask(_) | Self::Reply(..))
    }
}

/// A long write of another.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    /// Whose, and the number that it has here.
    pub source: Source,
    pub peer: u32,
    /// How it calls it.
    pub name: u32,
    /// Its immediate data.
    pub data: Option<u64>,
    /// The key of the memory.
    pub key: u64,
    /// The memory is registered no more.
    pub lost: bool,
}

#[derive(Debug)]
struct Entry {
    task: Task,
    /// How often the place was used.
    turn: u16,
    request: RequestId,
}

#[derive(Debug)]
struct Chunk(Box<[UnsafeCell<[u8; HEAD_BYTES]>]>);

/// All operations of an endpoint.
#[derive(Debug)]
pub struct Operations {
    entries: Vec<Entry>,
    heads: Vec<Chunk>,
    free: u32,
    used: usize,
    begun: u64,
}

impl Operations {
    pub const fn new() -> Self {
        Self { entries: Vec::new(), heads: Vec::new(), free: u32::MAX, used: 0, begun: 0 }
    }

    /// Adds one; none if there are too many.
    #[inline]
    pub fn add(&mut self, task: Task) -> Option<u32> {
        let at = if self.free == u32::MAX { self.grow()? } else { self.free };
        let entry = self.entries.get_mut(at as usize)?;
        let Task::Free(next) = entry.task else { return None };
        self.free = next;
        entry.task = task;
        entry.turn = entry.turn.wrapping_add(1);
        self.begun = self.begun.wrapping_add(1);
        self.used = self.used.saturating_add(1);
        Some(at)
    }

    #[cold]
    fn grow(&mut self) -> Option<u32> {
        let first = self.entries.len();
        if first >= NUMBERS_MAX {
            return None;
        }
        self.heads.push(Chunk((0..CHUNK).map(|_| UnsafeCell::new([0; HEAD_BYTES])).collect()));
        let end = first.saturating_add(CHUNK);
        for at in first..end {
            let next = at.saturating_add(1);
            let next = if next < end { u32::try_from(next).ok()? } else { u32::MAX };
            self.entries.push(Entry { task: Task::Free(next), turn: 0, request: RequestId(0) });
        }
        self.free = u32::try_from(first).ok()?;
        Some(self.free)
    }

    /// Whether there is room for what the application begins: half of all is left for what comes
    /// of that, and for what others ask.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.used < NUMBERS_MAX / 2
    }

    /// How many have begun.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Ends one; gives its task.
    #[inline(always)]
    pub fn end(&mut self, at: u32) -> Option<Task> {
        let entry = self.entries.get_mut(at as usize)?;
        if matches!(entry.task, Task::Free(_)) {
            return None;
        }
        let task = std::mem::replace(&mut entry.task, Task::Free(self.free));
        self.free = at;
        self.used = self.used.saturating_sub(1);
        Some(task)
    }

    /// Its task.
    #[inline]
    pub fn task(&mut self, at: u32) -> Option<&mut Task> {
        self.entries.get_mut(at as usize).map(|entry| &mut entry.task)
    }

    /// Whether it sends a message that the application was told is sent.
    pub fn is_injected(&self, at: u32) -> bool {
        let entry = self.entries.get(at as usize);
        entry.is_some_and(|entry| match &entry.task {
            Task::Send(report) => report.flags & FI_INJECT != 0,
            _ => false,
        })
    }

    /// The engine's request for it.
    #[inline]
    pub fn set_request(&mut self, at: u32, request: RequestId) {
        if let Some(entry) = self.entries.get_mut(at as usize) {
            entry.request = request;
        }
    }

    /// See [`Self::set_request`].
    pub fn request(&self, at: u32) -> Option<RequestId> {
        self.entries.get(at as usize).map(|entry| entry.request)
    }

    /// A name by which others speak of it: 29 bits, not used again soon.
    pub fn name(&self, at: u32) -> u32 {
        let turn = self.entries.get(at as usize).map_or(0, |entry| entry.turn);
        (u32::from(turn) & 0x1ff) << NUMBER_BITS | at
    }

    /// The number of the one that has that name now.
    pub fn named(&self, name: u32) -> Option<u32> {
        let at = name & ((1 << NUMBER_BITS) - 1);
        (self.name(at) == name).then_some(at)
    }

    /// The number of the first that fits.
    pub fn find(&self, mut fits: impl FnMut(&Task) -> bool) -> Option<u32> {
        let at = self.entries.iter().position(|entry| fits(&entry.task))?;
        u32::try_from(at).ok()
    }

    /// The numbers of all that fit.
    pub fn all(&self, fits: impl Fn(&Task) -> bool) -> Vec<u32> {
        let numbered = (0_u32..).zip(&self.entries);
        numbered.filter(|(_, entry)| fits(&entry.task)).map(|(at, _)| at).collect()
    }

    /// Of whom alone receives wait.
    pub fn waited_for(&self) -> HashSet<Source> {
        let sources = self.entries.iter().filter_map(|entry| match &entry.task {
            Task::Receive(_, _, source) => *source,
            Task::Multi(multi) => multi.source(),
            _ => None,
        });
        sources.collect()
    }

    /// Receives from that endpoint alone.
    pub fn waiting_for(&self, from: Source) -> Vec<u32> {
        self.all(|task| match task {
            Task::Receive(_, _, source) => *source == Some(from),
            Task::Multi(multi) => multi.is_from(from),
            _ => false,
        })
    }

    /// Its head, which lies still as long as the endpoint is there.
    #[inline]
    pub fn head(&self, at: u32) -> Option<Head> {
        let chunk = self.heads.get(at as usize / CHUNK)?;
        chunk.0.get(at as usize % CHUNK).and_then(|head| NonNull::new(head.get()))
    }

    /// What its head says.
    #[inline]
    pub fn words(&self, at: u32) -> (u64, u64) {
        let Some(head) = self.head(at) else { return (0, 0) };
        // By words, as it was written (`channel::Short`).
        let words = head.as_ptr().cast::<u64>();
        // SAFETY: the chunk is ours, and `Parcel::headed` says that no reference of the request that
        // had the head is there; a head is two words, of no alignment.
        let [first, second] = unsafe { [words.read_unaligned(), words.add(1).read_unaligned()] };
        (u64::from_le(first), u64::from_le(second))
    }

    /// A head of two words.
    #[inline]
    pub fn head_of(first: u64, second: u64) -> [u8; HEAD_BYTES] {
        (u128::from(first) | u128::from(second) << 64).to_le_bytes()
    }

    /// Writes its head, which no request has yet.
    #[inline]
    pub fn set_words(&mut self, at: u32, first: u64, second: u64) {
        self.set_head(at, Self::head_of(first, second));
    }

    /// Its head, with zeros in it.
    #[inline]
    pub fn cleared_head(&mut self, at: u32) -> Option<Head> {
        self.set_head(at, [0; HEAD_BYTES]);
        self.head(at)
    }

    /// The same.
    #[inline]
    pub fn set_head(&mut self, at: u32, bytes: [u8; HEAD_BYTES]) {
        let Some(head) = self.head(at) else { return };
        // SAFETY: the chunk is ours, and `Parcel::headed` says that no reference of a request is there.
        unsafe { head.as_ptr().write(bytes) };
    }
}
