//! The relay with real sockets: bytes, ends, refusals, back-pressure.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_forward::{Counters, Event, Forward, Relay, SocketAddress};
use causeway_testing::folder::Folder;
use socket2::{Domain, SockAddr, Socket, Type};

/// A relay in a thread; stopped when dropped.
struct Running {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<(Vec<Counters>, Vec<String>)>>,
}

impl Running {
    fn start(pairs: &[(&str, &str)]) -> Self {
        let resolve =
            |text: &str| SocketAddress::resolve(&text.parse().unwrap(), |_| None).unwrap();
        let forwards = pairs
            .iter()
            .map(|(from, to)| Forward { from: resolve(from), to: resolve(to) })
            .collect();
        let mut relay = Relay::open(forwards).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || {
            let mut reports = Vec::new();
            let mut report = |event: Event<'_>| {
                let Event::Failed { error, .. } = event;
                reports.push(error.to_string());
            };
            assert!(relay.run(Some(stopped.as_fd()), None, &mut report).unwrap());
            (relay.counters().into_iter().map(|(_, counters)| counters).collect(), reports)
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }

    fn end(mut self) -> (Vec<Counters>, Vec<String>) {
        self.stop = None;
        self.thread.take().unwrap().join().unwrap()
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn read_all(stream: &mut impl std::io::Read) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

/// Accepts a connection of the forwarder as a host socket does; returns the `CONNECT` line.
fn accept_handshake(listener: &UnixListener, answer: &[u8]) -> (UnixStream, String) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1);
        line.push(byte[0]);
    }
    stream.write_all(answer).unwrap();
    (stream, String::from_utf8(line).unwrap())
}

#[test]
fn forward_passes_bytes_and_each_end_of_data() {
    let folder = Folder::new("forward-bytes");
    let target = folder.join("target.sock");
    let (listener, port) = (UnixListener::bind(&target).unwrap(), free_port());
    let (from, to) = (format!("tcp:127.0.0.1:{port}"), format!("unix:{}", target.display()));
    let running = Running::start(&[(&from, &to)]);
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let expected = sent.clone();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(read_all(&mut stream) == expected, "the client's bytes and end arrive");
        stream.write_all(b"after the client's end").unwrap();
    });
    let mut client = connect(port);
    client.write_all(&sent).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut client), b"after the client's end");
    server.join().unwrap();
    let (counters, reports) = running.end();
    assert_eq!(reports, Vec::<String>::new());
    assert_eq!((counters[0].accepted_total, counters[0].lost_total), (1, 0));
    assert_eq!((counters[0].to_target_bytes, counters[0].to_source_bytes), (3_000_000, 22));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "the source is closed");
}

#[test]
fn forward_to_a_guest_keeps_the_data_after_the_answer() {
    let folder = Folder::new("forward-vsock");
    let host_socket = folder.join("vm1.vsock");
    let listener = UnixListener::bind(&host_socket).unwrap();
    let port = free_port();
    let to = format!("vsock:{}:22", host_socket.display());
    let running = Running::start(&[(&format!("tcp:127.0.0.1:{port}"), &to)]);
    let mut client = connect(port);
    let (mut guest, line) = accept_handshake(&listener, b"OK 1024\nSSH-2.0-guest\r\n");
    assert_eq!(line, "CONNECT 22\n");
    let mut banner = [0; 15];
    client.read_exact(&mut banner).unwrap();
    assert_eq!(&banner, b"SSH-2.0-guest\r\n");
    client.write_all(b"hello").unwrap();
    let mut hello = [0; 5];
    guest.read_exact(&mut hello).unwrap();
    drop(guest);
    assert_eq!(read_all(&mut client), b"");
    drop(client);
    assert_eq!(running.end().1, Vec::<String>::new());
}

#[test]
fn forward_from_a_guest_listens_beside_the_host_socket() {
    let folder = Folder::new("forward-from");
    let (from, port) = (folder.join("vm1.vsock"), free_port());
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let from_text = format!("vsock:{}:5000", from.display());
    let running = Running::start(&[(&from_text, &format!("tcp:127.0.0.1:{port}"))]);
    let path: PathBuf = format!("{}_5000", from.display()).into();
    let mut guest = UnixStream::connect(&path).unwrap();
    guest.write_all(b"log line\n").unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    drop(guest);
    assert_eq!(read_all(&mut stream), b"log line\n");
    drop(stream);
    running.end();
    assert!(!path.exists(), "the socket's file is removed");
}

