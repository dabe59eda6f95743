//! Closes descriptors whose close may block, in threads other than the caller's.
//!
//! The last close of a file waits for its file system, which a peer may implement (FUSE). The close
//! of a TCP socket may linger; that of a Unix socket closes the descriptors that lie in it unread;
//! that of a memory file frees its pages. A peer that sends such a descriptor must delay neither the
//! dispatcher nor the closes of other peers. So memory files have threads of their own, which wait
//! for no peer, and each [account](Account) has a thread of its own for all other descriptors
//! ([`crate::fd::reaper`]).
//!
//! A descriptor that waits for its close counts against the process's limit and against its account,
//! whose peer is refused above [`UNCLOSED_MAX`](crate::limits::UNCLOSED_MAX). If the process is at
//! its limit, the kernel closes received descriptors in the receiving thread; so the daemon's limit
//! must be far above the pending closes of all peers.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, SocketType, shutdown, sockopt};

use crate::fd::account::Account;
use crate::fd::reaper;
use crate::fd::receive::{in_line, receive_with};
use crate::fd::received_fd::{Kind, ReceivedFd, is_unix};
use crate::limits::{CLOSERS_MAX, LOOK_DESCRIPTORS_MAX, LOOK_MESSAGES_MAX};
use causeway_memory::Background;

/// Bytes of a message that are looked at in one go.
const LOOK_BYTES: usize = 4096;

static MEMORY: Background<OwnedFd> = Background::new("causeway-closer", CLOSERS_MAX, drop);

/// Closes a memory file elsewhere: that takes its time, and waits for nobody. It is counted to no
/// account: many are handed over at a time by those who mean well.
pub(crate) fn memory(fd: OwnedFd) {
    MEMORY.hand_over(fd);
}

/// Closes a descriptor in a thread of its account.
pub(crate) fn slow(giver: Account, fd: OwnedFd) {
    giver.begin();
    let close = move || {
        close(giver, fd);
        giver.end();
    };
    reaper::hand_over(giver, Box::new(close));
}

fn close(giver: Account, fd: OwnedFd) {
    if !is_unix(&fd) {
        // Of other sockets.
        let _ = sockopt::set_socket_linger(&fd, None);
    } else if !giver.is_behind() {
        return Look::new(giver).close(fd);
    }
    drop(fd);
}

/// What lies in a socket unread, and in sockets that lie there: whatever lingers is seen to. It is
/// looked at and left there, so that the other ends see what they would see without.
struct Look {
    giver: Account,
    messages: usize,
    /// Sockets that were found, by the kernel's own names.
    found: Vec<u64>,
    todo: Vec<OwnedFd>,
    looked: Vec<OwnedFd>,
    files: Vec<OwnedFd>,
}

impl Look {
    fn new(giver: Account) -> Self {
        let (found, todo, looked, files) = Default::default();
        Self { giver, messages: LOOK_MESSAGES_MAX, found, todo, looked, files }
    }

    /// Closes a socket with all that lies in it.
    fn close(mut self, socket: OwnedFd) {
        self.found.extend(sockopt::socket_cookie(&socket));
        self.todo.push(socket);
        while let Some(socket) = self.todo.pop() {
            let all = self.look_through(&socket);
            self.looked.push(socket);
            if !all {
                break;
            }
        }
        let Self { giver, looked, todo, files, .. } = self;
        // The outermost first: of those that lie in it ours are the last then. What was not looked
        // through may linger until this thread is interrupted.
        looked.into_iter().chain(todo).for_each(drop);
        files.into_iter().for_each(|file| slow(giver, file));
    }

    /// False: there is more than is looked at.
    fn look_through(&mut self, socket: &OwnedFd) -> bool {
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
        // Others have empty messages, which are not the end.
        let stream = sockopt::socket_type(socket) == Ok(SocketType::STREAM);
        let mut part = [0; LOOK_BYTES];
        loop {
            let Some(left) = self.messages.checked_sub(1) else { return false };
            self.messages = left;
            let mut room = true;
            let got = receive_with(socket, RecvFlags::PEEK, &mut part, |handed| {
                room &= self.see(handed);
            });
            match got {
                Ok(got) if !room || got.cut => return false,
                Ok(got) if got.bytes == 0 && stream => return true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }

    /// One more descriptor of what lies there. False: there is no room for it.
    fn see(&mut self, handed: ReceivedFd) -> bool {
        let kind = handed.kind();
        let fd = handed.into_fd();
        let count = self.todo.len().saturating_add(self.looked.len());
        let room = count.saturating_add(self.files.len()) < LOOK_DESCRIPTORS_MAX;
        match kind {
            // Of all these another is where they lie.
            Kind::Memory | Kind::Event | Kind::Process => {}
            Kind::Unix => {
                let Ok(cookie) = sockopt::socket_cookie(&fd) else { return false };
                if self.found.contains(&cookie) {
                    return true;
                }
                if room {
                    // What comes later would not be seen.
                    let _ = shutdown(&fd, Shutdown::Read);
                    self.found.push(cookie);
                    self.todo.push(fd);
                }
                return room;
            }
            Kind::Odd if sockopt::socket_domain(&fd).is_ok() => {
                let _ = sockopt::set_socket_linger(&fd, None);
            }
            Kind::Odd => self.files.push(fd),
        }
        room
    }
}
