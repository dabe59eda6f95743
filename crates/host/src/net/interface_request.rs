//! Requests about network interfaces by name: ioctl(2) with an `ifreq` (Linux netdevice(7)).
//!
//! `tap` and `ip_address` make them when they open an interface, in the caller's thread; the kernel takes
//! its lock of network interfaces. A name has at most 15 bytes; further bytes are ignored.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Returns a request about an interface.
pub(super) fn request_for(name: &str) -> libc::ifreq {
    // SAFETY: an all-zero request is valid: an empty name and numbers.
    let mut request: libc::ifreq = unsafe { zeroed() };
    // The last byte stays zero and ends the name.
    let room = request.ifr_name.iter_mut().take(libc::IFNAMSIZ.saturating_sub(1));
    for (to, from) in room.zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// Makes a request that the kernel may overwrite with an answer.
pub(super) fn ioctl(
    fd: BorrowedFd<'_>,
    code: libc::Ioctl,
    request: &mut libc::ifreq,
) -> io::Result<()> {
    // SAFETY: the codes of this module read and write one `ifreq`.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), code, std::ptr::from_mut(request)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
