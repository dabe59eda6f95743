//! Descriptors whose close blocks are refused unread, and closed on a thread of their own.

mod common;

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use causeway_attach::FaultKind;
use causeway_attach::vhost_user::FrontendReq as R;
use causeway_attach::vhost_user::message::{
    Header, RegionSpec, RingEvent, emit_region, emit_table,
};
use causeway_testing::slow::{LINGER, lingering};
use common::*;

/// Returns a Unix socket, which is an allowed type, that contains an unread lingering connection;
/// and the sockets that must stay open for it.
fn nested() -> (OwnedFd, [OwnedFd; 2]) {
    let (socket, peer) = lingering();
    let (inner, outer) = sockets();
    send_bytes(&inner, b"x", &[socket.as_fd()]);
    (outer, [inner, peer.into()])
}

/// The message is refused, with an immediate reply.
#[track_caller]
fn refused(bench: &mut Bench, send: impl FnOnce(&mut Bench) -> Result<(), causeway_attach::Fault>) {
    let start = Instant::now();
    let result = send(bench);
    assert_eq!(result.as_ref().unwrap_err().kind, FaultKind::Guest);
    assert_fault(bench, result, &["no eventfd, no Unix socket"]);
    assert!(start.elapsed() < LINGER / 2, "the server blocked on a close");
}

#[test]
fn hostile_descriptors_of_disallowed_types() {
    let (pipe, _end) = std::io::pipe().unwrap();
    let odd: Vec<OwnedFd> = vec![
        File::open("/").unwrap().into(),
        File::open("/proc/self/status").unwrap().into(),
        File::open("/dev/null").unwrap().into(),
        TcpListener::bind("127.0.0.1:0").unwrap().into(),
        pipe.into(),
        rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap(),
    ];
    for fd in &odd {
        for request in [R::SET_VRING_CALL, R::SET_VRING_KICK, R::SET_VRING_ERR] {
            let mut bench = Bench::running();
            refused(&mut bench, |b| b.request(request, &RingEvent::emit(1, true), &[fd.as_fd()]));
        }
        let mut bench = Bench::granted();
        refused(&mut bench, |b| b.request(R::SET_BACKEND_REQ_FD, &[], &[fd.as_fd()]));
        // Also with a message that has no descriptors, and beside allowed descriptors.
        let (mut bench, event) = (Bench::granted(), event());
        refused(&mut bench, |b| b.request(R::SET_OWNER, &[], &[event.as_fd(), fd.as_fd()]));
    }
}

#[test]
fn hostile_sockets_that_linger_when_they_are_closed() {
    let mut peers = Vec::new();
    for count in [1, 5] {
        let mut bench = Bench::running();
        let (sockets, theirs): (Vec<_>, Vec<_>) = (0..count).map(|_| lingering()).unzip();
        peers.extend(theirs);
        let payload = RingEvent::emit(0, true);
        let header = Header::request(R::SET_VRING_CALL, payload.len() as u32);
        refused(&mut bench, |bench| {
            let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
            bench.peer.as_ref().unwrap().send(header, &payload, &fds).unwrap();
            // From here on, only the server holds the descriptors.
            drop(fds);
            drop(sockets);
            bench.server.receive(&mut bench.events)
        });
    }
}

#[test]
fn hostile_sockets_that_linger_left_behind_unread() {
    let mut bench = Bench::running();
    let (socket, _peer) = lingering();
    let header = Header::request(R::SET_OWNER, 0);
    let ours = bench.peer.as_ref().unwrap();
    // A fault first, so that the following messages are never handled.
    ours.send(Header::request(R::SET_STATUS, 0), &[], &[]).unwrap();
    ours.send(header, &[], &[socket.as_fd()]).unwrap();
    drop(socket);
    let start = Instant::now();
    assert!(bench.server.receive(&mut bench.events).is_err());
    drop(bench);
    assert!(start.elapsed() < LINGER / 2, "the server blocked on a close");
}

/// Sends a message that may be refused, with the last descriptor of a socket whose close blocks.
#[track_caller]
fn send_last(bench: &mut Bench, request: R, payload: &[u8]) -> Result<(), causeway_attach::Fault> {
    let (slow, stay) = nested();
    let header = Header::request(request, payload.len() as u32);
    bench.peer.as_ref().unwrap().send(header, payload, &[slow.as_fd()]).unwrap();
    drop(slow);
    let start = Instant::now();
    let result = bench.server.receive(&mut bench.events);
    assert!(start.elapsed() < LINGER / 2, "the server blocked on a close");
    drop(stay);
    result
}

#[test]
fn hostile_sockets_that_contain_lingering_sockets() {
    let ring = RingEvent::emit(0, true);
    // A region beside the granted region, which may be granted again.
    let other = RegionSpec { guest: 1 << 40, user: 1 << 40, ..region() };
    // Messages that may carry no socket, or no socket with data.
    for (request, payload) in [
        (R::SET_VRING_CALL, &ring[..]),
        (R::SET_VRING_KICK, &ring[..]),
        (R::SET_OWNER, &[]),
        (R::ADD_MEM_REG, &emit_region(&other)),
        (R::SET_MEM_TABLE, &emit_table(&[region()])),
    ] {
        assert!(send_last(&mut Bench::granted(), request, payload).is_err());
    }
    // Messages that may carry a socket: it is replaced, and released when the frontend leaves.
    let mut bench = Bench::running();
    let start = Instant::now();
    for _ in 0..2 {
        send_last(&mut bench, R::SET_BACKEND_REQ_FD, &[]).unwrap();
    }
    let none = RingEvent::emit(0, false);
    bench.request(R::SET_VRING_CALL, &none, &[]).unwrap();
    bench.leave().unwrap();
    // And after the conversation has ended.
    let mut bench = Bench::running();
    let (slow, _stay) = nested();
    let ours = bench.peer.as_ref().unwrap();
    ours.send(Header::request(R::SET_STATUS, 0), &[], &[]).unwrap();
    ours.send(Header::request(R::SET_OWNER, 0), &[], &[slow.as_fd()]).unwrap();
    drop(slow);
    assert!(bench.server.receive(&mut bench.events).is_err());
    drop(bench);
    assert!(start.elapsed() < LINGER / 2, "the server blocked on a close");
}
