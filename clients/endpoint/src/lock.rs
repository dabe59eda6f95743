//! A lock of one word, and a [`Room`] where threads wait for another thread's event.
//!
//! In a process with one thread, the lock uses plain stores: the C library reports this state
//! (`__libc_single_threaded`), and each call reads it again. No code of the application runs under
//! the lock, so no thread can start meanwhile. A *serial* lock ([`Lock::set_serial`]) uses plain
//! stores in a process with several threads, whose calls never overlap. Every other lock is a
//! futex: 100 polls, then a sleep. A *claimant* is a thread that may overlap with the serial calls
//! of others: it takes the lock by [`Lock::claim`], polling every 20 us; a serial call that meets a
//! claimant polls likewise.
//!
//! # Limits
//! The lock is not reentrant: a nested call of the same thread waits forever. Waiters for a lock
//! have no order and no time limit; a sleep in a [`Room`] has a limit, may end early, and needs
//! another check of its event. There is no poisoning: a panic under the lock leaves it held. The
//! lock works within one process, not in memory that processes share.
//!
//! # Place
//! [`Guarded`] protects the domains of the libfabric provider, their list, and the cache of
//! [`crate::nic`]. `libmyriexpress.so` has a [`Lock`] and a [`Room`] for each endpoint, and a
//! [`Lock`] for opening endpoints. [`steps`] holds the memory orders, which a model checker tests.

pub mod steps;

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering, compiler_fence};
use std::time::Duration;

use causeway_channel::{allow_fences, far_fence};
use rustix::thread::futex;
use rustix::time::Timespec;

use steps::{FREE, FutexWord, HELD};

/// Polls before a thread sleeps for a lock.
const POLLS_BEFORE_SLEEP: u32 = 100;
/// Pause between polls of a claimant, and of a thread that waits for a claimant.
const CLAIM_PAUSE: Duration = Duration::from_micros(20);

/// Default without the C library's variable: several threads.
static SEVERAL_THREADS: AtomicU8 = AtomicU8::new(0);
/// The C library's byte, not 0 while the process has one thread; [`SEVERAL_THREADS`] until
/// [`find_out`] finds it.
static SINGLE_THREAD_FLAG: AtomicPtr<AtomicU8> =
    AtomicPtr::new((&raw const SEVERAL_THREADS).cast_mut());

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Finds the C library's variable for a process with one thread. Versions before 2.32 have none:
/// then, and before this call, a process counts as one with several threads. `mx_init` and the
/// first `fi_domain` call it.
pub fn find_out() {
    const NAME: &CStr = c"__libc_single_threaded";
    // SAFETY: the name ends with a zero; null is the default handle.
    let found = unsafe { dlsym(std::ptr::null_mut(), NAME.as_ptr()) };
    if !found.is_null() {
        SINGLE_THREAD_FLAG.store(found.cast(), Ordering::Release);
    }
}

/// Returns whether the process has one thread only.
#[inline]
fn is_single_threaded() -> bool {
    // SAFETY: it points to `SEVERAL_THREADS` or to the C library's byte; both outlive this code
    // and are only read here.
    unsafe { (*SINGLE_THREAD_FLAG.load(Ordering::Relaxed)).load(Ordering::Relaxed) != 0 }
}

impl FutexWord for AtomicU32 {
    #[inline]
    fn load(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }
    #[inline]
    fn acquire(&self) -> u32 {
        self.load(Ordering::Acquire)
    }
    #[inline]
    fn release(&self, value: u32) {
        self.store(value, Ordering::Release);
    }
    #[inline]
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.swap(value, order)
    }
    #[inline]
    fn exchange(&self, from: u32, to: u32) -> bool {
        self.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
    #[inline]
    fn increment(&self) {
        self.fetch_add(1, Ordering::Relaxed);
    }
    fn sleep(&self, value: u32, time: Option<Duration>) {
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let _ = futex::wait(self, futex::Flags::PRIVATE, value, time.as_ref());
    }
    #[cold]
    fn wake(&self, count: u32) {
        let _ = futex::wake(self, futex::Flags::PRIVATE, count);
    }
    #[inline]
    fn near_fence() {
        compiler_fence(Ordering::SeqCst);
    }
    fn far_fence() {
        // `set_serial` checked that the kernel supports it.
        let _ = far_fence();
    }
}

