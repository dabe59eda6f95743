//! Processes of this host, vouched for to others that may read large messages out of their memory.
//!
//! Whoever has a descriptor of a process ([`pidfd_open`]) can ask the kernel for more than to look
//! whether it lives. So it is given only to processes of the same user, and where everybody could
//! open it: to those that see the same processes as we do.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

use causeway_host::fd::peer_pidfd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The process that connected to `stream`, by `pid`; none where others cannot be told of it.
pub fn open(stream: BorrowedFd<'_>, pid: Pid, uid: u32) -> Option<OwnedFd> {
    let process = match peer_pidfd::process(stream) {
        Ok(process) => process,
        // A kernel that does not tell: whoever has the number now.
        Err(error) if error.raw_os_error() == Some(Errno::NOPROTOOPT.raw_os_error()) => {
            pidfd_open(pid, PidfdFlags::empty()).ok()?
        }
        Err(_) => return None,
    };
    seen_here(process, uid)
}

/// `process`, if it has no number but the one that it has for us, and is this user's.
fn seen_here(process: OwnedFd, uid: u32) -> Option<OwnedFd> {
    let info = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
    let pid = pid_seen_here(&std::fs::read_to_string(info).ok()?)?;
    // It may have ended, and another may have its number; not one of another user's, though.
    let of = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    (of == uid).then_some(process)
}

/// The number of a process, if it has none but that which it has for us: then it is in no namespace
/// below ours, nor gone, nor out of our sight.
fn pid_seen_here(info: &str) -> Option<u32> {
    let mut seen = info.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace();
    let pid = seen.next()?.parse().ok()?;
    (pid > 0 && seen.next().is_none()).then_some(pid)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn processes_of_other_namespaces_and_users_are_not_vouched_for() {
        assert_eq!(pid_seen_here("pos:\t0\nPid:\t77\nNSpid:\t77\n"), Some(77));
        for info in ["NSpid:\t77\t1\n", "NSpid:\t0\n", "NSpid:\t-1\n", "NSpid:\n", "Pid:\t77\n", ""]
        {
            assert_eq!(pid_seen_here(info), None, "{info:?}");
        }
        let (own, uid) = (rustix::process::getpid(), rustix::process::geteuid().as_raw());
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(open(near.as_fd(), own, uid).is_some());
        assert!(open(near.as_fd(), own, uid.wrapping_add(1)).is_none());
    }
}
