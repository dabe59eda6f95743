//! Descriptors that take long to close block no other peer, by any path of arrival.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_host::Account;
use causeway_host::fd::receive::{self, UntrustedSocket};
use causeway_host::fd::received_fd::{FdKind, ReceivedFd};
use causeway_host::limits::UNCLOSED_MAX;
use causeway_memory::{Cursor, Map, Mapping, Region, Span, create};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};

/// Far longer than any test of this file may take.
const LINGER: Duration = Duration::from_secs(100);

fn sockets() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
}

/// Returns a socket with a last close that waits, because its peer never reads; and the peer.
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

/// Sends as [`send`] does, with an urgent byte, which the kernel discards when a reader passes it.
/// Returns `false` before Linux 5.15, which has no urgent bytes here.
fn send_urgent(by: impl AsFd, fds: &[BorrowedFd<'_>]) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    sendmsg(by, &[IoSlice::new(b"u")], &mut control, SendFlags::OOB).is_ok()
}

/// Returns the number of descriptors of this process; tests run side by side.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
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

/// Puts slow descriptors into sockets of a type, and each of these unread into another, twice as
/// many as there are threads to close them: the outer sockets are closed without delay.
#[track_caller]
fn closed_with(kind: SocketType, put: impl Fn(&OwnedFd, &OwnedFd)) {
    let (mut outer, mut stay) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let (slow, others) = nested(0);
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (inner, middle) = pair.unwrap();
        put(&inner, &slow);
        let (ours, theirs) = sockets();
        send(&theirs, &[middle.as_fd()]);
        drop((slow, middle, UntrustedSocket::from(ours)));
        stay.extend(others);
        stay.push(inner);
        outer.push(theirs);
    }
    outer.iter().for_each(closed);
}

/// Returns a Unix socket in which a lingering socket lies unread, below `depth` others; and the
/// ends that must stay open.
fn nested(depth: usize) -> (OwnedFd, Vec<OwnedFd>) {
    let (mut socket, peer) = lingering();
    let mut stay = vec![OwnedFd::from(peer)];
    for _ in 0..depth {
        let (inner, outer) = sockets();
        send(&inner, &[socket.as_fd()]);
        stay.push(inner);
        socket = outer;
    }
    (socket, stay)
}

#[track_caller]
fn soon(call: impl FnOnce()) {
    let since = Instant::now();
    call();
    assert!(since.elapsed() < LINGER / 4, "it waited for a close");
}

#[test]
fn descriptor_kinds_are_distinguished() {
    let (unix, _other) = sockets();
    let (read, _write) = std::io::pipe().unwrap();
    let kinds = [
        (create("kinds", 4096).unwrap(), FdKind::Memory),
        (eventfd(0, EventfdFlags::CLOEXEC).unwrap(), FdKind::Event),
        (unix, FdKind::Unix),
        (std::fs::File::open("/dev/null").unwrap().into(), FdKind::Odd),
        (TcpListener::bind("127.0.0.1:0").unwrap().into(), FdKind::Odd),
        (read.into(), FdKind::Odd),
    ];
    for (fd, kind) in kinds {
        assert_eq!(ReceivedFd::new(fd).kind(), kind);
    }
}

#[test]
fn hostile_descriptors_received_are_closed_in_other_threads() {
    for depth in 0..4 {
        let (slow, _stay) = nested(depth);
        soon(|| drop(ReceivedFd::new(slow)));
    }
}

#[test]
fn hostile_descriptors_left_unread_are_closed_in_other_threads() {
    for depth in 0..4 {
        let (slow, _stay) = nested(depth);
        let (ours, theirs) = sockets();
        send(&theirs, &[slow.as_fd()]);
        drop(slow);
        soon(|| drop(UntrustedSocket::from(ours)));
    }
}

/// Scans turn the lingering off, so that the closing threads are not blocked either.
#[test]
fn hostile_descriptors_do_not_block_the_closing_threads() {
    let mut stay = Vec::new();
    let mut outer = Vec::new();
    for depth in [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3] {
        let (slow, others) = nested(depth);
        stay.extend(others);
        // The other end sees the close only after everything inside is closed.
        let (ours, theirs) = sockets();
        send(&theirs, &[slow.as_fd()]);
        outer.push(theirs);
        drop(slow);
        drop(UntrustedSocket::from(ours));
    }
    soon(|| {
        for theirs in &outer {
            // A socket that is closed with unread data resets its peer.
            let mut byte = [0];
            let end = rustix::net::recv(theirs, &mut byte, rustix::net::RecvFlags::empty());
            assert_eq!(end.map(|(_, bytes)| bytes), Err(Errno::CONNRESET));
        }
    });
}

