//! Reasons why a vfio-user conversation ends, and the party that caused each.
//!
//! `stream`, the control thread and the attachment return a [`Reason`]; the dispatcher drops the
//! attachment with it. The port stays and accepts the next frontend, after [`Reason::Notification`]
//! only 30 s later. The texts are logged and shown by `causeway port show`. A request that the
//! server declines is no reason: the frontend gets an errno and the conversation goes on. The
//! native client returns the same reasons for messages of a server, with the same texts. After a
//! reason the connection is closed, all grants and eventfds are released, and nothing is retried:
//! QEMU does not reconnect the device. A frontend that closes between two messages, or without
//! reading a reply, is no reason either ([`Event::Closed`](crate::Event::Closed)).

use causeway_host::limits::UNCLOSED_MAX;
use causeway_ring::DoorbellError;
use rustix::io::Errno;

pub use crate::attachment::FaultKind;
use crate::limits::{DMA_ACK_MS, REPLY_STALL_MS, VFIO_DESCRIPTORS_MAX, VFIO_PAYLOAD_BYTES_MAX};

/// The reason why a conversation is over. No other port is affected.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The size in a message header is smaller than the header or exceeds the limit.
    #[error(
        "vfio-user command {command} announces a message of {size} bytes, at least 16 and at most \
         16 + {VFIO_PAYLOAD_BYTES_MAX} are accepted"
    )]
    Size {
        /// The command.
        command: u16,
        /// Announced bytes, header included.
        size: u32,
    },
    /// A message is neither a command nor a reply, or has the wrong direction.
    #[error("vfio-user command {command} has flags {flags:#x}: the message type is wrong")]
    Flags {
        /// The command.
        command: u16,
        /// The flags.
        flags: u32,
    },
    /// More than [`VFIO_DESCRIPTORS_MAX`] (8) descriptors arrived with one message.
    #[error("more than {VFIO_DESCRIPTORS_MAX} descriptors arrived with one vfio-user message")]
    DescriptorsCut,
    /// This process is at its descriptor limit, so the kernel discarded those of a message.
    #[error(
        "the daemon has no free descriptors: those of a vfio-user message were lost; raise its \
         limit of open files"
    )]
    DescriptorsScarce,
    /// Too many descriptors of the peer are still being closed.
    #[error(
        "{UNCLOSED_MAX} of the frontend's descriptors are still being closed: closing them blocks"
    )]
    DescriptorsUnclosed,
    /// The peer closed the connection within a message.
    #[error("the vfio-user connection ended in the middle of a message")]
    Truncated,
    /// The peer does not read its replies.
    #[error(
        "the frontend does not read its replies: the connection had no room for {REPLY_STALL_MS} ms"
    )]
    RepliesUnread,
    /// The socket failed.
    #[error("the vfio-user connection failed: {0}")]
    Socket(Errno),
    /// The frontend blocked an interrupt.
    #[error("an interrupt vector: {0}")]
    Notification(#[source] DoorbellError),
    /// This host cannot start the control thread.
    #[error("cannot start the control thread of a vfio-user frontend: {0}")]
    Thread(#[source] std::io::Error),
    /// The dispatcher still uses memory that the frontend unmapped, or state before a reset, or has
    /// not resumed the device.
    #[error(
        "the dispatcher did not adopt a DMA unmap or a reset within {DMA_ACK_MS} ms, or a resumption \
         within its limit, so that its frontend is disconnected and its memory withdrawn: another port or a service keeps the dispatcher's thread busy"
    )]
    DispatcherLate,
    /// As [`Self::DispatcherLate`], and the host refused to withdraw the memory from the
    /// dispatcher.
    #[error(
        "the dispatcher did not adopt a DMA unmap or a reset within {DMA_ACK_MS} ms, and the host \
         refuses to withdraw the guest's memory from it: work in progress may still write to the \
         memory of this guest; stop the guest before its memory file is used by another"
    )]
    MemoryKept,
    /// The control thread ended without a reason, by a panic.
    #[error("the control thread of a vfio-user frontend ended unexpectedly")]
    ThreadLost,
}

impl Reason {
    /// Returns the party that caused the end.
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Socket(_) => FaultKind::Connection,
            Self::DescriptorsScarce
            | Self::Thread(_)
            | Self::DispatcherLate
            | Self::MemoryKept
            | Self::ThreadLost => FaultKind::Host,
            _ => FaultKind::Guest,
        }
    }
}
