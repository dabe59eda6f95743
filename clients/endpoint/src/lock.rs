//! A lock of one word, and one to wait for what another thread does.
//!
//! In a process with one thread it is taken and let go by plain stores: the C library says so
//! (`__libc_single_threaded`) and is asked again each time. Nothing of the application runs while
//! a lock is held, so no thread can begin meanwhile.

pub mod steps;

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering, compiler_fence};
use std::time::Duration;

use causeway_channel::{allow_fences, far_fence};
use rustix::thread::futex;
use rustix::time::Timespec;

use steps::{FREE, HELD, Word};

/// How often it is looked before a thread sleeps until a lock is free.
const LOOKS: u32 = 100;
/// How long whoever waits for a claim, or claims, sleeps between looks.
const CLAIM_LOOK: Duration = Duration::from_micros(20);

/// Not known: as if there were others.
static MANY: AtomicU8 = AtomicU8::new(0);
static ALONE: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const MANY).cast_mut());

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Asks the C library where it says whether there is one thread only. Those before 2.32 do not.
pub fn find_out() {
    const NAME: &CStr = c"__libc_single_threaded";
    // SAFETY: the name ends with a zero; null is the default handle.
    let found = unsafe { dlsym(std::ptr::null_mut(), NAME.as_ptr()) };
    if !found.is_null() {
        ALONE.store(found.cast(), Ordering::Release);
    }
}

/// Whether there is no other thread.
#[inline]
fn alone() -> bool {
    // SAFETY: it points to `MANY` or to the C library's byte; both are there as long as we are,
    // and are only read here.
    unsafe { (*ALONE.load(Ordering::Relaxed)).load(Ordering::Relaxed) != 0 }
}

impl Word for AtomicU32 {
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
        // It was seen that the kernel can, when the lock was made such.
        let _ = far_fence();
    }
}

/// See above.
#[derive(Debug, Default)]
pub struct Lock {
    word: AtomicU32,
    /// Calls of [`Self::take`] never overlap: only claimants take it beside them.
    serial: AtomicBool,
    /// A claimant has the lock, or waits for it.
    claim: AtomicU32,
    /// The lock of claimants among themselves.
    queue: AtomicU32,
}

impl Lock {
    /// Returns a lock that is free.
    pub const fn new() -> Self {
        let [word, claim, queue] = [const { AtomicU32::new(FREE) }; 3];
        Self { word, serial: AtomicBool::new(false), claim, queue }
    }

    /// Makes [`Self::take`] and [`Self::give`] plain stores, where the kernel makes the fences of
    /// those who [`Self::claim`] the lock.
    ///
    /// # Safety
    /// No thread has the lock. From now on a call of [`Self::take`] or [`Self::try_take`] happens
    /// after every [`Self::give`] before it; threads that overlap with others use [`Self::claim`].
    pub unsafe fn set_serial(&self) {
        self.serial.store(allow_fences() && far_fence(), Ordering::Relaxed);
    }

    /// Whether calls never overlap.
    #[inline]
    fn is_serial(&self) -> bool {
        self.serial.load(Ordering::Relaxed)
    }

    /// Takes it if it is free.
    #[inline]
    pub fn try_take(&self) -> bool {
        if self.is_serial() {
            return steps::try_take_alone(&self.word, &self.claim);
        }
        if alone() {
            let free = self.word.load(Ordering::Relaxed) == FREE;
            if free {
                self.word.store(HELD, Ordering::Relaxed);
            }
            return free;
        }
        steps::try_take(&self.word)
    }

    /// Takes it.
    #[inline]
    pub fn take(&self) {
        if !self.try_take() {
            self.await_it();
        }
    }

    #[cold]
    fn await_it(&self) {
        if !self.is_serial() {
            return steps::take(&self.word, LOOKS);
        }
        while !self.try_take() {
            std::thread::sleep(CLAIM_LOOK);
        }
    }

