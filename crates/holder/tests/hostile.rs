//! Frontends with arbitrary bytes, a causewayd with invalid replies, and foreign clients at the
//! control socket: each loses its own connection and no other.

mod common;

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use causeway_attach::vhost_user::FrontendReq as R;
use causeway_attach::vhost_user::message::Header;
use causeway_attach::vhost_user::stream::MessageStream;
use causeway_holder::client::{Client, HolderError};
use causeway_holder::protocol::{Answer, ProtocolError, Request, VERSION, receive, send};
use common::{Held, LIMIT, Life, attach, background};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect,
    socket_with,
};

fn dial(held: &Held, name: &str) -> UnixStream {
    let stream = UnixStream::connect(held.path(name)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Waits until the peer closes the connection, and ignores its data.
#[track_caller]
fn hung_up(mut stream: UnixStream) {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

fn header(code: u32, flags: u32, size: u32) -> Vec<u8> {
    [code, flags, size].map(u32::to_ne_bytes).concat()
}

#[test]
fn hostile_bytes_end_their_connection_alone() {
    let held = Held::new();
    let (mut good, life) = attach(&held.path("good"), Life::new(&held, "good"));
    let halt_good = background(life);
    // A second port on the same control connection is not needed: `good` has its own causewayd, and
    // the bad frontends connect to a port of the same causewayd.
    for bytes in [
        vec![0xff; 12],
        vec![0; 12],
        header(1, 1, u32::MAX),
        header(1, 1, 4097),
        header(9999, 1, 0),
        header(1, 1 | 4, 0),
        header(1, 2, 0),
        header(1, 1 | 0xfff0, 0),
        [header(5, 1, 8), vec![0; 4]].concat(),
        header(1, 1, 0)[..7].to_vec(),
    ] {
        let mut bad = dial(&held, "good");
        // Refused while the good frontend is connected, before any byte is read.
        let _ = bad.write_all(&bytes);
        hung_up(bad);
    }
    assert!(!good.frontend().is_gone());
    drop(good);
    let mut life = halt_good();
    life.until("the frontend's end", |life| life.is_free());
    let halt = background(life);
    for bytes in [
        vec![0xff; 12],
        vec![0; 12],
        header(1, 1, u32::MAX),
        header(9999, 1, 0),
        header(1, 1 | 4, 0),
        header(8, 1, 0),
        [header(5, 1, 8), 9_u32.to_ne_bytes().to_vec(), vec![0; 4]].concat(),
        [header(12, 1, 8), vec![0xff; 8]].concat(),
    ] {
        let mut bad = dial(&held, "good");
        bad.write_all(&bytes).unwrap();
        bad.shutdown(std::net::Shutdown::Write).unwrap();
        hung_up(bad);
    }
    held.ask_causewayd("good");
    halt();
}

#[test]
fn hostile_descriptors_are_closed() {
    let held = Held::new();
    let halt = background(Life::new(&held, "p"));
    held.ask_causewayd("p");
    let file = std::fs::File::open("/dev/null").unwrap();
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = count();
    for round in 0..50 {
        let stream = OwnedFd::from(dial(&held, "p"));
        let bad = MessageStream::new(stream.try_clone().unwrap());
        let fds: Vec<BorrowedFd<'_>> = (0..round % 9).map(|_| file.as_fd()).collect();
        // This message takes no descriptor.
        let sent = bad.send(Header::request(R::SET_OWNER, 0), &[], &fds);
        sent.unwrap();
        drop(bad);
        let stream = UnixStream::from(stream);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        hung_up(stream);
    }
    held.ask_causewayd("p");
    let since = std::time::Instant::now();
    while count() > before + 4 {
        assert!(since.elapsed() < LIMIT, "{} descriptors leaked", count() - before);
        std::thread::sleep(Duration::from_millis(10));
    }
    halt();
}

#[test]
fn hostile_surplus_frontends_are_refused() {
    let held = Held::new();
    let (mut port, life) = attach(&held.path("p"), Life::new(&held, "p"));
    let halt = background(life);
    let crowd: Vec<UnixStream> = (0..3).map(|_| dial(&held, "p")).collect();
    crowd.into_iter().for_each(hung_up);
    assert!(!port.frontend().is_gone());
    port.frontend().client().stop_queue(0).unwrap();
    halt();
}

#[test]
fn hostile_answers_of_causewayd_cost_one_connection() {
    let held = Held::new();
    let good = background(Life::new(&held, "good"));
    drop(good());
    let mut control = held.client();
    let bad = held.port("bad");
    let listener = UnixListener::bind(&bad.inner).unwrap();
    control.add(bad).unwrap();
    let reply = |code| header(code, 1 | 4, 8);
    for answer in [
        vec![0xff; 64],
        [reply(2), vec![0; 8]].concat(),
        [header(1, 1, 8), vec![0; 8]].concat(),
        header(1, 1 | 4, u32::MAX),
        header(1, 1 | 4, 0),
        vec![1; 5],
        // Offers none of the required features.
        [reply(1), vec![0; 8], reply(15), vec![0; 8]].concat(),
    ] {
        let frontend = dial(&held, "bad");
        let (mut inner, _) = listener.accept().unwrap();
        inner.write_all(&answer).unwrap();
        inner.shutdown(std::net::Shutdown::Write).unwrap();
        // Connections that are merely closed are retried; causewayd closes each.
        listener.set_nonblocking(true).unwrap();
        frontend.set_nonblocking(true).unwrap();
        let since = std::time::Instant::now();
        let mut frontend = frontend;
        loop {
            drop(listener.accept());
            let mut byte = [0; 1];
            match frontend.read(&mut byte) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                _ => break,
            }
            assert!(since.elapsed() < LIMIT, "still held after {answer:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        listener.set_nonblocking(false).unwrap();
    }
    drop(control);
    let halt = background(Life::new(&held, "good"));
    held.ask_causewayd("good");
    halt();
}

#[test]
fn hostile_messages_that_end_causewayd_are_repeated_a_few_times() {
    let held = Held::new();
    let mut port = None;
    for life in 0..10 {
        let (killed, control) = {
            let held_port = held.port("p");
            let _ = std::fs::remove_file(&held_port.inner);
            let listener = UnixListener::bind(&held_port.inner).unwrap();
            let mut control = held.client();
            control.add(held_port).unwrap();
            (listener, control)
        };
        let frontend = port.get_or_insert_with(|| {
            let mut frontend = dial(&held, "p");
            frontend.write_all(&header(R::SET_OWNER.into(), 1, 0)).unwrap();
            frontend
        });
        killed.set_nonblocking(true).unwrap();
        let since = std::time::Instant::now();
        let mut inner = loop {
            if let Ok((inner, _)) = killed.accept() {
                break inner;
            }
            if gone(frontend) {
                assert!(life >= 2, "let go after {life} deaths");
                return;
            }
            assert!(since.elapsed() < LIMIT, "neither tried again nor let go");
            std::thread::sleep(Duration::from_millis(1));
        };
        inner.set_nonblocking(false).unwrap();
        // The handshake succeeds; then causewayd ends as soon as it has read the message. The holder
        // asks for no offer before the frontend does.
        answer(&mut inner, 16, 0);
        let mut message = [0; 12];
        inner.read_exact(&mut message).unwrap();
        drop((inner, control));
    }
    panic!("ten causewayds died of one message");
}

fn gone(frontend: &UnixStream) -> bool {
    let mut fds = [rustix::event::PollFd::new(frontend, rustix::event::PollFlags::IN)];
    let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&none)).unwrap() > 0
}

/// Reads a request with any payload, and replies with a number.
fn answer(inner: &mut UnixStream, code: u32, value: u64) {
    let mut head = [0; 12];
    inner.read_exact(&mut head).unwrap();
    assert_eq!(head[..4], code.to_ne_bytes());
    let mut payload = vec![0; head[8] as usize];
    inner.read_exact(&mut payload).unwrap();
    inner.write_all(&[header(code, 1 | 4, 8), value.to_ne_bytes().to_vec()].concat()).unwrap();
}

fn stranger(held: &Held) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(held.path("control")).unwrap()).unwrap();
    socket
}

