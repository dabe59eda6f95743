//! The events of queue pairs, reported at a bounded pace.
//!
//! Another guest can make many queue pairs of an adapter fail at once. The function does not know
//! the driver's position in an event queue, and a driver that finds overwritten entries stops to
//! read. So in a window of 10 ms ([`event_pacing`](crate::event_pacing)), over all event queues
//! together, the events of queue pairs take at most a quarter of the entries of the queue that
//! reports them, and at least one. The others wait in their queue pairs and are reported in later
//! passes of `poll`, in the order in which the queue pairs began to wait; those of a queue pair that
//! is destroyed or reset meanwhile are dropped. At most 32,768 queue pairs wait; events beyond are
//! lost and counted. An event that waits when causewayd ends is lost.
//!
//! `queues` reports events here, and `poll` begins the windows and reports the events that wait,
//! both in the dispatcher's thread. Events of completion queues, their overruns included, shared
//! receive queues and commands are reported at once and are not counted here: the driver's own
//! actions bound them (`crate::event_queue`).

use causeway_wire::mlx5::event_queue::{Event, EventType};

use crate::function::Function;
use crate::limits::PASS_QUEUES_MAX;
use crate::record::progress::EventSource;

/// Code of queue pairs in events. Drivers ignore the code in events of shared receive queues.
pub(crate) const QUEUE_PAIR: u8 = 0;

impl Function {
    /// Reports an event of a queue pair, now or in a later pass.
    pub(crate) fn report_paced(&mut self, kind: EventType, number: u32) {
        if self.has_event_room(kind) {
            self.report_queue_pair(kind, number);
            return;
        }
        let objects = &mut self.objects;
        let Some(queues) = objects.queue_pairs.get_mut(number) else { return };
        if queues.delayed == 0 && !objects.pacing.delay(number) {
            self.counters.lost_events = self.counters.lost_events.wrapping_add(1);
            return;
        }
        queues.delayed |= 1_u64.checked_shl(u32::from(kind.raw())).unwrap_or(0);
        // The function must be polled, so that the event is reported later.
        self.request_poll();
    }

    /// Reports events that wait, as far as the window permits.
    pub(crate) fn report_delayed(&mut self) {
        for _ in 0..self.objects.pacing.waiting().min(PASS_QUEUES_MAX) {
            let Some(number) = self.objects.pacing.first() else { return };
            while let Some(kind) = self.next_delayed(number) {
                if !self.has_event_room(kind) {
                    return;
                }
                if let Some(queues) = self.objects.queue_pairs.get_mut(number) {
                    queues.delayed &= queues.delayed.wrapping_sub(1);
                }
                self.report_queue_pair(kind, number);
            }
            self.objects.pacing.remove_first();
        }
    }

    /// Returns the first event of a queue pair that waits.
    fn next_delayed(&self, number: u32) -> Option<EventType> {
        let queues = self.objects.queue_pairs.get(number)?;
        EventType::from_raw(u8::try_from(queues.delayed.trailing_zeros()).ok()?)
    }

    /// Returns whether the queue of an event has room in this window.
    fn has_event_room(&mut self, kind: EventType) -> bool {
        let objects = &mut self.objects;
        let entries = objects.event_queues.reporter(kind).map(|queue| queue.entries());
        entries.is_none_or(|entries| objects.pacing.has_room(entries))
    }

    /// Reports an event of a queue pair now, and counts it in the window.
    fn report_queue_pair(&mut self, kind: EventType, number: u32) {
        self.objects.pacing.count();
        let event = Event::Queue { event_type: kind, queue_type: QUEUE_PAIR, number };
        self.report_event(kind, event, EventSource::QueuePair(number));
    }
}
