//! Faults of a vhost-user conversation: the broken rule, and the party that broke it.
//!
//! `message`, `stream` and `server` return a [`Reason`]; the server turns it into a [`Fault`], and
//! the dispatcher drops the attachment with it. The texts are logged and shown by `causeway port
//! show`; they name the message, the value and, where the operator can act, the remedy. Every
//! reason ends the attachment: there are no warnings here. The port stays and accepts the next
//! frontend, after [`Reason::Notification`] only 30 s later. The native frontend returns the same
//! reasons for replies of a backend, in its caller's thread, and so do the relays of
//! `causeway-holder`. A frontend that closes between two messages, or without reading a reply, is
//! no reason ([`Event::Closed`](crate::Event::Closed)).

use causeway_host::limits::UNCLOSED_MAX;
use causeway_memory::{MapError, MappingError};
use causeway_ring::{DoorbellError, RingError};
use rustix::io::Errno;

use crate::attachment::AttachmentError;
pub use crate::attachment::FaultKind;
use crate::limits::{
    CONFIG_BYTES_MAX, DESCRIPTORS_MAX, MEMORY_SLOTS_MAX, PAYLOAD_BYTES_MAX, TABLE_REGIONS_MAX,
};
use crate::vhost_user::codes::FrontendReq;

/// The reason why an attachment must end; no other port is affected.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Fault {
    /// The broken rule.
    #[source]
    pub reason: Reason,
    /// The party that broke it.
    pub kind: FaultKind,
}

impl From<Fault> for AttachmentError {
    fn from(fault: Fault) -> Self {
        let bars = matches!(fault.reason, Reason::Notification { .. });
        Self::new(fault.kind, fault).with_bar(bars)
    }
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Self {
        Self { kind: reason.kind(), reason }
    }
}

/// A part of a split ring (virtio 1.3, 2.7); a packed ring uses the same addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingPart {
    /// The descriptor table.
    Descriptors,
    /// The available ring.
    Available,
    /// The used ring.
    Used,
}

impl std::fmt::Display for RingPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Descriptors => "descriptor table",
            Self::Available => "available ring",
            Self::Used => "used ring",
        })
    }
}

