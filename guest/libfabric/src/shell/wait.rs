//! Sleeping on queues and counters.

use std::ffi::c_int;

use crate::abi::{FI_CLASS_EQ, FI_EINVAL, FI_ENOSYS, Fid};
use crate::eq;

/// Whether nothing is to be read of it: 0, or `-FI_EAGAIN` if there is.
///
/// # Safety
/// It is NULL, or an object of ours that is open.
pub unsafe fn may_sleep(fid: *const Fid) -> c_int {
    if fid.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: as the caller says.
    match unsafe { (*fid).fclass } {
        // SAFETY: an object of this class is one of `eq`.
        FI_CLASS_EQ => unsafe { eq::may_sleep(fid) },
        _ => -FI_ENOSYS,
    }
}
