//! The table of operations: the purpose of each request of the engine, and the memory of its head.
//!
//! A slot is addressed by its index, which this process and the engine's contexts use, and by peers
//! by a *name*: the index (20 bits) and the low 9 bits of the slot's use count. A name is reused
//! after 512 uses of its slot; a late message with an old name then finds no operation or, at
//! worst, another operation of the same endpoint.
//!
//! # Limits
//! The table grows by 256 slots to at most [`SLOTS_MAX`] (2^20) and never shrinks. Beyond, a call
//! of the application fails with `FI_EAGAIN`, the bytes of a long message are an error completion,
//! and a reply to a peer is not sent. The application starts operations only while fewer than half
//! are in use ([`Operations::has_room`]); the rest is for internal operations and those of peers,
//! which [`target`](super::target) bounds. Searches ([`Operations::find`], [`Operations::all`]) are
//! linear in the slots and not for the fast path. Heads keep their address until the table is
//! dropped, which must be after the engine.
//!
//! # Place
//! The modules of `rdm` that send, receive or connect add operations; [`Rdm::complete`](super::Rdm)
//! ends them when their request ends, and the modules end those that fail or are cancelled before.
//! All run under the lock of the domain, in a thread of the application or of the provider.

use std::cell::UnsafeCell;
use std::collections::HashSet;
use std::ptr::NonNull;

use causeway_message::library::{EndpointIdentity, RequestId};

use super::buffer::{HEAD_BYTES, Head, Payload};
use super::completion::ReportTemplate;
use super::message_meta::MessageMeta;
use super::multi_buffer::MultiBuffer;
use crate::abi::FI_INJECT;
use crate::limits::SLOTS_MAX;

/// Heads per allocation.
const CHUNK: usize = 256;
/// Bits of an operation name that contain the index of the operation.
const NUMBER_BITS: u32 = 20;

/// The purpose of a request, which determines the effect of its end.
#[derive(Debug)]
pub enum Task {
    /// A free slot: the index of the next one, or `u32::MAX`.
    Free(u32),
    /// A message of the application.
    Send(ReportTemplate),
    /// An internal message without a completion.
    Internal,
    /// A control request. If it fails, so does the call with this operation name.
    Request(u32),
    /// A reply from registered memory: the initiator's peer number, and the key of the region.
    Reply(u32, u64),
    /// A connect to this index of the address vector.
    Connect(u64),
    /// A receive: its completion, the same buffer again for a long message, and the only sender if
    /// there is one.
    Receive(ReportTemplate, Payload, Option<EndpointIdentity>),
    /// The bytes of a long message: the properties of its notice, and the length in bytes.
    Body(MessageMeta, usize),
    /// A multi-receive buffer.
    Multi(Box<MultiBuffer>),
    /// The bytes of a long message for a multi-receive buffer: the operation of the buffer, the
    /// properties of the notice, and the length in bytes.
    Part(u32, MessageMeta, usize),
    /// A read, write or atomic operation that waits for its reply: its completion, the first index
    /// of the target in the address vector, and for a long write the operation that sends its
    /// bytes, which may have ended.
    Call(ReportTemplate, usize, Option<u32>),
    /// A peer's long write into registered memory.
    TargetWrite(TargetWrite),
}

impl Task {
    /// Returns whether the request is a send.
    pub fn sends(&self) -> bool {
        matches!(self, Self::Send(_) | Self::Internal | Self::Request(_) | Self::Reply(..))
    }
}

/// A long write of a peer.
#[derive(Debug, Clone, Copy)]
pub struct TargetWrite {
    /// The initiator.
    pub source: EndpointIdentity,
    /// The initiator's peer number.
    pub peer: u32,
    /// The name of the initiator's operation.
    pub name: u32,
    /// Immediate data.
    pub data: Option<u64>,
    /// The key of the memory.
    pub key: u64,
    /// Whether the memory was deregistered meanwhile.
    pub lost: bool,
}

