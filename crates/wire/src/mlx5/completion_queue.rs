//! Completion queues: the context of CREATE_CQ, the entries that the device writes, and the
//! doorbell record by which the driver returns and arms.
//!
//! An entry has 64 bytes, or 128 of which the last 64 are used. The entry is valid while its owner
//! bit equals the parity of the device's count of rounds through the ring; drivers fill a new ring
//! with the opcode [`OPCODE_INVALID`]. The device writes an entry, then the byte at
//! [`OWNER_OFFSET`].
//!
//! The device parses contexts (`mlx5::command`) and arm words (`mlx5::completion_queue`), and emits
//! entries (`mlx5::completion_queue`, `mlx5::queues`, `mlx5::ethernet`). It reads the words of a
//! doorbell record without [`DoorbellRecord`]. Drivers ([`super`]) emit contexts and parse entries.
//! Only lengths are checked here: not the ring's size, the owner bit, or whether the ring has room;
//! of a value that is too wide for its field the low bits are stored.
//!
//! The device does not compress or collapse entries, and measures the period of moderation from the
//! last event in either mode; it arms by the record alone and reads no [`ArmDoorbell`]. Local
//! identifiers and service levels of InfiniBand links are only described, and 0 in its entries. The
//! device runs in the dispatcher's thread.

use super::field::{at, codes, layout};
use crate::Truncated;

/// Offset of the context in the input of CREATE_CQ and MODIFY_CQ, and in the output of QUERY_CQ.
pub const CONTEXT: usize = 0x10;
/// Offset of the page list in the input of CREATE_CQ and MODIFY_CQ, and in the output of QUERY_CQ.
pub const PAGES: usize = 0x110;
/// Modifier of MODIFY_CQ: change of the size. The other modifier, 0, changes the moderation.
pub const MODIFY_RESIZE: u16 = 1;
/// Field selection of MODIFY_CQ, moderation: the period.
pub const MODIFY_PERIOD: u32 = 1 << 0;
/// Field selection of MODIFY_CQ, moderation: the count.
pub const MODIFY_COUNT: u32 = 1 << 1;
/// Field selection of MODIFY_CQ, moderation: whether overruns are ignored.
pub const MODIFY_OVERRUN: u32 = 1 << 2;
/// Field selection of MODIFY_CQ, moderation: the mode of the period.
pub const MODIFY_PERIOD_MODE: u32 = 1 << 4;
/// Field selection of MODIFY_CQ, resize: the number of entries.
pub const MODIFY_LOG_SIZE: u32 = 1 << 0;
/// Field selection of MODIFY_CQ, resize: the offset in the first page.
pub const MODIFY_PAGE_OFFSET: u32 = 1 << 1;
/// Field selection of MODIFY_CQ, resize: the page size.
pub const MODIFY_PAGE_SIZE: u32 = 1 << 2;

/// Length of the used part of an entry, in bytes.
pub const ENTRY_LEN: usize = 64;
/// Offset of the byte with opcode and owner bit. The device writes this byte last.
pub const OWNER_OFFSET: usize = 0x3f;
/// Opcode of an entry that the device has not written.
pub const OPCODE_INVALID: u8 = 15;
/// Value of [`CompletionQueueContext::entry_size`]: 64 bytes.
pub const ENTRY_SIZE_64: u8 = 0;
/// Value of [`CompletionQueueContext::entry_size`]: 128 bytes.
pub const ENTRY_SIZE_128: u8 = 1;

