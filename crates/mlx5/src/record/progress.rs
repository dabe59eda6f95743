//! The words of objects: positions and states that change with the work, beside the journal.
//!
//! | object | words |
//! |---|---|
//! | queue pair | send position, state; receive position, held entry; reported events; queue of the held entry |
//! | completion queue | producer and consumer; last arm word |
//! | event queue | producer |
//! | shared receive queue | index, position, limit |
//! | Ethernet queue | position, state |
//!
//! The position of a work queue is that of the last work request that ended, so that a request in
//! progress is taken again. The notes of `verbs::Queues` and the completions of the function
//! ([`Function::push_completion`]) change the words, in the dispatcher's thread: with the commit of
//! a completion or event, or in a commit of their own where there is none. A function without a
//! record stores no words. `super::restore` reads the words after a restart of causewayd. No call
//! fails: a store that the file refuses ends the record (`super`).

use causeway_verbs::State;
use causeway_wire::mlx5::work_queue::QueueState;

use super::Record;
use super::layout::Words;
use super::redo::{Changes, GuestEntry, Ring};
use crate::function::{Function, Objects};

/// Codes of states, by their position in [`State::ALL`].
const STATE_BITS: u64 = 7;
/// The first request began and must not be executed again.
const BEGAN: u64 = 1 << 35;
/// A shared entry is held.
const HELD: u64 = 1 << 48;

/// The progress of a queue pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PairProgress {
    /// Send position behind the last work request that ended.
    pub ended: u16,
    /// Number of the last message that ended (`verbs::work::Completion::message`).
    pub sent: u16,
    /// Code of the state.
    state: u8,
    /// The request in progress must not be executed again.
    pub has_begun: bool,
    /// Receive position behind the last work request that ended.
    pub received: u16,
    /// Number of the peer's last message.
    pub message: u16,
    /// Entry of a shared receive queue in progress.
    pub held: Option<u16>,
    /// The first word has changed.
    is_send_dirty: bool,
    /// The second word has changed.
    is_receive_dirty: bool,
}

impl PairProgress {
    /// Returns the progress of two words.
    pub fn from_words([send, receive]: [u64; 2]) -> Self {
        Self {
            ended: send as u16,
            sent: (send >> 16) as u16,
            state: (send >> 32 & STATE_BITS) as u8,
            has_begun: send & BEGAN != 0,
            received: receive as u16,
            message: (receive >> 16) as u16,
            held: (receive & HELD != 0).then_some((receive >> 32) as u16),
            is_send_dirty: false,
            is_receive_dirty: false,
        }
    }

    /// Returns the two words.
    #[inline]
    fn words(&self) -> [u64; 2] {
        let began = if self.has_begun { BEGAN } else { 0 };
        let state = u64::from(self.state) << 32;
        let send = u64::from(self.ended) | u64::from(self.sent) << 16 | state | began;
        let held = self.held.map_or(0, |index| HELD | u64::from(index) << 32);
        [send, u64::from(self.received) | u64::from(self.message) << 16 | held]
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        State::ALL.get(usize::from(self.state)).copied().unwrap_or(State::Error)
    }

    /// Sets the state. Returns whether the words have to be stored.
    pub fn set_state(&mut self, state: State) -> bool {
        let code = State::ALL.iter().position(|own| *own == state).unwrap_or(0) as u8;
        self.is_send_dirty |= self.state != code;
        self.state = code;
        self.is_send_dirty
    }

    /// Returns the progress after a reset: sent messages keep their numbers, the rest is zero.
    pub fn reset(&self) -> Self {
        Self { sent: self.sent, ..Self::default() }
    }

    /// Sets the position of the send queue.
    #[inline]
    pub fn end_send(&mut self, position: u16, message: u16) {
        (self.ended, self.sent, self.has_begun) = (position, message, false);
        self.is_send_dirty = true;
    }

    /// Sets the position of the receive queue.
    #[inline]
    pub fn end_receive(&mut self, position: u16, message: u16) {
        (self.received, self.message, self.held) = (position, message, None);
        self.is_receive_dirty = true;
    }