#[test]
fn hostile_control_packets_end_their_own_connection() {
    let held = Held::new();
    for packet in ["{", "[]", "\"synced\"", "\"let_go\"", "{\"delete\":{\"name\":\"p\"}}", "\0"] {
        let socket = stranger(&held);
        rustix::net::send(&socket, packet.as_bytes(), SendFlags::NOSIGNAL).unwrap();
        match receive::<Answer>(&socket, RecvFlags::empty()) {
            Ok(Answer::Refused(why)) => assert!(why.contains("hello"), "{why}"),
            Err(ProtocolError::Closed) => {}
            other => panic!("{packet}: {other:?}"),
        }
        drop(socket);
    }
    let socket = stranger(&held);
    send(&socket, &Request::Hello { version: VERSION + 1, pid: 1 }).unwrap();
    let Ok(Answer::Refused(why)) = receive(&socket, RecvFlags::empty()) else {
        panic!("a version that nobody speaks")
    };
    assert!(why.contains("version 2"), "{why}");
    drop(socket);
    let first = held.client();
    let Err(HolderError::Refused(why)) = Client::connect(&held.dir) else { panic!("two at once") };
    assert!(why.contains("another causewayd"), "{why}");
    drop(first);
    let halt = background(Life::new(&held, "p"));
    held.ask_causewayd("p");
    halt();
}

#[test]
fn hostile_paths_are_refused() {
    let held = Held::new();
    let mut control = held.client();
    std::fs::write(held.path("file"), "precious").unwrap();
    let Err(HolderError::Refused(why)) = control.add(held.port("file")) else { panic!("replaced") };
    assert!(why.contains("not a socket"), "{why}");
    assert_eq!(std::fs::read_to_string(held.path("file")).unwrap(), "precious");
    let _other = UnixListener::bind(held.path("served")).unwrap();
    let Err(HolderError::Refused(why)) = control.add(held.port("served")) else { panic!("taken") };
    assert!(why.contains("another process listens"), "{why}");
    let mut long = held.port("long");
    long.public = format!("/tmp/{}", "x".repeat(200)).into();
    assert!(matches!(control.add(long), Err(HolderError::Refused(_))));
    control.add(held.port("good")).unwrap();
}
