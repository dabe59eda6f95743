//! Doorbells between two processes, either of which may be hostile: a socket pair, one end for
//! each.
//!
//! An eventfd would be one open file shared by both processes: either could set it to blocking,
//! fill it, and so block the other. Each end of a socket pair is a file of its own, and whether a
//! send blocks is a flag of each send. The daemon (`mx`) makes the [`pair`] and sends an end to
//! each of two processes that it connects; their paths (`clients/endpoint`) ring a
//! [`SocketDoorbell`] when a channel requests a wake-up, and the receiver polls the file
//! descriptor.
//!
//! The doorbell carries no data and no count: several rings between two clears are one, and a ring
//! into a full socket has no effect because the other end is rung already. A ring does not report
//! whether the peer still exists: a ring to a closed end has no effect. A shutdown or the close of
//! an end makes the other end readable. Calls run in the thread of the application that holds the
//! endpoint, [`pair`] in the dispatcher's; no call blocks. The queues of guests use eventfds
//! ([`causeway_ring::Doorbell`]) instead.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use causeway_host::fd::receive;
use rustix::net::{
    AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, send, shutdown, socketpair,
};

use crate::limits::{RINGS_BYTES, RINGS_LEFT_MAX};

/// One end of a doorbell.
#[derive(Debug)]
pub struct SocketDoorbell(OwnedFd);

/// Returns the two ends of a new doorbell.
///
/// # Errors
/// Returns an error if the host has no free descriptors.
pub fn pair() -> io::Result<[OwnedFd; 2]> {
    let (one, other) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    Ok([one, other])
}

impl SocketDoorbell {
    /// Takes an end that was received from another process.
    pub fn new(end: OwnedFd) -> Self {
        receive::in_line(&end);
        Self(end)
    }

    /// Rings the other end. Never blocks.
    pub fn ring(&self) {
        // Fails only if the socket is full, which means rung, or if the peer has closed its end.
        let _ = send(&self.0, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Reads the rings of the other end, at most 4,096 ([`RINGS_BYTES`]); later rings stay
    /// readable. Never blocks. Returns `false` if the peer sent descriptors, which only a hostile
    /// peer does; the caller then gives the path up.
    pub fn clear(&self) -> bool {
        let (mut rings, mut fds, mut odd) = ([0; RINGS_BYTES], Vec::new(), false);
        let got = receive::receive(&self.0, &mut rings, &mut fds, &mut odd);
        let none = fds.is_empty();
        !odd && none && !got.is_ok_and(|got| got.cut)
    }

    /// Shuts the doorbell down and drains it before it is closed, so that descriptors which the
    /// peer sent are not closed with it on this thread. After 256 reads ([`RINGS_LEFT_MAX`]) the
    /// rest is left to another thread.
    ///
    /// Do not call this before a plain close: child processes may share the end.
    pub fn shut_down(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
        // Most of the data are rings, which are dropped without further work.
        let mut rings = [0; RINGS_BYTES];
        for _ in 0..RINGS_LEFT_MAX {
            if receive::receive_bytes(&self.0, &mut rings).is_ok_and(|bytes| bytes == 0) {
                return;
            }
        }
        receive::part(&self.0);
    }
}

impl AsFd for SocketDoorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sendmsg};

    use super::*;

    fn bells() -> [SocketDoorbell; 2] {
        pair().unwrap().map(SocketDoorbell::new)
    }

    fn is_rung(bell: &SocketDoorbell) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    fn doorbell_rings_reach_only_the_other_end() {
        let [one, other] = bells();
        one.ring();
        one.ring();
        assert!(is_rung(&other) && !is_rung(&one));
        assert!(other.clear() && !is_rung(&other), "several rings are cleared together");
        assert!(other.clear(), "clearing does not block");
        other.ring();
        assert!(is_rung(&one) && !is_rung(&other));
    }

    #[test]
    fn hostile_doorbell_ends_do_not_block_each_other() {
        let [one, other] = bells();
        for bell in [&one, &other] {
            let flags = fcntl_getfl(bell).unwrap();
            fcntl_setfl(bell, flags - OFlags::NONBLOCK).unwrap();
        }
        // Also when the socket is full in both directions.
        for _ in 0..10_000 {
            one.ring();
            other.ring();
        }
        assert!(is_rung(&one) && is_rung(&other));
        while is_rung(&one) {
            assert!(one.clear());
        }
        other.ring();
        assert!(is_rung(&one), "there is room again");
        // A ring to a closed end has no effect.
        other.shut_down();
        drop(other);
        one.ring();
    }

    fn send(by: &SocketDoorbell, fd: std::os::fd::BorrowedFd<'_>) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let vectors = [io::IoSlice::new(&[1])];
        sendmsg(&by.0, &vectors, &mut control, SendFlags::empty()).unwrap();
    }

    /// Descriptor whose close blocks: a Unix socket that contains an unread TCP connection, which
    /// lingers because its peer reads nothing.
    #[test]
    fn hostile_descriptors_whose_close_blocks_block_no_other_thread() {
        use std::net::{TcpListener, TcpStream};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let patience = std::time::Duration::from_secs(20);
        let slow = || {
            let lingers = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let silent = listener.accept().unwrap();
            lingers.set_nonblocking(true).unwrap();
            while std::io::Write::write(&mut &lingers, &[0; 65536]).is_ok() {}
            rustix::net::sockopt::set_socket_linger(&lingers, Some(patience)).unwrap();
            let [inner, outer] = bells();
            send(&inner, lingers.as_fd());
            (outer, silent)
        };
        let since = std::time::Instant::now();
        let [one, other] = bells();
        let (first, _silent) = slow();
        send(&one, first.as_fd());
        drop(first);
        assert!(!other.clear());
        let (second, _silent) = slow();
        send(&one, second.as_fd());
        drop(second);
        other.shut_down();
        drop(other);
        assert!(
            since.elapsed() < patience / 2,
            "the descriptors were closed on the thread that was rung"
        );
    }

    #[test]
    fn doorbell_closed_by_a_child_still_works_in_the_parent() {
        let [one, other] = bells();
        drop(SocketDoorbell::new(other.as_fd().try_clone_to_owned().unwrap()));
        one.ring();
        assert!(is_rung(&other) && other.clear() && !is_rung(&other));
        one.ring();
        assert!(is_rung(&other), "rings still arrive");
    }

    #[test]
    fn hostile_descriptors_are_noticed() {
        let [one, other] = bells();
        let file: OwnedFd = std::fs::File::open("/").unwrap().into();
        for fd in [file.as_fd(), one.as_fd()] {
            send(&one, fd);
            assert!(!other.clear());
        }
        one.ring();
        assert!(other.clear());
    }
}
