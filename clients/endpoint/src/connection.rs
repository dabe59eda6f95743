//! The connection of a process to the daemon of a NIC: over the NIC's Unix socket, or over an
//! adapter of this machine.
//!
//! [`Conversation`](crate::nic::Conversation) owns a [`Connection`], and knows no sockets, queue
//! pairs or user identities. A process on the host connects to a socket and grants memory as files;
//! a process in a guest connects to its adapter and grants registered memory ([`Grant`]). The
//! daemon identifies the first by its socket, the second by the port of the adapter.
//!
//! | | socket | adapter |
//! |---|---|---|
//! | rings | memfd of the daemon | private memory of the process, registered |
//! | staging | memfd of the process | private memory of the process, registered |
//! | doorbell | eventfd | work request without bytes |
//! | sleep | the socket | completion channel, armed before the sleep |
//! | peers of this host | channels, direct reads | none: all messages pass through the rings |
//!
//! After an error of a connection the owner drops it, with the commands that were queued, and may
//! open another by [`Connection::again`]. A connection does not repeat or answer anything itself,
//! and neither the socket nor the adapter accepts the memory of the other kind
//! ([`Error::NoResources`]). Calls come from the thread that holds the lock of the endpoint, or
//! that queries the daemon; [`Connection::descriptor`] alone may be watched by other threads.

pub(crate) mod socket;

use std::fmt::Debug;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use causeway_ibverbs::{ProtectionDomain, Registration};
use causeway_wire::local::{ClientMessage, DaemonMessage};

use crate::adapter::AdapterRings;
use crate::error::Error;
use crate::waiter::Awaited;

/// Memory that accompanies a command.
#[derive(Debug)]
pub enum Grant {
    /// None.
    Nothing,
    /// A file.
    File(OwnedFd),
    /// Registered memory.
    Memory(Arc<Registration>),
    /// Registered memory that was granted earlier: the command ends the grant, and the memory stays
    /// registered until the daemon has executed the command.
    Ended(Arc<Registration>),
}

/// What accompanies a message of the daemon.
#[derive(Debug)]
pub enum Attached {
    /// Descriptors.
    Files(Vec<OwnedFd>),
    /// The rings of the endpoint, in memory of this process.
    Rings(AdapterRings),
}

impl Attached {
    /// Returns whether nothing accompanies the message.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Files(files) if files.is_empty())
    }

    /// Returns the descriptors; none if the message has something else.
    pub fn into_files(self) -> Vec<OwnedFd> {
        match self {
            Self::Files(files) => files,
            Self::Rings(_) => Vec::new(),
        }
    }
}

/// A connection to the daemon. Over an adapter, [`Self::again`], a [`Self::send`] that opens or
/// resumes an endpoint, and a [`Self::receive`] that ends a grant block for commands of the
/// adapter; otherwise only [`Self::finish`] blocks.
pub trait Connection: Debug + Send + Sync {
    /// Sends a command, or queues it while the daemon accepts no more.
    ///
    /// # Errors
    /// [`Error::DaemonGone`] if the connection is closed, or too many commands are queued;
    /// [`Error::NoResources`] if memory for the command is missing, or of the other kind.
    fn send(&mut self, command: ClientMessage, grant: Grant) -> Result<(), Error>;

    /// Returns the next message of the daemon, or `None` if there is none.
    ///
    /// # Errors
    /// [`Error::DaemonGone`] if the connection is closed or a message is invalid.
    fn receive(&mut self) -> Result<Option<(DaemonMessage, Attached)>, Error>;

    /// Returns the condition for which the connection waits.
    fn awaited(&self) -> Awaited;

    /// Returns the descriptor that is readable when there is a message, after [`Self::arm`].
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Prepares a sleep on the descriptor. Returns false if a message is there.
    fn arm(&mut self) -> bool {
        true
    }

    /// Ends a sleep.
    fn disarm(&mut self) {}

    /// Connects to the daemon that serves the same place now.
    ///
    /// # Errors
    /// [`Error`] if none does.
    fn again(&self) -> Result<Box<dyn Connection>, Error>;

    /// Returns the domain in which this process must register the memory that it grants; `None` for
    /// files.
    fn domain(&self) -> Option<ProtectionDomain> {
        None
    }

    /// Returns whether peers may read and write this process's memory directly.
    fn permits_direct_reads(&self) -> bool;

    /// Waits until the daemon has executed all commands, over an adapter for about 1 s at most;
    /// over a socket it returns at once. No other call may follow.
    fn finish(&mut self) {}
}
