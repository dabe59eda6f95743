//! Fork support: endpoints stay with the parent process.
//!
//! A child has a copy of the memory and descriptors of its parent. It drops the endpoints, so that
//! their handles are invalid in the child, and so that peers notice the end of the parent while the
//! child lives. The child may open its own endpoints.
//!
//! [`watch`] is called by `mx_init`. A fork takes the locks of all endpoints and of the opening, so
//! it waits for running calls, also for an opening that waits for the daemon; threads that sleep in
//! a call do not delay it; handlers run without locks and do not delay it. A child of `vfork` or of
//! a raw `clone` has no support: it must not call the library before `exec`. The handlers of this
//! module send nothing to the daemon or to peers.

use std::ffi::c_int;
use std::sync::Once;

use causeway_endpoint::nic;

use crate::table;

unsafe extern "C" {
    fn pthread_atfork(
        before: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// Registers the fork handlers of this module.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions exist as long as the process, because the library is never
        // unloaded. The locks that they take are not held by the forking thread: no code of the
        // application runs while a lock is held.
        unsafe { pthread_atfork(Some(before), Some(parent), Some(child)) };
    });
}

extern "C" fn before() {
    table::take_all();
    nic::before_fork();
}

extern "C" fn parent() {
    // SAFETY: the C library calls this after `before`, in the same thread.
    unsafe {
        nic::after_fork();
        table::give_all();
    }
}

extern "C" fn child() {
    // SAFETY: the C library calls this after `before`, in the copy of its thread.
    unsafe {
        nic::after_fork();
        table::abandon_all();
    }
    // Children do not inherit the kernel's registration for `membarrier`.
    causeway_channel::allow_fences();
}
