//! Where descriptors are closed that could take long: in few threads, which end when nothing waits.
//!
//! The last close of a file waits for its file system, which may be somebody's own (FUSE); that of a
//! TCP socket may linger; that of a Unix socket closes what lies in it unread; and that of a memory
//! file frees its pages. A process that hands such a descriptor over must not hold up the thread
//! that serves everyone; nor, by what waits for it alone, the closing of what is others'. So there
//! are two kinds of threads: those that free and look and wait for nobody, and those that may wait.
//!
//! What they have not come to stays open, and counts among the descriptors that this process may
//! have; and to its [giver](Giver), who is turned away when it is too much. Where the process may
//! have no more, the kernel closes what comes in the thread that receives it: the daemon's limit
//! has to be far above what givers may have unclosed.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{RecvFlags, Shutdown, SocketType, shutdown, sockopt};

use crate::elsewhere::Elsewhere;
use crate::giver::Giver;
use crate::handed::{Handed, Kind, is_unix};
use crate::inlet::{in_line, receive_with};
use crate::limits::{CLOSERS_MAX, LOOK_DESCRIPTORS_MAX, LOOK_MESSAGES_MAX};

/// Bytes of a message that are looked at in one go.
const LOOK_BYTES: usize = 4096;

/// A descriptor on its way to be closed.
struct Unclosed {
    giver: Giver,
    fd: OwnedFd,
    /// Whether what lies in it may be looked at: not if that was too much before.
    look: bool,
}

static SURE: Elsewhere<Unclosed> = Elsewhere::new("causeway-closer", CLOSERS_MAX, close_sure);
static SLOW: Elsewhere<Unclosed> = Elsewhere::new("causeway-reaper", CLOSERS_MAX, close_slow);

/// Closes a memory file elsewhere: that takes its time, and waits for nobody. It is nobody's: many
/// are handed over at a time by those who mean well.
pub(crate) fn memory(fd: OwnedFd) {
    own(Giver::default(), fd);
}

/// Closes, elsewhere, a Unix socket that only we have and that nobody can write to any more.
pub(crate) fn own(giver: Giver, fd: OwnedFd) {
    giver.begin();
    SURE.hand_over(Unclosed { giver, fd, look: true });
}

/// Closes, elsewhere, what may wait for anybody.
pub(crate) fn slow(giver: Giver, fd: OwnedFd) {
    giver.begin();
    SLOW.hand_over(Unclosed { giver, fd, look: true });
}

/// The same, as it is.
fn slow_unseen(giver: Giver, fd: OwnedFd) {
    giver.begin();
    SLOW.hand_over(Unclosed { giver, fd, look: false });
}

/// Whether what waits for nobody has to wait all the same, for want of threads.
pub(crate) fn is_held_up() -> bool {
    SURE.waiting() > CLOSERS_MAX
}

fn close_sure(Unclosed { giver, fd, .. }: Unclosed) {
    match is_unix(&fd) {
        false => drop(fd),
        // Who has so much waiting has this wait too.
        true if giver.is_behind() => slow_unseen(giver, fd),
        true => Look::new(giver).close(fd),
    }
    giver.end();
}

fn close_slow(Unclosed { giver, fd, look }: Unclosed) {
    if !is_unix(&fd) {
        // Of other sockets.
        let _ = sockopt::set_socket_linger(&fd, None);
        drop(fd);
    } else if look && !giver.is_behind() {
        Look::new(giver).close(fd);
    } else {
        drop(fd);
    }
    giver.end();
}

/// What lies in a socket unread, and in sockets that lie there: whatever lingers is seen to. It is
/// looked at and left there, so that the other ends see what they would see without.
struct Look {
    giver: Giver,
    messages: usize,
    /// Sockets that were found, by the kernel's own names.
    found: Vec<u64>,
    todo: Vec<OwnedFd>,
    looked: Vec<OwnedFd>,
    files: Vec<OwnedFd>,
}

impl Look {
    fn new(giver: Giver) -> Self {
        let (found, todo, looked, files) = Default::default();
        Self { giver, messages: LOOK_MESSAGES_MAX, found, todo, looked, files }
    }

    /// Closes a socket with all that lies in it.
    fn close(mut self, socket: OwnedFd) {
        self.found.extend(sockopt::socket_cookie(&socket));
        self.todo.push(socket);
        let mut all = true;
        while let Some(socket) = self.todo.pop() {
            all &= self.look_through(&socket);
            self.looked.push(socket);
            if !all {
                break;
            }
        }
        let Self { giver, looked, todo, files, .. } = self;
        // The outermost first: of those that lie in it ours are the last then.
        for socket in looked.into_iter().chain(todo) {
            match all {
                true => drop(socket),
                // What was not seen may wait.
                false => slow_unseen(giver, socket),
            }
        }
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
                Ok(_) => {}
                Err(_) => return true,
            }
        }
    }

    /// One more descriptor of what lies there. False: there is no room for it.
    fn see(&mut self, handed: Handed) -> bool {
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
