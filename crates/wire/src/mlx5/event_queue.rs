//! Event queues: the context of CREATE_EQ, and the entries that the device writes.
//!
//! An entry is valid while its owner bit equals the parity of the device's count of rounds through
//! the ring. The device writes the entry, then the owner byte, then raises the interrupt. All event
//! queues of a driver share a doorbell word, so that a word can be lost; the device reads no
//! [`EventDoorbell`], treats event queues as always armed, and bounds the events in flight: a
//! completion queue has at most one until the driver arms it again (`mlx5::event_queue`).
//!
//! The device parses contexts and emits entries ([`Event::to_bytes`]); drivers ([`super`]) parse
//! entries. This module checks neither sizes nor vectors nor overruns. The device emits the events
//! of completion queues, queue pairs, shared receive queues and commands; types of path migration,
//! page requests, page faults, ports and the virtual port are only described. Errors of completion
//! queues always carry [`CompletionQueueFault::Overrun`], also if the memory could not be written.
//! An event whose type no queue selects in its mask is lost and counted. The device runs in the
//! dispatcher's thread.

use super::field::{Value as _, at, codes, layout};
use crate::Truncated;

/// Offset of the context in the input of CREATE_EQ.
pub const CREATE_CONTEXT: usize = 0x10;
/// Offset of the 64-bit mask of event types in the input of CREATE_EQ. Bit n selects the type n.
pub const CREATE_EVENT_MASK: usize = 0x58;
/// Offset of the page list in the input of CREATE_EQ.
pub const CREATE_PAGES: usize = 0x110;
/// Offset of the context in the output of QUERY_EQ.
pub const QUERY_CONTEXT: usize = 0x10;
/// Largest number of an event queue: 8 bits.
pub const NUMBER_MAX: u32 = 0xff;

/// Length of an entry, in bytes.
pub const ENTRY_LEN: usize = 64;
/// Offset of the owner byte in an entry. The device writes this byte last.
pub const OWNER_OFFSET: usize = 0x3f;

layout! {
    /// Context of an event queue.
    pub struct EventQueueContext("event queue context", 0x40) {
        /// Status; 0 is good.
        status: u8 = at(0x00, 0, 4),
        /// The device may overwrite entries that the driver did not take.
        ignores_overrun: bool = at(0x01, 6, 1),
        /// State; 9 armed, 10 fired.
        state: u8 = at(0x02, 4, 4),
        /// Begin of the ring in its first page, in 64ths of a page.
        page_offset: u8 = at(0x0a, 4, 6),
        /// Binary logarithm of the number of entries.
        log_size: u8 = at(0x0c, 3, 5),
        /// Doorbell page.
        uar_page: u32 = at(0x0d, 0, 24),
        /// Interrupt vector.
        vector: u16 = at(0x16, 4, 12),
        /// Binary logarithm of the page size, minus 12.
        log_page_size: u8 = at(0x18, 3, 5),
        /// Number of entries that the driver has taken.
        consumer: u32 = at(0x29, 0, 24),
        /// Number of entries that the device has written.
        producer: u32 = at(0x2d, 0, 24),
    }
}