/// The lock.
#[derive(Debug, Default)]
pub struct Lock {
    /// [`FREE`], [`HELD`], or held with waiters.
    word: AtomicU32,
    /// Calls of [`Self::take`] never overlap; only claimants compete with them.
    serial: AtomicBool,
    /// A claimant holds the lock or waits for it.
    claim: AtomicU32,
    /// Lock among claimants.
    queue: AtomicU32,
}

impl Lock {
    /// Returns a free lock.
    pub const fn new() -> Self {
        let [word, claim, queue] = [const { AtomicU32::new(FREE) }; 3];
        Self { word, serial: AtomicBool::new(false), claim, queue }
    }

    /// Makes [`Self::take`] and [`Self::give`] plain stores if the kernel supports the fences of
    /// [`Self::claim`].
    ///
    /// # Safety
    /// No thread holds the lock. From now on each [`Self::take`] or [`Self::try_take`] happens
    /// after every earlier [`Self::give`]; a thread that may overlap uses [`Self::claim`].
    pub unsafe fn set_serial(&self) {
        self.serial.store(allow_fences() && far_fence(), Ordering::Relaxed);
    }

    /// Returns whether calls never overlap.
    #[inline]
    fn is_serial(&self) -> bool {
        self.serial.load(Ordering::Relaxed)
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_take(&self) -> bool {
        if self.is_serial() {
            return steps::try_take_alone(&self.word, &self.claim);
        }
        if is_single_threaded() {
            let free = self.word.load(Ordering::Relaxed) == FREE;
            if free {
                self.word.store(HELD, Ordering::Relaxed);
            }
            return free;
        }
        steps::try_take(&self.word)
    }

    /// Takes the lock; waits until it is free.
    #[inline]
    pub fn take(&self) {
        if !self.try_take() {
            self.wait();
        }
    }

    /// Waits for a lock that [`Self::try_take`] found held.
    #[cold]
    fn wait(&self) {
        if !self.is_serial() {
            return steps::take(&self.word, POLLS_BEFORE_SLEEP);
        }
        while !self.try_take() {
            std::thread::sleep(CLAIM_PAUSE);
        }
    }

    /// Takes the lock in a thread whose calls may overlap with others: before a fork, or in a
    /// thread of this library.
    pub fn claim(&self) {
        if self.is_serial() {
            let rest = || std::thread::sleep(CLAIM_PAUSE);
            steps::claim(&self.word, &self.claim, &self.queue, rest);
        } else {
            self.take();
        }
    }

    /// Releases a claimed lock. Only the claimant may call it.
    pub fn end_claim(&self) {
        if self.is_serial() {
            steps::end_claim(&self.claim, &self.queue);
        } else {
            self.give();
        }
    }

    /// Releases the lock. Only its holder may call it.
    #[inline]
    pub fn give(&self) {
        if self.is_serial() || is_single_threaded() {
            self.word.store(FREE, Ordering::Release);
        } else {
            steps::give(&self.word);
        }
    }
}

/// Place where threads sleep until another thread wakes them.
#[derive(Debug, Default)]
pub struct Room {
    /// Number of calls so far, on which the threads sleep.
    calls: AtomicU32,
}

impl Room {
    /// Returns a room without sleepers.
    pub const fn new() -> Self {
        Self { calls: AtomicU32::new(0) }
    }

    /// Returns the number of calls so far; read it while the awaited event cannot happen.
    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Sleeps until the next call after `calls`, at most `time`.
    pub fn sleep(&self, calls: u32, time: Duration) {
        FutexWord::sleep(&self.calls, calls, Some(time));
    }

