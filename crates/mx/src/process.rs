//! Descriptors of local processes, for peers that read large messages from their memory.
//!
//! A pidfd gives access beyond the liveness of a process. Two processes therefore get each other's
//! pidfds only if both run in the PID namespace of the daemon and belong to one user, so that each
//! could open the other's itself. [`open`] checks the namespace, and that the process has the user
//! `uid` that it had when it connected; before Linux 6.5 it takes the process that has the number
//! now. `mx::connects` compares the users of the two processes, and passes both pidfds with their
//! channel, or none.
//!
//! Without a pidfd of both, two processes have no direct reads: large messages go through the
//! channel, and everything else works. A failed system call or an unclear PID namespace counts as
//! no pidfd. This module opens pidfds; it reads no memory, sends no signals and does not watch the
//! process (its socket does). `mx::service` calls [`open`] once for each attachment that it admits,
//! in the dispatcher's thread: a process that attaches twice is examined twice. Processes in guests
//! have no pidfd.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

use causeway_host::fd::peer_pidfd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Returns a pidfd of the process with number `pid` that connected to `stream`, or `None` if other
/// processes must not get it.
pub fn open(stream: BorrowedFd<'_>, pid: Pid, uid: u32) -> Option<OwnedFd> {
    let process = match peer_pidfd::process(stream) {
        Ok(process) => process,
        // The kernel is too old for `SO_PEERPIDFD`: the process that has the number now.
        Err(error) if error.raw_os_error() == Some(Errno::NOPROTOOPT.raw_os_error()) => {
            pidfd_open(pid, PidfdFlags::empty()).ok()?
        }
        Err(_) => return None,
    };
    seen_here(process, uid)
}

/// Returns `process` if its only number is that in the namespace of the daemon, and if it belongs
/// to the user.
fn seen_here(process: OwnedFd, uid: u32) -> Option<OwnedFd> {
    let info = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
    let pid = pid_seen_here(&std::fs::read_to_string(info).ok()?)?;
    // The number may have been reused meanwhile, but only for a process of the same user.
    let of = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    (of == uid).then_some(process)
}

/// Returns the number of a process from its `fdinfo`, if it has only one: then the process is alive
/// and in the namespace of the daemon.
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
    fn pidfds_of_other_namespaces_and_users_are_withheld() {
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
