//! Connections between host processes and guests by the Unix-socket convention.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use crate::common::*;
use causeway_attach::native::{ConnectionId, SocketError, Sockets, VsockPort};
use causeway_model::commands::trace;
use causeway_model::{Answer, Command, SocketKind, TraceQuery};
use causeway_model::{PortKind, PortSpec, RuleAction, SocketAccess, VsockSpec};
use causeway_wire::vsock::{Header, Op, SHUTDOWN_SEND, Type};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Connects as a host process does.
fn handshake(rig: &Rig, cid: u32, line: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(rig.path(&format!("red-{cid}.host"))).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(line).unwrap();
    stream
}

fn read_line(stream: &mut UnixStream) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    // A stream that is closed with unread bytes ends in a reset.
    while stream.read(&mut byte).unwrap_or(0) == 1 {
        line.push(byte[0]);
        if byte[0] == b'\n' {
            break;
        }
    }
    String::from_utf8(line).unwrap()
}

/// Echoes until the peer has sent everything, then closes.
fn echo(mut guest: Sockets, id: ConnectionId) -> Sockets {
    let mut room = vec![0; 32 << 10];
    loop {
        match guest.try_receive(id, &mut room) {
            Ok(0) => drop(guest.wait(std::time::Duration::from_millis(20))),
            Ok(n) => guest.send(id, &room[..n], PATIENCE).unwrap(),
            Err(SocketError::Closed) => break,
            Err(other) => panic!("{other}"),
        }
    }
    guest.close(id).unwrap();
    guest
}