layout! {
    /// Context of a completion queue.
    pub struct CompletionQueueContext("completion queue context", 0x40) {
        /// Status; 0 is good.
        status: u8 = at(0x00, 0, 4),
        /// [`ENTRY_SIZE_64`] or [`ENTRY_SIZE_128`].
        entry_size: u8 = at(0x01, 0, 3),
        /// Completions of several queues are collapsed to the first entry.
        is_collapsed: bool = at(0x01, 3, 1),
        /// The device may overwrite entries that the driver did not take.
        ignores_overrun: bool = at(0x01, 6, 1),
        /// Begin of the moderation period: an event (0) or a completion (1).
        period_mode: u8 = at(0x01, 7, 2),
        /// Compression of entries is on.
        is_compressed: bool = at(0x02, 1, 1),
        /// State; 6 solicited armed, 9 armed, 10 fired.
        state: u8 = at(0x02, 4, 4),
        /// Begin of the ring in its first page, in 64ths of a page.
        page_offset: u8 = at(0x0a, 4, 6),
        /// Binary logarithm of the number of entries.
        log_size: u8 = at(0x0c, 3, 5),
        /// Doorbell page.
        uar_page: u32 = at(0x0d, 0, 24),
        /// Moderation: time, in microseconds.
        period: u16 = at(0x10, 4, 12),
        /// Moderation: number of completions.
        max_count: u16 = at(0x12, 0, 16),
        /// Event queue that receives the queue's events.
        event_queue: u32 = at(0x14, 0, 32),
        /// Binary logarithm of the page size, minus 12.
        log_page_size: u8 = at(0x18, 3, 5),
        /// Producer count at the last event.
        last_notified: u32 = at(0x21, 0, 24),
        /// Producer count at the last solicited event.
        last_solicited: u32 = at(0x25, 0, 24),
        /// Number of entries that the driver has taken.
        consumer: u32 = at(0x29, 0, 24),
        /// Number of entries that the device has written.
        producer: u32 = at(0x2d, 0, 24),
        /// Address of the [`DoorbellRecord`].
        doorbell_record: u64 = at(0x38, 0, 64),
    }
}

impl CompletionQueueContext {
    /// Returns the distance between entries, in bytes, or `None` if the size is not defined.
    pub const fn stride(&self) -> Option<usize> {
        match self.entry_size {
            ENTRY_SIZE_64 => Some(64),
            ENTRY_SIZE_128 => Some(128),
            _ => None,
        }
    }
}

codes! {
    /// Opcode of an entry.
    pub enum CompletionOpcode: u8 {
        /// A send work request is complete.
        Request = 0 "request",
        /// A write with immediate data was received.
        ReceiveWriteImmediate = 1 "received write with immediate",
        /// A message was received.
        ReceiveSend = 2 "received send",
        /// A message with immediate data was received.
        ReceiveSendImmediate = 3 "received send with immediate",
        /// A message was received, and a memory key invalidated.
        ReceiveSendInvalidate = 4 "received send with invalidate",
        /// The ring ends here; the next completion is in the new ring.
        Resize = 5 "resize",
        /// A send work request failed.
        RequestError = 13 "request error",
        /// A receive work request failed.
        ResponderError = 14 "responder error",
    }
}

codes! {
    /// Reason of a failed work request.
    pub enum Syndrome: u8 {
        /// The message is longer than the receive buffers, or than the queue pair permits.
        LocalLength = 0x01 "local length",
        /// The queue pair or the work request is malformed.
        LocalQueuePairOperation = 0x02 "local queue pair operation",
        /// A local key does not permit the access.
        LocalProtection = 0x04 "local protection",
        /// The queue pair is in the error state.
        Flushed = 0x05 "flushed",
        /// A memory window could not be bound.
        MemoryWindowBind = 0x06 "memory window bind",
        /// The responder's answer is malformed.
        BadResponse = 0x10 "bad response",
        /// Local memory could not be written.
        LocalAccess = 0x11 "local access",
        /// The responder refuses the request.
        RemoteInvalidRequest = 0x12 "remote invalid request",
        /// The remote key does not permit the access.
        RemoteAccess = 0x13 "remote access",
        /// The responder failed.
        RemoteOperation = 0x14 "remote operation",
        /// The responder does not answer.
        RetryExceeded = 0x15 "transport retries exceeded",
        /// The responder has no receive work request.
        ReceiverNotReadyExceeded = 0x16 "receiver-not-ready retries exceeded",
        /// The responder gave up.
        RemoteAborted = 0x22 "remote aborted",
    }
}

