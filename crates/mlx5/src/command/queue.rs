//! The command queue: entries in a page of the driver's memory, and chains of mailboxes.
//!
//! An entry carries the first 16 bytes of input and output; the rest lies in a chain of mailboxes
//! of 512 bytes each. The input's length decides how many mailboxes are read, and lengths beyond
//! [`COMMAND_INPUT_MAX`] (1 MiB and 4 KiB) and [`COMMAND_OUTPUT_MAX`] (64 KiB) are refused first,
//! so a chain that loops is read to that length and no further. Only commands that create a memory
//! key or a queue may have more than [`COMMAND_SHORT_INPUT_MAX`] (8 KiB) of input; MODIFY_CQ may
//! not, although it has a page list. Each entry is copied once; its ownership byte is written last,
//! and then the event of the command is reported. Commands that are rung together run in the order
//! of their index, not of their doorbells.
//!
//! An entry that is not the function's (a doorbell without a command) is ignored, and so is an
//! entry in memory that is not granted: the driver then waits in vain for its command. An entry of
//! another type, with a wrong length, or with mailboxes that are not granted ends with a
//! [`DeliveryStatus`] and is not executed; if only the output cannot be written, it was. Tokens,
//! indices and signatures of mailboxes are not checked.
//!
//! `crate::run_commands` reads a command in the dispatcher's turn, after the control thread passed
//! the doorbell on; `super::dispatch` executes it, and `run_commands` finishes it and reports its
//! event.

use causeway_memory::{Map, OutOfGrant};
use causeway_wire::mlx5::command::{
    DeliveryStatus, ENTRY_TYPE_COMMAND, INLINE_LEN, MAILBOX_DATA_LEN, OUTPUT_OFFSET, Opcode,
    QueueEntry, STATUS_OFFSET,
};

use crate::limits::{
    COMMAND_ENTRIES, COMMAND_INPUT_MAX, COMMAND_LOG_STRIDE, COMMAND_OUTPUT_MAX,
    COMMAND_SHORT_INPUT_MAX,
};

/// Smallest length of input and output, in bytes: opcode and modifier, status and syndrome.
const LENGTH_MIN: usize = 8;
/// Offset of the next mailbox's address in a mailbox.
const MAILBOX_NEXT: usize = MAILBOX_DATA_LEN + 0x30;

/// A command that was read out of the queue.
#[derive(Debug)]
pub(crate) struct Command {
    address: u64,
    entry: QueueEntry,
    /// Input of the command.
    pub input: Vec<u8>,
    /// Output of the command; zeros at first.
    pub output: Vec<u8>,
}

/// Reads the command with number `index`. Returns `None` if the entry is not the function's or not
/// in granted memory.
///
/// The status is a failure if the entry or its mailboxes cannot be read. In both cases the caller
/// ends the command with [`Command::finish`].
pub(crate) fn read(map: &Map, queue: u64, index: u32) -> Option<(Command, DeliveryStatus)> {
    let address = entry_address(queue, index)?;
    let mut bytes = [0; QueueEntry::LEN];
    map.read(address, &mut bytes).ok()?;
    let entry = QueueEntry::parse(&bytes).ok()?;
    if !entry.is_device_owned {
        return None;
    }
    let mut command = Command { address, entry, input: Vec::new(), output: Vec::new() };
    let delivery = command.fill(map);
    Some((command, delivery))
}

impl Command {
    /// Reads the input, and makes room for the output.
    fn fill(&mut self, map: &Map) -> DeliveryStatus {
        let entry = self.entry;
        let (input, output) = (entry.input_len as usize, entry.output_len as usize);
        if entry.entry_type != ENTRY_TYPE_COMMAND {
            return DeliveryStatus::EntryType;
        }
        if !(LENGTH_MIN..=input_max(&entry.input)).contains(&input) {
            return DeliveryStatus::InputLength;
        }
        if !(LENGTH_MIN..=COMMAND_OUTPUT_MAX).contains(&output) {
            return DeliveryStatus::OutputLength;
        }
        // Linux asks for 12 bytes of some commands; the entry has room for 16.
        self.output.resize(output.max(INLINE_LEN), 0);
        self.input.reserve_exact(input);
        self.input.extend_from_slice(&entry.input);
        match read_chain(map, entry.input_mailbox, input, &mut self.input) {
            Ok(()) => DeliveryStatus::Ok,
            Err(_) => DeliveryStatus::InputPointer,
        }
    }

