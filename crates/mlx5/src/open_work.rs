//! Work that a function may have left, for ports that are not polled in each turn.
//!
//! `hca::call` asks after a pass of `poll` found nothing, in the dispatcher's thread. A function
//! that has no work names the words of guest memory that change before it has work
//! ([`Function::watch`]); the caller compares them instead of polling. A function with more than
//! [`limits::WATCHED_QUEUES_MAX`] (256) queues, or with waiting work, names none and is polled.
//!
//! A port whose driver rings by trapped doorbell pages (`doorbell = "trap"`) is not polled while it
//! is idle: a doorbell wakes it ([`Function::expect_work`]), and it is served until
//! [`Function::has_unlooked`] and [`Function::has_waiting_work`] return false. A pass of `poll`
//! looks at a bounded number of queues, so that a single pass may not reach the queue that the
//! doorbell concerns; [`Unlooked`] counts the queues that no pass has looked at since. A doorbell
//! does not name its queue: the value written is not read.
//!
//! Polled ports use the count alone, a few instructions in each pass. The module also lists the
//! objects with limits of their own, for the operator.

use causeway_memory::WordWatch;

use crate::function::{Function, Objects};
use crate::limits;
use crate::unlooked::Unlooked;

impl Objects {
    /// Sets whether the engine must be called for a queue pair on the next pass.
    #[inline]
    pub fn set_pending(&mut self, number: u32, is_pending: bool) {
        let Some(queues) = self.queue_pairs.get_mut(number) else { return };
        if queues.is_pending != is_pending {
            queues.is_pending = is_pending;
            self.pending = match is_pending {
                true => self.pending.saturating_add(1),
                false => self.pending.saturating_sub(1),
            };
        }
    }
}

impl Function {
    /// Notes that the driver may have posted work to any queue, or armed any completion queue.
    pub fn expect_work(&mut self) {
        let objects = &mut self.objects;
        objects.unlooked = Unlooked::all(objects.active.len(), objects.listed.len());
    }

    /// Returns whether no pass has looked at some queue since [`Self::expect_work`] or the last
    /// message, so that posted work may be left.
    pub fn has_unlooked(&self) -> bool {
        let Objects { unlooked, active, listed, .. } = &self.objects;
        unlooked.has_any(active.len(), listed.len())
    }

    /// Returns whether work continues without a doorbell of the driver: a request waits for its
    /// responder, an event for its time, or a reset left messages to end.
    pub fn has_waiting_work(&self) -> bool {
        self.has_unfinished || self.objects.pending > 0 || self.objects.pacing.is_waiting()
    }

    /// Returns the words of guest memory of which one changes before the driver has posted work,
    /// armed a completion queue with completions, or taken the last completion; until then, a poll
    /// without a deadline, a command or a message of another function finds nothing. Returns `None`
    /// if a poll may find something now, or must look at more than [`limits::WATCHED_QUEUES_MAX`]
    /// (256) queues.
    pub fn watch(&self) -> Option<WordWatch> {
        let objects = &self.objects;
        let queues = objects.active.len().saturating_add(objects.listed.len());
        let queues = queues.saturating_add(objects.ethernet.polled());
        let has_work = self.has_waiting_work() || !objects.delayed.is_empty();
        if has_work || queues > limits::WATCHED_QUEUES_MAX {
            return None;
        }
        let mut watch = WordWatch::new(self.shared_map());
        for number in &objects.active {
            objects.queue_pairs.get(*number)?.watch(&mut watch)?;
        }
        for number in &objects.listed {
            objects.completion_queues.get(*number)?.watch(&mut watch)?;
        }
        objects.ethernet.watch(&mut watch)?;
        Some(watch)
    }

    /// Counts the queue pairs that a pass looked at, and the completion queues that were listed. A
    /// pass with messages may have left more.
    pub(crate) fn count_looks(&mut self, (looked, listed): (usize, usize), has_worked: bool) {
        if has_worked {
            self.expect_work();
            return;
        }
        let evaluated = listed.min(limits::PASS_QUEUES_MAX);
        self.objects.unlooked.look(looked, evaluated);
    }

    /// Returns the objects with limits of their own, by name: their number, and the most.
    pub fn object_counts(&self) -> [(&'static str, usize, usize); 5] {
        let objects = &self.objects;
        let (domains, pools) = (&objects.domains, &objects.receive_pools);
        let senders = objects.ethernet.send_queues();
        [
            ("event queues", objects.event_queues.len(), limits::EVENT_QUEUES_MAX),
            ("protection domains", domains.len(), domains.capacity()),
            ("shared receive queues", pools.len(), pools.capacity()),
            ("Ethernet send queues", senders, limits::ETHERNET_QUEUES_MAX),
            (
                "queue pairs with delayed events",
                objects.pacing.waiting(),
                limits::DELAYED_EVENTS_MAX,
            ),
        ]
    }
}
