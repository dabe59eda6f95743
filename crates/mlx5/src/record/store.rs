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

use super::Record;
use super::layout::Words;
use super::progress::{EventSource, Owner, PairProgress, ethernet_word};
use super::redo::{Changes, GuestEntry, Ring};
use crate::function::{Function, Objects};

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
            queues.progress.hold(index);
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
            progress.begin();
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
