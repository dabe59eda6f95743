//! Buffers that the application passes to operations.
//!
//! `msg`, `tagged`, `rma` and `atomic` convert the pointers and lengths of their calls here. A call
//! has at most [`SEGMENTS_MAX`] (8) segments; an injected message has at most [`INJECT_MAX`] (4,096)
//! bytes. The memory itself is not checked: the application lends it, as libfabric requires.

use std::ffi::c_void;

use libc::iovec;

use crate::abi::{FI_EINVAL, FI_EMSGSIZE};
use crate::errno::Errno;
use crate::limits::{INJECT_MAX, SEGMENTS_MAX};
use crate::rdm::{AppSpan, Payload};

/// Returns the payload of a contiguous buffer.
///
/// # Safety
/// As for [`AppSpan::new`]: the caller lends the memory to the operation until that completes or,
/// if the interface allows it, until the call returns.
#[inline]
pub unsafe fn buffer(buf: *const c_void, len: usize) -> Payload {
    // SAFETY: guaranteed by the caller.
    Payload::One(unsafe { AppSpan::new(buf.cast_mut().cast(), len) })
}

/// Returns the payload of several segments.
///
/// # Errors
/// `FI_EINVAL` for too many segments, `FI_EMSGSIZE` if the sum of the lengths overflows.
///
/// # Safety
/// `iov` has `count` segments, and each is as for [`buffer`].
pub unsafe fn segments(iov: *const iovec, count: usize) -> Result<Payload, Errno> {
    if count > SEGMENTS_MAX || (iov.is_null() && count > 0) {
        return Err(Errno(FI_EINVAL));
    }
    let all = (0..count).map(|at| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let iovec { iov_base, iov_len } = iov.wrapping_add(at).read();
            AppSpan::new(iov_base.cast(), iov_len)
        }
    });
    Payload::of(all.collect()).ok_or(Errno(FI_EMSGSIZE))
}

/// Checks the length of an injected message.
///
/// # Errors
/// `FI_EMSGSIZE` above [`INJECT_MAX`] (4,096 bytes).
pub fn injectable(len: usize) -> Result<(), Errno> {
    if len > INJECT_MAX { Err(Errno(FI_EMSGSIZE)) } else { Ok(()) }
}
