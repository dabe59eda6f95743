//! What is done once in a process, and what becomes of domains in its children.
//!
//! A child gets a copy of all memory and the same descriptors. It drops what it got of the
//! endpoints, so that no partner takes it for its parent; it may open domains itself.

use std::ffi::c_int;
use std::sync::{Arc, Once, Weak};

use causeway_endpoint::lock::Guarded;
use causeway_endpoint::{board, lock};

use super::state::Shared;

unsafe extern "C" {
    fn pthread_atfork(
        before: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// All domains of this process.
static DOMAINS: Guarded<Vec<Weak<Shared>>> = Guarded::new(Vec::new());

/// Before the first domain.
pub fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        lock::find_out();
        // SAFETY: the functions are there as long as the process is (the library is never
        // unloaded), and take locks that the thread that has the child does not hold: nothing of
        // the application runs while one is held.
        unsafe { pthread_atfork(Some(before), Some(parent), Some(child)) };
    });
}

/// There is one more.
pub fn note(shared: &Arc<Shared>) {
    DOMAINS.with(|domains| {
        domains.retain(|known| known.strong_count() > 0);
        domains.push(Arc::downgrade(shared));
    });
}

/// Runs `run` with each domain of this process.
///
/// # Safety
/// The lock of [`DOMAINS`] is held by [`before`], of this process or its parent.
unsafe fn each(run: impl Fn(&Shared)) {
    // SAFETY: as the caller says.
    let domains = unsafe { DOMAINS.unlocked() };
    domains.iter().filter_map(Weak::upgrade).for_each(|shared| run(&shared));
}

extern "C" fn before() {
    DOMAINS.lock_for_fork();
    // SAFETY: the lock was taken above.
    unsafe { each(|shared| shared.state.lock_for_fork()) };
    board::before_fork();
}

/// Lets other threads go on.
///
/// # Safety
/// [`before`] ran, in this process or its parent, and nothing was let go since.
unsafe fn after(then: impl Fn(&Shared)) {
    // SAFETY: `before` took all three, and each domain's lock is let go once.
    unsafe {
        board::after_fork();
        each(|shared| {
            shared.state.unlock_after_fork();
            then(shared);
        });
        DOMAINS.unlock_after_fork();
    }
}

extern "C" fn parent() {
    // SAFETY: the C library calls this after `before`, in the same thread.
    unsafe { after(|_| {}) };
}

extern "C" fn child() {
    // SAFETY: the C library calls this after `before`, in the copy of its thread.
    unsafe {
        after(|shared| {
            shared.state.with(|state| {
                for ep in state.eps.iter_mut().filter_map(Option::take) {
                    ep.rdm.abandon();
                }
            });
        });
    }
    // The kernel's permission for fences is not inherited.
    causeway_channel::allow_fences();
}
