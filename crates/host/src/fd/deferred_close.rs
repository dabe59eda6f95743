//! Closes descriptors in threads other than the caller's, because a close may block.
//!
//! The last close of a file waits for its file system, which a peer may implement (FUSE). The close
//! of a TCP socket may linger; that of a Unix socket closes the descriptors that lie in it unread;
//! that of a memory file of more than 1 MiB takes long, but waits for no peer. A peer that sends
//! such a descriptor must delay neither the dispatcher nor the closes of other peers. So memory
//! files above 1 MiB are closed by up to [`CLOSERS_MAX`] (4) threads that all peers share; Unix
//! sockets and files of other kinds by threads that serve one port at a time, at most 4 for a port
//! and 2,048 in the process ([`crate::fd::reaper`]). Eventfds, pidfds and memory files up to 1 MiB
//! do not reach this module: their drop closes them at once, in the caller's thread.
//!
//! A descriptor for a reaper counts against its account from its drop to the end of its close;
//! above [`UNCLOSED_MAX`](crate::limits::UNCLOSED_MAX) (128) its peer may not send further ones,
//! and its account is *behind* ([`crate::fd::account`]). The queue of memory files has no limit.
//! Each waiting descriptor occupies an entry in the process's table of descriptors; if the table is
//! full, the kernel drops arriving descriptors in the receiving thread, where their close may
//! block.
//!
//! The drops of [`ReceivedFd`] and of `UntrustedSocket` call the module, in every process that uses
//! them, mainly causewayd and `causeway-holder`; they return at once. Before a Unix socket is
//! closed, up to [`SCAN_MESSAGES_MAX`] (4,096) unread messages and [`SCAN_DESCRIPTORS_MAX`] (256)
//! descriptors in it are scanned for sockets that linger; a socket that the scan did not reach may
//! block its thread for [`CLOSE_PATIENCE_NS`](crate::limits::CLOSE_PATIENCE_NS) (100 ms) each time.
//! An account that is behind gets no scan. The end of a close is not reported, and closes that wait
//! when the process ends are left to the kernel.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, SocketType, shutdown, sockopt};

use crate::fd::account::Account;
use crate::fd::reaper;
use crate::fd::receive::{in_line, receive_with};
use crate::fd::received_fd::{FdKind, ReceivedFd, is_unix};
use crate::limits::{CLOSERS_MAX, SCAN_DESCRIPTORS_MAX, SCAN_MESSAGES_MAX};
use causeway_memory::Background;

/// Bytes of a message that are read at a time.
const SCAN_BYTES: usize = 4096;

/// Memory files of more than 1 MiB that wait for their close.
static MEMORY: Background<OwnedFd> = Background::new("causeway-closer", CLOSERS_MAX, drop);

/// Closes a memory file of more than 1 MiB in a thread for such files. The close is charged to no
/// account, because well-behaved peers send many memory files at a time. If no thread can be
/// started, the file waits for the next call.
pub(crate) fn close_memory(fd: OwnedFd) {
    MEMORY.hand_over(fd);
}

/// Charges the close of a descriptor to `account` until it is done, and passes it to a thread of
/// [`crate::fd::reaper`].
pub(crate) fn close_slow(account: Account, fd: OwnedFd) {
    account.begin();
    let close = move || {
        close(account, fd);
        account.end();
    };
    reaper::hand_over(account, Box::new(close));
}

/// Closes a descriptor in the calling thread, a reaper's. Turns lingering off first: of the
/// descriptor, or, if it is a Unix socket whose account is not behind, of the sockets that lie in
/// it.
fn close(account: Account, fd: OwnedFd) {
    if !is_unix(&fd) {
        // The lingering sockets that arrive are TCP sockets; a Unix socket is scanned instead.
        let _ = sockopt::set_socket_linger(&fd, None);
    } else if !account.is_behind() {
        return UnreadScan::new(account).close(fd);
    }
    drop(fd);
}

