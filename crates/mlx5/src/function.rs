//! The function: all objects that the driver created, and its interrupts.
//!
//! A [`Function`] belongs to the adapter of its port in a [`causeway_verbs::Subnet`] and is used by
//! the dispatcher that serves the group's shard; only [`Registers`] are shared with the control
//! thread. The queue pairs' states and the memory regions are the engine's; the function holds
//! their rings, the completion and event queues, and the rest of the driver's objects. Every table
//! has a capacity ([`FunctionConfig`], [`limits`]); a full table refuses the command. Numbers of
//! vectors, queue pairs and completion queues outside of the limits are set to the nearest limit. A
//! reset empties all of them, drops work and interrupts that wait, and keeps counters, memory and
//! registers.
//!
//! The service `causeway-hca` makes the function, replaces its memory ([`Function::set_map`]) when
//! the guest's grants change, and takes interrupts and faults after each call; the function raises
//! no interrupt itself. Several events of a vector between two calls are one interrupt. An event
//! that no queue reports, a completion whose queue is full, and either in memory that is no longer
//! granted, is lost and counted.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use causeway_memory::Map;
use causeway_verbs::number::{Companion, Table};
use causeway_wire::mlx5::command::Opcode;
use causeway_wire::mlx5::completion_queue::Entry;
use causeway_wire::mlx5::event_queue::{CompletionQueueFault, Event, EventType};

use crate::completion_queue::{CompletionQueue, Signal};
use crate::ethernet::state::Ethernet;
use crate::event_pacing::EventPacing;
use crate::event_queue::EventQueues;
use crate::function_config::FunctionConfig;
use crate::limits;
use crate::page_list::PageQuota;
use crate::receive_pool::ReceivePool;
use crate::record::Record;
use crate::record::progress::{EventSource, Owner};
use crate::record::redo::{GuestEntry, Ring};
use crate::registers::Registers;
use crate::uar_pages::UarPages;
use crate::unlooked::Unlooked;
use crate::vport::Vport;
use crate::work_queues::{Scratch, WorkQueues};

/// Events and work since the function was made, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Commands that were executed.
    pub commands: u64,
    /// Commands that ended with a status other than success.
    pub failed_commands: u64,
    /// Commands that were answered with *bad operation*.
    pub unknown_commands: u64,
    /// Commands that could not be read or answered.
    pub undelivered_commands: u64,
    /// Completions.
    pub completions: u64,
    /// Completions that were lost because a queue had no room, was broken or not granted, or does
    /// not exist.
    pub overruns: u64,
    /// Entries of event queues.
    pub events: u64,
    /// Events that no event queue reports, of a queue in memory that is not granted, or beyond
    /// [`limits::DELAYED_EVENTS_MAX`] queue pairs with events that wait.
    pub lost_events: u64,
    /// Requests of interrupts: one for each event, also where several are raised as one.
    pub interrupts: u64,
    /// Work queue entries that could not be read.
    pub malformed_entries: u64,
}

/// A ConnectX function; see the module.
#[derive(Debug)]
pub struct Function {
    pub(crate) config: FunctionConfig,
    /// Registers, shared with the control thread.
    pub(crate) registers: Arc<Registers>,
    /// Reads and writes of the registers of earlier frontends.
    past_accesses: (u64, u64),
    /// Memory that the guest grants.
    pub(crate) map: Arc<Map>,
    pub(crate) counters: Counters,
    /// Vectors to raise; bit n is vector n.
    interrupts: u64,
    /// Log lines about failed commands that may still be written. A reset adds none: the driver may
    /// ask for resets without end.
    pub(crate) log_lines: u8,
    /// Commands of the driver, by opcode, since the frontend connected; those of [`Opcode`] only.
    commands: BTreeSet<u16>,
    /// Completions were added, or a poll was requested, since [`Self::take_completed`].
    has_completed: bool,
    /// Private copy of the entry that is being parsed.
    pub(crate) scratch: Scratch,
    /// Reason of the last malformed work queue.
    pub(crate) fault: Option<&'static str>,
    pub(crate) objects: Objects,
    /// The record from which the next process continues the function.
    pub(crate) record: Option<Box<Record>>,
    /// Commands are those of a record: they write no guest memory.
    pub(crate) is_restoring: bool,
    /// Messages that a reset cut have not ended at their peers (`crate::reset`).
    pub(crate) has_unfinished: bool,
}