    /// Returns the length of input and output, in bytes.
    pub fn bytes(&self) -> u64 {
        self.input.len().saturating_add(self.output.len()) as u64
    }

    /// Writes the output and the delivery status, and returns the entry to the driver. Returns
    /// false if the queue's memory is not granted.
    pub fn finish(&self, map: &Map, delivery: DeliveryStatus) -> bool {
        let mut delivery = delivery;
        let (head, rest) = self.output.split_at(self.output.len().min(INLINE_LEN));
        let output = OUTPUT_OFFSET as u64;
        if map.write(self.address.wrapping_add(output), head).is_err() {
            return false;
        }
        if write_chain(map, self.entry.output_mailbox, rest).is_err() {
            delivery = DeliveryStatus::OutputPointer;
        }
        // The driver polls the last byte, so that byte must become visible last.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        let status = STATUS_OFFSET as u64;
        map.write(self.address.wrapping_add(status), &[delivery.raw() << 1]).is_ok()
    }
}

/// Returns whether the command with number `index` was not answered.
pub(crate) fn is_waiting(map: &Map, queue: u64, index: u32) -> bool {
    let mut bytes = [0; QueueEntry::LEN];
    entry_address(queue, index).is_some_and(|address| map.read(address, &mut bytes).is_ok())
        && QueueEntry::parse(&bytes).is_ok_and(|entry| entry.is_device_owned)
}

/// Answers the command with number `index`, whose output has at most 16 bytes, if it waits.
pub(crate) fn answer(map: &Map, queue: u64, index: u32, output: &[u8; INLINE_LEN]) {
    if !is_waiting(map, queue, index) {
        return;
    }
    let Some(address) = entry_address(queue, index) else { return };
    if map.write(address.wrapping_add(OUTPUT_OFFSET as u64), output).is_err() {
        return;
    }
    std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
    // Nothing remains to be done if the memory was revoked meanwhile.
    let status = [DeliveryStatus::Ok.raw() << 1];
    let _ = map.write(address.wrapping_add(STATUS_OFFSET as u64), &status);
}

/// Returns the address of an entry.
fn entry_address(queue: u64, index: u32) -> Option<u64> {
    if index >= COMMAND_ENTRIES {
        return None;
    }
    queue.checked_add(u64::from(index).checked_shl(u32::from(COMMAND_LOG_STRIDE))?)
}

/// Returns the maximum length of the input that begins with `head`, in bytes.
fn input_max(head: &[u8; INLINE_LEN]) -> usize {
    let opcode = head.first_chunk().map_or(0, |opcode| u16::from_be_bytes(*opcode));
    match Opcode::from_raw(opcode) {
        Some(
            Opcode::CreateMemoryKey
            | Opcode::CreateEventQueue
            | Opcode::CreateCompletionQueue
            | Opcode::CreateQueuePair
            | Opcode::CreateReceivePool
            | Opcode::CreateXrcSharedReceiveQueue
            | Opcode::CreateSendQueue
            | Opcode::CreateReceiveQueue,
        ) => COMMAND_INPUT_MAX,
        _ => COMMAND_SHORT_INPUT_MAX,
    }
}

/// Appends mailboxes to `into` until it has `len` bytes.
fn read_chain(map: &Map, first: u64, len: usize, into: &mut Vec<u8>) -> Result<(), OutOfGrant> {
    let mut address = first;
    let mut mailbox = [0; MAILBOX_NEXT + 8];
    while into.len() < len {
        map.read(address, &mut mailbox)?;
        let (data, tail) = mailbox.split_at(MAILBOX_DATA_LEN);
        let left = len.saturating_sub(into.len());
        into.extend(data.iter().take(left));
        address = tail.last_chunk().map_or(0, |next| u64::from_be_bytes(*next));
    }
    Ok(())
}

/// Writes `bytes` to a chain of mailboxes.
fn write_chain(map: &Map, first: u64, bytes: &[u8]) -> Result<(), OutOfGrant> {
    let mut address = first;
    for data in bytes.chunks(MAILBOX_DATA_LEN) {
        map.write(address, data)?;
        let mut next = [0; 8];
        let wrong = OutOfGrant { addr: address, len: next.len() as u64 };
        map.read(address.checked_add(MAILBOX_NEXT as u64).ok_or(wrong)?, &mut next)?;
        address = u64::from_be_bytes(next);
    }
    Ok(())
}
