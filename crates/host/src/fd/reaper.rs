//! Closes descriptors in threads that serve one *owner* at a time, because a close may block. An
//! owner is a port, or a listening socket; its accounts are its own and those of its users
//! ([`Account::of_user`]).
//!
//! At most one thread at a time closes for an account, and at most [`REAPERS_PER_OWNER_MAX`] (4)
//! for the accounts of an owner. A close that blocks therefore delays closes of the same account,
//! and, when four accounts block, those of the same owner. Other owners wait only if all
//! [`REAPERS_MAX`] (2,048) threads of the process are blocked or the host refuses a thread: then
//! closes wait for the next thread that runs out of work.
//!
//! A TCP socket that lingers blocks its close for the time of its option, and a scan does not
//! always find a TCP socket that lies unread in a Unix socket. So each thread interrupts itself
//! every [`CLOSE_PATIENCE_NS`] (100 ms), which ends the wait of a lingering close (the kernel then
//! closes the connection in the background, as without the option). A FUSE server may block the
//! flush of its file without limit; nothing ends that wait but the server's answer or end. Further
//! closes of the account then collect in its queue. The queues refuse nothing: an account with more
//! than 128 closes is *behind* ([`crate::fd::account`]), and those who receive descriptors for it
//! then refuse its messages and connections.
//!
//! `crate::fd::deferred_close` queues the closes. Closes of one account run in order; closes of
//! different accounts in any order. The first thread installs a handler for SIGURG that does
//! nothing, as [`crate::watchdog`] does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use crate::fd::account::Account;
use crate::limits::{CLOSE_PATIENCE_NS, REAPER_STACK_BYTES, REAPERS_MAX, REAPERS_PER_OWNER_MAX};

/// A close that may block.
pub(crate) type PendingClose = Box<dyn FnOnce() + Send>;

/// Pending closes of an owner's accounts.
#[derive(Default)]
struct OwnerQueue {
    /// Closes that no thread has begun, oldest first.
    waiting: VecDeque<(Account, PendingClose)>,
    /// Accounts with a close in progress.
    serving: Vec<Account>,
    /// Threads that close for them.
    threads: usize,
}

impl OwnerQueue {
    /// Takes the oldest close of an account that no thread serves, or returns `None`.
    fn next(&mut self) -> Option<(Account, PendingClose)> {
        let at = self.waiting.iter().position(|(account, _)| !self.serving.contains(account))?;
        let (account, close) = self.waiting.remove(at)?;
        self.serving.push(account);
        Some((account, close))
    }

    /// Removes an account from those with a close in progress.
    fn done(&mut self, account: Account) {
        if let Some(at) = self.serving.iter().position(|served| *served == account) {
            self.serving.swap_remove(at);
        }
    }
}

/// All pending closes and threads of the process.
#[derive(Default)]
struct Reapers {
    /// By the number that the accounts of an owner share ([`causeway_memory::Owner::number`]).
    owners: BTreeMap<u64, OwnerQueue>,
    /// Threads of all owners.
    threads: usize,
}

/// The closes and threads of this process.
static STATE: Mutex<Reapers> = Mutex::new(Reapers { owners: BTreeMap::new(), threads: 0 });

fn state() -> MutexGuard<'static, Reapers> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Queues `close`, and starts a thread for its owner unless the account has one or a limit is
/// reached. If the host refuses a thread, the close waits for the next thread of any owner that
/// runs out of work.
pub(crate) fn hand_over(account: Account, close: PendingClose) {
    let mut state = state();
    let threads = state.threads;
    let number = account.owner().number();
    let owner = state.owners.entry(number).or_default();
    owner.waiting.push_back((account, close));
    let full = owner.threads >= REAPERS_PER_OWNER_MAX || threads >= REAPERS_MAX;
    if full || owner.serving.contains(&account) {
        return;
    }
    let thread = thread::Builder::new().name("causeway-reaper".into());
    if thread.stack_size(REAPER_STACK_BYTES).spawn(move || work(number)).is_ok() {
        owner.threads = owner.threads.saturating_add(1);
        state.threads = threads.saturating_add(1);
    }
}

/// Returns whether closes of this account wait for a thread. [`crate::fd::receive`] then shuts a
/// socket down before it queues the close, so that the peer does not wait for it.
pub(crate) fn is_held_up(account: Account) -> bool {
    let state = state();
    let owner = state.owners.get(&account.owner().number());
    owner.is_some_and(|owner| owner.waiting.iter().any(|(waiting, _)| *waiting == account))
}

/// The body of a thread: closes for the owner `first` until none of its closes can begin, then for
/// any owner that has closes and no thread.
fn work(first: u64) {
    let _interrupted = Interrupted::new();
    let mut number = first;
    loop {
        let next = state().next(&mut number);
        let Some((account, close)) = next else { return };
        close();
        if let Some(owner) = state().owners.get_mut(&number) {
            owner.done(account);
        }
    }
}

impl Reapers {
    /// Takes a close of the owner with this number for the calling thread; without one, takes a
    /// close of an owner that has no thread, and stores its number. Returns `None` if the thread
    /// must end; the thread is then no longer counted.
    fn next(&mut self, number: &mut u64) -> Option<(Account, PendingClose)> {
        if let Some(owner) = self.owners.get_mut(number) {
            if let Some(close) = owner.next() {
                return Some(close);
            }
            owner.threads = owner.threads.saturating_sub(1);
            if owner.waiting.is_empty() && owner.serving.is_empty() && owner.threads == 0 {
                self.owners.remove(number);
            }
        }
        let mut without = self.owners.iter_mut().filter(|(_, owner)| owner.threads == 0);
        let found = without.find_map(|(found, owner)| {
            let close = owner.next()?;
            owner.threads = 1;
            *number = *found;
            Some(close)
        });
        if found.is_none() {
            self.threads = self.threads.saturating_sub(1);
        }
        found
    }
}

/// Interrupts the calling thread every [`CLOSE_PATIENCE_NS`] (100 ms) until it is dropped.
struct Interrupted(Option<libc::timer_t>);

impl Interrupted {
    /// Starts the timer of the calling thread. Without a free timer the thread is not interrupted.
    fn new() -> Self {
        install_handler();
        // SAFETY: all-zero is a valid sigevent and a valid itimerspec; both live throughout the
        // calls, and the timer is the one that the first call created.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = SIGNAL;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = std::mem::zeroed();
            if libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) != 0 {
                return Self(None);
            }
            let mut every: libc::itimerspec = std::mem::zeroed();
            every.it_interval.tv_nsec = CLOSE_PATIENCE_NS;
            every.it_value = every.it_interval;
            libc::timer_settime(timer, 0, &raw const every, std::ptr::null_mut());
            Self(Some(timer))
        }
    }
}

impl Drop for Interrupted {
    fn drop(&mut self) {
        if let Some(timer) = self.0 {
            // SAFETY: the timer was made by `new` and is deleted once.
            unsafe { libc::timer_delete(timer) };
        }
    }
}

/// Ignored by a process that has no handler for it, so a stray signal does no harm.
const SIGNAL: libc::c_int = libc::SIGURG;

extern "C" fn ignore_signal(_: libc::c_int) {}

/// Gives the process a handler for the signal, once, and lets the signal through to this thread.
fn install_handler() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        // SAFETY: all-zero is a valid sigaction (empty mask, no flags: without SA_RESTART a system
        // call that the signal interrupts ends with EINTR); the handler touches nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore_signal as *const () as usize;
            libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut());
        }
    });
    // SAFETY: all-zero is a valid sigset_t, and `set` is live throughout.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, SIGNAL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}
