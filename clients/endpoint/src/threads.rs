//! Threads that a library starts in a process of an application: that of `staging::watch`, and the
//! connect thread and the progress thread of the libfabric provider.

/// Calls `begin` with all signals blocked, so that a thread that `begin` starts inherits the mask:
/// signal handlers belong to the application and run in its threads. The mask of the calling thread
/// is restored afterwards.
pub fn spawn_unsignalled<R>(begin: impl FnOnce() -> R) -> R {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call initialises the set that the second reads; the second initialises the
    // set that the third reads.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let begun = begin();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        begun
    }
}
