//! The command interface: the driver creates, changes and destroys objects.
//!
//! [`queue`] reads commands out of the driver's memory and writes their results; [`dispatch`] finds
//! the handler of an opcode; the other modules are the handlers, by object. A handler reads private
//! bytes: the command was copied once. A handler either performs the command as a whole or returns
//! a status and changes nothing; the exception is a resize that breaks its completion queue
//! ([`completion_queue`]).
//!
//! Commands run in the dispatcher's turn of the group's shard, one after another, at most 8 in a
//! call of the service. Their lengths are bounded ([`crate::limits`]), and so is the number of
//! objects: a command beyond a limit is answered with a status and has no effect. An unknown
//! opcode, and a command with an opcode that has no handler, is answered with *bad operation*; a
//! short input or output with *bad input length* or *bad output length*. No handler waits, and none
//! reads entries of work queues. Guest memory is accessed by a resize of a completion queue (its
//! ring and doorbell record), by the limit of a shared receive queue (its doorbell record, and the
//! event), and by commands of queue pairs that report an event or end a message at its peer.
//! [`crate::run_commands`] is the caller.

pub(crate) mod capability;
pub(crate) mod completion_queue;
pub(crate) mod dispatch;
pub(crate) mod event_queue;
pub(crate) mod memory_key;
pub(crate) mod modify_queue_pair;
pub(crate) mod multicast;
pub(crate) mod queue;
pub(crate) mod queue_pair;
pub(crate) mod receive_queue;
pub(crate) mod register;
pub(crate) mod trivial;
pub(crate) mod vport;

use causeway_verbs::{Adapter, AdapterId, Subnet};
use causeway_wire::Truncated;
use causeway_wire::mlx5::command::Status;

use crate::function::Function;

/// Result of a handler.
pub(crate) type Outcome = Result<(), Status>;

/// Bits of an object number.
const NUMBER: u32 = 0xff_ffff;
/// Offset of the object number in the input and output of most commands.
const NUMBER_OFFSET: usize = 8;

/// The input of a command, in private memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Returns all bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the bytes from `at` on.
    pub fn tail(self, at: usize) -> Result<&'a [u8], Status> {
        self.0.get(at..).ok_or(Status::BadInputLength)
    }

    /// Returns the big-endian word at `at`.
    pub fn u16(self, at: usize) -> Result<u16, Status> {
        self.array(at).map(u16::from_be_bytes)
    }

    /// Returns the big-endian word at `at`.
    pub fn u32(self, at: usize) -> Result<u32, Status> {
        self.array(at).map(u32::from_be_bytes)
    }

    /// Returns the `N` bytes at `at`.
    pub fn array<const N: usize>(self, at: usize) -> Result<[u8; N], Status> {
        self.tail(at)?.first_chunk().copied().ok_or(Status::BadInputLength)
    }

    /// Returns the number of the object that the command is about.
    pub fn number(self) -> Result<u32, Status> {
        self.u32(NUMBER_OFFSET).map(|number| number & NUMBER)
    }

    /// Returns the modifier of the opcode.
    pub fn modifier(self) -> Result<u16, Status> {
        self.u16(6)
    }
}

/// The output of a command, in private memory: zeros until a handler writes.
#[derive(Debug)]
pub(crate) struct Output<'a>(pub &'a mut [u8]);

impl Output<'_> {
    /// Writes the bytes at `at`.
    pub fn put(&mut self, at: usize, bytes: &[u8]) -> Outcome {
        let place = self.0.get_mut(at..).and_then(|tail| tail.get_mut(..bytes.len()));
        place.ok_or(Status::BadOutputLength)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Writes as many of the bytes at `at` as the driver asked for.
    pub fn put_truncated(&mut self, at: usize, bytes: &[u8]) {
        for (to, from) in self.0.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    }

    /// Writes the number of a new object.
    pub fn put_number(&mut self, number: u32) -> Outcome {
        self.put(NUMBER_OFFSET, &(number & NUMBER).to_be_bytes())
    }

    /// Fails unless the output has room for an object number, so that a handler creates nothing
    /// without a number that the driver learns.
    pub fn check_number(&self) -> Outcome {
        if self.0.len() < NUMBER_OFFSET.saturating_add(4) {
            return Err(Status::BadOutputLength);
        }
        Ok(())
    }
}

/// Returns the function of an adapter.
pub(crate) fn function(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
) -> Result<&mut Function, Status> {
    subnet.adapter_mut(adapter).map(Adapter::queues_mut).ok_or(Status::BadResource)
}

/// Returns the status of an input that is too short for its format.
pub(crate) fn short(_: Truncated) -> Status {
    Status::BadInputLength
}