/// [`CompletionEntry::network`]: global route header (RoCE version 1).
pub const NETWORK_GRH: u8 = 0;
/// [`CompletionEntry::network`]: IPv6 (RoCE version 2).
pub const NETWORK_IPV6: u8 = 1;
/// [`CompletionEntry::network`]: IPv4 (RoCE version 2).
pub const NETWORK_IPV4: u8 = 2;
/// [`CompletionEntry::checks`]: the header of layer 2 is correct.
pub const CHECK_L2: u8 = 1 << 0;
/// [`CompletionEntry::checks`]: the checksum of layer 3 is correct.
pub const CHECK_L3: u8 = 1 << 1;
/// [`CompletionEntry::checks`]: the checksum of layer 4 is correct.
pub const CHECK_L4: u8 = 1 << 2;
/// [`CompletionEntry::layer3`]: IPv6.
pub const L3_IPV6: u8 = 1;
/// [`CompletionEntry::layer3`]: IPv4.
pub const L3_IPV4: u8 = 2;
/// [`CompletionEntry::layer4`]: TCP without an acknowledgement.
pub const L4_TCP: u8 = 1;
/// [`CompletionEntry::layer4`]: UDP.
pub const L4_UDP: u8 = 2;
/// [`CompletionEntry::layer4`]: TCP with an acknowledgement, without data.
pub const L4_TCP_ACK: u8 = 3;
/// [`CompletionEntry::layer4`]: TCP with an acknowledgement and data.
pub const L4_TCP_ACK_DATA: u8 = 4;

layout! {
    /// An entry of a success.
    pub struct CompletionEntry("completion queue entry", 64) {
        /// Identifier of the receive work request, for queues with strides.
        wqe_id: u16 = at(0x02, 0, 16),
        /// Hash of the frame's flow.
        hash: u32 = at(0x0c, 0, 32),
        /// Fields that the hash covers; 0 if there is no hash.
        hash_type: u8 = at(0x10, 0, 8),
        /// Ones-complement sum of the frame behind its Ethernet header.
        checksum: u16 = at(0x14, 0, 16),
        /// Local identifier of the sender, on InfiniBand links.
        source_lid: u16 = at(0x16, 0, 16),
        /// Position of the global route header: 0 none, 1 in the buffer.
        grh: u8 = at(0x18, 2, 2),
        /// [`NETWORK_GRH`], [`NETWORK_IPV6`] or [`NETWORK_IPV4`]; the service level on InfiniBand
        /// links.
        network: u8 = at(0x18, 4, 4),
        /// Queue pair of the sender.
        source_queue_pair: u32 = at(0x19, 0, 24),
        /// Sum of `CHECK_` constants.
        checks: u8 = at(0x1c, 0, 8),
        /// Type of the header of layer 4.
        layer4: u8 = at(0x1d, 1, 3),
        /// Type of the header of layer 3.
        layer3: u8 = at(0x1d, 4, 2),
        /// The frame had a VLAN tag, which is in [`Self::vlan`].
        has_vlan: bool = at(0x1d, 7, 1),
        /// VLAN tag.
        vlan: u16 = at(0x1e, 0, 16),
        /// Number of segments that were merged. Drivers read the field even when merging is off:
        /// keep the field 0.
        merged_segments: u8 = at(0x20, 0, 8),
        /// Number of the shared receive queue, or the user index of the queue pair.
        user_index: u32 = at(0x21, 0, 24),
        /// Immediate data, invalidated key, or partition key of a management datagram.
        immediate: u32 = at(0x24, 0, 32),
        /// Length of the payload, in bytes. A driver writes past its buffers if the length exceeds
        /// that of the work request's segments.
        bytes: u32 = at(0x2c, 0, 32),
        /// Time of the completion.
        timestamp: u64 = at(0x30, 0, 64),
        /// Opcode of the send work request.
        request_opcode: u8 = at(0x38, 0, 8),
        /// Queue pair, send queue or receive queue.
        queue: u32 = at(0x39, 0, 24),
        /// Index of the work request: first block of a send, entry of a receive queue.
        counter: u16 = at(0x3c, 0, 16),
        /// Code of a [`CompletionOpcode`].
        opcode: u8 = at(0x3f, 0, 4),
        /// Format of the entry; 0 for entries that carry all of their data.
        format: u8 = at(0x3f, 4, 2),
        /// The sender asked for a solicited event.
        is_solicited: bool = at(0x3f, 6, 1),
        /// Owner bit.
        owner: bool = at(0x3f, 7, 1),
    }
}

