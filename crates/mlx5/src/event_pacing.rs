//! The pace of the events of queue pairs: the events of the present window, and the queue pairs whose
//! events wait.
//!
//! A window is [`EVENT_WINDOW_NS`] (10 ms); at most [`DELAYED_EVENTS_MAX`] (32,768) queue pairs wait.
//! The value counts: [`paced_events`](crate::paced_events) reports the events.

use std::collections::VecDeque;

use crate::limits::{DELAYED_EVENTS_MAX, EVENT_WINDOW_NS};

/// The state of the pace.
#[derive(Debug, Default)]
pub(crate) struct EventPacing {
    /// End of the present window, in nanoseconds.
    window_ends_ns: u64,
    /// Events of queue pairs in this window.
    reported: u32,
    /// Queue pairs with events that wait, or had some.
    delayed: VecDeque<u32>,
}

impl EventPacing {
    /// Returns whether events wait.
    pub fn is_waiting(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// Returns the number of queue pairs with events that wait.
    pub fn waiting(&self) -> usize {
        self.delayed.len()
    }

    /// Begins a window if the last is over.
    pub fn begin(&mut self, now_ns: u64) {
        if now_ns >= self.window_ends_ns {
            self.window_ends_ns = now_ns.saturating_add(EVENT_WINDOW_NS);
            self.reported = 0;
        }
    }

    /// Adds a queue pair with events that wait. Returns false if too many wait.
    pub fn delay(&mut self, number: u32) -> bool {
        let has_room = self.delayed.len() < DELAYED_EVENTS_MAX;
        if has_room {
            self.delayed.push_back(number);
        }
        has_room
    }

    /// Returns the queue pair that has waited longest.
    pub fn first(&self) -> Option<u32> {
        self.delayed.front().copied()
    }

    /// Removes the queue pair that has waited longest.
    pub fn remove_first(&mut self) {
        self.delayed.pop_front();
    }

    /// Returns whether this window has room for an event in a queue of `entries` entries.
    pub fn has_room(&self, entries: u32) -> bool {
        self.reported < (entries / 4).max(1)
    }

    /// Counts an event in this window.
    pub fn count(&mut self) {
        self.reported = self.reported.saturating_add(1);
    }
}