    /// Adds the words that changed.
    #[inline]
    fn collect(&mut self, at: usize, changes: &mut Changes) {
        let [send, receive] = self.words();
        if std::mem::take(&mut self.is_send_dirty) {
            changes.push((at, send));
        }
        if std::mem::take(&mut self.is_receive_dirty) {
            changes.push((at.wrapping_add(8), receive));
        }
    }

    /// Adds both words.
    pub fn collect_all(&mut self, at: usize, changes: &mut Changes) {
        (self.is_send_dirty, self.is_receive_dirty) = (true, true);
        self.collect(at, changes);
    }
}

/// The work queue of a work request that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    QueuePair(u32),
    EthernetSend(u32),
    EthernetReceive(u32),
}

/// Returns the word of an Ethernet queue.
fn ethernet_word(taken: u16, state: u8, is_polled: bool) -> u64 {
    u64::from(taken) | u64::from(state) << 16 | u64::from(is_polled) << 24
}

/// Returns the position, state and whether it is polled, of the word of an Ethernet queue.
pub(super) fn from_ethernet_word(word: u64) -> Option<(u16, QueueState, bool)> {
    Some((word as u16, QueueState::from_raw((word >> 16) as u8)?, word >> 24 & 1 != 0))
}

impl Objects {
    /// Adds the words of an object that begin at `at`.
    pub(super) fn collect(&mut self, of: Words, number: u32, at: usize, changes: &mut Changes) {
        let second = at.wrapping_add(8);
        match of {
            Words::QueuePair => {
                if let Some(queues) = self.queue_pairs.get_mut(number) {
                    queues.progress.collect_all(at, changes);
                    changes.push((at.wrapping_add(16), queues.reported & !queues.delayed));
                }
            }
            Words::CompletionQueue => {
                if let Some(queue) = self.completion_queues.get(number) {
                    let [first, arm] = queue.words();
                    changes.push((at, first));
                    changes.push((second, arm));
                }
            }
            Words::EventQueue => {
                if let Some(queue) = self.event_queues.get(number as u8) {
                    changes.push((at, u64::from(queue.producer())));
                }
            }
            Words::ReceivePool => {
                if let Some(pool) = self.receive_pools.get(number) {
                    changes.push((at, pool.word()));
                }
            }
            Words::SendQueue => {
                if let Some(queue) = self.ethernet.send_queue(number) {
                    let is_polled = self.ethernet.polls(number);
                    let taken = queue.positions().taken;
                    changes.push((at, ethernet_word(taken, queue.context.state, is_polled)));
                }
            }
            Words::ReceiveQueue => {
                if let Some(queue) = self.ethernet.receive_queue(number) {
                    let taken = queue.positions().taken;
                    changes.push((at, ethernet_word(taken, queue.context.state, false)));
                }
            }
        }
    }

    /// Adds the words of a work queue that changed.
    #[inline]
    pub(crate) fn collect_owner(&mut self, owner: Owner, record: &Record, changes: &mut Changes) {
        match owner {
            Owner::QueuePair(number) => {
                if let Some(queues) = self.queue_pairs.get_mut(number) {
                    queues.progress.collect(record.words(Words::QueuePair, number), changes);
                }
            }
            Owner::EthernetSend(number) => {
                let at = record.words(Words::SendQueue, number);
                self.collect(Words::SendQueue, number, at, changes);
            }
            Owner::EthernetReceive(number) => {
                let at = record.words(Words::ReceiveQueue, number);
                self.collect(Words::ReceiveQueue, number, at, changes);
            }
        }
    }
}

impl Record {
    /// Returns the word of an event queue.
    pub(crate) fn event_queue_word(&self, number: u8, producer: u32) -> (usize, u64) {
        (self.words(Words::EventQueue, u32::from(number)), u64::from(producer))
    }
}

