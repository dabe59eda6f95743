//! The process of a causewayd, as the kernel reports it.
//!
//! A causewayd uses guest memory until its process ends, also after its connections to the holder
//! closed. The holder therefore keeps a pidfd of each causewayd, from the accept of its control
//! connection on ([`crate::holder`]), and each relay, in its thread, asks
//! [`DaemonProcess::has_ended`] before it answers for that causewayd ([`crate::route`]). The kernel
//! reports the end of a process after it has removed the mappings of its last thread.
//!
//! The pidfd is that of the process that connected (`SO_PEERPIDFD`); kernels before Linux 6.5 give
//! the number of the process instead, which is looked up at once. If no pidfd can be had,
//! [`DaemonProcess::of_peer`] fails, and the holder refuses the causewayd. No call blocks or waits,
//! and nothing here sends signals.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use causeway_host::fd::peer_pidfd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};

/// The process of a causewayd.
#[derive(Debug, Clone)]
pub struct DaemonProcess(Arc<OwnedFd>);

impl DaemonProcess {
    /// Returns the process that connected to the other end of `socket`.
    ///
    /// # Errors
    /// The process has ended, belongs to a PID namespace that this process does not see, or the
    /// kernel has no pidfd.
    pub fn of_peer(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let found = match peer_pidfd::process(socket) {
            Err(error) if error.raw_os_error() == Some(Errno::NOPROTOOPT.raw_os_error()) => {
                let pid = rustix::net::sockopt::socket_peercred(socket)?.pid;
                pidfd_open(pid, PidfdFlags::empty())?
            }
            found => found?,
        };
        Ok(Self(Arc::new(found)))
    }

    /// Returns whether the process has ended: its memory is no longer mapped. An error of the
    /// kernel counts as a process that runs.
    pub fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut pidfd = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        poll(&mut pidfd, Some(&now)).is_ok_and(|ready| ready > 0)
    }
}
