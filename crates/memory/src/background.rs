//! Work that takes long, in threads that end when no work waits.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    threads: usize,
}

/// One kind of work, and the threads that do it.
pub struct Background<T> {
    state: Mutex<State<T>>,
    name: &'static str,
    threads_max: usize,
    each: fn(T),
}

impl<T> fmt::Debug for Background<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Background<T> {
    /// Returns a queue whose items at most `threads_max` threads of that name pass to `each`.
    pub const fn new(name: &'static str, threads_max: usize, each: fn(T)) -> Self {
        let state = State { waiting: VecDeque::new(), threads: 0 };
        Self { state: Mutex::new(state), name, threads_max, each }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an item and returns whether a thread will process it. Without a thread the item waits
    /// for the next call, or for [`Self::take_back`].
    pub fn hand_over(&'static self, thing: T) -> bool {
        let mut state = self.state();
        state.waiting.push_back(thing);
        if state.threads < self.threads_max {
            let thread = thread::Builder::new().name(self.name.into());
            if thread.spawn(|| self.work()).is_ok() {
                state.threads = state.threads.saturating_add(1);
            }
        }
        state.threads > 0
    }

    /// Removes and returns the oldest item.
    pub fn take_back(&self) -> Option<T> {
        self.state().waiting.pop_front()
    }

    /// Returns the number of items that wait for a thread.
    pub fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    fn work(&self) {
        loop {
            let mut state = self.state();
            let Some(thing) = state.waiting.pop_front() else {
                state.threads = state.threads.saturating_sub(1);
                return;
            };
            drop(state);
            (self.each)(thing);
        }
    }
}
