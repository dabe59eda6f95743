//! The wait objects of completion queues and counters in the C interface: their kinds, and the
//! descriptor for the application.
//!
//! The kinds `FI_WAIT_UNSPEC`, `FI_WAIT_FD` and `FI_WAIT_YIELD` have a descriptor, `FI_WAIT_NONE` has
//! none; other kinds are refused. `cq` and `cntr` call the functions in the application's thread;
//! `domain` sleeps on the object.

use std::ffi::{c_int, c_void};

use crate::abi::{
    FI_EINVAL, FI_ENODATA, FI_ENOSYS, FI_WAIT_FD, FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_YIELD,
};
use crate::domain::WaitFd;
use crate::errno::Errno;

/// Returns the wait object of this kind.
///
/// # Errors
/// `FI_ENOSYS` for an unsupported kind.
pub fn wait_fd_for(wait_obj: u32) -> Result<Option<WaitFd>, Errno> {
    match wait_obj {
        FI_WAIT_NONE => Ok(None),
        FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_YIELD => WaitFd::new().map(Some),
        _ => Err(Errno(FI_ENOSYS)),
    }
}

/// Writes the descriptor of a wait object, which the application polls.
///
/// # Errors
/// `FI_ENODATA` without a wait object, `FI_EINVAL` for NULL.
///
/// # Safety
/// `arg` is NULL or has room for an `int`.
pub unsafe fn get_wait(wait_fd: Option<&WaitFd>, arg: *mut c_void) -> Result<(), Errno> {
    let wait_fd = wait_fd.ok_or(Errno(FI_ENODATA))?;
    if arg.is_null() {
        return Err(Errno(FI_EINVAL));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { arg.cast::<c_int>().write(wait_fd.fd()) };
    Ok(())
}
