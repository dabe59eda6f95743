//! AF_VSOCK between guests of two hosts, over a link.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::hosts::{Host, PATIENCE, exchange, name, spec, wait, wait_up};
use causeway_attach::native::{ConnectionId, SocketError, Sockets, VsockOptions, VsockPort};
use causeway_model::commands::links;
use causeway_model::keys::PrivateKey;
use causeway_model::{Answer, Command, LinkKind, PortKind, PortSpec, TunnelSpec, VsockSpec};
use causeway_model::{RuleAction, RuleSpec};
use causeway_wire::vsock::Type;

pub fn key(n: u8) -> PrivateKey {
    PrivateKey::new([n; 32])
}

/// Links host `from` to host `to` by an encrypted tunnel.
pub fn link(host: &Host, from: u8, to: u8, port: u16) {
    let file = host.path("key");
    std::fs::write(&file, key(from).to_text().as_str()).unwrap();
    let at = |n: u8| -> SocketAddr { format!("127.0.0.{n}:{port}").parse().unwrap() };
    let kind = LinkKind::Causeway(TunnelSpec {
        remote: Some(at(to)),
        local: at(from),
        key: key(to).public().to_string().parse().unwrap(),
        private_key: file,
        vni: 7,
        idle: None,
        has_directory: false,
        class: Default::default(),
    });
    host.link(spec("peer", "red", kind)).unwrap();
}

pub fn port(host: &Host, cid: u32) -> VsockPort {
    let port = format!("v{cid}");
    host.call(Command::PortAdd(PortSpec {
        name: name(&port),
        group: name("red"),
        socket: host.path(&port),
        access: Default::default(),
        memory_max: None,
        kind: PortKind::of(VsockSpec { cid, guest_cid: None, host_socket: None, processes: false }),
    }));
    let attached = VsockPort::attach(&host.path(&port), VsockOptions::default()).unwrap();
    let runs = || host.view(&port).queues[..2].iter().all(|queue| queue.running);
    wait(runs, || format!("{:?}", host.view(&port)));
    attached
}

pub fn sockets(host: &Host, cid: u32) -> Sockets {
    Sockets::new(port(host, cid))
}

/// Two linked hosts, each with a guest that the other can reach.
struct Pair {
    a: Sockets,
    b: Sockets,
    hosts: [Host; 2],
}

impl Pair {
    fn new(port: u16) -> Self {
        let hosts = [Host::with_sockets(), Host::with_sockets()];
        let [left, right] = &hosts;
        let (a, b) = (sockets(left, 3), sockets(right, 4));
        link(left, 41, 42, port);
        link(right, 42, 41, port);
        wait_up(left, "peer");
        wait_up(right, "peer");
        wait_reachable(left, "v3", 4);
        wait_reachable(right, "v4", 3);
        Self { a, b, hosts }
    }

    fn join(&mut self, kind: Type, number: u32) -> (ConnectionId, ConnectionId) {
        join(&mut self.a, &mut self.b, kind, number)
    }
}

/// Waits until a trace leads from a port to a CID.
pub fn wait_reachable(host: &Host, from: &str, cid: u32) {
    let connect = || causeway_model::commands::trace::Connect {
        from: Some(name(from)),
        group: None,
        cid,
        port: 1,
        socket_type: None,
    };
    let accepts = || {
        let query = causeway_model::TraceQuery::new(&connect());
        matches!(host.call(Command::Trace(query)), Answer::Trace(view) if view.verdict == "accept")
    };
    wait(accepts, || format!("CID {cid} is not reached from {from}"));
}

/// Connects `a` to a listener on `b`.
pub fn join(
    a: &mut Sockets,
    b: &mut Sockets,
    kind: Type,
    number: u32,
) -> (ConnectionId, ConnectionId) {
    b.listen(kind, number);
    std::thread::scope(|scope| {
        let cid = b.cid();
        let accepted = scope.spawn(move || b.accept(PATIENCE).unwrap());
        let connected = a.connect(kind, cid, number, PATIENCE).unwrap();
        (connected, accepted.join().unwrap())
    })
}

pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 7 + at / 251 + seed * 13) % 256) as u8).collect()
}