codes! {
    /// Type of an event.
    pub enum EventType: u8 {
        /// A completion queue has a completion that the driver asked to be notified of.
        Completion = 0x00 "completion",
        /// A queue pair moved to its alternate path.
        PathMigrated = 0x01 "path migrated",
        /// A queue pair received a message before it was ready to send.
        CommunicationEstablished = 0x02 "communication established",
        /// The send queue of a queue pair is drained.
        SendQueueDrained = 0x03 "send queue drained",
        /// A completion queue overran or cannot be written.
        CompletionQueueError = 0x04 "completion queue error",
        /// A work queue cannot be read.
        WorkQueueCatastrophic = 0x05 "work queue error",
        /// A queue pair could not move to its alternate path.
        PathMigrationFailed = 0x07 "path migration failed",
        /// The device failed.
        InternalError = 0x08 "internal error",
        /// The state of the port changed.
        PortChange = 0x09 "port change",
        /// Commands are complete.
        Command = 0x0a "command",
        /// The device wants pages, or returns them.
        PageRequest = 0x0b "page request",
        /// An access needs a page that is not resident.
        PageFault = 0x0c "page fault",
        /// Addresses or MTU of the virtual port changed.
        NicVportChange = 0x0d "NIC vport change",
        /// A queue pair received a request that violates the protocol.
        InvalidRequest = 0x10 "invalid request",
        /// A queue pair received a request without sufficient rights.
        AccessError = 0x11 "access error",
        /// A shared receive queue is broken.
        SharedReceiveQueueError = 0x12 "shared receive queue error",
        /// A queue pair in the error state has taken its last entry of a shared receive queue.
        LastWorkRequest = 0x13 "last work request",
        /// A shared receive queue has fewer entries than its limit.
        SharedReceiveQueueLimit = 0x14 "shared receive queue limit",
        /// Any other event of the device.
        General = 0x22 "general",
    }
}

codes! {
    /// Change of the port, the sub-type of [`EventType::PortChange`].
    pub enum PortChange: u8 {
        /// The link is down.
        Down = 1 "down",
        /// The link is up.
        Active = 4 "active",
        /// The link is initialised, but not yet up.
        Initialized = 5 "initialised",
        /// The local identifier changed.
        Lid = 6 "LID",
        /// The partition table changed.
        PartitionKey = 7 "partition key",
        /// The table of GUIDs changed.
        Guid = 8 "GUID",
        /// The subnet manager asks for new registrations.
        ClientReregister = 9 "client re-registration",
    }
}

codes! {
    /// Reason of [`EventType::CompletionQueueError`].
    pub enum CompletionQueueFault: u8 {
        /// The ring was full.
        Overrun = 1 "overrun",
        /// The memory of the ring could not be written.
        Access = 2 "access violation",
    }
}

layout! {
    /// An entry of an event queue, not decoded.
    pub struct EventEntry("event queue entry", 64) {
        /// Code of an [`EventType`].
        event_type: u8 = at(0x01, 0, 8),
        /// Variant of the event.
        sub_type: u8 = at(0x03, 0, 8),
        /// Data of the event.
        data: [u8; 28] = at(0x20, 0, 224),
        /// Owner bit.
        owner: bool = at(0x3f, 7, 1),
    }
}

/// An event that the device reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A completion queue fired.
    Completion {
        /// Number of the completion queue.
        completion_queue: u32,
    },
    /// An event of a queue pair or shared receive queue.
    Queue {
        /// Type: any of those of queue pairs and shared receive queues.
        event_type: EventType,
        /// Type of the queue, in the device's codes: 0 queue pair.
        queue_type: u8,
        /// Number of the queue.
        number: u32,
    },
    /// A completion queue failed.
    CompletionQueueError {
        /// Number of the completion queue.
        completion_queue: u32,
        /// Reason.
        fault: CompletionQueueFault,
    },
    /// The port changed.
    Port {
        /// Change.
        change: PortChange,
        /// Port number, from 1.
        port: u8,
    },
    /// Commands are complete.
    Command {
        /// Bit n is set for entry n of the command queue.
        entries: u32,
    },
    /// The virtual port changed.
    NicVport {
        /// Number of the virtual port; 0 for the function itself.
        vport: u16,
    },
}

impl EventType {
    /// Returns true if the event belongs to a queue pair or shared receive queue.
    pub const fn has_queue(self) -> bool {
        use EventType as T;
        matches!(
            self,
            T::PathMigrated
                | T::CommunicationEstablished
                | T::SendQueueDrained
                | T::WorkQueueCatastrophic
                | T::PathMigrationFailed
                | T::InvalidRequest
                | T::AccessError
                | T::SharedReceiveQueueError
                | T::LastWorkRequest
                | T::SharedReceiveQueueLimit
        )
    }
}

