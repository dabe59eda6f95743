//! Work requests and completions, as the engine sees them: values in private memory, in no driver's
//! format.
//!
//! The queues of an adapter ([`crate::Queues`]) decode a work queue entry into a [`SendWork`] or
//! [`ReceiveWork`] and encode a [`Completion`] into a completion queue entry. The engine fills and
//! reads these types; they check nothing by themselves. Lists are reused from one work request to
//! the next, so that the data path does not allocate. Each queue pair has one [`SendWork`] and one
//! [`ReceiveWork`], for the work requests in progress. A reset or destroyed queue pair drops both
//! without a completion. All of it runs in the dispatcher's thread that serves the subnet.

/// A range of registered memory that a work request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Segment {
    /// Local key of the region.
    pub key: u32,
    /// Address of the first byte, in the region's address space.
    pub address: u64,
    /// Length, in bytes.
    pub len: u32,
}

/// Memory of the responder that a work request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemoteAddress {
    /// Address of the first byte, in the region's address space.
    pub address: u64,
    /// Remote key of the region.
    pub key: u32,
}

/// The operation of a send work request (InfiniBand specification, 10.8.2.1).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Operation {
    /// Completes without an effect.
    #[default]
    Nop,
    /// Sends a message to a receive work request of the responder.
    Send,
    /// As [`Self::Send`], with immediate data.
    SendImmediate(u32),
    /// As [`Self::Send`]; the responder invalidates this key of its own.
    SendInvalidate(u32),
    /// Writes to the responder's memory.
    Write(RemoteAddress),
    /// As [`Self::Write`]; consumes a receive work request, which reports the immediate data.
    WriteImmediate(RemoteAddress, u32),
    /// Reads the responder's memory.
    Read(RemoteAddress),
    /// Replaces 8 bytes of the responder's memory by `swap` if they equal `compare`. The old value
    /// returns to the requester's segments.
    CompareSwap {
        /// The 8 bytes; aligned to 8.
        remote: RemoteAddress,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Adds to 8 bytes of the responder's memory. The old value returns to the requester's
    /// segments.
    FetchAdd {
        /// The 8 bytes; aligned to 8.
        remote: RemoteAddress,
        /// Summand; the sum wraps.
        add: u64,
    },
    /// Invalidates a key of the requester.
    Invalidate(u32),
    /// Changes a memory region of the requester (fast registration).
    Register(RegionUpdate),
}

impl Operation {
    /// Returns whether the operation sends no message.
    #[inline]
    pub(crate) const fn is_local(&self) -> bool {
        matches!(self, Self::Nop | Self::Invalidate(_) | Self::Register(_))
    }
}

/// The changes that a fast registration makes to a region. `None` leaves a value as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegionUpdate {
    /// Present key of the region. Its variable byte is not compared.
    pub key: u32,
    /// New variable byte of the key.
    pub variable: Option<u8>,
    /// New start address.
    pub base: Option<u64>,
    /// New length, in bytes.
    pub len: Option<u64>,
    /// New protection domain.
    pub domain: Option<u32>,
    /// New binary logarithm of the page size.
    pub page_shift: Option<u8>,
    /// New rights, and the mask of the rights that change: the others stay.
    pub rights: Option<(crate::region::Rights, crate::region::Rights)>,
    /// New state: free (accesses fail) or valid.
    pub is_free: Option<bool>,
    /// The update is refused unless the region is free (true) or valid (false).
    pub required_free: Option<bool>,
    /// New page addresses from this index on.
    pub pages: Option<PageUpdate>,
}

/// New entries of a region's page list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageUpdate {
    /// Index of the first entry.
    pub first: u32,
    /// Number of entries.
    pub count: u32,
    /// Place of the entries.
    pub entries: PageEntries,
}

/// Place of the entries of a [`PageUpdate`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageEntries {
    /// In the work request: decoded guest addresses.
    Inline(Vec<u64>),
    /// In registered memory: [`crate::Queues::decode_page`] decodes the 8 bytes of each entry.
    Memory(Segment),
}

/// The destination of a datagram (InfiniBand specification, 11.2.2: address handle).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddressVector {
    /// Ethernet address of the destination's adapter.
    pub mac: [u8; 6],
    /// Queue pair number; [`crate::limits::MULTICAST_QPN`] (0xffffff) for a multicast group.
    pub queue_pair: u32,
    /// Queue key.
    pub queue_key: u32,
    /// GID of the destination.
    pub gid: [u8; 16],
    /// Index of the source GID in the sender's table.
    pub source_gid_index: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Flow label; 20 bits.
    pub flow_label: u32,
}

