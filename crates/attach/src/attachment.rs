//! The interface of an attachment: how a frontend, over any protocol, grants memory, starts queues
//! and rings doorbells.
//!
//! An [`Attachment`] reads its protocol from a file descriptor and reports the consequences as
//! [`Event`]s. `fabric` accepts the connection, and the port's service makes the attachment
//! (`fabric::Service::connect`); the dispatcher watches the descriptor, calls [`Attachment::poll`],
//! passes the events to the service, and drops the attachment when it ends. Local attachments, any
//! number for a port, belong to the service `mx`, which polls them itself. vhost-user ([`Server`]),
//! vfio-user ([`crate::vfio_user`]) and the local attachment
//! ([`LocalAttachment`](crate::local::LocalAttachment)) implement the interface. vhost-user raises
//! all events but [`Event::Doorbell`], [`Event::Message`] and [`Event::Resumed`]; vfio-user
//! [`Event::MemoryChanged`], [`Event::Doorbell`], [`Event::Reset`], [`Event::Resumed`] and
//! [`Event::Closed`]; the local attachment [`Event::Message`] and [`Event::Closed`].
//!
//! [`Connection`] is the attachment of one port. It reaches a vhost-user device without a virtual
//! call, because services look a queue up several times for each batch.
//!
//! Configuration space and handshakes are internal to the protocol and raise no events; frames and
//! packets do not pass through the interface. `poll` handles a bounded number of messages and waits
//! for no frontend, except for a notification that a hostile frontend blocks until the watchdog
//! ends it. An attachment serves one frontend and is not used again after its end; the port limits
//! the rate of messages and accepts the next frontend. One thread owns an attachment at a time.

use std::error::Error;
use std::fmt::{self, Debug};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use causeway_memory::Map;
use causeway_ring::DoorbellError;

use crate::vhost_user::server::{Device, Server};

/// A consequence of received messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Queue `n` runs: its ring is set up, and may contain chains already.
    QueueStarted(usize),
    /// Queue `n` has stopped: its ring is gone. The attachment has pushed the chains in flight back
    /// to the driver, with 0 written bytes, unless the ring is broken or unreachable.
    QueueStopped(usize),
    /// A new memory map replaced the old map; running queues use it. Addresses of chains in flight
    /// stay valid, but must be looked up in the new map.
    MemoryChanged,
    /// The guest rang doorbell `n` by a message, not by a file descriptor.
    Doorbell(usize),
    /// A message for the service waits in the attachment (local attachment only).
    Message,
    /// The guest's driver has reset the device: the service drops its state of this guest, as
    /// connections. Raised by RESET_DEVICE (vhost-user), by DEVICE_RESET (vfio-user), and if a
    /// queue starts at another position than it stopped at.
    Reset,
    /// The holder has set the device up again for a frontend that an earlier daemon served, after
    /// the last [`Event::MemoryChanged`] of the set-up (vfio-user only). The service restores its
    /// state of this guest, or reports the loss to the driver.
    Resumed,
    /// The frontend closed the connection: the last event of an attachment. All grants have been
    /// released, and the port accepts the next frontend.
    Closed,
}

/// The party that caused a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The frontend broke a rule.
    Guest,
    /// The connection broke.
    Connection,
    /// This host lacks a resource (memory, mappings, descriptors or a thread), or a thread of the
    /// daemon was late or failed.
    Host,
}

/// The reason why an attachment ended. Only its port is affected, which accepts the next frontend.
#[derive(Debug)]
pub struct AttachmentError {
    /// The party that caused the error.
    kind: FaultKind,
    /// Whether the port must refuse frontends for 30 s.
    bars: bool,
    source: Box<dyn Error + Send + Sync>,
}

impl AttachmentError {
    /// Returns an error caused by `kind`.
    pub fn new(kind: FaultKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, bars: false, source: source.into() }
    }

    /// Sets whether the frontend blocked the dispatcher, and could do so again at once. The port
    /// then refuses frontends for 30 s (`BARRED_NS` of `causeway_fabric`).
    #[must_use]
    pub fn with_bar(mut self, bars: bool) -> Self {
        self.bars = bars;
        self
    }

    /// Returns the party that caused the error.
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    /// Returns whether the frontend blocked the dispatcher.
    pub fn is_barred(&self) -> bool {
        self.bars
    }
}

impl fmt::Display for AttachmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.source, f)
    }
}

impl Error for AttachmentError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}

/// How a guest rings the doorbell of a queue.
#[derive(Debug, Clone, Copy)]
pub enum DoorbellSource<'a> {
    /// The guest writes to this file descriptor: watch it edge-triggered.
    Descriptor(BorrowedFd<'a>),
    /// The attachment reports [`Event::Doorbell`].
    Event,
    /// The guest does not ring: the queue must be polled.
    Absent,
}