    /// Wakes `count` sleepers.
    #[cold]
    pub fn call(&self, count: u32) {
        steps::call(&self.calls, count);
    }
}

/// A value behind a lock. Safe calls never hand out the lock, so one thread at a time has the
/// value:
///
/// ```compile_fail,E0133
/// let value = causeway_endpoint::lock::Guarded::new(0);
/// value.with(|first| {
///     value.unlock_after_fork();
///     value.with(|second| std::mem::swap(first, second));
/// });
/// ```
///
/// ```compile_fail,E0133
/// // Two threads that take a serial lock would both have the value.
/// causeway_endpoint::lock::Guarded::new(0).set_serial();
/// ```
#[derive(Debug)]
pub struct Guarded<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: references to the value exist only under the lock, which no safe call releases early.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// Returns a value with a free lock.
    pub const fn new(value: T) -> Self {
        Self { lock: Lock::new(), value: UnsafeCell::new(value) }
    }

    /// Runs `run` with the value under the lock. A nested call would wait forever.
    #[inline]
    pub fn with<R>(&self, run: impl FnOnce(&mut T) -> R) -> R {
        self.lock.take();
        // SAFETY: this thread holds the lock until `give`.
        let value = run(unsafe { &mut *self.value.get() });
        self.lock.give();
        value
    }

    /// Runs `run` with the value, as [`Self::with`] does, in a thread that may overlap with the
    /// application's ([`Lock::claim`]).
    pub fn claimed<R>(&self, run: impl FnOnce(&mut T) -> R) -> R {
        self.lock.claim();
        // SAFETY: this thread holds the lock until `end_claim`.
        let value = run(unsafe { &mut *self.value.get() });
        self.lock.end_claim();
        value
    }

    /// Makes the lock serial ([`Lock::set_serial`]).
    ///
    /// # Safety
    /// No thread holds the lock. From now on calls of [`Self::with`] never overlap, and each
    /// happens after the earlier ones; a thread that may overlap uses [`Self::claimed`].
    pub unsafe fn set_serial(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.lock.set_serial() };
    }

    /// Takes the lock before a fork, so that the child gets a consistent value.
    /// [`Self::unlock_after_fork`] follows in both processes.
    pub fn lock_for_fork(&self) {
        self.lock.claim();
    }

    /// Releases the lock after a fork.
    ///
    /// # Safety
    /// The calling thread, or its origin in the parent, called [`Self::lock_for_fork`]; no
    /// reference of [`Self::unlocked`] is in use.
    pub unsafe fn unlock_after_fork(&self) {
        self.lock.end_claim();
    }

    /// Returns the value between [`Self::lock_for_fork`] and [`Self::unlock_after_fork`].
    ///
    /// # Safety
    /// The calling thread, or its origin in the parent, called [`Self::lock_for_fork`].
    pub unsafe fn unlocked(&self) -> &T {
        // SAFETY: the caller holds the lock, so no other reference is made.
        unsafe { &*self.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use super::Lock;

    #[test]
    fn lock_serial_is_held_by_its_owner_or_a_claimant() {
        let lock = Lock::new();
        // SAFETY: the lock is free, and one thread alone takes it.
        unsafe { lock.set_serial() };
        let (inside, stop) = (AtomicU32::new(0), AtomicBool::new(false));
        let enter = || {
            assert_eq!(inside.swap(1, Ordering::Relaxed), 0, "two are in it");
            std::hint::spin_loop();
            inside.store(0, Ordering::Relaxed);
        };
        std::thread::scope(|scope| {
            let owner = scope.spawn(|| {
                let mut taken = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    lock.take();
                    enter();
                    lock.give();
                    taken += 1;
                }
                taken
            });
            let since = Instant::now();
            for claims in 0_u32.. {
                if since.elapsed() > Duration::from_millis(500) && claims > 100 {
                    break;
                }
                lock.claim();
                enter();
                lock.end_claim();
                if claims % 16 == 0 {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
            stop.store(true, Ordering::Relaxed);
            assert!(owner.join().unwrap() > 100);
        });
    }
}
