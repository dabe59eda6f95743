//! Event queues: completions and asynchronous events in the memory of the driver.
//!
//! The driver's doorbell of an event queue is a word that all queues share, so that a polling
//! device loses values. The function therefore takes every queue as armed, raises the vector with
//! each entry, and bounds the entries instead of reading the driver's position:
//!
//! | event of | bound |
//! |---|---|
//! | completion queue | one until it is armed again (`crate::completion_queue`); an event queue accepts fewer completion queues than entries, by [`EVENT_QUEUE_RESERVE`] |
//! | queue pair | each type once until its reset, at a bounded pace (`crate::paced_events`) |
//! | shared receive queue | once for each limit that the driver sets; once if the queue breaks |
//! | overrun of a completion queue | once for each work queue that it stops |
//! | command | once for each command |
//!
//! An event whose type no queue reports, and an entry in memory that is not granted, is lost and
//! counted (`crate::function`). A driver that breaks these rules overwrites events of its own.
//! `command::event_queue` creates and destroys queues, `crate::function` writes events; both run in
//! the dispatcher's thread.

use causeway_memory::Map;
use causeway_wire::mlx5::event_queue::{ENTRY_LEN, Event, EventQueueContext, EventType, owner_bit};

use crate::limits::{EVENT_QUEUE_RESERVE, EVENT_QUEUES_MAX};
use crate::page_list::PageList;

/// An event queue.
#[derive(Debug)]
pub(crate) struct EventQueue {
    pages: PageList,
    context: EventQueueContext,
    producer: u32,
    /// Asynchronous events that the queue reports: bit n is type n.
    mask: u64,
    /// Number of completion queues that report here.
    pub users: u32,
}

impl EventQueue {
    /// Returns the queue of a context that the command checked.
    pub fn new(pages: PageList, context: EventQueueContext, mask: u64) -> Self {
        Self { pages, context, producer: 0, mask, users: 0 }
    }

    /// Returns the MSI-X vector.
    pub fn vector(&self) -> u16 {
        self.context.vector
    }

    /// Returns the context with the present position.
    pub fn context(&self) -> EventQueueContext {
        EventQueueContext { producer: self.producer, ..self.context }
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u32 {
        1_u32.checked_shl(u32::from(self.context.log_size)).unwrap_or(0)
    }

    /// Returns whether a further completion queue may report here.
    pub fn has_room(&self) -> bool {
        self.users < self.entries().saturating_sub(EVENT_QUEUE_RESERVE)
    }

    /// Returns whether the queue reports events of this type.
    pub fn reports(&self, kind: EventType) -> bool {
        1_u64.checked_shl(u32::from(kind.raw())).is_some_and(|bit| self.mask & bit != 0)
    }

    /// Returns the number of entries that were written.
    pub fn producer(&self) -> u32 {
        self.producer
    }

    /// Sets the number of entries that were written.
    pub fn resume(&mut self, producer: u32) {
        self.producer = producer;
    }

    /// Takes the place of an event. Returns its offset in the ring and its bytes, for
    /// [`Self::place`].
    pub fn take_place(&mut self, event: Event) -> (u64, [u8; ENTRY_LEN]) {
        let index = self.producer & self.entries().wrapping_sub(1);
        let bytes = event.to_bytes(owner_bit(self.producer, self.context.log_size));
        self.producer = self.producer.wrapping_add(1);
        let at = u64::from(index).wrapping_mul(ENTRY_LEN as u64);
        (at, bytes)
    }

    /// Writes an event at an offset of the ring. Returns false if the queue's memory is not
    /// granted; the event is then lost.
    pub fn place(&self, map: &Map, at: u64, bytes: &[u8; ENTRY_LEN]) -> bool {
        self.pages.publish(map, at, bytes).is_ok()
    }
}

/// The event queues of the function, by their numbers of 8 bits: 1 to [`EVENT_QUEUES_MAX`] (16).
#[derive(Debug, Default)]
pub(crate) struct EventQueues {
    queues: Vec<Option<EventQueue>>,
    /// Index that the next queue takes.
    prepared: Option<usize>,
}

impl EventQueues {
    /// Adds a queue. Returns its number, or `None` if there are 16.
    pub fn insert(&mut self, queue: EventQueue) -> Option<u8> {
        let free = || self.queues.iter().position(Option::is_none);
        let index = self.prepared.take().or_else(free).unwrap_or(self.queues.len());
        let number = u8::try_from(index.checked_add(1)?).ok()?;
        if index >= EVENT_QUEUES_MAX {
            return None;
        }
        match self.queues.get_mut(index) {
            Some(slot) => *slot = Some(queue),
            None => self.queues.push(Some(queue)),
        }
        Some(number)
    }

    /// Reserves a number for the next queue. Returns false if it is not free.
    pub fn prepare(&mut self, number: u32) -> bool {
        let index = (number as usize).wrapping_sub(1);
        if index >= EVENT_QUEUES_MAX {
            return false;
        }
        while self.queues.len() <= index {
            self.queues.push(None);
        }
        self.prepared = self.queues.get(index).is_some_and(Option::is_none).then_some(index);
        self.prepared.is_some()
    }

    /// Returns all queues.
    pub fn iter(&self) -> impl Iterator<Item = &EventQueue> {
        self.queues.iter().flatten()
    }

    /// Returns the number of queues.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns a queue.
    pub fn get(&self, number: u8) -> Option<&EventQueue> {
        self.queues.get(usize::from(number.checked_sub(1)?))?.as_ref()
    }

    /// Returns a queue, for changes.
    pub fn get_mut(&mut self, number: u8) -> Option<&mut EventQueue> {
        self.queues.get_mut(usize::from(number.checked_sub(1)?))?.as_mut()
    }

    /// Removes a queue.
    pub fn remove(&mut self, number: u8) -> Option<EventQueue> {
        self.queues.get_mut(usize::from(number.checked_sub(1)?))?.take()
    }

    /// Returns the first queue that reports events of this type.
    pub fn reporter(&self, kind: EventType) -> Option<&EventQueue> {
        self.iter().find(|queue| queue.reports(kind))
    }

    /// Returns the number of the first queue that reports events of this type.
    pub fn reporter_number(&self, kind: EventType) -> Option<u8> {
        let reports = |queue: &Option<EventQueue>| queue.as_ref().is_some_and(|q| q.reports(kind));
        let index = self.queues.iter().position(reports)?;
        u8::try_from(index.checked_add(1)?).ok()
    }
}
