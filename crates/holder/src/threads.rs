//! What the threads of the holder share: signals to the main thread, mutexes, and times of their waits.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Signals an eventfd. The write fails only if the counter is full, which is a signal as well.
pub(crate) fn signal(wakeup: &OwnedFd) {
    let _ = rustix::io::write(wakeup, &1_u64.to_ne_bytes());
}

/// Returns the time until `at`; zero once it is past.
pub(crate) fn until(at: Instant) -> Duration {
    at.saturating_duration_since(Instant::now())
}

/// Locks a mutex, also after a panic of another holder of the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
