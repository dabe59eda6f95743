//! Interrupts a thread that a frontend blocks in a notification.
//!
//! The flags of an eventfd belong to all its holders: a frontend can clear O_NONBLOCK after this
//! process set it and fill the counter, so that a write blocks without limit. A thread that serves
//! many guests therefore holds a [`Watchdog`]. The thread marks when it enters and leaves a
//! notification; a second thread that finds it twice in the same notification interrupts the write
//! with a signal. The write ends with EINTR, which identifies the blocking frontend: a write that
//! does not block is never interrupted. The caller decides the consequence for the frontend.
//!
//! The marks cost two stores per notification. The second thread checks every [`WATCH_BUSY_MS`] (10
//! ms), or every [`WATCH_IDLE_MS`] (100 ms) while no notification is sent; so a write is
//! interrupted after 10 to 110 ms, and again every 10 ms while it blocks.
//!
//! Each dispatcher creates a watchdog; `ring::doorbell` marks its writes by [`marked`]. Only marked
//! calls are watched: a thread that blocks in any other call is not interrupted. A call of a thread
//! without a watchdog is not watched, and may block. A thread has one watchdog: a second takes the
//! marks of the first. The handler of SIGURG does nothing; `fd::reaper` installs an equal one, and
//! no other code of the process may use the signal.

use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::limits::{WATCH_BUSY_MS, WATCH_IDLE_MS};

/// A process ignores this signal by default, so a stray signal does no harm.
const SIGNAL: libc::c_int = libc::SIGURG;

/// Counts entries into and exits from notifications: odd while inside a notification.
type Mark = Arc<AtomicU64>;

thread_local! {
    static MARK: RefCell<Option<Mark>> = const { RefCell::new(None) };
}

/// Counts an entry into or an exit from a notification of this thread.
fn toggle_mark() {
    let _ = MARK.try_with(|mark| {
        if let Ok(mark) = mark.try_borrow()
            && let Some(mark) = mark.as_ref()
        {
            // Only this thread writes it.
            mark.store(mark.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        }
    });
}

/// Runs `call`, which may block, under the watch of the calling thread's [`Watchdog`], if there is
/// one.
#[inline]
pub fn marked<T>(call: impl FnOnce() -> T) -> T {
    toggle_mark();
    let result = call();
    toggle_mark();
    result
}

/// Watches the thread that created it until it is dropped: no notification of that thread blocks
/// for much longer than [`WATCH_IDLE_MS`] and [`WATCH_BUSY_MS`] together (110 ms).
///
/// The first watchdog installs a handler for SIGURG in the process. The drop ends the second thread
/// and waits for it.
#[derive(Debug)]
pub struct Watchdog {
    /// Set to end the second thread.
    stop: Arc<AtomicBool>,
    /// The second thread.
    watcher: Option<JoinHandle<()>>,
    /// Not `Send`: it refers to the calling thread.
    _here: PhantomData<*const ()>,
}

impl Watchdog {
    /// Starts to watch the calling thread.
    ///
    /// # Errors
    /// The host refuses the signal handler or a thread.
    pub fn new() -> io::Result<Self> {
        install_handler()?;
        let mark = Mark::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (watcher_mark, watcher_stop) = (mark.clone(), stop.clone());
        // SAFETY: has no preconditions.
        let watched = unsafe { libc::gettid() };
        let watcher = thread::Builder::new()
            .name("causeway-rescue".into())
            .spawn(move || watch(&watcher_mark, &watcher_stop, watched))?;
        MARK.set(Some(mark));
        Ok(Self { stop, watcher: Some(watcher), _here: PhantomData })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _ = MARK.try_with(|mark| mark.take());
        self.stop.store(true, Ordering::Release);
        if let Some(watcher) = self.watcher.take() {
            watcher.thread().unpark();
            let _ = watcher.join();
        }
    }
}

/// The body of the second thread: interrupts `watched` while it stays in one notification.
fn watch(mark: &AtomicU64, stop: &AtomicBool, watched: libc::pid_t) {
    let mut before = mark.load(Ordering::Acquire);
    let mut pause = WATCH_IDLE_MS;
    loop {
        thread::park_timeout(Duration::from_millis(pause));
        if stop.load(Ordering::Acquire) {
            return;
        }
        let now = mark.load(Ordering::Acquire);
        let inside = now & 1 == 1;
        if inside && now == before {
            // If the signal arrives before the write blocks, the next check sends another.
            interrupt(watched);
        }
        pause = if inside || now != before { WATCH_BUSY_MS } else { WATCH_IDLE_MS };
        before = now;
    }
}

/// Sends the signal to a thread of this process.
fn interrupt(thread: libc::pid_t) {
    // SAFETY: plain numbers; the signal has a handler that does nothing, and goes to a thread of
    // this process only, or nowhere if that has ended.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, SIGNAL) };
}

extern "C" fn ignore_signal(_: libc::c_int) {}

/// Installs the handler once per process, and unblocks the signal in the calling thread.
fn install_handler() -> io::Result<()> {
    static DONE: OnceLock<Option<i32>> = OnceLock::new();
    let failed = *DONE.get_or_init(|| {
        // SAFETY: an all-zero sigaction is a valid value (empty mask, no flags). Without
        // SA_RESTART, a system call that the signal interrupts ends with EINTR.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = ignore_signal as *const () as usize;
        // SAFETY: `action` is live and its handler, which touches nothing, fits its flags.
        let done = unsafe { libc::sigaction(SIGNAL, &action, std::ptr::null_mut()) };
        (done != 0).then(|| io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
    });
    if let Some(errno) = failed {
        return Err(io::Error::from_raw_os_error(errno));
    }
    // SAFETY: all-zero is a valid sigset_t, and `set` is live throughout.
    let errno = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, SIGNAL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut())
    };
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}
