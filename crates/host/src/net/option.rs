//! Options of sockets, by setsockopt(2).
//!
//! [`super::socket`] and [`super::bpf`] set them, in the thread of their caller. The option is checked by
//! the kernel only.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Sets an option of sockets.
pub(crate) fn set_at<T: Copy>(
    level: libc::c_int,
    fd: BorrowedFd<'_>,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(libc::socklen_t::MAX);
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: `value` points to `len` readable bytes of a type without a destructor; memory that
    // these point to outlives the call, as each caller ensures.
    let done = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, len) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
