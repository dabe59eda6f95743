//! A process has a child: the endpoints stay its own.
//!
//! The child gets a copy of all memory and the same descriptors. It drops what it got of the
//! endpoints: their handles are none of its, and that it lives keeps no partner from hearing that
//! its parent died. It may open endpoints itself.

use std::ffi::c_int;
use std::sync::Once;

use causeway_endpoint::board;

use crate::table;

unsafe extern "C" {
    fn pthread_atfork(
        before: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// From now on children are told from their parents.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions are there as long as the process is (the library is never
        // unloaded), and take locks that the thread that has the child does not hold: nothing of
        // the application runs while one is held.
        unsafe { pthread_atfork(Some(before), Some(parent), Some(child)) };
    });
}

extern "C" fn before() {
    table::take_all();
    board::before_fork();
}

extern "C" fn parent() {
    // SAFETY: the C library calls this after `before`, in the same thread.
    unsafe {
        board::after_fork();
        table::give_all();
    }
}

extern "C" fn child() {
    // SAFETY: the C library calls this after `before`, in the copy of its thread.
    unsafe {
        board::after_fork();
        table::abandon_all();
    }
    // The kernel's permission for fences is not inherited.
    causeway_channel::allow_fences();
}