/// The objects of a driver.
#[derive(Debug)]
pub(crate) struct Objects {
    pub event_queues: EventQueues,
    pub completion_queues: Table<CompletionQueue>,
    /// Completion queues to evaluate on the next pass.
    pub listed: VecDeque<u32>,
    /// Times until which moderation delays events, with the completion queue.
    pub delayed: BTreeSet<(u64, u32)>,
    /// The rings of queue pairs, by the engine's numbers.
    pub queue_pairs: Companion<WorkQueues>,
    /// Queue pairs with polled doorbell records.
    pub active: Vec<u32>,
    /// Index in `active` where the next pass begins.
    pub cursor: usize,
    /// Queue pairs of which the engine must be called on the next pass.
    pub pending: usize,
    /// Queues to look at before the function is known to have no posted work.
    pub unlooked: Unlooked,
    /// Pages in the lists of all queues.
    pub page_quota: PageQuota,
    /// Events of queue pairs that wait.
    pub pacing: EventPacing,
    /// Shared receive queues, of both kinds.
    pub receive_pools: Table<ReceivePool>,
    /// Protection domains.
    pub domains: Table<()>,
    /// Transport domains.
    pub transport_domains: Table<()>,
    /// Number of target queue pairs and shared receive queues, by XRC domain.
    pub xrc_domains: Table<u32>,
    /// Counter sets.
    pub counter_sets: Table<()>,
    /// Doorbell pages.
    pub uar_pages: UarPages,
    /// Values of the virtual port, and the GID table.
    pub vport: Vport,
    /// Queues and rules of Ethernet frames.
    pub ethernet: Ethernet,
}

impl Objects {
    fn new(config: &FunctionConfig) -> Self {
        let receive_pools = limits::receive_pools_max(config.queue_pairs_max);
        Self {
            event_queues: EventQueues::default(),
            completion_queues: Table::new(config.completion_queues_max),
            listed: VecDeque::new(),
            delayed: BTreeSet::new(),
            queue_pairs: Companion::new(config.queue_pairs_max),
            active: Vec::new(),
            cursor: 0,
            pending: 0,
            unlooked: Unlooked::default(),
            page_quota: PageQuota::default(),
            pacing: EventPacing::default(),
            receive_pools: Table::new(receive_pools),
            domains: Table::new(limits::DOMAINS_MAX),
            transport_domains: Table::new(limits::DOMAINS_MAX),
            xrc_domains: Table::new(limits::DOMAINS_MAX),
            counter_sets: Table::with_number_bits(limits::COUNTER_SETS_MAX, 8),
            uar_pages: UarPages::new(config.uar_bytes),
            vport: Vport::new(config.mac, config.mtu),
            ethernet: Ethernet::new(limits::ETHERNET_QUEUES_MAX),
        }
    }
}

impl Function {
    /// Returns a function without objects and without memory.
    pub fn new(config: FunctionConfig) -> Self {
        let config = config.clamped();
        Self {
            registers: Arc::new(Registers::new(config.uar_bytes, config.vectors)),
            past_accesses: (0, 0),
            map: Arc::default(),
            counters: Counters::default(),
            interrupts: 0,
            log_lines: limits::LOG_LINES_MAX,
            commands: BTreeSet::new(),
            has_completed: false,
            scratch: Scratch::default(),
            fault: None,
            objects: Objects::new(&config),
            record: None,
            is_restoring: false,
            has_unfinished: false,
            config,
        }
    }

    /// Gives the function a record, from which the next process continues it. The record is empty,
    /// and the function must not have objects.
    pub fn set_record(&mut self, record: Record) {
        self.record = Some(Box::new(record));
    }

    /// Removes the record; its file stays.
    pub fn remove_record(&mut self) {
        self.record = None;
    }

    /// Returns the record.
    pub fn record(&self) -> Option<&Record> {
        self.record.as_deref()
    }

    /// Returns the record, for changes.
    pub fn record_mut(&mut self) -> Option<&mut Record> {
        self.record.as_deref_mut()
    }

    /// Returns the registers, for the control thread.
    pub fn registers(&self) -> Arc<Registers> {
        Arc::clone(&self.registers)
    }

    /// Returns the numbers of reads and writes of registers since the port was added.
    pub fn register_accesses(&self) -> (u64, u64) {
        let (past, now) = (self.past_accesses, self.registers.accesses());
        (past.0.wrapping_add(now.0), past.1.wrapping_add(now.1))
    }

    /// Replaces the registers by new ones, and returns these.
    pub(crate) fn renew_registers(&mut self) -> Arc<Registers> {
        self.past_accesses = self.register_accesses();
        self.registers = Arc::new(Registers::new(self.config.uar_bytes, self.config.vectors));
        Arc::clone(&self.registers)
    }

    /// Replaces the memory of the driver's guest. Queues keep their addresses, which are looked up
    /// in the new memory.
    pub fn set_map(&mut self, map: Arc<Map>) {
        self.map = map;
    }

