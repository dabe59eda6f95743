//! The process of a causewayd, as the kernel reports it.
//!
//! A causewayd uses guest memory until its process ends, also after its connections to the holder
//! closed. The holder therefore keeps a pidfd of each causewayd, from the accept of its control
//! connection on ([`crate::holder`]), and each relay, in its thread, asks
//! [`DaemonProcess::has_ended`] before it answers for that causewayd ([`crate::route`]). The kernel
//! reports the end of a process after it has removed the mappings of its last thread. On a busy
//! host the main thread may read the end of a control connection late;
//! [`DaemonProcess::has_parted`] asks the kernel instead.
//!
//! The pidfd is that of the process that connected (`SO_PEERPIDFD`); kernels before Linux 6.5 give
//! the number of the process instead, which is looked up at once. If no pidfd can be had,
//! [`DaemonProcess::of_peer`] fails, and the holder refuses the causewayd. No call blocks or waits,
//! and nothing here sends signals.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use causeway_host::fd::peer_pidfd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};

/// The process of a causewayd.
#[derive(Debug, Clone)]
pub struct DaemonProcess {
    pidfd: Arc<OwnedFd>,
    /// The process's control connection, until the main thread closes this end.
    control: Weak<OwnedFd>,
}

impl DaemonProcess {
    /// Returns the process that connected to the other end of `socket`, its control connection.
    ///
    /// # Errors
    /// The process has ended, belongs to a PID namespace that this process does not see, or the
    /// kernel has no pidfd.
    pub fn of_peer(socket: &Arc<OwnedFd>) -> io::Result<Self> {
        let control = Arc::downgrade(socket);
        let socket = socket.as_fd();
        let found = match peer_pidfd::process(socket) {
            Err(error) if error.raw_os_error() == Some(Errno::NOPROTOOPT.raw_os_error()) => {
                let pid = rustix::net::sockopt::socket_peercred(socket)?.pid;
                pidfd_open(pid, PidfdFlags::empty())?
            }
            found => found?,
        };
        Ok(Self { pidfd: Arc::new(found), control })
    }

    /// Returns whether the process has ended: its memory is no longer mapped. An error of the
    /// kernel counts as a process that runs.
    pub fn has_ended(&self) -> bool {
        is_ready(self.pidfd.as_fd(), PollFlags::IN)
    }

    /// Returns whether the process has closed its control connection, or this end is closed.
    /// Requests of the process may be left to read.
    pub fn has_parted(&self) -> bool {
        // A hang-up is reported without being asked for.
        self.control.upgrade().is_none_or(|control| is_ready(control.as_fd(), PollFlags::empty()))
    }
}

/// Returns whether a descriptor has one of the events.
fn is_ready(fd: BorrowedFd<'_>, events: PollFlags) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(fd, events)], Some(&now)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn process_has_parted_when_either_end_of_its_control_connection_is_closed() {
        let pair = || {
            let kind = SocketType::SEQPACKET;
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
        };
        let (ours, theirs) = pair();
        let ours = Arc::new(ours);
        let process = DaemonProcess::of_peer(&ours).unwrap();
        assert!(!process.has_parted());
        rustix::io::write(&theirs, b"request").unwrap();
        assert!(!process.has_parted(), "a request is no end");
        drop(theirs);
        assert!(process.has_parted() && !process.has_ended());
        let (ours, _theirs) = pair();
        let ours = Arc::new(ours);
        let process = DaemonProcess::of_peer(&ours).unwrap();
        drop(ours);
        assert!(process.has_parted());
    }
}
