//! Ports that connect to a VMM that listens, and ports that admit some users only.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use causeway_attach::native::{Client, NetOptions, NetPort};
use causeway_model::{Command, PortState, SocketAccess};

use causeway_testing::wait::patient;
use causeway_wire::virtio_net::Header;

use crate::common::*;

/// Time within which the port connects to a socket that appeared: its longest pause of 1 s, and
/// room for a busy machine.
const SOON: Duration = Duration::from_secs(5);

fn add(rig: &Rig, name: &str, n: u8, access: SocketAccess) {
    let mut spec = port_spec(name, "red", &rig.path(name), net(n));
    spec.access = access;
    rig.handle.call(Command::PortAdd(spec)).unwrap();
}

fn connecting() -> SocketAccess {
    SocketAccess { connect: true, ..SocketAccess::default() }
}

/// Accepts the port's connection as a VMM does, and attaches.
fn accept(listener: &UnixListener) -> NetPort {
    let socket = accept_raw(listener);
    NetPort::over(Client::over(OwnedFd::from(socket)).unwrap(), NetOptions::default()).unwrap()
}

fn accept_raw(listener: &UnixListener) -> UnixStream {
    listener.set_nonblocking(true).unwrap();
    let since = Instant::now();
    loop {
        if let Ok((socket, _)) = listener.accept() {
            socket.set_nonblocking(false).unwrap();
            return socket;
        }
        assert!(since.elapsed() < patient(SOON), "the port did not connect");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn exchange(rig: &Rig, from: &mut NetPort, to: &mut NetPort) {
    rig.wait_running(&["a", "b"]);
    let sent = plain(1, mac(2), b"over a socket of the VMM");
    send(from, &Header::default(), &sent);
    assert_eq!(receive(to).1, sent);
}

#[test]
fn client_mode_connects_when_the_socket_appears_and_again_after_it_vanished() {
    let rig = Rig::new();
    add(&rig, "a", 1, connecting());
    let mut b = rig.port("b", net(2), 0);
    let view = rig.view("a");
    assert_eq!(view.state, PortState::Connecting);
    let error = view.connect_error.unwrap();
    assert!(error.contains("cannot connect to /") && error.contains("No such file"), "{error}");
    for _ in 0..2 {
        let listener = UnixListener::bind(rig.path("a")).unwrap();
        let mut a = accept(&listener);
        exchange(&rig, &mut a, &mut b);
        assert_eq!(rig.view("a").connect_error, None);
        drop((a, listener));
        std::fs::remove_file(rig.path("a")).unwrap();
        let gone = || rig.view("a").state == PortState::Connecting;
        wait(gone, || format!("{:?}", rig.view("a")));
    }
    assert_eq!(rig.view("a").connects_total, 2);
    // A deleted port connects no more, and leaves the VMM's file alone.
    let listener = UnixListener::bind(rig.path("a")).unwrap();
    listener.set_nonblocking(true).unwrap();
    rig.handle.call(Command::PortDel("a".parse().unwrap())).unwrap();
    while listener.accept().is_ok() {}
    std::thread::sleep(Duration::from_millis(1200));
    assert!(listener.accept().is_err() && rig.path("a").exists());
}

#[test]
fn client_mode_leaves_a_peer_that_says_nothing() {
    let rig = Rig::new();
    let listener = UnixListener::bind(rig.path("a")).unwrap();
    add(&rig, "a", 1, connecting());
    let mut b = rig.port("b", net(2), 0);
    let silent = accept_raw(&listener);
    wait(|| rig.view("a").state == PortState::Connected, || format!("{:?}", rig.view("a")));
    let since = Instant::now();
    let mut next = None;
    while next.is_none() {
        next = listener.accept().ok();
        assert!(since.elapsed() < Duration::from_secs(20), "the port stays with a silent peer");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(since.elapsed() > Duration::from_secs(4), "a VMM has 5 s for its first message");
    silent.set_nonblocking(true).unwrap();
    let closed = std::io::Read::read(&mut &silent, &mut [0; 1]);
    assert_eq!(closed.unwrap(), 0, "the silent connection is closed");
    let socket = next.unwrap().0;
    socket.set_nonblocking(false).unwrap();
    let client = Client::over(OwnedFd::from(socket)).unwrap();
    let mut a = NetPort::over(client, NetOptions::default()).unwrap();
    exchange(&rig, &mut a, &mut b);
}

#[test]
fn client_mode_connects_to_a_closing_peer_at_a_bounded_rate() {
    let rig = Rig::new();
    let listener = UnixListener::bind(rig.path("a")).unwrap();
    listener.set_nonblocking(true).unwrap();
    add(&rig, "a", 1, connecting());
    let since = Instant::now();
    let mut accepted = 0;
    while since.elapsed() < Duration::from_secs(3) {
        accepted += usize::from(listener.accept().is_ok());
        std::thread::sleep(Duration::from_millis(1));
    }
    // At 0, 0.1, 0.3, 0.7, 1.5 and 2.5 s.
    assert!((4..=7).contains(&accepted), "{accepted} connections in 3 s");
}

#[test]
fn allowed_users_admit_their_processes_and_refuse_others() {
    let rig = Rig::new();
    let own = rustix::process::getuid().as_raw();
    let users = |id: u32| SocketAccess {
        allowed_users: Some(vec![id.to_string()]),
        ..SocketAccess::default()
    };
    add(&rig, "a", 1, users(own));
    add(&rig, "c", 3, users(own + 1));
    let mut b = rig.port("b", net(2), 0);
    let mut a = rig.attach("a", NetOptions::default());
    exchange(&rig, &mut a, &mut b);
    for refused in 1..=2 {
        assert!(NetPort::attach(&rig.path("c"), NetOptions::default()).is_err());
        wait(|| rig.view("c").refused_users_total == refused, || format!("{:?}", rig.view("c")));
    }
    let view = rig.view("c");
    assert_eq!((view.state, view.connects_total), (PortState::Listening, 0));
    assert_eq!(view.refused_user, Some(own));
    assert_eq!(rig.view("a").refused_users_total, 0);
}

#[test]
fn allowed_users_apply_to_the_process_that_listens() {
    let rig = Rig::new();
    let _listener = UnixListener::bind(rig.path("a")).unwrap();
    let own = rustix::process::getuid().as_raw();
    let other = Some(vec![(own + 1).to_string()]);
    add(&rig, "a", 1, SocketAccess { allowed_users: other, ..connecting() });
    let view = rig.view("a");
    assert_eq!((view.state, view.refused_user), (PortState::Connecting, Some(own)));
    assert!(view.connect_error.unwrap().contains("allowed_users"));
}
