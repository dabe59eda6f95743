//! Why a conversation ended: the culprit, and what it should have done.

use causeway_host::limits::UNCLOSED_MAX;
use causeway_memory::{MapError, MappingError};
use causeway_ring::{DoorbellError, RingError};
use rustix::io::Errno;
use vhost::vhost_user::message::FrontendReq;

use crate::attachment::AttachmentError;
pub use crate::attachment::FaultKind;
use crate::limits::{
    CONFIG_BYTES_MAX, DESCRIPTORS_MAX, MEMORY_SLOTS_MAX, PAYLOAD_BYTES_MAX, TABLE_REGIONS_MAX,
};

/// A broken rule. The port that it happened on must be closed; no other is touched.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Fault {
    /// What happened.
    #[source]
    pub reason: Reason,
    /// Who is to blame.
    pub kind: FaultKind,
}

impl From<Fault> for AttachmentError {
    fn from(fault: Fault) -> Self {
        let bars = matches!(fault.reason, Reason::Notification { .. });
        Self::new(fault.kind, fault).barring(bars)
    }
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Self {
        Self { kind: reason.kind(), reason }
    }
}

/// The part of a ring that an address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The descriptor table.
    Descriptors,
    /// The available ring.
    Available,
    /// The used ring.
    Used,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Descriptors => "descriptor table",
            Self::Available => "available ring",
            Self::Used => "used ring",
        })
    }
}

