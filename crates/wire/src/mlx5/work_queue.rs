//! Work queues that are objects of their own: Ethernet send and receive queues, and receive memory
//! pools, which are the device's shared receive queues.
//!
//! A queue is [`WorkQueueType::Cyclic`] (an array of entries) or [`WorkQueueType::LinkedList`]:
//! each entry begins with a [`NextSegment`]; the device starts at index 0 and follows the links,
//! which a driver can write to any value.
//!
//! Guests write contexts; the device parses them (`mlx5::ethernet::command::queue` and
//! `mlx5::command::receive_queue`) and emits them for QUERY commands. This module checks lengths
//! only. The device accepts Ethernet queues that are [`WorkQueueType::Cyclic`] and pools and XRC
//! queues that are linked lists, with up to 2^15 entries or blocks; it refuses the types with
//! strides, hairpin queues and receive queues in a pool with *bad parameter*, and a link that
//! leaves the ring breaks the queue. The device runs in the dispatcher's turn.

use super::field::{at, codes, layout};

/// Offset of the context in the input of CREATE and MODIFY commands, and in the output of QUERY
/// commands, of send queues, receive queues and receive pools.
pub const CONTEXT: usize = 0x20;
/// Offset of the page list in the input of CREATE commands of send queues, receive queues and
/// receive pools.
pub const PAGES: usize = 0x110;
/// Offset of the mask of changed fields in the input of MODIFY commands; 64 bits.
pub const MODIFY_MASK: usize = 0x10;
/// Mask of MODIFY_RMP: the limit.
pub const MODIFY_LIMIT: u64 = 1 << 0;
/// Offset of the context in the input of CREATE_XRC_SRQ and in the output of QUERY_XRC_SRQ.
pub const XRC_CONTEXT: usize = 0x10;
/// Offset of the page list in the input of CREATE_XRC_SRQ.
pub const XRC_PAGES: usize = 0x110;
/// Size of the unit of a send queue, in bytes, and of its stride.
pub const SEND_BLOCK: usize = super::queue_pair::SEND_BLOCK;

codes! {
    /// Order of a queue's entries.
    pub enum WorkQueueType: u8 {
        /// Each entry names the next.
        LinkedList = 0 "linked list",
        /// An array.
        Cyclic = 1 "cyclic",
        /// As [`Self::LinkedList`], with several packets in an entry.
        LinkedListStriding = 2 "linked list with strides",
        /// As [`Self::Cyclic`], with several packets in an entry.
        CyclicStriding = 3 "cyclic with strides",
    }
}

codes! {
    /// State of a send queue, receive queue or receive pool.
    pub enum QueueState: u8 {
        /// Created.
        Reset = 0 "reset",
        /// Ready.
        Ready = 1 "ready",
        /// Failed.
        Error = 3 "error",
    }
}

layout! {
    /// The ring of a work queue.
    pub struct WorkQueue("work queue", 0xc0) {
        /// Code of a [`WorkQueueType`].
        queue_type: u8 = at(0x00, 0, 4),
        /// Entries have a signature.
        has_signature: bool = at(0x00, 4, 1),
        /// Padding of messages to cache lines; 0 none.
        end_padding: u8 = at(0x00, 5, 2),
        /// Begin of the ring in its first page, in 64ths of a page; 5 bits only.
        page_offset: u8 = at(0x05, 3, 5),
        /// Limit below which an event is reported; 0 none.
        limit: u16 = at(0x06, 0, 16),
        /// Protection domain.
        domain: u32 = at(0x09, 0, 24),
        /// Doorbell page.
        uar_page: u32 = at(0x0d, 0, 24),
        /// Address of the [`super::queue_pair::DoorbellRecord`].
        doorbell_record: u64 = at(0x10, 0, 64),
        /// Number of entries that the device has taken.
        device_counter: u32 = at(0x18, 0, 32),
        /// Number of entries that the driver has posted.
        driver_counter: u32 = at(0x1c, 0, 32),
        /// Binary logarithm of the size of an entry, in bytes.
        log_stride: u8 = at(0x21, 4, 4),
        /// Binary logarithm of the page size, minus 12.
        log_page_size: u8 = at(0x22, 3, 5),
        /// Binary logarithm of the number of entries.
        log_size: u8 = at(0x23, 3, 5),
        /// Binary logarithm of the number of strides in an entry, minus 9.
        log_strides: u8 = at(0x26, 4, 4),
        /// Two bytes precede each packet, so that the IP header is aligned.
        has_two_byte_shift: bool = at(0x27, 0, 1),
        /// Binary logarithm of a stride's size, minus 6.
        log_stride_size: u8 = at(0x27, 5, 3),
    }
}

impl WorkQueue {
    /// Returns the order of entries, or `None` if the code is not known.
    pub const fn queue_type(&self) -> Option<WorkQueueType> {
        WorkQueueType::from_raw(self.queue_type)
    }

    /// Returns the size of an entry, in bytes: at most 32 KiB.
    pub const fn stride(&self) -> u64 {
        1_u64.wrapping_shl(self.log_stride as u32 & 15)
    }

    /// Returns the number of entries.
    pub const fn entries(&self) -> u64 {
        1_u64.wrapping_shl(self.log_size as u32 & 31)
    }

    /// Returns the length of the ring, in bytes.
    pub const fn buffer_len(&self) -> u64 {
        self.stride().wrapping_mul(self.entries())
    }
}

