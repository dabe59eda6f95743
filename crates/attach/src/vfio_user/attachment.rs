//! The attachment of a vfio-user frontend: the dispatcher's end of a control thread.
//!
//! [`VfioUserAttachment::new`] starts a thread that answers the frontend's messages
//! (`super::control`). The attachment's descriptor is an eventfd that the thread signals;
//! [`Attachment::poll`] turns the notices of the thread into events and adopts the newest epoch of
//! guest memory. The service raises interrupts by [`Attachment::notify`], whose queue number is the
//! vector, or by a [`DeviceHandle`].
//!
//! The reply to a DMA, RESET or RESUME message waits until the dispatcher has handled the events,
//! for a limited time ([`crate::limits`]). So a poll that reports such events makes the descriptor
//! readable again, and the next poll acknowledges the notices.
//!
//! A poll reports at most one event of each kind and each of 64 doorbells, so a frontend that
//! floods the thread costs the dispatcher one poll for each wake-up. No call waits for the frontend
//! or the thread, except for a write to a hostile eventfd of an interrupt (the watchdog ends it).
//! When the frontend closes, a poll returns [`Event::Closed`]; when the conversation ends by a
//! fault, it returns the error. Both release the memory and the eventfds, and the attachment must
//! be dropped: there is no reconnection. A drop ends the thread without waiting for it.
//!
//! The service of the port (`causeway-hca`) makes the attachment for each connection; the port
//! (`causeway_fabric`) owns and polls it in the dispatcher's thread.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use causeway_host::fd::receive::UntrustedSocket;
use causeway_memory::Map;
use causeway_ring::DoorbellError;

use super::control;
use super::device::{DeviceDescription, Registers};
use super::fault::Reason;
use super::interrupts::Vectors;
use super::link::Link;
use crate::attachment::{Attachment, AttachmentError, DoorbellSource, Event};
use crate::limits::REGION_DOORBELLS_MAX;

/// The source of an attachment's notices.
enum Source {
    /// A control thread.
    Thread(Arc<Link>),
    /// No thread could be started: the socket, and the error until a poll returns it.
    Failed(UntrustedSocket, Option<Reason>),
}

/// The attachment of one vfio-user frontend.
pub struct VfioUserAttachment {
    source: Source,
    /// The present epoch of guest memory.
    map: Arc<Map>,
    handle: DeviceHandle,
    /// Number of the notices of which the caller handles the events at present.
    unacknowledged: Option<u64>,
    /// Events and wake-ups for pending interrupts so far.
    cost: u64,
}

impl fmt::Debug for VfioUserAttachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfioUserAttachment").field("cost", &self.cost).finish_non_exhaustive()
    }
}

/// The parts of an attachment that a service may keep: guest memory and interrupts. A handle stays
/// valid after the attachment has ended; the memory is then empty, and interrupts have no effect.
#[derive(Debug, Clone)]
pub struct DeviceHandle {
    /// The epoch that the attachment adopted last.
    map: Arc<Mutex<Arc<Map>>>,
    vectors: Arc<Vectors>,
}

impl DeviceHandle {
    /// Returns the guest memory in its present epoch. A service that keeps an epoch beyond
    /// [`Event::MemoryChanged`] delays the frontend's unmap.
    pub fn map(&self) -> Arc<Map> {
        Arc::clone(&self.map.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Raises an interrupt vector. Only for the dispatcher's thread, which has a watchdog.
    ///
    /// # Errors
    /// Returns an error if the frontend blocked the write to its eventfd.
    pub fn raise(&self, vector: usize) -> Result<(), DoorbellError> {
        self.vectors.raise(vector)
    }

    /// Returns the interrupt vectors.
    pub fn vectors(&self) -> &Arc<Vectors> {
        &self.vectors
    }

    /// Replaces the epoch, and drops the old epoch after the lock is released.
    fn replace_map(&self, map: Arc<Map>) {
        let mut present = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *present, map);
        drop(present);
        drop(old);
    }
}

impl VfioUserAttachment {
    /// Presents a device to the frontend at the other end of `stream`, in a thread that is named
    /// after `port`. If the host has no thread or descriptor left, the first
    /// [`poll`](Attachment::poll) returns the error.
    pub fn new(
        port: &str,
        stream: UntrustedSocket,
        description: DeviceDescription,
        registers: Arc<dyn Registers>,
    ) -> Self {
        let vectors = Arc::new(Vectors::new(&description));
        let map = Arc::new(Map::default());
        let handle = DeviceHandle { map: Arc::new(Mutex::new(Arc::clone(&map))), vectors };
        let vectors = Arc::clone(handle.vectors());
        let source = match control::start(port, stream, description, registers, vectors) {
            Ok(link) => Source::Thread(link),
            Err((stream, reason)) => Source::Failed(stream, Some(reason)),
        };
        Self { source, map, handle, unacknowledged: None, cost: 0 }
    }

