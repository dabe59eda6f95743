//! Queued work that takes long, in threads that end when the queue is empty.
//!
//! [`Background::hand_over`] queues an item and starts a thread, up to `threads_max` for the queue.
//! It blocks for no work, but starting a thread is a system call. The queue has no limit. Items of
//! one queue may run at the same time and finish in any order. If no thread runs and none can be
//! started, `hand_over` returns false: the caller may take the oldest item back and process it, or
//! leave it to the next call.
//!
//! `crate::unmap` uses it for `munmap` (and takes items back), `host` for closing memory files (and
//! leaves them), and `mlx5` for dropping the objects of a reset (and takes them back). A child
//! after fork has no such threads; the process does not wait for them when it ends.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// State of a queue.
#[derive(Debug)]
struct BackgroundState<T> {
    /// Items that no thread has taken yet, oldest first.
    waiting: VecDeque<T>,
    /// Threads that run.
    threads: usize,
}

/// A queue of work of one kind, and its threads.
pub struct Background<T> {
    state: Mutex<BackgroundState<T>>,
    /// Name of the threads.
    name: &'static str,
    /// Most threads at a time.
    threads_max: usize,
    /// Processes one item; may block. Must not panic: the thread would be counted for ever.
    process: fn(T),
}

impl<T> fmt::Debug for Background<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Background<T> {
    /// Returns a queue whose items at most `threads_max` threads of that name pass to `process`,
    /// which must not panic: its thread would still be counted, and later items could wait for
    /// ever.
    pub const fn new(name: &'static str, threads_max: usize, process: fn(T)) -> Self {
        let state = BackgroundState { waiting: VecDeque::new(), threads: 0 };
        Self { state: Mutex::new(state), name, threads_max, process }
    }

    fn state(&self) -> MutexGuard<'_, BackgroundState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an item and returns whether a thread will process it. Without a thread the item waits
    /// for the next call, or for [`Self::take_back`].
    pub fn hand_over(&'static self, item: T) -> bool {
        let mut state = self.state();
        state.waiting.push_back(item);
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

    /// Processes items until the queue is empty: the body of a thread.
    fn work(&self) {
        loop {
            let mut state = self.state();
            let Some(item) = state.waiting.pop_front() else {
                state.threads = state.threads.saturating_sub(1);
                return;
            };
            drop(state);
            (self.process)(item);
        }
    }
}
