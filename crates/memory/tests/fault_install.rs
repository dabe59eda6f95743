//! A fault of the application's own, in the moment in which this crate's handler is installed.
//!
//! The program's own `sigaction` stands before the C library's: it raises the signal as soon as the
//! handler is in place, before the crate goes on.
#![allow(unsafe_code, reason = "an application that handles and raises signals")]

mod common;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use causeway_memory::Mapping;
use common::unsealed;

/// Whether the next handler of SIGBUS is followed by a fault.
static RAISES: AtomicBool = AtomicBool::new(false);
static HANDLED: AtomicU32 = AtomicU32::new(0);

type Sigaction =
    unsafe extern "C" fn(libc::c_int, *const libc::sigaction, *mut libc::sigaction) -> libc::c_int;

/// Stands before the C library's function.
///
/// # Safety
/// As of sigaction(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(
    signal: libc::c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> libc::c_int {
    // SAFETY: the name ends with a zero.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"sigaction".as_ptr()) };
    assert!(!next.is_null());
    // SAFETY: the C library's function of that name has this type.
    let next = unsafe { std::mem::transmute::<*mut libc::c_void, Sigaction>(next) };
    // SAFETY: as the caller guarantees.
    let done = unsafe { next(signal, new, old) };
    if signal == libc::SIGBUS && !new.is_null() && RAISES.swap(false, Ordering::Relaxed) {
        // SAFETY: the signal has a handler.
        unsafe { libc::raise(libc::SIGBUS) };
    }
    done
}

extern "C" fn count(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn fault_of_the_application_reaches_its_handler_while_ours_is_installed() {
    // SAFETY: the handler has the signature of an action without SA_SIGINFO.
    unsafe { libc::signal(libc::SIGBUS, count as *const () as libc::sighandler_t) };
    RAISES.store(true, Ordering::Relaxed);
    let file = unsealed(4096);
    let mapping = Mapping::new(file.as_fd(), 0, 4096).unwrap();
    assert!(!RAISES.load(Ordering::Relaxed), "the handler was installed");
    assert_eq!(HANDLED.load(Ordering::Relaxed), 1);
    // Ours is still there: a shrink costs the mapping and not the process.
    rustix::fs::ftruncate(&file, 0).unwrap();
    drop(mapping);
    // SAFETY: the signal has a handler.
    unsafe { libc::raise(libc::SIGBUS) };
    assert_eq!(HANDLED.load(Ordering::Relaxed), 2);
}