/// Moves `data` over a stream, and checks the received bytes.
pub fn transfer(
    (a, ca): (&mut Sockets, ConnectionId),
    (b, cb): (&mut Sockets, ConnectionId),
    data: &[u8],
    write: usize,
) {
    let (mut sent, mut got) = (0, 0);
    let mut room = vec![0; 64 << 10];
    let since = Instant::now();
    while got < data.len() {
        if sent < data.len() {
            let end = (sent + write).min(data.len());
            sent += a.try_send(ca, &data[sent..end]).unwrap();
        } else {
            a.turn().unwrap();
        }
        let taken = b.try_receive(cb, &mut room).unwrap();
        assert_eq!(room[..taken], data[got..got + taken], "at {got}");
        got += taken;
        assert!(since.elapsed() < PATIENCE, "{got} of {} bytes arrived", data.len());
    }
}

#[test]
fn vsock_streams_cross_a_link_in_both_directions() {
    let mut pair = Pair::new(21601);
    let (ca, cb) = pair.join(Type::Stream, 5000);
    for (seed, write) in [64, 4097, 65_536].into_iter().enumerate() {
        let data = pattern(seed, if write == 64 { 20_000 } else { 2 << 20 });
        transfer((&mut pair.a, ca), (&mut pair.b, cb), &data, write);
        transfer((&mut pair.b, cb), (&mut pair.a, ca), &data, write);
    }
    let page = pair.hosts[0].ask(causeway_model::commands::connections::List::default());
    let shown: Vec<_> = page.connections.iter().map(|c| (&c.caller, &c.callee)).collect();
    let [(caller, callee)] = shown[..] else { panic!("{shown:?}") };
    assert_eq!((caller.port.clone(), caller.link.clone()), (Some(name("v3")), None));
    assert_eq!((callee.port.clone(), callee.link.clone()), (None, Some(name("peer"))));
    assert_eq!((caller.cid, callee.cid, callee.number), (3, 4, 5000));
    let counter = |host: usize, counter: &str| pair.hosts[host].link_counter("peer", counter);
    assert_eq!((counter(0, "vsock_connects_total"), counter(1, "vsock_accepts_total")), (1, 1));
    let mut reply = [0; 64];
    for round in 0..50 {
        pair.a.send(ca, &[round; 64], PATIENCE).unwrap();
        pair.b.receive(cb, &mut reply, PATIENCE).unwrap();
        assert_eq!(reply, [round; 64]);
        pair.b.send(cb, &reply, PATIENCE).unwrap();
        pair.a.receive(ca, &mut reply, PATIENCE).unwrap();
    }
}

#[test]
fn vsock_messages_keep_their_boundaries_across_a_link() {
    let mut pair = Pair::new(21602);
    let (ca, cb) = pair.join(Type::Seqpacket, 77);
    for (seed, len) in [1, 64, 4052, 4096, 4097, 20_000, 100_000].into_iter().enumerate() {
        let message = pattern(seed, len);
        pair.a.send(ca, &message, PATIENCE).unwrap();
        assert_eq!(pair.b.receive_message(cb, PATIENCE).unwrap(), message, "{len} bytes");
        pair.b.send(cb, &message, PATIENCE).unwrap();
        assert_eq!(pair.a.receive_message(ca, PATIENCE).unwrap(), message, "{len} bytes back");
    }
}

#[test]
fn vsock_half_close_and_close_cross_a_link() {
    let mut pair = Pair::new(21603);
    let (ca, cb) = pair.join(Type::Stream, 1);
    pair.a.send(ca, b"request", PATIENCE).unwrap();
    pair.a.shutdown_send(ca).unwrap();
    let mut text = [0; 7];
    pair.b.receive(cb, &mut text, PATIENCE).unwrap();
    assert_eq!(&text, b"request");
    assert!(matches!(pair.b.receive(cb, &mut text, PATIENCE), Err(SocketError::Closed)));
    pair.b.send(cb, b"reply 1", PATIENCE).unwrap();
    pair.a.receive(ca, &mut text, PATIENCE).unwrap();
    assert_eq!(&text, b"reply 1");
    pair.b.close(cb).unwrap();
    let ended = pair.a.receive(ca, &mut text, PATIENCE);
    assert!(matches!(ended, Err(SocketError::Closed | SocketError::Reset)), "{ended:?}");
}