/// What happened, precisely.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The header's version bits are not 1.
    #[error("vhost-user version {0} in a message header, only 1 is spoken")]
    Version(u32),
    /// The header has the reply bit, or bits that mean nothing.
    #[error("message header flags {0:#x}: a request has only the version and need_reply")]
    Flags(u32),
    /// No such request, or none that this backend offers.
    #[error("request {0} is unknown or was not offered")]
    Unknown(u32),
    /// The payload is longer than any message needs.
    #[error("{request:?} announces {size} bytes of payload, at most {PAYLOAD_BYTES_MAX} are taken")]
    Long {
        /// The message.
        request: FrontendReq,
        /// Announced bytes.
        size: u32,
    },
    /// The payload does not have the message's length.
    #[error("{request:?} has {got} bytes of payload, {want} expected")]
    Size {
        /// The message.
        request: FrontendReq,
        /// Bytes that came.
        got: usize,
        /// Bytes that the message has.
        want: usize,
    },
    /// Too few or too many descriptors.
    #[error("{request:?} came with {got} descriptors, {want} expected")]
    Descriptors {
        /// The message.
        request: FrontendReq,
        /// Descriptors that came.
        got: usize,
        /// Descriptors that the message has.
        want: usize,
    },
    /// More descriptors than any message may have.
    #[error("descriptors were cut off: more than {DESCRIPTORS_MAX} came with one message")]
    DescriptorsCut,
    /// This process may open no more descriptors, so the kernel discarded those of a message.
    #[error("this host has no free descriptors: those of a message were lost; raise the limit")]
    DescriptorsScarce,
    /// Descriptors that came before take too long to close.
    #[error("{UNCLOSED_MAX} of its descriptors are not closed yet: they take long")]
    DescriptorsUnclosed,
    /// A descriptor that could keep us waiting.
    #[error(
        "{} came with a descriptor that is no eventfd, no Unix socket and no file of \
         memory (a memfd, or on tmpfs or hugetlbfs)",
        .request.map_or("a message".into(), |request| format!("{request:?}"))
    )]
    DescriptorKind {
        /// The message, if so much of it is there.
        request: Option<FrontendReq>,
    },
    /// The frontend closed the connection in the middle of a message.
    #[error("the connection ended in the middle of a message")]
    Truncated,
    /// The frontend does not read its replies.
    #[error("replies are not read: the connection's send buffer is full")]
    RepliesUnread,
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Socket(Errno),
    /// A message of a protocol feature that was not negotiated.
    #[error("{request:?} needs protocol feature {feature}, which was not negotiated")]
    NotNegotiated {
        /// The message.
        request: FrontendReq,
        /// The feature's name.
        feature: &'static str,
    },
    /// Feature bits that were not offered.
    #[error("{request:?} acknowledges bits {extra:#x}, which were not offered")]
    Features {
        /// The message.
        request: FrontendReq,
        /// The bits.
        extra: u64,
    },
    /// Features changed while rings run.
    #[error("SET_FEATURES changes features while queue {queue} runs; stop it with GET_VRING_BASE")]
    FeaturesRunning {
        /// A queue that runs.
        queue: usize,
    },
    /// A message came too early.
    #[error("{request:?} for queue {queue} before {missing}")]
    Early {
        /// The message.
        request: FrontendReq,
        /// The queue.
        queue: usize,
        /// What has to come first.
        missing: &'static str,
    },
    /// No such queue.
    #[error(
        "{request:?} names queue {index}, the device has {queues}; give the port and its frontend \
         the same number of queues"
    )]
    QueueIndex {
        /// The message.
        request: FrontendReq,
        /// The index.
        index: u32,
        /// Queues of the device.
        queues: usize,
    },
    /// Configuration changed while the queue runs.
    #[error("{request:?} changes queue {queue} while it runs; stop it with GET_VRING_BASE")]
    QueueRunning {
        /// The message.
        request: FrontendReq,
        /// The queue.
        queue: usize,
    },
    /// A bad ring size.
    #[error("queue {queue}: ring size {size} is no power of two from 1 to {max}")]
    RingSize {
        /// The queue.
        queue: usize,
        /// The size.
        size: u32,
        /// The device's limit.
        max: u16,
    },
    /// A bad base.
    #[error("queue {queue}: base {base} exceeds 65535, and the rings are not packed")]
    RingBase {
        /// The queue.
        queue: usize,
        /// The base.
        base: u32,
    },
    /// An enable that is neither 0 nor 1.
    #[error("queue {queue}: enable {value} is neither 0 nor 1")]
    RingEnable {
        /// The queue.
        queue: usize,
        /// The value.
        value: u32,
    },
    /// Address flags that mean nothing here.
    #[error("queue {queue}: SET_VRING_ADDR flags {flags:#x} (logging was not offered)")]
    RingFlags {
        /// The queue.
        queue: usize,
        /// The flags.
        flags: u32,
    },
    /// A part of the ring lies outside the granted memory.
    #[error("queue {queue}: the {part} at frontend address {user:#x} is not in granted memory")]
    RingAddress {
        /// The queue.
        queue: usize,
        /// Which part.
        part: Part,
        /// The frontend's address.
        user: u64,
    },
    /// A ring is set up, and no memory was granted: the frontend has no descriptor of the guest's.
    #[error(
        "queue {queue}: the frontend granted no memory: the guest's memory has no descriptor to \
         share; use memory-backend-memfd with share=on"
    )]
    NoMemory {
        /// The queue.
        queue: usize,
    },
    /// The ring cannot run as configured.
    #[error("queue {queue}: {source}")]
    Ring {
        /// The queue.
        queue: usize,
        /// Why.
        source: RingError,
    },
    /// The memory table moved a running ring to other guest addresses.
    #[error("SET_MEM_TABLE moves the ring of queue {queue} while it runs")]
    RingMoved {
        /// The queue.
        queue: usize,
    },
    /// A descriptor that can be no doorbell or notification.
    #[error("{request:?} for queue {queue}: {source}")]
    NotEventfd {
        /// The message.
        request: FrontendReq,
        /// The queue.
        queue: usize,
        /// Why.
        source: DoorbellError,
    },
    /// The frontend held up a notification.
    #[error("queue {queue}: {source}")]
    Notification {
        /// The queue.
        queue: usize,
        /// How.
        source: DoorbellError,
    },
    /// A memory table without regions or with too many.
    #[error("SET_MEM_TABLE with {0} regions, 1 to {TABLE_REGIONS_MAX} are allowed")]
    TableRegions(u32),
    /// More regions than slots.
    #[error("ADD_MEM_REG would make more than {MEMORY_SLOTS_MAX} regions")]
    Slots,
    /// The region's file cannot be mapped.
    #[error("the region at guest address {guest:#x}: {source}")]
    Mapping {
        /// The region.
        guest: u64,
        /// Why.
        source: MappingError,
    },
    /// The regions do not go together.
    #[error("{0}")]
    Map(#[from] MapError),
    /// No such region to remove.
    #[error("REM_MEM_REG names {len} bytes at guest address {guest:#x}, which were never added")]
    NoRegion {
        /// Guest address.
        guest: u64,
        /// Length, in bytes.
        len: u64,
    },
    /// Configuration space access out of bounds.
    #[error(
        "{request:?} of {size} bytes at offset {offset}, the space has {CONFIG_BYTES_MAX} at most"
    )]
    ConfigRange {
        /// The message.
        request: FrontendReq,
        /// Offset.
        offset: u32,
        /// Length, in bytes.
        size: u32,
    },
    /// A lie about the in-flight buffer.
    #[error("{request:?}: {what}")]
    Inflight {
        /// The message.
        request: FrontendReq,
        /// What is wrong.
        what: &'static str,
    },
    /// The in-flight buffer cannot be made or mapped.
    #[error("the in-flight buffer: {0}")]
    InflightMapping(#[from] MappingError),
    /// More memory than one frontend may grant.
    #[error(transparent)]
    Share(MappingError),
    /// The log of written pages cannot be mapped.
    #[error("the log of written pages: {0}")]
    LogMapping(MappingError),
    /// A page of granted memory was lost.
    #[error("granted memory shrank: its file was truncated")]
    MemoryLost,
    /// A reply that is not the one asked for (native frontend).
    #[error("the backend's reply does not belong to {0:?}")]
    Reply(FrontendReq),
    /// The backend refused a request (native frontend).
    #[error("the backend refused {0:?}")]
    Refused(FrontendReq),
    /// No reply came in time (native frontend).
    #[error("the backend did not answer {0:?} in time")]
    Late(FrontendReq),
}

impl Reason {
    /// Who is to blame for it.
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Socket(_) => FaultKind::Connection,
            Self::Mapping { source, .. }
            | Self::InflightMapping(source)
            | Self::Share(source)
            | Self::LogMapping(source)
                if source.is_shortage() =>
            {
                FaultKind::Host
            }
            Self::DescriptorsScarce => FaultKind::Host,
            _ => FaultKind::Guest,
        }
    }
}
