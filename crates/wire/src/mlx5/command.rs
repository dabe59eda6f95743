//! The command queue: its entries, the mailboxes that extend an entry, and the headers of input and
//! output.
//!
//! The guest's driver writes an entry of [`QueueEntry::LEN`] (64) bytes, marks the entry as the
//! device's and rings the doorbell of the initialisation segment. Input and output have
//! [`INLINE_LEN`] (16) bytes in the entry; the rest is in a chain of mailboxes of [`MAILBOX_LEN`]
//! (576) bytes, each with [`MAILBOX_DATA_LEN`] (512) bytes of data and a [`MailboxTrailer`]. The
//! device writes the output, and the byte at [`STATUS_OFFSET`] last.
//!
//! The device (`mlx5::command::queue`) parses entries and follows the chains, and writes outputs;
//! drivers ([`super`]) do the reverse. This module checks lengths only and follows no chain. The
//! device bounds the input to 8 KiB, with a page list to 1 MiB + 4 KiB, and the output to 64 KiB,
//! and checks neither signatures (the capability `command_checksum` is 0) nor the token, index and
//! alignment of mailboxes: it never answers [`DeliveryStatus::Signature`],
//! [`DeliveryStatus::Token`] or [`DeliveryStatus::BlockNumber`]. [`DeliveryStatus`] reports that a
//! command could not be read or answered; the result of an executed command is its [`Status`]. The
//! device runs in the dispatcher's turn.

use super::field::{at, codes, layout};

pub use super::opcode::Opcode;

/// Type of a queue entry: a command. No other type is defined.
pub const ENTRY_TYPE_COMMAND: u8 = 7;
/// Binary logarithm of the number of queue entries that the device offers.
pub const LOG_QUEUE_ENTRIES: u8 = 5;
/// Binary logarithm of the distance between queue entries, in bytes.
pub const LOG_ENTRY_STRIDE: u8 = 6;
/// Length of the input, and of the output, in the queue entry, in bytes.
pub const INLINE_LEN: usize = 16;
/// Offset of the output's first bytes in the queue entry.
pub const OUTPUT_OFFSET: usize = 0x20;
/// Offset of the byte with owner and delivery status in the queue entry. The device writes this
/// byte last.
pub const STATUS_OFFSET: usize = 0x3f;

/// Length of a mailbox, in bytes.
pub const MAILBOX_LEN: usize = 576;
/// Length of the data of a mailbox, in bytes.
pub const MAILBOX_DATA_LEN: usize = 512;
/// Alignment of the mailboxes of a driver, in bytes.
pub const MAILBOX_ALIGNMENT: usize = 1024;

/// Length of [`InputHeader`] and [`OutputHeader`], in bytes.
pub const HEADER_LEN: usize = 16;

layout! {
    /// An entry of the command queue.
    pub struct QueueEntry("command queue entry", 64) {
        /// [`ENTRY_TYPE_COMMAND`].
        entry_type: u8 = at(0x00, 0, 8),
        /// Length of the input, in bytes.
        input_len: u32 = at(0x04, 0, 32),
        /// Address of the input's first mailbox.
        input_mailbox: u64 = at(0x08, 0, 64),
        /// First bytes of the input.
        input: [u8; INLINE_LEN] = at(0x10, 0, 128),
        /// First bytes of the output.
        output: [u8; INLINE_LEN] = at(0x20, 0, 128),
        /// Address of the output's first mailbox.
        output_mailbox: u64 = at(0x30, 0, 64),
        /// Length of the output, in bytes.
        output_len: u32 = at(0x38, 0, 32),
        /// Number that the command's mailboxes repeat.
        token: u8 = at(0x3c, 0, 8),
        /// Signature; unused.
        signature: u8 = at(0x3d, 0, 8),
        /// Code of a [`DeliveryStatus`].
        delivery_status: u8 = at(0x3f, 0, 7),
        /// The device executes the command; false after the output is complete.
        is_device_owned: bool = at(0x3f, 7, 1),
    }
}

layout! {
    /// The end of a mailbox, behind its data.
    pub struct MailboxTrailer("command mailbox trailer", 64) {
        /// Address of the next mailbox; 0 at the end of the chain.
        next: u64 = at(0x30, 0, 64),
        /// Index in the chain.
        index: u32 = at(0x38, 0, 32),
        /// Token of the command.
        token: u8 = at(0x3d, 0, 8),
        /// Signature of this structure; unused.
        control_signature: u8 = at(0x3e, 0, 8),
        /// Signature of the mailbox; unused.
        signature: u8 = at(0x3f, 0, 8),
    }
}