/// Number in the data of completion and queue events.
const NUMBER: super::field::Place = at(0x18, 0, 32);
/// Queue type in the data of queue events.
const QUEUE_TYPE: super::field::Place = at(0x14, 0, 8);
/// First word of the data.
const FIRST: super::field::Place = at(0x00, 0, 32);
/// Fault in the data of errors of completion queues.
const FAULT: super::field::Place = at(0x0b, 0, 8);
/// Port in the data of port changes.
const PORT: super::field::Place = at(0x08, 0, 4);
/// Number in the data of changes of the virtual port.
const VPORT: super::field::Place = at(0x02, 0, 16);

impl Event {
    /// Returns the entry for this event.
    pub fn entry(self, owner: bool) -> EventEntry {
        let mut data = [0; 28];
        let (event_type, sub_type) = match self {
            Self::Completion { completion_queue } => {
                completion_queue.store(&mut data, NUMBER);
                (EventType::Completion, 0)
            }
            Self::Queue { event_type, queue_type, number } => {
                queue_type.store(&mut data, QUEUE_TYPE);
                number.store(&mut data, NUMBER);
                (event_type, 0)
            }
            Self::CompletionQueueError { completion_queue, fault } => {
                completion_queue.store(&mut data, FIRST);
                fault.raw().store(&mut data, FAULT);
                (EventType::CompletionQueueError, 0)
            }
            Self::Port { change, port } => {
                port.store(&mut data, PORT);
                (EventType::PortChange, change.raw())
            }
            Self::Command { entries } => {
                entries.store(&mut data, FIRST);
                (EventType::Command, 0)
            }
            Self::NicVport { vport } => {
                vport.store(&mut data, VPORT);
                (EventType::NicVportChange, 0)
            }
        };
        EventEntry { event_type: event_type.raw(), sub_type, data, owner }
    }

    /// Returns the bytes of the entry for this event.
    pub fn to_bytes(self, owner: bool) -> [u8; ENTRY_LEN] {
        self.entry(owner).to_bytes()
    }

    /// Reads an event and its owner bit. The event is `None` if its type, sub-type or fault is not
    /// known.
    ///
    /// # Errors
    /// [`Truncated`] if there are fewer than [`ENTRY_LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Result<(Option<Self>, bool), Truncated> {
        let entry = EventEntry::parse(bytes)?;
        Ok((Self::decode(&entry), entry.owner))
    }

    fn decode(entry: &EventEntry) -> Option<Self> {
        let data = &entry.data;
        let number = u32::load(data, NUMBER) & 0xff_ffff;
        Some(match EventType::from_raw(entry.event_type)? {
            EventType::Completion => Self::Completion { completion_queue: number },
            EventType::CompletionQueueError => Self::CompletionQueueError {
                completion_queue: u32::load(data, FIRST) & 0xff_ffff,
                fault: CompletionQueueFault::from_raw(u8::load(data, FAULT))?,
            },
            EventType::PortChange => Self::Port {
                change: PortChange::from_raw(entry.sub_type)?,
                port: u8::load(data, PORT),
            },
            EventType::Command => Self::Command { entries: u32::load(data, FIRST) },
            EventType::NicVportChange => Self::NicVport { vport: u16::load(data, VPORT) },
            event_type if event_type.has_queue() => {
                Self::Queue { event_type, queue_type: u8::load(data, QUEUE_TYPE), number }
            }
            _ => return None,
        })
    }
}

layout! {
    /// The word by which a driver returns entries of an event queue, and arms the queue.
    pub struct EventDoorbell("event queue doorbell", 4) {
        /// Number of the event queue.
        event_queue: u8 = at(0x00, 0, 8),
        /// Number of entries that the driver has taken.
        consumer: u32 = at(0x01, 0, 24),
    }
}

/// Returns the owner bit of the entry with the count `producer`, in a ring of 2^`log_size` entries.
#[inline]
pub const fn owner_bit(producer: u32, log_size: u8) -> bool {
    producer.wrapping_shr(log_size as u32) & 1 != 0
}