#[test]
fn hostile_descriptors_with_plain_bytes_are_refused_without_blocking() {
    let file = create("room", 4096).unwrap();
    let mapping = Arc::new(Mapping::new(file.as_fd(), 0, 4096).unwrap());
    let map = Map::new(vec![Region { guest: 0, user: 0, mapping }]).unwrap();
    for depth in 0..3 {
        for guest in [false, true] {
            let (slow, _stay) = nested(depth);
            let (ours, theirs) = sockets();
            let plain = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            send(&theirs, &[plain.as_fd(), slow.as_fd()]);
            drop(slow);
            soon(|| {
                let got = if guest {
                    let spans = [Span { addr: 0, len: 4096 }];
                    causeway_host::net::guest_io::receive(
                        ours.as_fd(),
                        &map,
                        &mut Cursor::new(&spans),
                        9,
                    )
                } else {
                    receive::receive_bytes(&ours, &mut [0; 9])
                };
                assert_eq!(got, Err(Errno::BADMSG));
            });
        }
    }
}

#[test]
fn descriptors_are_refused_where_the_kernel_can() {
    let (ours, theirs) = sockets();
    receive::refuse_descriptors(&ours);
    let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    match sendmsg(&theirs, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()) {
        Err(errno) => assert_eq!(errno, Errno::PERM),
        // Before Linux 6.16.
        Ok(_) => assert_eq!(receive::receive_bytes(&ours, &mut [0; 9]), Err(Errno::BADMSG)),
    }
    rustix::net::send(&theirs, b"y", SendFlags::empty()).unwrap();
    assert_eq!(receive::receive_bytes(&ours, &mut [0; 9]), Ok(1));
}

/// A scan finds such a socket again in itself.
#[test]
fn hostile_sockets_that_hold_themselves_are_closed_once() {
    let mut most = descriptors();
    let others = 64;
    let mut ends = Vec::new();
    for given in [false, true] {
        let (one, other) = sockets();
        for _ in 0..3 {
            send(&one, &[other.as_fd(), other.as_fd()]);
        }
        // A cycle of two sockets as well.
        let (far, near) = sockets();
        send(&one, &[near.as_fd()]);
        send(&far, &[other.as_fd()]);
        drop((near, far));
        if given {
            drop(ReceivedFd::new(other));
        } else {
            drop(UntrustedSocket::from(other));
        }
        ends.push(one);
    }
    let before = most;
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(300) {
        most = most.max(descriptors());
    }
    // Other tests of this file hold descriptors at the same time.
    assert!(most < before + 8 * others, "{before} descriptors, then {most}");
    drop(ends);
}

#[test]
fn hostile_urgent_bytes_are_no_way_round() {
    for unread in [false, true] {
        let (slow, _stay) = nested(0);
        let (ours, theirs) = sockets();
        let ours = UntrustedSocket::from(ours);
        if !send_urgent(&theirs, &[slow.as_fd()]) {
            return;
        }
        drop(slow);
        soon(|| {
            if !unread {
                let (mut fds, mut odd) = (Vec::new(), false);
                let got = ours.receive(&mut [0; 9], &mut fds, &mut odd);
                assert!(got.is_ok_and(|got| got.bytes == 1) && odd, "it was seen");
            }
            drop(ours);
        });
    }
    // The same inside a socket that is sent.
    closed_with(SocketType::STREAM, |inner, slow| assert!(send_urgent(inner, &[slow.as_fd()])));
}

/// An empty message is not the end of a socket with messages.
#[test]
fn hostile_messages_behind_empty_ones_are_seen() {
    closed_with(SocketType::SEQPACKET, |inner, slow| {
        rustix::net::send(inner, b"", SendFlags::empty()).unwrap();
        send(inner, &[slow.as_fd()]);
    });
}

#[test]
fn hostile_memory_is_freed_elsewhere() {
    const BYTES: usize = 256 << 20;
    let threads = || {
        let all = std::fs::read_dir("/proc/self/task").unwrap();
        all.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
            .any(|name| name.trim() == "causeway-closer")
    };
    let file = create("large", BYTES as u64).unwrap();
    let page = [1; 4096];
    let mut seen = false;
    for at in (0..BYTES).step_by(4096) {
        rustix::io::pwrite(&file, &page, at as u64).unwrap();
    }
    drop(ReceivedFd::new(file));
    for _ in 0..1000 {
        seen |= threads();
        std::thread::yield_now();
    }
    assert!(seen, "nobody was there to free it");
}

/// Descriptors with a pending close are charged to their sender, and to no other account.
#[test]
fn hostile_descriptors_are_charged_to_their_sender() {
    let (bad, good) = (Account::unique(), Account::unique());
    let (ours, theirs) = sockets();
    let ours = UntrustedSocket::from(ours).charged_to(bad);
    let mut kept = Vec::new();
    for _ in 0..2 * UNCLOSED_MAX {
        let (read, write) = std::io::pipe().unwrap();
        send(&theirs, &[read.as_fd()]);
        kept.push(write);
        let (mut fds, mut odd) = (Vec::new(), false);
        ours.receive(&mut [0; 9], &mut fds, &mut odd).unwrap();
        assert!(odd && fds.is_empty());
        assert!(!good.is_behind());
    }
    // Pipes are closed soon, after which no close is pending.
    let since = Instant::now();
    while bad.is_behind() {
        assert!(since.elapsed() < LINGER / 4, "it is never forgotten");
        std::thread::yield_now();
    }
}
