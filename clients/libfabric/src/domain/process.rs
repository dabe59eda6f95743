//! Initialisation of the process, and the handling of domains after `fork(2)`.
//!
//! A child process gets a copy of all memory and the same descriptors. It drops its copies of the
//! endpoints, so that peers do not confuse it with its parent; it may open domains itself.
//!
//! # Limits
//! Every operation on a parent's endpoint fails in the child with `FI_EINVAL`; its queues, counters
//! and regions stay allocated. The child may close all these objects, of which peers and the parent
//! notice nothing. The child's own domains are not affected. Only `fork(2)` through the C library
//! is seen: a process made by a bare `clone(2)` or `vfork(2)` must not use the library. A fork
//! waits for the locks of all domains, so it waits for running calls of other threads. The parent's
//! threads do not exist in the child.
//!
//! # Place
//! `shell::domain` calls [`begin`] and [`register`]; the C library calls the handlers.

use std::ffi::c_int;
use std::sync::{Arc, Once, Weak};

use causeway_endpoint::lock::Guarded;
use causeway_endpoint::{lock, nic};

use super::state::DomainShared;

unsafe extern "C" {
    fn pthread_atfork(
        before: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// All domains of this process.
static DOMAINS: Guarded<Vec<Weak<DomainShared>>> = Guarded::new(Vec::new());

/// Initialises the process before its first domain.
pub fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        lock::find_out();
        // SAFETY: the functions live as long as the process, because the library is never unloaded.
        // They take locks that the forking thread does not hold, because no code of the application
        // runs under these locks.
        unsafe { pthread_atfork(Some(before), Some(parent), Some(child)) };
    });
}

/// Registers a domain.
pub fn register(shared: &Arc<DomainShared>) {
    DOMAINS.with(|domains| {
        domains.retain(|known| known.strong_count() > 0);
        domains.push(Arc::downgrade(shared));
    });
}

/// Runs `run` with each domain of this process.
///
/// # Safety
/// The lock of [`DOMAINS`] is held by [`before`], of this process or its parent.
unsafe fn for_each_domain(run: impl Fn(&DomainShared)) {
    // SAFETY: guaranteed by the caller.
    let domains = unsafe { DOMAINS.unlocked() };
    domains.iter().filter_map(Weak::upgrade).for_each(|shared| run(&shared));
}

/// Takes all locks in the parent.
extern "C" fn before() {
    DOMAINS.lock_for_fork();
    // SAFETY: the lock was taken above.
    unsafe { for_each_domain(|shared| shared.state.lock_for_fork()) };
    nic::before_fork();
}

/// Releases the locks.
///
/// # Safety
/// [`before`] ran in this process or its parent, and no lock was released since.
unsafe fn after(then: impl Fn(&DomainShared)) {
    // SAFETY: `before` took all three locks, and each domain's lock is released once.
    unsafe {
        nic::after_fork();
        for_each_domain(|shared| {
            shared.state.unlock_after_fork();
            then(shared);
        });
        DOMAINS.unlock_after_fork();
    }
}

/// Releases all locks in the parent.
extern "C" fn parent() {
    // SAFETY: the C library calls this after `before`, in the same thread.
    unsafe { after(|_| {}) };
}

/// Releases all locks in the child, and drops the child's copies of the endpoints.
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
    // The kernel's registration for membarrier(2) is not inherited.
    causeway_channel::allow_fences();
}