#[test]
fn forward_refusals_reset_the_client_and_are_counted() {
    let folder = Folder::new("forward-refused");
    let (host_socket, gone) = (folder.join("vm1.vsock"), folder.join("gone.sock"));
    let listener = UnixListener::bind(&host_socket).unwrap();
    let ports = [free_port(), free_port()];
    let from = ports.map(|port| format!("tcp:127.0.0.1:{port}"));
    let (guest, unix) =
        (format!("vsock:{}:9", host_socket.display()), format!("unix:{}", gone.display()));
    let running = Running::start(&[(&from[0], &guest), (&from[1], &unix)]);
    let reason = b"ERR the guest is not up\n";
    for answer in [&b""[..], b"NO\n", b"OK without an end of the line", reason] {
        let mut client = connect(ports[0]);
        drop(accept_handshake(&listener, answer));
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{answer:?}");
    }
    let error = connect(ports[1]).read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let (counters, reports) = running.end();
    assert_eq!((counters[0].refused_total, counters[1].refused_total), (4, 1));
    assert_eq!((counters[0].open, counters[1].open), (0, 0));
    assert!(reports.iter().any(|text| text.contains("no program listens")), "{reports:?}");
    assert!(reports.iter().any(|text| text.contains("No such file")), "{reports:?}");
}