/// A scan of the descriptors that lie unread in a socket, and in Unix sockets among these. The scan
/// turns their lingering off. It only peeks at the messages, so that the other ends see the same as
/// without a scan.
struct UnreadScan {
    account: Account,
    /// Messages that the scan may still read.
    messages: usize,
    /// Sockets that the scan found, by their socket cookies.
    found: Vec<u64>,
    /// Sockets to scan.
    pending: Vec<OwnedFd>,
    /// Scanned sockets, the outermost first.
    scanned: Vec<OwnedFd>,
    /// Other files with a close that may block.
    files: Vec<OwnedFd>,
}

impl UnreadScan {
    /// Returns a scan of at most [`SCAN_MESSAGES_MAX`] (4,096) messages, which has found nothing
    /// yet.
    fn new(account: Account) -> Self {
        let (found, pending, scanned, files) = Default::default();
        Self { account, messages: SCAN_MESSAGES_MAX, found, pending, scanned, files }
    }

    /// Closes a socket with all descriptors that lie in it.
    fn close(mut self, socket: OwnedFd) {
        self.found.extend(sockopt::socket_cookie(&socket));
        self.pending.push(socket);
        while let Some(socket) = self.pending.pop() {
            let all = self.scan(&socket);
            self.scanned.push(socket);
            if !all {
                break;
            }
        }
        let Self { account, scanned, pending, files, .. } = self;
        // The outermost first, so that this process holds the last reference to the sockets inside.
        // A socket that was not scanned may linger until this thread is interrupted.
        scanned.into_iter().chain(pending).for_each(drop);
        files.into_iter().for_each(|file| close_slow(account, file));
    }

    /// Scans the messages of a socket. Returns `false` if a limit of the scan was reached.
    fn scan(&mut self, socket: &OwnedFd) -> bool {
        in_line(socket);
        let from = 0_i32;
        // SAFETY: the option's value is an int, of which the kernel is given address and length.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEEK_OFF,
                std::ptr::from_ref(&from).cast(),
                size_of_val(&from) as libc::socklen_t,
            )
        };
        if set != 0 {
            return false;
        }
        // A socket with messages may have an empty message, which is not the end.
        let stream = sockopt::socket_type(socket) == Ok(SocketType::STREAM);
        let mut part = [0; SCAN_BYTES];
        loop {
            let Some(left) = self.messages.checked_sub(1) else { return false };
            self.messages = left;
            let mut room = true;
            let got = receive_with(socket, RecvFlags::PEEK, &mut part, |received| {
                room &= self.add(received);
            });
            match got {
                Ok(got) if !room || got.cut => return false,
                Ok(got) if got.bytes == 0 && stream => return true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }

    /// Adds a descriptor that lies in a socket. Returns `false` if there is no room for it.
    fn add(&mut self, received: ReceivedFd) -> bool {
        let kind = received.kind();
        let fd = received.into_fd();
        let count = self.pending.len().saturating_add(self.scanned.len());
        let room = count.saturating_add(self.files.len()) < SCAN_DESCRIPTORS_MAX;
        match kind {
            // The message still holds another reference to each of these, so this close is not the
            // last one.
            FdKind::Memory | FdKind::Event | FdKind::Process => {}
            FdKind::Unix => {
                let Ok(cookie) = sockopt::socket_cookie(&fd) else { return false };
                if self.found.contains(&cookie) {
                    return true;
                }
                if room {
                    // A message that arrives after the scan would not be scanned.
                    let _ = shutdown(&fd, Shutdown::Read);
                    self.found.push(cookie);
                    self.pending.push(fd);
                }
                return room;
            }
            FdKind::Odd if sockopt::socket_domain(&fd).is_ok() => {
                let _ = sockopt::set_socket_linger(&fd, None);
            }
            FdKind::Odd => self.files.push(fd),
        }
        room
    }
}