#[test]
fn vsock_connects_without_a_listener_or_guest_are_refused_across_a_link() {
    let mut pair = Pair::new(21604);
    let refused = pair.a.connect(Type::Stream, 99, 9, PATIENCE);
    assert!(matches!(refused, Err(SocketError::Reset)), "{refused:?}");
    let Pair { a, b, .. } = &mut pair;
    let refused = std::thread::scope(|scope| {
        let refused = scope.spawn(|| a.connect(Type::Stream, 4, 9, PATIENCE));
        while !refused.is_finished() {
            b.turn().unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        refused.join().unwrap()
    });
    assert!(matches!(refused, Err(SocketError::Reset)), "{refused:?}");
    let rule = RuleSpec {
        action: RuleAction::Reject,
        from: "*/*:*".parse().unwrap(),
        to: "red/4:5".parse().unwrap(),
    };
    // At the callee's host alone.
    pair.hosts[1].call(Command::RuleAdd { index: None, rule });
    pair.b.listen(Type::Stream, 5);
    let refused = pair.a.connect(Type::Stream, 4, 5, PATIENCE);
    assert!(matches!(refused, Err(SocketError::Reset)), "{refused:?}");
    pair.join(Type::Stream, 6);
}

#[test]
fn vsock_receiver_that_does_not_read_stops_its_connection_alone() {
    let mut pair = Pair::new(21605);
    let (stuck, unread) = pair.join(Type::Stream, 1);
    let (ca, cb) = pair.join(Type::Stream, 2);
    let data = pattern(1, 4 << 20);
    let (mut sent, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_millis(300) {
        let taken = pair.a.try_send(stuck, &data[sent..]).unwrap();
        if taken > 0 {
            (sent, since) = (sent + taken, Instant::now());
        }
        pair.b.turn().unwrap();
    }
    assert!(sent < 2 << 20, "{sent} bytes were sent to a receiver that does not read");
    transfer((&mut pair.a, ca), (&mut pair.b, cb), &data, 65_536);
    let mut room = vec![0; 64 << 10];
    let (mut got, since) = (0, Instant::now());
    while got < sent {
        assert!(since.elapsed() < PATIENCE, "{got} of {sent} bytes arrived");
        let taken = pair.b.try_receive(unread, &mut room).unwrap();
        assert_eq!(room[..taken], data[got..got + taken]);
        got += taken;
        pair.a.turn().unwrap();
    }
}

#[test]
fn vsock_connections_are_reset_if_the_link_or_the_peer_goes() {
    let mut pair = Pair::new(21606);
    let (ca, cb) = pair.join(Type::Stream, 1);
    pair.hosts[1].ask(links::Delete(name("peer")));
    let ended = pair.b.receive(cb, &mut [0; 1], PATIENCE);
    assert!(matches!(ended, Err(SocketError::Reset)), "{ended:?}");
    // The peer comes back as another session, as after a restart of its daemon.
    link(&pair.hosts[1], 42, 41, 21606);
    let ended = pair.a.receive(ca, &mut [0; 1], PATIENCE);
    assert!(matches!(ended, Err(SocketError::Reset)), "{ended:?}");
    wait_reachable(&pair.hosts[0], "v3", 4);
    let (ca, cb) = pair.join(Type::Stream, 2);
    transfer((&mut pair.a, ca), (&mut pair.b, cb), &pattern(2, 100_000), 10_000);
}

#[test]
fn vsock_peer_without_sockets_keeps_the_link() {
    let (left, right) = (Host::with_sockets(), Host::new());
    let mut guest = sockets(&left, 3);
    let (mut one, mut two) = (left.port(1, "red"), right.port(2, "red"));
    link(&left, 43, 44, 21607);
    link(&right, 44, 43, 21607);
    wait_up(&left, "peer");
    wait_up(&right, "peer");
    wait(|| left.link_counter("peer", "addresses_heard") == 1, || "no address".into());
    wait(|| right.link_counter("peer", "addresses_heard") == 1, || "no address".into());
    exchange(&mut one, &mut two, &[60, 1000]);
    let refused = guest.connect(Type::Stream, 4, 1, PATIENCE);
    assert!(matches!(refused, Err(SocketError::Reset)), "{refused:?}");
    exchange(&mut one, &mut two, &[60, 1000]);
}