/// A slot of the table.
#[derive(Debug)]
struct OperationSlot {
    /// The purpose, or the link to the next free slot.
    task: Task,
    /// Counts the uses of the slot; its low 9 bits are part of the name.
    turn: u16,
    /// The engine's request; invalid before [`Operations::set_request`].
    request: RequestId,
}

/// The heads of 256 consecutive slots.
#[derive(Debug)]
struct HeadChunk(Box<[UnsafeCell<[u8; HEAD_BYTES]>]>);

/// All operations of an endpoint.
#[derive(Debug)]
pub struct Operations {
    /// Slots by index.
    entries: Vec<OperationSlot>,
    /// Heads by index, in chunks of [`CHUNK`].
    heads: Vec<HeadChunk>,
    /// The first free slot, or `u32::MAX`.
    free: u32,
    /// Slots in use.
    used: usize,
    /// Operations that were ever started.
    started: u64,
}

impl Operations {
    /// Returns an empty table.
    pub const fn new() -> Self {
        Self { entries: Vec::new(), heads: Vec::new(), free: u32::MAX, used: 0, started: 0 }
    }

    /// Adds an operation; returns `None` if there are too many.
    #[inline]
    pub fn add(&mut self, task: Task) -> Option<u32> {
        let at = if self.free == u32::MAX { self.grow()? } else { self.free };
        let entry = self.entries.get_mut(at as usize)?;
        let Task::Free(next) = entry.task else { return None };
        self.free = next;
        entry.task = task;
        entry.turn = entry.turn.wrapping_add(1);
        self.started = self.started.wrapping_add(1);
        self.used = self.used.saturating_add(1);
        Some(at)
    }

    /// Adds a chunk of slots; returns its first index, or `None` at the limit.
    #[cold]
    fn grow(&mut self) -> Option<u32> {
        let first = self.entries.len();
        if first >= SLOTS_MAX {
            return None;
        }
        self.heads.push(HeadChunk((0..CHUNK).map(|_| UnsafeCell::new([0; HEAD_BYTES])).collect()));
        let end = first.saturating_add(CHUNK);
        for at in first..end {
            let next = at.saturating_add(1);
            let next = if next < end { u32::try_from(next).ok()? } else { u32::MAX };
            self.entries.push(OperationSlot {
                task: Task::Free(next),
                turn: 0,
                request: RequestId(0),
            });
        }
        self.free = u32::try_from(first).ok()?;
        Some(self.free)
    }