layout! {
    /// Context of an Ethernet send queue.
    pub struct SendQueueContext("send queue context", 0xf0) {
        /// The reserved local key may be used.
        has_reserved_key: bool = at(0x00, 0, 1),
        /// Cross-channel synchronisation: master.
        is_master: bool = at(0x00, 1, 1),
        /// Fast registration is permitted.
        has_fast_registration: bool = at(0x00, 2, 1),
        /// Work requests complete with an error in the error state.
        flushes_in_error: bool = at(0x00, 3, 1),
        /// An entry may send several packets.
        has_multi_packet: bool = at(0x00, 4, 1),
        /// Headers that entries must contain; see [`super::vport::INLINE_L2`].
        min_inline_mode: u8 = at(0x00, 5, 3),
        /// Code of a [`QueueState`].
        state: u8 = at(0x01, 0, 4),
        /// UMR work requests are permitted.
        has_update: bool = at(0x01, 4, 1),
        /// Driver sets offsets of headers for checksums.
        has_software_parser: bool = at(0x01, 5, 1),
        /// The queue belongs to a pair without memory of the driver.
        is_hairpin: bool = at(0x01, 6, 1),
        /// Format of time stamps.
        timestamp_format: u8 = at(0x03, 2, 2),
        /// Number that completions carry.
        user_index: u32 = at(0x05, 0, 24),
        /// Completion queue.
        completion_queue: u32 = at(0x09, 0, 24),
        /// Index of the rate limit.
        rate_limit: u16 = at(0x1e, 0, 16),
        /// Number of transport interfaces; 0 or 1.
        interface_count: u16 = at(0x20, 0, 16),
        /// Transport interface.
        interface: u32 = at(0x2d, 0, 24),
        /// Ring.
        queue: WorkQueue = at(0x30, 0, 1536),
    }
}

layout! {
    /// Context of an Ethernet receive queue.
    pub struct ReceiveQueueContext("receive queue context", 0xf0) {
        /// The reserved local key may be used.
        has_reserved_key: bool = at(0x00, 0, 1),
        /// Packets wait for entries.
        has_delayed_drop: bool = at(0x00, 1, 1),
        /// Packets keep their frame check sequence.
        has_fcs: bool = at(0x00, 2, 1),
        /// VLAN tags stay in the packets.
        keeps_vlan: bool = at(0x00, 3, 1),
        /// Memory: 0 the ring of this context, 1 the receive pool [`Self::pool`].
        memory_type: u8 = at(0x00, 4, 4),
        /// Code of a [`QueueState`].
        state: u8 = at(0x01, 0, 4),
        /// Entries complete with an error in the error state.
        flushes_in_error: bool = at(0x01, 5, 1),
        /// The queue belongs to a pair without memory of the driver.
        is_hairpin: bool = at(0x01, 6, 1),
        /// Format of time stamps.
        timestamp_format: u8 = at(0x03, 2, 2),
        /// Number that completions carry.
        user_index: u32 = at(0x05, 0, 24),
        /// Completion queue.
        completion_queue: u32 = at(0x09, 0, 24),
        /// Set of counters.
        counter_set: u8 = at(0x0c, 0, 8),
        /// Receive pool.
        pool: u32 = at(0x11, 0, 24),
        /// Ring.
        queue: WorkQueue = at(0x30, 0, 1536),
    }
}

layout! {
    /// Context of a receive pool.
    pub struct ReceivePoolContext("receive pool context", 0xf0) {
        /// Code of a [`QueueState`].
        state: u8 = at(0x01, 0, 4),
        /// The ring is cyclic.
        is_cyclic: bool = at(0x04, 0, 1),
        /// Ring.
        queue: WorkQueue = at(0x30, 0, 1536),
    }
}

layout! {
    /// Context of a shared receive queue of an XRC domain.
    pub struct XrcReceiveQueueContext("XRC receive queue context", 0x40) {
        /// State; 0 good, 1 error.
        state: u8 = at(0x00, 0, 4),
        /// Binary logarithm of the number of entries.
        log_size: u8 = at(0x00, 4, 4),
        /// Entries have a signature.
        has_signature: bool = at(0x04, 0, 1),
        /// The reserved local key may be used.
        has_reserved_key: bool = at(0x04, 3, 1),
        /// The ring is cyclic.
        is_cyclic: bool = at(0x04, 4, 1),
        /// Binary logarithm of the size of an entry, minus 4.
        log_stride: u8 = at(0x04, 5, 3),
        /// XRC domain.
        xrc_domain: u32 = at(0x05, 0, 24),
        /// Begin of the ring in its first page, in 64ths of a page.
        page_offset: u8 = at(0x08, 0, 6),
        /// Completion queue.
        completion_queue: u32 = at(0x09, 0, 24),
        /// Completions carry the queue's number in place of the user index.
        has_number_as_index: bool = at(0x10, 0, 1),
        /// Binary logarithm of the page size, minus 12.
        log_page_size: u8 = at(0x10, 2, 6),
        /// Number that completions carry.
        user_index: u32 = at(0x11, 0, 24),
        /// Protection domain.
        domain: u32 = at(0x19, 0, 24),
        /// Limit below which an event is reported; 0 none.
        limit: u16 = at(0x1c, 0, 16),
        /// Number of posted entries.
        posted: u16 = at(0x1e, 0, 16),
        /// Address of the [`super::queue_pair::DoorbellRecord`].
        doorbell_record: u64 = at(0x28, 0, 64),
    }
}

layout! {
    /// The first bytes of an entry of a linked list.
    pub struct NextSegment("next segment", 16) {
        /// Index of the next entry.
        next: u16 = at(0x02, 0, 16),
    }
}

layout! {
    /// The input of ARM_RQ and ARM_XRC_SRQ.
    pub struct ArmInput("receive queue limit", 16) {
        /// Number of the shared receive queue.
        number: u32 = at(0x09, 0, 24),
        /// Limit below which an event is reported, once.
        limit: u16 = at(0x0e, 0, 16),
    }
}
