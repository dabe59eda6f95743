//! A peer that sends descriptors with blocking closes delays the closes of no other peer.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use causeway_host::Account;
use causeway_host::fd::receive::UntrustedSocket;
use causeway_host::fd::received_fd::ReceivedFd;
use causeway_host::limits::{REAPERS_PER_OWNER_MAX, SCAN_DESCRIPTORS_MAX};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};

/// Far longer than this test may take.
const LINGER: Duration = Duration::from_secs(100);

fn sockets() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
}

/// A socket with a last close that waits, because its peer never reads; and the peer.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = listener.accept().unwrap().0;
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 65_536]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    rustix::net::sockopt::set_socket_linger(&socket, Some(LINGER)).unwrap();
    (socket.into(), peer)
}

fn send(by: impl AsFd, fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    sendmsg(by, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
}

/// Waits until the other end sees the close.
#[track_caller]
fn closed(theirs: &OwnedFd) {
    let since = Instant::now();
    let flags = rustix::net::RecvFlags::DONTWAIT;
    loop {
        match rustix::net::recv(theirs, &mut [0; 9], flags) {
            Err(Errno::AGAIN) => {}
            Ok((_, bytes)) if bytes > 0 => {}
            _ => return,
        }
        assert!(since.elapsed() < LINGER / 4, "it is not closed");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns a Unix socket with more unread descriptors than a scan covers, and lingering sockets
/// behind them; and the other ends, which must stay open.
fn overfull() -> (OwnedFd, Vec<OwnedFd>) {
    let (socket, other) = sockets();
    let (pipe, mut stay) = std::io::pipe().map(|(r, w)| (r, vec![OwnedFd::from(w)])).unwrap();
    for _ in 0..SCAN_DESCRIPTORS_MAX.div_ceil(8) + 1 {
        send(&other, &[pipe.as_fd(); 8]);
    }
    let mut slow = Vec::new();
    for _ in 0..4 {
        let (one, peer) = lingering();
        slow.push(one);
        stay.push(peer.into());
    }
    let fds: Vec<_> = slow.iter().map(AsFd::as_fd).collect();
    send(&other, &fds);
    stay.push(other);
    (socket, stay)
}

/// Closes that block are interrupted, and delay no other account meanwhile.
#[test]
fn hostile_closes_that_linger_are_cut_and_delay_no_other_account() {
    let (bad, good) = (Account::unique(), Account::unique());
    let mut stay = Vec::new();
    let mut outer = Vec::new();
    for n in 0..3 * REAPERS_PER_OWNER_MAX {
        let (slow, others) = overfull();
        stay.extend(others);
        // The other end sees the close only after everything inside is closed.
        let (ours, theirs) = sockets();
        send(&theirs, &[slow.as_fd()]);
        outer.push(theirs);
        drop(slow);
        drop(UntrustedSocket::from(ours).charged_to(bad.of_user(n as u32 % 2)));
    }
    let (ours, theirs) = sockets();
    drop(good.serve(|| ReceivedFd::new(ours)));
    closed(&theirs);
    outer.iter().for_each(closed);
}