impl Function {
    /// Writes a completion in a commit with the progress of its owner. Returns false if the queue's
    /// memory is not granted.
    pub(crate) fn place_recorded(
        &mut self,
        completion_queue: u32,
        (at, bytes): (u64, &[u8; 64]),
        owner: Owner,
    ) -> bool {
        let Self { record: Some(record), objects, map, .. } = self else { return false };
        let mut changes = Changes::default();
        objects.collect_owner(owner, record, &mut changes);
        let Some(queue) = objects.completion_queues.get_mut(completion_queue) else {
            return false;
        };
        let [word, _] = queue.words();
        changes.push((record.words(Words::CompletionQueue, completion_queue), word));
        let entry = GuestEntry { ring: Ring::Completion, number: completion_queue, at, bytes };
        record.begin(changes, Some(&entry));
        let is_written = queue.place(map, at, bytes);
        record.finish();
        is_written
    }

    /// Stores the words of a work queue that changed, without a completion.
    pub(crate) fn store_progress(&mut self, owner: Owner) {
        let Self { record: Some(record), objects, .. } = self else { return };
        let mut changes = Changes::default();
        objects.collect_owner(owner, record, &mut changes);
        if !changes.pairs().is_empty() {
            record.commit(changes);
        }
    }

    /// Stores the words of a completion queue.
    pub(crate) fn store_completion_queue(&mut self, number: u32) {
        let Self { record: Some(record), objects, .. } = self else { return };
        let mut changes = Changes::default();
        let at = record.words(Words::CompletionQueue, number);
        objects.collect(Words::CompletionQueue, number, at, &mut changes);
        record.commit(changes);
    }

    /// Notes a change of a queue pair's progress, if the function has a record. `change` returns
    /// whether the words have to be stored now.
    #[inline]
    pub(crate) fn note_progress(
        &mut self,
        number: u32,
        change: impl FnOnce(&mut PairProgress, [u16; 2]) -> bool,
    ) {
        if self.record.is_none() {
            return;
        }
        let Some(queues) = self.objects.queue_pairs.get_mut(number) else { return };
        let [send, receive] = queues.positions();
        if change(&mut queues.progress, [send.taken, receive.taken]) {
            self.store_progress(Owner::QueuePair(number));
        }
    }

    /// Notes that a queue pair took an entry of a shared receive queue.
    pub(crate) fn note_held(&mut self, number: u32, shared: u32, index: u16) {
        let Self { record: Some(record), objects, .. } = self else { return };
        let mut changes = Changes::default();
        if let Some(queues) = objects.queue_pairs.get_mut(number) {
            queues.progress.held = Some(index);
            queues.progress.is_receive_dirty = true;
        }
        objects.collect_owner(Owner::QueuePair(number), record, &mut changes);
        let at = record.words(Words::QueuePair, number).wrapping_add(24);
        changes.push((at, u64::from(shared)));
        let at = record.words(Words::ReceivePool, shared);
        objects.collect(Words::ReceivePool, shared, at, &mut changes);
        record.commit(changes);
    }

    /// Notes that the request in progress of a queue pair must not be executed again.
    pub(crate) fn note_begin(&mut self, number: u32) {
        self.note_progress(number, |progress, _| {
            progress.has_begun = true;
            progress.is_send_dirty = true;
            true
        });
    }

    /// Returns the words of the object that causes an event.
    pub(crate) fn event_words(&mut self, of: EventSource) -> Changes {
        let mut changes = Changes::default();
        let Self { record: Some(record), objects, .. } = self else { return changes };
        match of {
            EventSource::Command => changes.push(record.command_end()),
            EventSource::CompletionQueue(number) => {
                let at = record.words(Words::CompletionQueue, number);
                objects.collect(Words::CompletionQueue, number, at, &mut changes);
            }
            EventSource::ReceivePool(number) => {
                let at = record.words(Words::ReceivePool, number);
                objects.collect(Words::ReceivePool, number, at, &mut changes);
            }
            EventSource::QueuePair(number) => {
                if let Some(queues) = objects.queue_pairs.get(number) {
                    let at = record.words(Words::QueuePair, number).wrapping_add(16);
                    changes.push((at, queues.reported & !queues.delayed));
                }
            }
        }
        changes
    }
}

/// The object that causes an event. Its words belong to the event's commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventSource {
    Command,
    CompletionQueue(u32),
    ReceivePool(u32),
    QueuePair(u32),
}