    /// Returns the vectors to raise, each once, and forgets them.
    pub fn take_interrupts(&mut self) -> impl Iterator<Item = u16> + use<> {
        let mut pending = std::mem::take(&mut self.interrupts);
        std::iter::from_fn(move || {
            let vector = pending.trailing_zeros();
            pending &= pending.checked_sub(1)?;
            u16::try_from(vector).ok()
        })
    }

    /// Returns the memory of the driver's guest.
    pub fn shared_map(&self) -> Arc<Map> {
        Arc::clone(&self.map)
    }

    /// Returns whether completions were added, or a poll was requested, since the last call.
    pub fn take_completed(&mut self) -> bool {
        std::mem::take(&mut self.has_completed)
    }

    /// Makes [`Self::take_completed`] return true.
    pub(crate) fn request_poll(&mut self) {
        self.has_completed = true;
    }

    /// Returns the reason of the last malformed work queue since the last call.
    pub fn take_fault(&mut self) -> Option<&'static str> {
        self.fault.take()
    }

    /// Returns whether the function must be polled: for queues, events that wait, or messages that
    /// a reset cut.
    pub fn is_active(&self) -> bool {
        let objects = &self.objects;
        self.has_unfinished
            || !objects.active.is_empty()
            || !objects.listed.is_empty()
            || objects.pacing.is_waiting()
            || objects.ethernet.is_active()
    }

    /// Adds a queue pair to those with polled doorbell records.
    pub(crate) fn activate(&mut self, number: u32) {
        let objects = &mut self.objects;
        if let Some(queues) = objects.queue_pairs.get_mut(number)
            && !queues.is_active
        {
            queues.is_active = true;
            objects.active.push(number);
        }
    }

    /// Returns the counters since the function was made.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the number of completion queues.
    pub fn completion_queues(&self) -> usize {
        self.objects.completion_queues.len()
    }

    /// Returns the properties.
    pub fn config(&self) -> &FunctionConfig {
        &self.config
    }

    /// Takes all objects out, as after power-on. The caller removes the engine's.
    pub(crate) fn clear(&mut self) -> Objects {
        let counters = self.objects.ethernet.counters();
        let objects = std::mem::replace(&mut self.objects, Objects::new(&self.config));
        self.objects.ethernet.set_counters(counters);
        self.interrupts = 0;
        if let Some(record) = &mut self.record {
            record.clear();
        }
        objects
    }

    /// Remembers that the driver sent a command.
    pub(crate) fn note_command(&mut self, opcode: u16) {
        if Opcode::from_raw(opcode).is_some() {
            self.commands.insert(opcode);
        }
    }

    /// Logs the commands that the driver sent, each once, and forgets them. With the log of a
    /// guest's test, the list makes the table in `docs/design/mlx5-commands.md`.
    pub(crate) fn log_commands(&mut self) {
        if self.commands.is_empty() {
            return;
        }
        let opcodes: Vec<String> = self.commands.iter().map(|o| format!("{o:x}")).collect();
        self.commands.clear();
        let [.., number] = self.config.mac;
        log::debug!(
            "commands of a driver whose frontend disconnected (address={number:#04x} opcodes={})",
            opcodes.join(",")
        );
    }

    /// Returns whether an event queue reports finished commands.
    pub(crate) fn reports_commands(&self) -> bool {
        self.objects.event_queues.reporter(EventType::Command).is_some()
    }

    /// Adds an event of an object to the first event queue that reports its type.
    pub(crate) fn report_event(&mut self, kind: EventType, event: Event, of: EventSource) {
        let queue = self.objects.event_queues.reporter_number(kind);
        self.push_event(queue, event, of);
    }

    /// Adds an event to an event queue, with the recorded words of its object.
    fn push_event(&mut self, queue: Option<u8>, event: Event, of: EventSource) {
        let mut changes = self.event_words(of);
        let number = queue.unwrap_or(0);
        let Some(queue) = self.objects.event_queues.get_mut(number) else {
            if let Some(record) = &mut self.record {
                record.commit(changes);
            }
            return self.count_event(None);
        };
        let (at, bytes) = queue.take_place(event);
        if let Some(record) = &mut self.record {
            changes.push(record.event_queue_word(number, queue.producer()));
            let number = u32::from(number);
            let entry = GuestEntry { ring: Ring::Event, number, at, bytes: &bytes };
            record.begin(changes, Some(&entry));
        }
        let vector = queue.place(&self.map, at, &bytes).then(|| queue.vector());
        if let Some(record) = &mut self.record {
            record.finish();
        }
        self.count_event(vector);
    }

    /// Returns the earliest time at which an event that moderation delays is due, in nanoseconds. A
    /// poll at this time or later reports the event.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.objects.delayed.first().map(|(until, _)| *until)
    }

    /// Raises the vectors of all event queues.
    pub(crate) fn raise_all(&mut self) {
        for queue in self.objects.event_queues.iter() {
            self.interrupts |= 1_u64.checked_shl(u32::from(queue.vector())).unwrap_or(0);
        }
    }

    /// Adds the event of a completion queue to its event queue. The guest probably answers, so the
    /// function asks to be polled.
    fn report_completion(&mut self, completion_queue: u32, event_queue: u8) {
        let event = Event::Completion { completion_queue };
        let of = EventSource::CompletionQueue(completion_queue);
        self.push_event(Some(event_queue), event, of);
        self.request_poll();
    }

    /// Counts an event, and requests the interrupt of its queue.
    fn count_event(&mut self, vector: Option<u16>) {
        match vector {
            Some(vector) => {
                let bit = 1_u64.checked_shl(u32::from(vector)).unwrap_or(0);
                self.interrupts |= bit;
                self.counters.events = self.counters.events.wrapping_add(1);
                self.counters.interrupts = self.counters.interrupts.wrapping_add(1);
            }
            None => self.counters.lost_events = self.counters.lost_events.wrapping_add(1),
        }
    }

    /// Reports that a completion queue is broken.
    pub(crate) fn report_broken_queue(&mut self, completion_queue: u32) {
        let fault = CompletionQueueFault::Overrun;
        let event = Event::CompletionQueueError { completion_queue, fault };
        let of = EventSource::CompletionQueue(completion_queue);
        self.report_event(EventType::CompletionQueueError, event, of);
    }

    /// Adds an entry to a completion queue and lists the queue for [`Self::evaluate_listed`]. The
    /// completion ends a work request of `owner`. Returns false if the queue does not exist, has no
    /// room or is in memory that is not granted.
    pub(crate) fn push_completion(
        &mut self,
        completion_queue: u32,
        entry: Entry,
        owner: Owner,
    ) -> bool {
        let objects = &mut self.objects;
        let Some(queue) = objects.completion_queues.get_mut(completion_queue) else {
            return false;
        };
        let is_written = match queue.take_place(&self.map, entry) {
            Some((at, bytes)) if self.record.is_none() => queue.place(&self.map, at, &bytes),
            Some((at, bytes)) => self.place_recorded(completion_queue, (at, &bytes), owner),
            None => false,
        };
        if !is_written {
            self.counters.overruns = self.counters.overruns.wrapping_add(1);
            self.store_progress(owner);
            self.store_completion_queue(completion_queue);
            return false;
        }
        let objects = &mut self.objects;
        if let Some(queue) = objects.completion_queues.get_mut(completion_queue)
            && !queue.is_listed
        {
            queue.is_listed = true;
            objects.listed.push_back(completion_queue);
        }
        self.has_completed = true;
        self.counters.completions = self.counters.completions.wrapping_add(1);
        true
    }

    /// Evaluates the event rule of completion queues with completions that the driver may not know
    /// of: at most [`limits::PASS_QUEUES_MAX`] (256), in turn.
    pub(crate) fn evaluate_listed(&mut self, now_ns: u64) {
        for _ in 0..self.objects.listed.len().min(limits::PASS_QUEUES_MAX) {
            let Some(number) = self.objects.listed.pop_front() else { return };
            let Some(queue) = self.objects.completion_queues.get_mut(number) else { continue };
            if let Some(until) = queue.delayed_ns.take() {
                self.objects.delayed.remove(&(until, number));
            }
            let signal = queue.evaluate(&self.map, now_ns);
            queue.is_listed = matches!(signal, Signal::Waiting | Signal::Delayed(_));
            let event_queue = queue.event_queue();
            match signal {
                Signal::Event => self.report_completion(number, event_queue),
                Signal::Waiting => self.objects.listed.push_back(number),
                Signal::Delayed(until) => {
                    queue.delayed_ns = Some(until);
                    self.objects.delayed.insert((until, number));
                    self.objects.listed.push_back(number);
                }
                Signal::Idle => {}
            }
        }
    }

    /// Returns the number of interrupt vectors.
    pub(crate) fn vectors(&self) -> u16 {
        self.config.vectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_writes_no_further_log_lines_after_a_reset() {
        let mut function = Function::new(FunctionConfig {
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            vectors: 2,
            queue_pairs_max: 1,
            completion_queues_max: 1,
            regions_max: 1,
            registered_bytes_max: 0,
            uar_bytes: 1 << 20,
        });
        function.log_lines = 3;
        drop(function.clear());
        assert_eq!(function.log_lines, 3);
    }
}