    /// Takes the lock for a thread whose calls overlap with others': one that has a child, or one of
    /// this library.
    pub fn claim(&self) {
        if self.is_serial() {
            let rest = || std::thread::sleep(CLAIM_LOOK);
            steps::claim(&self.word, &self.claim, &self.queue, rest);
        } else {
            self.take();
        }
    }

    /// Lets go what was claimed. Only for the claimant.
    pub fn end_claim(&self) {
        if self.is_serial() {
            steps::end_claim(&self.claim, &self.queue);
        } else {
            self.give();
        }
    }

    /// Lets it go. Only for who has it.
    #[inline]
    pub fn give(&self) {
        if self.is_serial() || alone() {
            self.word.store(FREE, Ordering::Release);
        } else {
            steps::give(&self.word);
        }
    }
}

/// Where threads sleep until another calls them.
#[derive(Debug, Default)]
pub struct Room {
    calls: AtomicU32,
}

impl Room {
    /// Nobody sleeps in it.
    pub const fn new() -> Self {
        Self { calls: AtomicU32::new(0) }
    }

    /// How often was called: looked at while what is waited for cannot happen.
    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Sleeps until the next call after `calls`, at most so long.
    pub fn sleep(&self, calls: u32, time: Duration) {
        Word::sleep(&self.calls, calls, Some(time));
    }

    /// Wakes `count` of those who sleep.
    #[cold]
    pub fn call(&self, count: u32) {
        steps::call(&self.calls, count);
    }
}

/// A value behind a lock. No safe call gives out the lock, so that one thread at a time has the
/// value whatever its users do:
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

// SAFETY: a reference to the value is made only under the lock, which no safe call lets go early.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// Returns a value whose lock is free.
    pub const fn new(value: T) -> Self {
        Self { lock: Lock::new(), value: UnsafeCell::new(value) }
    }

    /// Runs `run` with the value, under the lock. `run` must not come back here: it would wait for
    /// ever.
    #[inline]
    pub fn with<R>(&self, run: impl FnOnce(&mut T) -> R) -> R {
        self.lock.take();
        // SAFETY: the lock is ours until `give`.
        let value = run(unsafe { &mut *self.value.get() });
        self.lock.give();
        value
    }

    /// Runs `run` with the value, as [`Self::with`], in a thread whose calls overlap with those of
    /// the application ([`Lock::claim`]).
    pub fn claimed<R>(&self, run: impl FnOnce(&mut T) -> R) -> R {
        self.lock.claim();
        // SAFETY: the lock is ours until `end_claim`.
        let value = run(unsafe { &mut *self.value.get() });
        self.lock.end_claim();
        value
    }

    /// Makes the lock serial ([`Lock::set_serial`]).
    ///
    /// # Safety
    /// No thread has the lock. From now on calls of [`Self::with`] never overlap, and each sees what
    /// those before it did; threads that overlap with others use [`Self::claimed`].
    pub unsafe fn set_serial(&self) {
        // SAFETY: as the caller says.
        unsafe { self.lock.set_serial() };
    }

    /// Keeps other threads out while this process has a child, so that the child gets a whole
    /// value. [`Self::unlock_after_fork`] comes after it, in both processes.
    pub fn lock_for_fork(&self) {
        self.lock.claim();
    }

    /// Lets other threads in again.
    ///
    /// # Safety
    /// The calling thread, or that which had this process, called [`Self::lock_for_fork`]; no
    /// reference of [`Self::unlocked`] is used any more.
    pub unsafe fn unlock_after_fork(&self) {
        self.lock.end_claim();
    }

    /// Returns the value, between [`Self::lock_for_fork`] and [`Self::unlock_after_fork`].
    ///
    /// # Safety
    /// The calling thread, or that which had this process, called [`Self::lock_for_fork`].
    pub unsafe fn unlocked(&self) -> &T {
        // SAFETY: as the caller says, the lock is held, so that no other reference is made.
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