layout! {
    /// The first bytes of a command's input. Fields that a command does not have are reserved.
    pub struct InputHeader("command input", 16) {
        /// Code of an [`Opcode`].
        opcode: u16 = at(0x00, 0, 16),
        /// User context; 0 for the kernel.
        user: u16 = at(0x02, 0, 16),
        /// Variant of the operation.
        modifier: u16 = at(0x06, 0, 16),
        /// Present state of a send queue, receive queue or receive pool that the command changes.
        state: u8 = at(0x08, 0, 4),
        /// Number of the object.
        number: u32 = at(0x09, 0, 24),
        /// Further parameter, for example the selected fields of MODIFY_CQ.
        argument: u32 = at(0x0c, 0, 32),
    }
}

impl InputHeader {
    /// Returns the operation, or `None` if the code is not known.
    pub const fn operation(&self) -> Option<Opcode> {
        Opcode::from_raw(self.opcode)
    }

    /// Returns the header of a command on the object `number`; 0 if there is none.
    pub const fn new(opcode: Opcode, number: u32) -> Self {
        Self { opcode: opcode.raw(), user: 0, modifier: 0, state: 0, number, argument: 0 }
    }
}

layout! {
    /// The first bytes of a command's output.
    pub struct OutputHeader("command output", 16) {
        /// Code of a [`Status`].
        status: u8 = at(0x00, 0, 8),
        /// Detail of a failure, in the device's own codes.
        syndrome: u32 = at(0x04, 0, 32),
        /// Number of the created object.
        number: u32 = at(0x09, 0, 24),
        /// Further result.
        argument: u32 = at(0x0c, 0, 32),
    }
}

codes! {
    /// Result of a command.
    pub enum Status: u8 {
        /// Success.
        Ok = 0x00 "success",
        /// The device failed.
        Internal = 0x01 "internal error",
        /// The operation or its modifier is not supported.
        BadOperation = 0x02 "bad operation",
        /// A parameter is out of range.
        BadParameter = 0x03 "bad parameter",
        /// The function is not started.
        BadSystemState = 0x04 "bad system state",
        /// The object does not exist.
        BadResource = 0x05 "bad resource",
        /// The object is in use.
        ResourceBusy = 0x06 "resource busy",
        /// The device is not ready for the command.
        NotReady = 0x07 "not ready",
        /// A limit is exceeded.
        ExceededLimit = 0x08 "limit exceeded",
        /// The object's state does not permit the operation.
        BadResourceState = 0x09 "bad resource state",
        /// An index is out of range.
        BadIndex = 0x0a "bad index",
        /// Objects or memory are exhausted.
        NoResources = 0x0f "no resources",
        /// The queue pair's state does not permit the operation.
        BadQueuePairState = 0x10 "bad queue pair state",
        /// A management datagram is malformed.
        BadPacket = 0x30 "bad packet",
        /// A completion queue has too many completions for its new size.
        BadOutstandingSize = 0x40 "too many outstanding completions",
        /// The input is too short or too long.
        BadInputLength = 0x50 "bad input length",
        /// The output is too short.
        BadOutputLength = 0x51 "bad output length",
    }
}

impl Status {
    /// Returns the header of an output with this status, and with no number.
    pub const fn header(self) -> OutputHeader {
        OutputHeader { status: self.raw(), syndrome: 0, number: 0, argument: 0 }
    }
}

codes! {
    /// Result of the transport of a command, from the queue entry to the device.
    pub enum DeliveryStatus: u8 {
        /// The command was executed; its own result is a [`Status`].
        Ok = 0x00 "delivered",
        /// A signature is wrong.
        Signature = 0x01 "bad signature",
        /// A mailbox has another token.
        Token = 0x02 "bad token",
        /// The index of a mailbox is wrong.
        BlockNumber = 0x03 "bad mailbox index",
        /// The address of an output mailbox is not aligned, or not in granted memory.
        OutputPointer = 0x04 "bad output mailbox",
        /// The address of an input mailbox is not aligned, or not in granted memory.
        InputPointer = 0x05 "bad input mailbox",
        /// The device failed.
        Internal = 0x06 "internal error",
        /// The length of the input is wrong.
        InputLength = 0x07 "bad input length",
        /// The length of the output is wrong.
        OutputLength = 0x08 "bad output length",
        /// A reserved field is not zero.
        ReservedField = 0x09 "reserved field is set",
        /// The entry's type is not [`ENTRY_TYPE_COMMAND`].
        EntryType = 0x10 "bad entry type",
    }
}