/// A send work request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SendWork {
    /// Operation.
    pub operation: Operation,
    /// Memory of the requester: source of a send or write, destination of a read or atomic
    /// operation.
    pub segments: Vec<Segment>,
    /// Payload in the work request itself, before that of `segments`; used if [`Self::is_inline`].
    pub inline: Vec<u8>,
    /// The payload begins with [`Self::inline`].
    pub is_inline: bool,
    /// Destination, for datagram queue pairs.
    pub destination: Option<AddressVector>,
    /// Shared receive queue of the responder, for queue pairs of kind
    /// [`crate::Kind::XrcInitiator`].
    pub xrc_queue: u32,
    /// A success makes a completion; an error always does.
    pub is_signaled: bool,
    /// The responder's completion is a solicited event.
    pub is_solicited: bool,
    /// Value that the queues assign, for [`Completion::token`].
    pub token: Token,
}

impl SendWork {
    /// Resets every field, and keeps the memory of the lists.
    pub fn clear(&mut self) {
        self.operation = Operation::Nop;
        self.segments.clear();
        self.inline.clear();
        self.is_inline = false;
        self.destination = None;
        self.xrc_queue = 0;
        (self.is_signaled, self.is_solicited) = (false, false);
        self.token = Token::default();
    }
}

/// The queues' own name of a work request. The engine copies it to the completion unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Token {
    /// Index of the work queue entry.
    pub index: u16,
    /// Opcode in the queues' format.
    pub opcode: u8,
}

/// A receive work request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReceiveWork {
    /// Memory for the message, in order.
    pub segments: Vec<Segment>,
    /// Value that the queues assign, for [`Completion::token`].
    pub token: Token,
}

/// The receive queue of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReceiveQueue {
    /// The queue pair's own queue, by the number of the queue pair.
    Own(u32),
    /// A shared receive queue, by its number.
    Shared(u32),
}

/// Result of a work request (InfiniBand specification, 11.6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Success.
    Success,
    /// The message is longer than the receive buffers, or than the queue pair permits.
    LocalLength,
    /// The queue pair or the work request is malformed.
    LocalQueuePairOperation,
    /// A local key does not exist, or does not permit the access.
    LocalProtection,
    /// The queue pair is in the error state.
    Flushed,
    /// A region could not be changed or invalidated; memory windows are not supported.
    MemoryWindowBind,
    /// The requester received an answer that it did not expect. The engine never reports it.
    BadResponse,
    /// Local memory could not be written. The engine reports [`Self::LocalProtection`] instead.
    LocalAccess,
    /// The responder refuses the request.
    RemoteInvalidRequest,
    /// The remote key does not exist, or does not permit the access.
    RemoteAccess,
    /// The responder could not complete the request.
    RemoteOperation,
    /// The responder does not answer.
    RetryExceeded,
    /// The responder has no receive work request.
    ReceiverNotReadyExceeded,
}

/// Data that a receive completion carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceivedData {
    /// A send without immediate data.
    Plain,
    /// A send with immediate data.
    Immediate(u32),
    /// A send that invalidated this key.
    Invalidated(u32),
    /// A write with immediate data.
    WriteImmediate(u32),
}

/// The network header that precedes a received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkHeader {
    /// InfiniBand global route header (RoCE version 1).
    Grh,
    /// IPv6 (RoCE version 2).
    Ipv6,
    /// IPv4 (RoCE version 2), in the last 20 of 40 bytes.
    Ipv4,
}

/// The direction of a completed work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionKind {
    /// A send work request.
    Send,
    /// A receive work request.
    Receive {
        /// Data beside the payload.
        data: ReceivedData,
        /// Sender's queue pair number.
        source: u32,
        /// Header before the payload of a datagram.
        network: Option<NetworkHeader>,
        /// The receive work request came from a shared receive queue.
        shared: Option<u32>,
    },
}

/// The result of a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Queue pair.
    pub queue_pair: u32,
    /// Direction, with data of received messages.
    pub kind: CompletionKind,
    /// Result. Unless it is a success, only the queue pair, the direction and the token are valid.
    pub status: Status,
    /// Length of the payload, in bytes; with the 40 bytes of network header for datagrams.
    pub bytes: u32,
    /// The queues' name of the work request.
    pub token: Token,
    /// The sender asked for a solicited event.
    pub is_solicited: bool,
    /// Number of the message among those of the sending queue pair that take a receive work
    /// request, modulo 2^16: of a send work request, the last such message that ended; of a receive
    /// work request, the message received. The record of a function tells by it, after a restart,
    /// whether a message was received already.
    pub message: u16,
}
