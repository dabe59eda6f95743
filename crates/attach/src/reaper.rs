//! Closes descriptors that could take long to close.
//!
//! The last close of a file waits for its file system, which may be a frontend's own (FUSE), and
//! that of a TCP socket may linger. A frontend that hands such a descriptor over must not hold up
//! the thread that serves everyone: few threads of this module do the waiting, and end when
//! nothing waits. What they have not come to stays open, and counts among the descriptors that
//! this process may have.

use std::os::fd::{AsRawFd, OwnedFd};

use causeway_memory::Elsewhere;
use rustix::net::{AddressFamily, sockopt};

use crate::limits::REAPERS_MAX;

static CLOSE: Elsewhere<OwnedFd> = Elsewhere::new("causeway-reaper", REAPERS_MAX, drop);

/// Whether `fd` is of a kind that a frontend may hand over, all of which close at once: an
/// eventfd, a memory file, a Unix socket, a process. The file itself is not asked.
pub fn is_plain(fd: &OwnedFd) -> bool {
    use std::os::fd::AsFd;
    if causeway_memory::is_memory(fd.as_fd()) {
        return true;
    }
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let Ok(target) = rustix::fs::readlink(name, Vec::new()) else { return false };
    // Files have names that begin with a slash.
    match target.as_bytes() {
        b"anon_inode:[eventfd]" | b"anon_inode:[pidfd]" => true,
        name if name.starts_with(b"socket:[") => {
            sockopt::socket_domain(fd).is_ok_and(|domain| domain == AddressFamily::UNIX)
        }
        _ => false,
    }
}

/// Closes `fd`, later and elsewhere.
pub fn close(fd: OwnedFd) {
    // Without a thread it waits for the next one.
    CLOSE.hand_over(fd);
}
