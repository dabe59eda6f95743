//! SEQPACKET between guests and host processes.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use crate::common::*;
use causeway_attach::native::{SocketError, Sockets};
use causeway_wire::vsock::{Header, Op, SEQ_EOM, Type};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, accept, bind, connect, listen,
    recv, send, socket,
};

/// A process's socket for messages.
struct Process(OwnedFd);

impl Process {
    fn socket() -> OwnedFd {
        socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap()
    }

    fn of(fd: OwnedFd) -> Self {
        set_socket_timeout(&fd, Timeout::Recv, Some(PATIENCE)).unwrap();
        Self(fd)
    }

    fn connect(path: &Path) -> Self {
        let fd = Self::socket();
        connect(&fd, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Self::of(fd)
    }

    fn send_bytes(&self, message: &[u8]) {
        assert_eq!(send(&self.0, message, SendFlags::NOSIGNAL).unwrap(), message.len());
    }

    /// Returns the next message; an empty message: the peer has closed.
    fn receive_bytes(&self) -> Vec<u8> {
        let mut room = vec![0; 256 << 10];
        let (got, _) = recv(&self.0, &mut room[..], RecvFlags::empty()).unwrap_or((0, 0));
        room.truncate(got);
        room
    }
}

/// Listens for messages.
fn listener(path: &Path) -> OwnedFd {
    let fd = Process::socket();
    bind(&fd, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&fd, 8).unwrap();
    fd
}

const SIZES: [usize; 6] = [1, 60, 3732, 5000, 70_000, 128 << 10];

/// Exchanges messages of all sizes in both directions.
fn converse(guest: &mut Sockets, id: causeway_attach::native::ConnectionId, process: Process) {
    let peer = thread::spawn(move || {
        for len in SIZES {
            assert!(
                process.receive_bytes() == pattern(len as u32, len),
                "{len} bytes to the process"
            );
        }
        for len in SIZES {
            process.send_bytes(&pattern(len as u32 + 1, len));
        }
        process
    });
    for len in SIZES {
        guest.send(id, &pattern(len as u32, len), PATIENCE).unwrap();
    }
    for len in SIZES {
        let message = guest.receive_message(id, PATIENCE).unwrap();
        assert!(message == pattern(len as u32 + 1, len), "{len} bytes to the guest");
    }
    drop(peer.join().unwrap());
    assert!(matches!(guest.receive_message(id, PATIENCE), Err(SocketError::Closed)));
    guest.close(id).unwrap();
}

#[test]
fn vsock_guest_messages_reach_a_process_and_come_back() {
    let rig = Rig::new();
    let mut guest = rig.sockets("red", 3);
    let listening = listener(&rig.path("red-3.host_9999"));
    let id = guest.connect(Type::Seqpacket, 2, 9999, PATIENCE).unwrap();
    converse(&mut guest, id, Process::of(accept(&listening).unwrap()));
    rig.wait_for("red", 3, |v| v.counters["connections"] == 0);
}

#[test]
fn vsock_process_messages_reach_a_guest_by_the_second_listener() {
    let rig = Rig::new();
    let mut guest = rig.sockets("red", 3);
    guest.listen(Type::Seqpacket, 7);
    for line in [&b"CONNECT 7"[..], b"connect 7\n"] {
        let process = Process::connect(&rig.path("red-3.host_seqpacket"));
        process.send_bytes(line);
        let id = guest.accept(PATIENCE).unwrap();
        let answer = String::from_utf8(process.receive_bytes()).unwrap();
        assert!(answer.starts_with("OK ") && answer.ends_with('\n'), "{answer:?}");
        converse(&mut guest, id, process);
    }
    let other = Process::connect(&rig.path("red-3.host_seqpacket"));
    other.send_bytes(b"HELLO");
    assert_eq!(other.receive_bytes(), b"ERR expected a line CONNECT <port>\n");
    assert_eq!(other.receive_bytes(), b"", "turned away");
    assert_eq!(rig.counter("red", 3, "reject_handshake_total"), 1);
    rig.wait_for("red", 3, |v| v.counters["connections"] == 0);
}

#[test]
fn vsock_messages_to_a_process_that_reads_late_all_arrive() {
    let rig = Rig::new();
    let mut guest = rig.sockets("red", 3);
    let listening = listener(&rig.path("red-3.host_5"));
    let id = guest.connect(Type::Seqpacket, 2, 5, PATIENCE).unwrap();
    let process = Process::of(accept(&listening).unwrap());
    // Far more than the buffer of the process's socket.
    for n in 0..2000_u32 {
        guest.send(id, &n.to_le_bytes().repeat(10), PATIENCE).unwrap();
    }
    let reader = thread::spawn(move || {
        for n in 0..4000_u32 {
            assert_eq!(process.receive_bytes(), n.to_le_bytes().repeat(10), "message {n}");
        }
    });
    for n in 2000..4000_u32 {
        guest.send(id, &n.to_le_bytes().repeat(10), PATIENCE).unwrap();
    }
    reader.join().unwrap();
}

#[test]
fn vsock_socket_types_that_do_not_fit_are_refused_with_a_reason() {
    let rig = Rig::new();
    let mut guest = rig.sockets("red", 3);
    let _streams = UnixListener::bind(rig.path("red-3.host_8")).unwrap();
    assert!(is_reset(guest.connect(Type::Seqpacket, 2, 8, PATIENCE)));
    let notice = rig.wait_notice("red", 3);
    assert!(notice.contains("host_8") && notice.contains("SOCK_SEQPACKET"), "{notice}");
    assert_eq!(rig.counter("red", 3, "reject_type_total"), 1);
    let _messages = listener(&rig.path("red-3.host_9"));
    assert!(is_reset(guest.connect(Type::Stream, 2, 9, PATIENCE)));
    assert_eq!(rig.counter("red", 3, "reject_type_total"), 2);
    assert_eq!(rig.view("red", 3).faults_total, 0);
}

#[test]
fn hostile_process_message_beyond_the_limit_ends_its_connection() {
    let rig = Rig::new();
    let mut guest = rig.sockets("red", 3);
    guest.listen(Type::Seqpacket, 7);
    let process = Process::connect(&rig.path("red-3.host_seqpacket"));
    process.send_bytes(b"CONNECT 7");
    let id = guest.accept(PATIENCE).unwrap();
    assert!(process.receive_bytes().starts_with(b"OK "));
    process.send_bytes(&[7; 150_000]);
    assert!(is_reset(guest.receive_message(id, PATIENCE)));
    assert!(rig.wait_notice("red", 3).contains("150000 bytes"));
}

#[test]
fn vsock_empty_messages_of_a_guest_to_a_process_are_dropped_and_counted() {
    let rig = Rig::new();
    let mut guest = rig.port("red", 3);
    let listening = listener(&rig.path("red-3.host_6"));
    let of = |op, len| Header {
        kind: Type::Seqpacket.raw(),
        flags: if op == Op::Data { SEQ_EOM } else { 0 },
        ..packet((3, 1), (2, 6), op, len)
    };
    crate::common::send(&mut guest, &of(Op::Request, 0), &[]);
    assert_eq!(next_op(&mut guest), Op::Response);
    let process = Process::of(accept(&listening).unwrap());
    crate::common::send(&mut guest, &of(Op::Data, 0), &[]);
    crate::common::send(&mut guest, &of(Op::Data, 9), b"behind it");
    assert_eq!(process.receive_bytes(), b"behind it");
    assert_eq!(rig.counter("red", 3, "transmit_drop_empty_total"), 1);
}

#[test]
fn vsock_empty_messages_of_a_process_to_a_guest_are_dropped_and_counted() {
    let rig = Rig::new();
    let mut guest = rig.sockets("red", 3);
    let listening = listener(&rig.path("red-3.host_6"));
    let id = guest.connect(Type::Seqpacket, 2, 6, PATIENCE).unwrap();
    let process = Process::of(accept(&listening).unwrap());
    for _ in 0..3 {
        process.send_bytes(b"");
    }
    process.send_bytes(b"and back");
    assert_eq!(guest.receive_message(id, PATIENCE).unwrap(), b"and back");
    assert_eq!(rig.counter("red", 3, "receive_drop_empty_total"), 3);
    // A message behind an empty message arrives before the end.
    process.send_bytes(b"");
    process.send_bytes(b"the last");
    process.send_bytes(b"");
    drop(process);
    assert_eq!(guest.receive_message(id, PATIENCE).unwrap(), b"the last");
    assert!(matches!(guest.receive_message(id, PATIENCE), Err(SocketError::Closed)));
}