#[test]
fn host_to_guest_echo_with_content_and_half_close() {
    let rig = Rig::new();
    let mut guest = rig.sockets("red", 3);
    guest.listen(Type::Stream, 7);
    // Bytes directly behind the line belong to the stream.
    let mut stream = handshake(&rig, 3, b"CONNECT 7\nearly");
    let server = thread::spawn(move || {
        let id = guest.accept(PATIENCE).unwrap();
        echo(guest, id)
    });
    assert!(read_line(&mut stream).starts_with("OK "));
    let data = pattern(5, 2 << 20);
    let copy = data.clone();
    let mut writing = stream.try_clone().unwrap();
    let writer = thread::spawn(move || {
        writing.write_all(&copy).unwrap();
        writing.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    writer.join().unwrap();
    assert_eq!(&back[..5], b"early");
    assert!(back[5..] == data, "{} bytes came back", back.len());
    server.join().unwrap();
    rig.wait_for("red", 3, |v| v.counters["connections"] == 0);
}

#[test]
fn vsock_host_line_is_taken_in_any_case_and_answered_in_nine_bytes() {
    let rig = Rig::new();
    let mut guest = rig.port("red", 3);
    let mut ports = Vec::new();
    for line in [&b"connect 7\n"[..], b"Connect   7  \n", b"\tCONNECT 7\r\n"] {
        let mut stream = handshake(&rig, 3, line);
        let request = receive(&mut guest, &mut Vec::new());
        assert_eq!((request.operation(), request.dst_port), (Some(Op::Request), 7));
        send(&mut guest, &packet((3, 7), (2, request.src_port), Op::Response, 0), &[]);
        let answer = read_line(&mut stream);
        assert_eq!(answer, format!("OK {}\n", request.src_port));
        assert!(answer.len() <= 9, "systemd-ssh-proxy reads nine bytes: {answer:?}");
        ports.push((request.src_port, stream));
    }
    ports.sort_by_key(|(port, _)| *port);
    ports.dedup_by_key(|(port, _)| *port);
    assert_eq!(ports.len(), 3, "each connection has a source port of its own");
    assert_eq!(rig.counter("red", 3, "reject_handshake_total"), 0);
    let mut stream = handshake(&rig, 3, b"HELLO\n");
    assert_eq!(read_line(&mut stream), "ERR expected a line CONNECT <port>\n");
    assert!(rig.wait_notice("red", 3).contains("CONNECT <port>"));
}

#[test]
fn guest_to_host_with_a_slow_reader_and_nothing_lost_at_the_end() {
    let rig = Rig::new();
    let listener = UnixListener::bind(rig.path("red-3.host_1234")).unwrap();
    let mut guest = rig.sockets("red", 3);
    let data = pattern(6, 1 << 20);
    let copy = data.clone();
    let client = thread::spawn(move || {
        let id = guest.connect(Type::Stream, 2, 1234, PATIENCE).unwrap();
        guest.send(id, &copy, PATIENCE).unwrap();
        guest.close(id).unwrap();
        guest
    });
    let mut stream = accept(&listener);
    let mut got = Vec::new();
    let mut room = [0; 1000];
    loop {
        let n = stream.read(&mut room).unwrap();
        if n == 0 {
            break;
        }
        got.extend_from_slice(&room[..n]);
        if got.len() % 50_000 < 1000 {
            thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    assert!(got == data, "{} of {} bytes came", got.len(), data.len());
    drop(client.join().unwrap());
}

#[test]
fn vsock_connects_without_a_listener_are_refused() {
    let rig = Rig::new();
    rig.rule(RuleAction::Reject, "host:*", "red/3:99");
    let mut guest = rig.sockets("red", 3);
    assert!(is_reset(guest.connect(Type::Stream, 2, 4321, PATIENCE)), "no listener");
    let mut refused = handshake(&rig, 3, b"CONNECT 99\n");
    assert_eq!(read_line(&mut refused), "ERR a rule rejects the connection\n");
    assert_eq!(refused.read(&mut [0]).unwrap(), 0, "the stream closes");
    // Without a listener in the guest, the guest answers with a reset.
    let mut stream = handshake(&rig, 3, b"CONNECT 7\n");
    let closed = thread::spawn(move || read_line(&mut stream));
    wait(
        || {
            guest.turn().unwrap();
            closed.is_finished()
        },
        || "not closed".into(),
    );
    let line = closed.join().unwrap();
    assert!(line.starts_with("ERR no program listens at port 7 of the guest"), "{line}");
}

#[test]
fn hostile_host_lines_are_turned_away() {
    let rig = Rig::new();
    let _guest = rig.sockets("red", 3);
    for line in [
        &b"HELLO 7\n"[..],
        b"CONNECT\n",
        b"CONNECT 4294967296\n",
        b"CONNECT -1\n",
        b"CONNECT 00000000000000000000000000000007\n",
        b"\n",
        b"\xff\xff\xff\n",
    ] {
        let mut stream = handshake(&rig, 3, line);
        assert_eq!(read_line(&mut stream), "ERR expected a line CONNECT <port>\n", "{line:?}");
    }
    assert_eq!(rig.counter("red", 3, "reject_handshake_total"), 7);
    // Half a line and then a close, and many processes without a line.
    drop(handshake(&rig, 3, b"CONN"));
    let silent: Vec<_> = (0..70).map(|_| handshake(&rig, 3, b"")).collect();
    drop(silent);
    assert_eq!(rig.counter("red", 3, "connections"), 0);
}

/// The last close of a descriptor may block, and must not do so in the daemon: where the kernel
/// lets processes send descriptors at all, the sender's stream ends.
#[test]
fn hostile_processes_that_send_descriptors() {
    let rig = Rig::new();
    let mut guest = rig.port("red", 3);
    let (mut stream, _) = accepted(&rig, &mut guest, 65_536);
    let (handshaking, fd) = (handshake(&rig, 3, b""), std::fs::File::open("/dev/null").unwrap());
    for by in [&stream, &handshaking] {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let sent = sendmsg(by, &[IoSlice::new(b"x\n")], &mut control, SendFlags::empty());
        assert!(sent.is_ok() || sent == Err(Errno::PERM), "{sent:?}");
        if sent.is_ok() {
            let mut by = by;
            assert_eq!(by.read(&mut [0]).unwrap_or(0), 0, "it goes on");
            return;
        }
    }
    // The kernel refused the descriptor, and the stream continues.
    stream.write_all(b"abc").unwrap();
    let mut data = Vec::new();
    while data.len() < 3 {
        receive(&mut guest, &mut data);
    }
    assert_eq!(data, b"abc");
}

/// Returns a process connected to the hand-driven guest 3, and the header with which the guest
/// answers.
fn accepted(rig: &Rig, guest: &mut VsockPort, room: u32) -> (UnixStream, Header) {
    let mut stream = handshake(rig, 3, b"CONNECT 7\n");
    let request = receive(guest, &mut Vec::new());
    assert_eq!(request.operation(), Some(Op::Request));
    let mut answer = packet((3, 7), (2, request.src_port), Op::Response, 0);
    answer.buf_alloc = room;
    send(guest, &answer, &[]);
    assert!(read_line(&mut stream).starts_with("OK "));
    (stream, answer)
}

#[test]
fn vsock_credit_in_data_resumes_a_process() {
    let rig = Rig::new();
    let mut guest = rig.port("red", 3);
    let (mut stream, mut header) = accepted(&rig, &mut guest, 100);
    let data = pattern(4, 300);
    stream.write_all(&data).unwrap();
    let (mut got, mut room) = (Vec::new(), Vec::new());
    while got.len() < data.len() {
        receive(&mut guest, &mut room);
        got.extend_from_slice(&room);
        if got.len() % 100 == 0 {
            // As Linux does: no separate update, because data has carried the credit.
            (header.op, header.len, header.fwd_cnt) = (Op::Data.raw(), 1, got.len() as u32);
            send(&mut guest, &header, b"k");
        }
    }
    assert!(got == data);
}

#[test]
fn vsock_guest_receives_nothing_after_its_reset_while_a_connection_drains() {
    let rig = Rig::new();
    let listener = UnixListener::bind(rig.path("red-3.host_9")).unwrap();
    let mut guest = rig.port("red", 3);
    let send_op = |guest: &mut VsockPort, op, data: &[u8]| {
        let mut header = packet((3, 1), (2, 9), op, data.len() as u32);
        header.flags = if op == Op::Shutdown { SHUTDOWN_SEND } else { 0 };
        send(guest, &header, data);
    };
    send_op(&mut guest, Op::Request, &[]);
    assert_eq!(next_op(&mut guest), Op::Response);
    let mut stream = accept(&listener);
    // As much as the process's socket and the daemon's buffer take.
    let (mut sent, mut advertised, mut data) = (0_u32, 0_u32, Vec::new());
    loop {
        let free = advertised + (256 << 10) - sent;
        if free < 16 << 10 {
            break;
        }
        send_op(&mut guest, Op::Data, &pattern(sent, 16 << 10));
        sent += 16 << 10;
        wait(|| guest.is_idle().unwrap(), || "the packet is not taken".into());
        while let Some(header) = guest.receive(&mut data).unwrap() {
            advertised = header.fwd_cnt;
        }
        guest.flush().unwrap();
    }
    send_op(&mut guest, Op::Shutdown, &[]);
    send_op(&mut guest, Op::Reset, &[]);
    wait(|| guest.is_idle().unwrap(), || "the reset is not taken".into());
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), sent as usize, "the last bytes still reach the process");
    rig.wait_for("red", 3, |v| v.counters["connections"] == 0);
    if let Some(late) = guest.receive(&mut data).unwrap() {
        panic!("a packet after its reset: {:?}", late.operation());
    }
}

#[test]
fn vsock_trace_shows_refusals() {
    let rig = Rig::new();
    let _guest = rig.sockets("red", 3);
    let verdict = |from: Option<&str>, group: Option<&str>, cid| {
        let name = |text: &str| text.parse().unwrap();
        let (from, group) = (from.map(name), group.map(name));
        let socket_type = Some(SocketKind::Seqpacket);
        let query = TraceQuery::new(&trace::Connect { from, group, cid, port: 7, socket_type });
        match rig.handle.call(Command::Trace(query)).unwrap() {
            Answer::Trace(view) => (view.verdict, view.steps.last().unwrap().clone()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(verdict(None, Some("red"), 3).0, "accept");
    let (decision, why) = verdict(Some("red-3"), None, 2);
    assert!(decision == "reject" && why.contains("no process listens at"), "{decision}: {why}");
    let _listener = UnixListener::bind(rig.path("red-3.host_7")).unwrap();
    let (there, why) = verdict(Some("red-3"), None, 2);
    assert!(there == "accept" && why.contains("SOCK_SEQPACKET"), "{there}: {why}");
    for (from, group, cid) in [(Some("red-3"), None, 3), (None, Some("red"), 2)] {
        let (verdict, why) = verdict(from, group, cid);
        assert!(verdict == "reject" && why.contains("own"), "{verdict}: {why}");
    }
    let kind =
        PortKind::of(VsockSpec { cid: 9, guest_cid: None, host_socket: None, processes: false });
    let (name, group) = ("closed".parse().unwrap(), "red".parse().unwrap());
    let spec = PortSpec {
        name,
        group,
        socket: rig.path("closed"),
        access: Default::default(),
        memory_max: None,
        kind,
    };
    rig.handle.call(Command::PortAdd(spec)).unwrap();
    assert!(verdict(None, Some("red"), 9).1.contains("no host_socket"));
}

#[test]
fn allowed_users_of_a_host_socket_refuse_other_processes() {
    let rig = Rig::new();
    let own = rustix::process::getuid().as_raw();
    let users = |id: u32| Some(vec![id.to_string()]);
    let access = |port: u32, host: Option<Vec<String>>| SocketAccess {
        allowed_users: users(port),
        host_allowed_users: host,
        ..SocketAccess::default()
    };
    rig.try_add_with("red", 3, access(own, users(own + 1))).unwrap();
    rig.try_add_with("red", 4, access(own + 1, users(own))).unwrap();
    rig.try_add_with("red", 5, access(own + 1, None)).unwrap();
    for (cid, is_admitted) in [(3, false), (4, true), (5, false)] {
        // The guest does not run: an admitted process is refused after its line.
        let mut stream = UnixStream::connect(rig.path(&format!("red-{cid}.host"))).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(b"CONNECT 7\n");
        let answer = if is_admitted { "ERR the guest is not up\n" } else { "" };
        assert_eq!(read_line(&mut stream), answer, "{cid}");
        let counters = || {
            ["reject_user_total", "reject_unknown_peer_total"]
                .map(|name| rig.counter("red", cid, name))
        };
        let expected = if is_admitted { [0, 1] } else { [1, 0] };
        wait(|| counters() == expected, || format!("{cid}: {:?}", counters()));
    }
    let notice = rig.view("red", 3).notice.unwrap();
    assert!(
        notice.contains(&format!("user {own}")) && notice.contains("allowed_users"),
        "{notice}"
    );
}