/// The broken rule, with the values that broke it.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The header's version bits are not 1.
    #[error("vhost-user version {0} in a message header: only version 1 is supported")]
    Version(u32),
    /// The header has the reply bit or reserved bits set.
    #[error("message header flags {0:#x}: a request may set only the version and need_reply")]
    Flags(u32),
    /// The request is unknown, or this backend does not offer it.
    #[error("request {0} is unknown or was not offered")]
    Unknown(u32),
    /// The payload exceeds [`PAYLOAD_BYTES_MAX`] (4,096 bytes).
    #[error(
        "{request:?} announces {size} bytes of payload, at most {PAYLOAD_BYTES_MAX} are accepted"
    )]
    Long {
        /// The message.
        request: FrontendReq,
        /// Announced bytes.
        size: u32,
    },
    /// The payload's length is not that of the message.
    #[error("{request:?} has {got} bytes of payload, {want} expected")]
    Size {
        /// The message.
        request: FrontendReq,
        /// Received bytes.
        got: usize,
        /// Expected bytes.
        want: usize,
    },
    /// The number of descriptors is wrong.
    #[error("{request:?} came with {got} descriptors, {want} expected")]
    Descriptors {
        /// The message.
        request: FrontendReq,
        /// Received descriptors.
        got: usize,
        /// Expected descriptors.
        want: usize,
    },
    /// More than [`DESCRIPTORS_MAX`] (8) descriptors arrived with one message.
    #[error("more than {DESCRIPTORS_MAX} descriptors arrived with one message")]
    DescriptorsCut,
    /// This process is at its descriptor limit, so the kernel discarded those of a message.
    #[error(
        "the daemon has no free descriptors: those of a message were lost; raise its limit of open files"
    )]
    DescriptorsScarce,
    /// Too many descriptors of the peer are still being closed.
    #[error(
        "{UNCLOSED_MAX} of the frontend's descriptors are still being closed: closing them blocks"
    )]
    DescriptorsUnclosed,
    /// A descriptor of a type whose use could block the dispatcher.
    #[error(
        "{} came with a descriptor that is no eventfd, no Unix socket and no memory file \
         (a memfd, or a file on tmpfs or hugetlbfs)",
        .request.map_or("a message".into(), |request| format!("{request:?}"))
    )]
    DescriptorKind {
        /// The message, if its header has arrived.
        request: Option<FrontendReq>,
    },
    /// The frontend closed the connection within a message.
    #[error("the connection ended in the middle of a message")]
    Truncated,
    /// The frontend does not read its replies.
    #[error("the frontend does not read its replies: the send buffer of the connection is full")]
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
    /// Acknowledged feature bits that were not offered.
    #[error("{request:?} acknowledges bits {extra:#x}, which were not offered")]
    Features {
        /// The message.
        request: FrontendReq,
        /// The bits.
        extra: u64,
    },
    /// Features changed while a queue runs.
    #[error("SET_FEATURES changes features while queue {queue} runs; stop it with GET_VRING_BASE")]
    FeaturesRunning {
        /// A running queue.
        queue: usize,
    },
    /// A message arrived before its prerequisite.
    #[error("{request:?} for queue {queue} before {missing}")]
    Early {
        /// The message.
        request: FrontendReq,
        /// The queue.
        queue: usize,
        /// The prerequisite.
        missing: &'static str,
    },
    /// The queue does not exist.
    #[error(
        "{request:?} names queue {index}, the device has {queues}; give the port and its frontend \
         the same number of queues"
    )]
    QueueIndex {
        /// The message.
        request: FrontendReq,
        /// The queue index.
        index: u32,
        /// Queues of the device.
        queues: usize,
    },
    /// A message reconfigures a running queue.
    #[error("{request:?} changes queue {queue} while it runs; stop it with GET_VRING_BASE")]
    QueueRunning {
        /// The message.
        request: FrontendReq,
        /// The queue.
        queue: usize,
    },
    /// The ring size is invalid.
    #[error("queue {queue}: ring size {size} is no power of two from 1 to {max}")]
    RingSize {
        /// The queue.
        queue: usize,
        /// The size.
        size: u32,
        /// The device's limit.
        max: u16,
    },
    /// The base is invalid.
    #[error("queue {queue}: base {base} exceeds 65535, and the rings are not packed")]
    RingBase {
        /// The queue.
        queue: usize,
        /// The base.
        base: u32,
    },
    /// The value of SET_VRING_ENABLE is neither 0 nor 1.
    #[error("queue {queue}: enable {value} is neither 0 nor 1")]
    RingEnable {
        /// The queue.
        queue: usize,
        /// The value.
        value: u32,
    },
    /// Address flags that were not negotiated.
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
        /// The part.
        part: RingPart,
        /// The frontend's virtual address.
        user: u64,
    },
    /// A ring was set up before any memory was granted: the frontend has no descriptor of the
    /// guest's memory.
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
        /// The error of the ring.
        source: RingError,
    },
    /// The memory table moved a running ring to other guest addresses.
    #[error("SET_MEM_TABLE moves the ring of queue {queue} while it runs")]
    RingMoved {
        /// The queue.
        queue: usize,
    },
    /// A descriptor that cannot be used as doorbell or notification.
    #[error("{request:?} for queue {queue}: {source}")]
    NotEventfd {
        /// The message.
        request: FrontendReq,
        /// The queue.
        queue: usize,
        /// The error of the descriptor.
        source: DoorbellError,
    },
    /// The frontend blocked a notification.
    #[error("queue {queue}: {source}")]
    Notification {
        /// The queue.
        queue: usize,
        /// The error of the notification.
        source: DoorbellError,
    },
    /// The number of regions in a memory table is invalid.
    #[error("SET_MEM_TABLE with {0} regions, 1 to {TABLE_REGIONS_MAX} are allowed")]
    TableRegions(u32),
    /// More than [`MEMORY_SLOTS_MAX`] (64) regions.
    #[error("ADD_MEM_REG would make more than {MEMORY_SLOTS_MAX} regions")]
    Slots,
    /// The file of a region cannot be mapped.
    #[error("the region at guest address {guest:#x}: {source}")]
    Mapping {
        /// Guest address of the region.
        guest: u64,
        /// The error of the mapping.
        source: MappingError,
    },
    /// The regions overlap or are otherwise inconsistent.
    #[error("{0}")]
    Map(#[from] MapError),
    /// The region to be removed was not added.
    #[error("REM_MEM_REG names {len} bytes at guest address {guest:#x}, which were never added")]
    NoRegion {
        /// Guest address.
        guest: u64,
        /// Length, in bytes.
        len: u64,
    },
    /// The access exceeds the configuration space.
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
    /// The description of the in-flight buffer is invalid.
    #[error("{request:?}: {what}")]
    Inflight {
        /// The message.
        request: FrontendReq,
        /// The invalid part.
        what: &'static str,
    },
    /// The in-flight buffer cannot be created or mapped.
    #[error("the in-flight buffer: {0}")]
    InflightMapping(#[from] MappingError),
    /// The frontend grants more memory than it may.
    #[error(transparent)]
    Share(MappingError),
    /// The dirty log cannot be mapped.
    #[error("the log of written pages: {0}")]
    LogMapping(MappingError),
    /// A page of granted memory was lost.
    #[error("granted memory shrank: its file was truncated")]
    MemoryLost,
    /// The reply belongs to another request (native frontend).
    #[error("the backend's reply does not belong to {0:?}")]
    Reply(FrontendReq),
    /// The backend refused a request (native frontend).
    #[error("the backend refused {0:?}")]
    Refused(FrontendReq),
    /// No reply arrived within [`REPLY_TIMEOUT_MS`](crate::limits::REPLY_TIMEOUT_MS) (native
    /// frontend).
    #[error("the backend did not answer {0:?} in time")]
    Late(FrontendReq),
}

impl Reason {
    /// Returns the party that caused the fault.
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