#[test]
fn forward_slow_receiver_stops_its_sender_and_no_other() {
    let folder = Folder::new("forward-slow");
    let target = folder.join("target.sock");
    let (listener, port) = (UnixListener::bind(&target).unwrap(), free_port());
    let (from, to) = (format!("tcp:127.0.0.1:{port}"), format!("unix:{}", target.display()));
    let running = Running::start(&[(&from, &to)]);
    let mut fast = connect(port);
    let (slow_end, _) = listener.accept().unwrap();
    fast.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let block = vec![0x5a_u8; 1 << 20];
    let mut sent = 0_usize;
    let error = loop {
        match fast.write(&block) {
            Ok(len) => sent += len,
            Err(error) => break error,
        }
        assert!(sent < 256 << 20, "nothing stops the sender");
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    // Meanwhile another connection is served.
    let mut other = connect(port);
    let (mut end, _) = listener.accept().unwrap();
    other.write_all(b"ping").unwrap();
    let mut ping = [0; 4];
    end.read_exact(&mut ping).unwrap();
    // The receiver reads, and all bytes arrive.
    fast.shutdown(Shutdown::Write).unwrap();
    let mut slow_end = slow_end;
    assert_eq!(read_all(&mut slow_end).len(), sent);
    drop((running, other));
}

#[test]
fn forward_lost_connection_is_reset_on_the_other_side() {
    let (port, target) = (free_port(), free_port());
    let listener = TcpListener::bind(("127.0.0.1", target)).unwrap();
    let (from, to) = (format!("tcp:127.0.0.1:{port}"), format!("tcp:127.0.0.1:{target}"));
    let running = Running::start(&[(&from, &to)]);
    let mut client = connect(port);
    client.write_all(b"x").unwrap();
    let (stream, _) = listener.accept().unwrap();
    let mut byte = [0];
    (&stream).read_exact(&mut byte).unwrap();
    // Closed with unread bytes, a TCP socket sends a reset.
    client.write_all(b"unread").unwrap();
    while rustix::io::ioctl_fionread(&stream).unwrap() < 6 {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(stream);
    assert_eq!(client.read(&mut byte).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let (counters, _) = running.end();
    assert_eq!((counters[0].lost_total, counters[0].open), (1, 0));
}

#[test]
fn forward_source_replaces_a_stale_socket_only() {
    let folder = Folder::new("forward-stale");
    let [stale, served, file] = ["stale.sock", "served.sock", "file"].map(|name| folder.join(name));
    drop(UnixListener::bind(&stale).unwrap());
    let _served = UnixListener::bind(&served).unwrap();
    std::fs::write(&file, b"x").unwrap();
    let open = |path: &Path| {
        let address = SocketAddress::Unix(path.into());
        Relay::open(vec![Forward { from: address.clone(), to: address }])
    };
    let replaced = open(&stale).unwrap();
    std::fs::remove_file(&stale).unwrap();
    let _other = UnixListener::bind(&stale).unwrap();
    drop(replaced);
    assert!(stale.exists(), "the file of another process stays");
    assert!(open(&served).unwrap_err().to_string().contains("another process listens"));
    assert!(open(&file).unwrap_err().to_string().contains("no socket"));
    assert!(served.exists() && file.exists());
}

#[test]
fn forward_source_with_a_full_queue_is_refused_at_once() {
    let folder = Folder::new("forward-full");
    let path = folder.join("full.sock");
    let socket = || Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).unwrap();
    let (listener, address) = (socket(), SockAddr::unix(&path).unwrap());
    listener.bind(&address).unwrap();
    listener.listen(0).unwrap();
    let connects = std::iter::repeat_with(|| {
        let client = socket();
        client.connect(&address).map(|()| client)
    });
    let clients: Vec<_> = connects.take(10).map_while(Result::ok).collect();
    assert!(clients.len() < 10, "the queue is full");
    let (done, refused) = std::sync::mpsc::channel();
    let address = SocketAddress::Unix(path);
    std::thread::spawn(move || {
        let opened = Relay::open(vec![Forward { from: address.clone(), to: address }]);
        let _ = done.send(opened.unwrap_err().to_string());
    });
    let text = refused.recv_timeout(Duration::from_secs(20)).expect("the check does not wait");
    assert!(text.contains("another process listens"), "{text}");
}

#[test]
fn forward_failure_stays_while_an_older_connection_is_served() {
    let folder = Folder::new("forward-failure");
    let (source, target) = (folder.join("source.sock"), folder.join("target.sock"));
    let listener = UnixListener::bind(&target).unwrap();
    let [from, to] = [&source, &target].map(|path| SocketAddress::Unix(path.clone()));
    let mut relay = Relay::open(vec![Forward { from, to }]).unwrap();
    let serve = |relay: &mut Relay| {
        let until = Instant::now() + Duration::from_millis(5);
        relay.run(None, Some(until), &mut |_| ()).unwrap();
    };
    let mut older = UnixStream::connect(&source).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut end = loop {
        serve(&mut relay);
        if let Ok((end, _)) = listener.accept() {
            break end;
        }
    };
    drop(listener);
    let _failing = UnixStream::connect(&source).unwrap();
    while relay.failure(0).is_none() {
        serve(&mut relay);
    }
    older.write_all(b"x").unwrap();
    end.set_nonblocking(true).unwrap();
    while end.read(&mut [0]).is_err() {
        serve(&mut relay);
    }
    assert!(relay.failure(0).is_some(), "the target does not answer");
}

#[test]
fn forward_floods_of_connections_wait_for_room() {
    let folder = Folder::new("forward-flood");
    let target = folder.join("target.sock");
    let (listener, port) = (UnixListener::bind(&target).unwrap(), free_port());
    let (from, to) = (format!("tcp:127.0.0.1:{port}"), format!("unix:{}", target.display()));
    let running = Running::start(&[(&from, &to)]);
    let echo = std::thread::spawn(move || {
        for _ in 0..300 {
            let (mut stream, _) = listener.accept().unwrap();
            let bytes = read_all(&mut stream);
            stream.write_all(&bytes).unwrap();
        }
    });
    let mut clients: Vec<_> = (0..100).map(|_| connect(port)).collect();
    for round in 0..3 {
        for client in &mut clients {
            client.write_all(&[round]).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        }
        for client in &mut clients {
            assert_eq!(read_all(client), [round]);
        }
        if round < 2 {
            clients = (0..100).map(|_| connect(port)).collect();
        }
    }
    echo.join().unwrap();
    let (counters, reports) = running.end();
    assert_eq!((counters[0].accepted_total, counters[0].open, reports.len()), (300, 0, 0));
}