    /// Returns a handle for the service of the port.
    pub fn handle(&self) -> DeviceHandle {
        self.handle.clone()
    }

    /// Makes `map` the present epoch.
    fn adopt(&mut self, map: Arc<Map>) {
        self.handle.replace_map(Arc::clone(&map));
        self.map = map;
    }

    /// Releases all grants after the end of the conversation.
    fn release(&mut self) {
        self.adopt(Arc::default());
        self.handle.vectors.reset();
    }

    /// Takes the notices of the control thread, and appends their events.
    fn take_notices(&mut self, events: &mut Vec<Event>) -> Result<(), Reason> {
        let link = match &mut self.source {
            Source::Thread(link) => Arc::clone(link),
            Source::Failed(_, reason) => return reason.take().map_or(Ok(()), Err),
        };
        // The caller has handled the events of the last poll.
        if let Some(number) = self.unacknowledged.take() {
            link.acknowledge(number);
        }
        let (notices, number) = link.take();
        if let Some(end) = notices.end {
            self.release();
            if end.is_none() {
                events.push(Event::Closed);
            }
            return end.map_or(Ok(()), Err);
        }
        let before = events.len();
        if notices.reset {
            events.push(Event::Reset);
        }
        if let Some(map) = notices.map {
            self.adopt(map);
            events.push(Event::MemoryChanged);
        }
        if notices.resumed {
            events.push(Event::Resumed);
        }
        if events.len() > before {
            self.unacknowledged = Some(number);
            link.wake_dispatcher();
        }
        for doorbell in 0..REGION_DOORBELLS_MAX {
            let bit = u32::try_from(doorbell).ok().and_then(|at| notices.doorbells.checked_shr(at));
            if bit.is_some_and(|bit| bit & 1 != 0) {
                events.push(Event::Doorbell(doorbell));
            }
        }
        if notices.interrupts {
            self.cost = self.cost.saturating_add(1);
            self.handle.vectors.raise_pending().map_err(Reason::Notification)?;
        }
        Ok(())
    }
}

impl Attachment for VfioUserAttachment {
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), AttachmentError> {
        let before = events.len();
        let taken = self.take_notices(events);
        if taken.is_err() {
            self.release();
        }
        let caused = events.len().saturating_sub(before);
        self.cost = self.cost.saturating_add(caused as u64);
        taken.map_err(AttachmentError::from)
    }

    fn cost(&self) -> u64 {
        self.cost
    }

    fn map(&self) -> Option<&Map> {
        Some(&self.map)
    }

    fn shared_map(&self) -> Option<Arc<Map>> {
        Some(Arc::clone(&self.map))
    }

    fn doorbell(&self, _queue: usize) -> DoorbellSource<'_> {
        DoorbellSource::Event
    }

    fn notify(&self, queue: usize) -> Result<(), DoorbellError> {
        self.handle.raise(queue)
    }
}

impl AsFd for VfioUserAttachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Thread(link) => link.as_fd(),
            // Readable once the frontend sends its first message.
            Source::Failed(stream, _) => stream.as_fd(),
        }
    }
}

impl Drop for VfioUserAttachment {
    fn drop(&mut self) {
        if let Source::Thread(link) = &self.source {
            link.stop();
        }
    }
}

impl From<Reason> for AttachmentError {
    fn from(reason: Reason) -> Self {
        let bars = matches!(reason, Reason::Notification(_));
        Self::new(reason.kind(), reason).with_bar(bars)
    }
}