    /// Returns whether the application may start an operation. Half of the slots are reserved for
    /// internal operations and those of peers.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.used < SLOTS_MAX / 2
    }

    /// Returns the number of operations that were ever started.
    pub fn started(&self) -> u64 {
        self.started
    }

    /// Removes an operation and returns its purpose.
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

    /// Returns the purpose of an operation.
    #[inline]
    pub fn task(&mut self, at: u32) -> Option<&mut Task> {
        self.entries.get_mut(at as usize).map(|entry| &mut entry.task)
    }

    /// Returns whether the operation sends a message that was reported as sent.
    pub fn is_injected(&self, at: u32) -> bool {
        let entry = self.entries.get(at as usize);
        entry.is_some_and(|entry| match &entry.task {
            Task::Send(report) => report.flags & FI_INJECT != 0,
            _ => false,
        })
    }

    /// Sets the request of an operation.
    #[inline]
    pub fn set_request(&mut self, at: u32, request: RequestId) {
        if let Some(entry) = self.entries.get_mut(at as usize) {
            entry.request = request;
        }
    }

    /// Returns the request of an operation.
    pub fn request(&self, at: u32) -> Option<RequestId> {
        self.entries.get(at as usize).map(|entry| entry.request)
    }

    /// Returns the name of an operation: 29 bits, reused after 512 uses of its slot.
    pub fn name(&self, at: u32) -> u32 {
        let turn = self.entries.get(at as usize).map_or(0, |entry| entry.turn);
        (u32::from(turn) & 0x1ff) << NUMBER_BITS | at
    }

    /// Returns the index of the operation that has this name now. The slot may be free.
    pub fn named(&self, name: u32) -> Option<u32> {
        let at = name & ((1 << NUMBER_BITS) - 1);
        (self.name(at) == name).then_some(at)
    }

    /// Returns the index of the first match.
    pub fn find(&self, mut fits: impl FnMut(&Task) -> bool) -> Option<u32> {
        let at = self.entries.iter().position(|entry| fits(&entry.task))?;
        u32::try_from(at).ok()
    }

    /// Returns the indices of all matches.
    pub fn all(&self, fits: impl Fn(&Task) -> bool) -> Vec<u32> {
        let numbered = (0_u32..).zip(&self.entries);
        numbered.filter(|(_, entry)| fits(&entry.task)).map(|(at, _)| at).collect()
    }

    /// Returns the only senders of the posted receives.
    pub fn waited_for(&self) -> HashSet<EndpointIdentity> {
        let sources = self.entries.iter().filter_map(|entry| match &entry.task {
            Task::Receive(_, _, source) => *source,
            Task::Multi(multi) => multi.source(),
            _ => None,
        });
        sources.collect()
    }

    /// Returns the operations of the receives from that endpoint alone.
    pub fn waiting_for(&self, from: EndpointIdentity) -> Vec<u32> {
        self.all(|task| match task {
            Task::Receive(_, _, source) => *source == Some(from),
            Task::Multi(multi) => multi.is_from(from),
            _ => false,
        })
    }

    /// Returns the memory of an operation's head, which keeps its address as long as the endpoint
    /// lives.
    #[inline]
    pub fn head(&self, at: u32) -> Option<Head> {
        let chunk = self.heads.get(at as usize / CHUNK)?;
        chunk.0.get(at as usize % CHUNK).and_then(|head| NonNull::new(head.get()))
    }

    /// Returns the two words in an operation's head: immediate data, and the word that tells eager
    /// messages from notices; or error number and 0 in a reply. Zeros if there is no such head.
    #[inline]
    pub fn words(&self, at: u32) -> (u64, u64) {
        let Some(head) = self.head(at) else { return (0, 0) };
        // By words, the width of the store (`channel::Short`), so that the load is forwarded.
        let words = head.as_ptr().cast::<u64>();
        // SAFETY: the table owns the chunk, and as `MessageBuffer::headed` requires, no reference
        // of the request that had the head is left; a head is two words of any alignment.
        let [first, second] = unsafe { [words.read_unaligned(), words.add(1).read_unaligned()] };
        (u64::from_le(first), u64::from_le(second))
    }

    /// Returns a head of two words.
    #[inline]
    pub fn head_of(first: u64, second: u64) -> [u8; HEAD_BYTES] {
        (u128::from(first) | u128::from(second) << 64).to_le_bytes()
    }

    /// Writes the words of an operation's head, which no request has yet.
    #[inline]
    pub fn set_words(&mut self, at: u32, first: u64, second: u64) {
        self.set_head(at, Self::head_of(first, second));
    }

    /// Clears the head of an operation and returns it.
    #[inline]
    pub fn cleared_head(&mut self, at: u32) -> Option<Head> {
        self.set_head(at, [0; HEAD_BYTES]);
        self.head(at)
    }

    /// Writes the head of an operation, which no request has yet.
    #[inline]
    pub fn set_head(&mut self, at: u32, bytes: [u8; HEAD_BYTES]) {
        let Some(head) = self.head(at) else { return };
        // SAFETY: the table owns the chunk, and as `MessageBuffer::headed` requires, no reference
        // of a request is left.
        unsafe { head.as_ptr().write(bytes) };
    }
}