/// The attachment of one frontend. Its descriptor is readable, level-triggered, while messages
/// wait.
///
/// Dropping an attachment releases everything that the frontend granted; with vfio-user, the
/// control thread does so when it has ended.
pub trait Attachment: AsFd + Debug + Send {
    /// Handles waiting messages without blocking, a bounded number of them, and appends their
    /// consequences to `events` in order.
    ///
    /// # Errors
    /// Returns the reason why the attachment ended. All grants have been released, and `events`
    /// names every queue that stopped. The caller drops the attachment; a further poll reads
    /// nothing.
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), AttachmentError>;

    /// Returns the total cost of the messages so far, in units of about 5 us, at least 1 for each.
    /// vfio-user counts events and wake-ups for pending interrupts instead, because its control
    /// thread limits the messages; the local attachment counts messages. The port limits the rate.
    fn cost(&self) -> u64;

    /// Returns whether the last [`Self::poll`] left messages unread until earlier grants of the
    /// frontend are unmapped. The caller then polls again some milliseconds later, because the
    /// descriptor stays readable. Only vhost-user returns `true`.
    fn must_wait(&self) -> bool {
        false
    }

    /// Returns the granted memory in its present epoch, if the frontend grants memory.
    fn map(&self) -> Option<&Map>;

    /// Returns the granted memory in its present epoch, shared, if the attachment offers it. A user
    /// that keeps it delays the release of revoked grants.
    fn shared_map(&self) -> Option<Arc<Map>> {
        None
    }

    /// Returns the virtio device, if the attachment has a device.
    fn device(&self) -> Option<&Device> {
        None
    }

    /// Returns the virtio device, if the attachment has a device.
    fn device_mut(&mut self) -> Option<&mut Device> {
        None
    }

    /// Returns whether queue `n` runs.
    fn is_running(&self, queue: usize) -> bool {
        self.device().is_some_and(|device| device.is_running(queue))
    }

    /// Returns how the guest rings the doorbell of queue `n`.
    fn doorbell(&self, queue: usize) -> DoorbellSource<'_> {
        let queue = self.device().and_then(|device| device.queues.get(queue));
        match queue.and_then(|queue| queue.doorbell()) {
            Some(doorbell) => DoorbellSource::Descriptor(doorbell.as_fd()),
            None => DoorbellSource::Absent,
        }
    }

    /// Notifies the guest of used entries in queue `n`, if the guest wants notifications; vfio-user
    /// raises interrupt vector `n`. No effect for a queue or vector that does not exist.
    ///
    /// # Errors
    /// Returns an error if the frontend blocked the notification; the caller ends the attachment.
    fn notify(&self, queue: usize) -> Result<(), DoorbellError> {
        let queue = self.device().and_then(|device| device.queues.get(queue));
        queue.map_or(Ok(()), |queue| queue.notify())
    }
}

/// The attachment of a port's present frontend.
#[derive(Debug)]
pub struct Connection(ConnectionKind);

/// The protocol of a connection.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "ports are few, and an indirection would be on the data path"
)]
enum ConnectionKind {
    /// vhost-user, without a virtual call.
    VhostUser(Server),
    /// Any other protocol.
    Other(Box<dyn Attachment>),
}

impl From<Server> for Connection {
    fn from(server: Server) -> Self {
        Self(ConnectionKind::VhostUser(server))
    }
}

impl From<Box<dyn Attachment>> for Connection {
    fn from(attachment: Box<dyn Attachment>) -> Self {
        Self(ConnectionKind::Other(attachment))
    }
}

impl Connection {
    /// Returns the attachment of the protocol.
    pub fn attachment(&self) -> &dyn Attachment {
        match &self.0 {
            ConnectionKind::VhostUser(server) => server,
            ConnectionKind::Other(other) => &**other,
        }
    }

    /// Returns the attachment of the protocol.
    pub fn attachment_mut(&mut self) -> &mut dyn Attachment {
        match &mut self.0 {
            ConnectionKind::VhostUser(server) => server,
            ConnectionKind::Other(other) => &mut **other,
        }
    }

    /// Returns the virtio device, if the attachment has a device.
    #[inline]
    pub fn device(&self) -> Option<&Device> {
        match &self.0 {
            ConnectionKind::VhostUser(server) => Some(server.device()),
            ConnectionKind::Other(other) => other.device(),
        }
    }

    /// Returns the virtio device, if the attachment has a device.
    #[inline]
    pub fn device_mut(&mut self) -> Option<&mut Device> {
        match &mut self.0 {
            ConnectionKind::VhostUser(server) => Some(server.device_mut()),
            ConnectionKind::Other(other) => other.device_mut(),
        }
    }

    /// Returns the granted memory in its present epoch, if the frontend grants memory.
    #[inline]
    pub fn map(&self) -> Option<&Map> {
        match &self.0 {
            ConnectionKind::VhostUser(server) => Some(&server.device().map),
            ConnectionKind::Other(other) => other.map(),
        }
    }

    /// Returns whether queue `n` runs.
    #[inline]
    pub fn is_running(&self, queue: usize) -> bool {
        match &self.0 {
            ConnectionKind::VhostUser(server) => server.device().is_running(queue),
            ConnectionKind::Other(other) => other.is_running(queue),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.attachment().as_fd()
    }
}
