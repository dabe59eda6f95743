//! What takes long, done in threads that end when nothing waits.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    threads: usize,
}

/// One kind of work, and those who do it.
pub struct Elsewhere<T> {
    state: Mutex<State<T>>,
    name: &'static str,
    threads_max: usize,
    each: fn(T),
}

impl<T> fmt::Debug for Elsewhere<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elsewhere").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Elsewhere<T> {
    /// `each` is done by at most `threads_max` threads of that name.
    pub const fn new(name: &'static str, threads_max: usize, each: fn(T)) -> Self {
        let state = State { waiting: VecDeque::new(), threads: 0 };
        Self { state: Mutex::new(state), name, threads_max, each }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands something over, and says whether a thread will come to it. Without one it waits for
    /// the next that is handed over, or until it is taken [back](Self::take_back).
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

    /// What waits longest.
    pub fn take_back(&self) -> Option<T> {
        self.state().waiting.pop_front()
    }

    /// How much waits for a thread.
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