layout! {
    /// An entry of a failure.
    pub struct ErrorEntry("completion queue entry", 64) {
        /// Number of the shared receive queue, or the user index of the queue pair.
        user_index: u32 = at(0x21, 0, 24),
        /// Detail of the failure, in the device's own codes.
        vendor_syndrome: u8 = at(0x36, 0, 8),
        /// Code of a [`Syndrome`].
        syndrome: u8 = at(0x37, 0, 8),
        /// Opcode of the send work request.
        request_opcode: u8 = at(0x38, 0, 8),
        /// Queue pair, send queue or receive queue.
        queue: u32 = at(0x39, 0, 24),
        /// Index of the work request.
        counter: u16 = at(0x3c, 0, 16),
        /// [`CompletionOpcode::RequestError`] or [`CompletionOpcode::ResponderError`].
        opcode: u8 = at(0x3f, 0, 4),
        /// Owner bit.
        owner: bool = at(0x3f, 7, 1),
    }
}

/// An entry of either kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// The work request succeeded, or the entry is not a completion.
    Success(CompletionEntry),
    /// The work request failed.
    Error(ErrorEntry),
}

impl Entry {
    /// Reads an entry of [`ENTRY_LEN`] bytes. The opcode selects the kind.
    ///
    /// # Errors
    /// [`Truncated`] if there are fewer bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Truncated> {
        let entry = CompletionEntry::parse(bytes)?;
        match CompletionOpcode::from_raw(entry.opcode) {
            Some(CompletionOpcode::RequestError | CompletionOpcode::ResponderError) => {
                Ok(Self::Error(ErrorEntry::parse(bytes)?))
            }
            _ => Ok(Self::Success(entry)),
        }
    }

    /// Returns the bytes of the entry.
    pub fn to_bytes(&self) -> [u8; ENTRY_LEN] {
        match self {
            Self::Success(entry) => entry.to_bytes(),
            Self::Error(entry) => entry.to_bytes(),
        }
    }

    /// Returns the owner bit.
    pub const fn owner(&self) -> bool {
        match self {
            Self::Success(entry) => entry.owner,
            Self::Error(entry) => entry.owner,
        }
    }
}

layout! {
    /// The word that arms a completion queue.
    pub struct ArmWord("completion queue arm word", 4) {
        /// Sequence number; 2 bits. The driver increments the number after each event.
        sequence: u8 = at(0x00, 2, 2),
        /// Only solicited completions and errors make an event.
        is_solicited_only: bool = at(0x00, 7, 1),
        /// Number of entries that the driver has taken.
        consumer: u32 = at(0x01, 0, 24),
    }
}

layout! {
    /// The doorbell record of a completion queue, in the driver's memory.
    pub struct DoorbellRecord("completion queue doorbell record", 8) {
        /// Number of entries that the driver has taken; 24 bits.
        consumer: u32 = at(0x01, 0, 24),
        /// Last arm word.
        arm: ArmWord = at(0x04, 0, 32),
    }
}

layout! {
    /// The doorbell that arms a completion queue, in the doorbell page.
    pub struct ArmDoorbell("completion queue doorbell", 8) {
        /// Arm word.
        arm: ArmWord = at(0x00, 0, 32),
        /// Number of the completion queue.
        completion_queue: u32 = at(0x05, 0, 24),
    }
}
