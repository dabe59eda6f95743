//! Links that cannot be opened at once, and peers with host names.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;

use crate::hosts::{Host, bare, receive, send, spec, unicast, wait, wait_state};
use causeway_fabric::ServiceRegistration;
use causeway_link::io::service::Links;
use causeway_model::LinkState;
use causeway_model::commands::links;
use causeway_model::keys::PrivateKey;
use causeway_model::{LinkKind, LinkSpec, TunnelSpec};

fn keep(host: &Host, spec: LinkSpec) {
    host.ask(links::Keep(Box::new(spec)));
}

fn reason(host: &Host, link: &str) -> String {
    let view = host.link_view(link);
    assert_eq!(view.state, LinkState::Down, "{view:?}");
    view.reason
}

#[test]
fn a_link_whose_port_is_taken_stays_down_and_opens_when_it_is_free() {
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    let mut three = a.port(3, "red");
    let (x, y) = ("127.0.0.51:21501", "127.0.0.52:21501");
    let taken = UdpSocket::bind(x).unwrap();
    let to_b = bare("to-b", "red", LinkKind::Vxlan, (x, y, 7));
    let refused = a.link(to_b.clone()).unwrap_err().to_string();
    assert!(refused.contains("in use"), "{refused}");
    keep(&a, to_b);
    b.link(bare("to-a", "red", LinkKind::Vxlan, (y, x, 7))).unwrap();
    assert!(reason(&a, "to-b").contains("in use"), "{}", reason(&a, "to-b"));
    let beside = unicast(1, 3, 100);
    send(&mut one, &beside);
    assert_eq!(receive(&mut three).1, beside, "ports of the group work meanwhile");
    drop(taken);
    wait_state(&a, "to-b", LinkState::Open);
    let there = unicast(1, 2, 200);
    let crossed = || {
        send(&mut one, &there);
        std::thread::sleep(std::time::Duration::from_millis(20));
        let mut frame = Vec::new();
        two.receive(0, &mut frame).unwrap().is_some() && frame == there
    };
    wait(crossed, || format!("{:?}", a.link_view("to-b")));
}

fn key(n: u8) -> PrivateKey {
    PrivateKey::new([n; 32])
}

fn tunnel(host: &Host, local: &str, remote: &str, _own: u8, peer: u8) -> LinkSpec {
    let file = host.path("key");
    let kind = LinkKind::Causeway(TunnelSpec {
        remote: Some(remote.parse().unwrap()),
        local: local.parse().unwrap(),
        key: key(peer).public().to_string().parse().unwrap(),
        private_key: file,
        vni: 7,
        idle: None,
        has_directory: false,
        class: Default::default(),
    });
    spec("tunnel", "red", kind)
}

#[test]
fn a_link_whose_key_is_missing_comes_up_when_it_is_there() {
    let (a, b) = (Host::new(), Host::new());
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    std::fs::write(b.path("key"), key(52).to_text().as_str()).unwrap();
    let (x, y) = ("127.0.0.53:21502", "127.0.0.54:21502");
    keep(&a, tunnel(&a, x, y, 51, 52));
    keep(&b, tunnel(&b, y, x, 52, 51));
    assert!(reason(&a, "tunnel").contains("private key"), "{}", reason(&a, "tunnel"));
    std::fs::write(a.path("key"), key(51).to_text().as_str()).unwrap();
    wait_state(&a, "tunnel", LinkState::Up);
    wait_state(&b, "tunnel", LinkState::Up);
    // Also addresses from before the link was open.
    let heard = || b.link_counter("tunnel", "addresses_heard") == 1;
    wait(heard, || format!("{:?}", b.link_view("tunnel")));
    let back = unicast(2, 1, 100);
    send(&mut two, &back);
    assert_eq!(receive(&mut one).1, back);
}

/// The addresses of the only host name that [`resolve`] knows.
static KNOWN: Mutex<Vec<SocketAddr>> = Mutex::new(Vec::new());

fn resolve(host: &str, _port: u16) -> Result<Vec<SocketAddr>, String> {
    let known = KNOWN.lock().unwrap().clone();
    if known.is_empty() { Err(format!("host {host:?} cannot be resolved")) } else { Ok(known) }
}

#[test]
fn names_are_resolved_when_they_can_be_and_followed_to_other_addresses() {
    let a = Host::with_links(ServiceRegistration {
        make: || Box::new(Links::with_resolver(resolve)),
        ..causeway_link::SERVICE
    });
    let b = Host::new();
    std::fs::write(a.path("key"), key(53).to_text().as_str()).unwrap();
    std::fs::write(b.path("key"), key(54).to_text().as_str()).unwrap();
    let (x, y, z) = ("127.0.0.55:21503", "127.0.0.56:21503", "127.0.0.57:21503");
    let named = |spec: LinkSpec| LinkSpec { remote_host: Some("peer:21503".into()), ..spec };
    keep(&a, named(tunnel(&a, x, "0.0.0.0:21503", 53, 54)));
    let bare = bare("bare", "blue", LinkKind::Vxlan, ("127.0.0.55:21504", "0.0.0.0:21503", 7));
    keep(&a, named(bare));
    for link in ["tunnel", "bare"] {
        let is_reported = || reason(&a, link).contains("cannot be resolved");
        wait(is_reported, || reason(&a, link));
    }
    b.link(tunnel(&b, y, x, 54, 53)).unwrap();
    KNOWN.lock().unwrap().push(y.parse().unwrap());
    wait_state(&a, "tunnel", LinkState::Up);
    wait_state(&a, "bare", LinkState::Open);
    assert_eq!(a.link_view("bare").spec.remote(), Some(y.parse().unwrap()));
    // The peer moves to another address, and its name follows.
    b.ask(links::Delete("tunnel".parse().unwrap()));
    wait_state(&a, "tunnel", LinkState::Down);
    let mut moved = tunnel(&b, z, "127.0.0.58:9", 54, 53);
    moved.metric = 7;
    b.link(moved).unwrap();
    *KNOWN.lock().unwrap() = vec![z.parse().unwrap()];
    wait_state(&a, "tunnel", LinkState::Up);
    let follows = || a.link_view("bare").spec.remote() == Some(z.parse().unwrap());
    wait(follows, || format!("{:?}", a.link_view("bare")));
}

#[test]
fn a_peer_without_address_is_found_by_ipv4_and_ipv6() {
    for (port, peer, hub) in [(21505_u16, "127.0.0.59", "127.0.0.60"), (21506, "[::1]", "[::1]")] {
        let (a, b) = (Host::new(), Host::new());
        let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
        std::fs::write(a.path("key"), key(55).to_text().as_str()).unwrap();
        std::fs::write(b.path("key"), key(56).to_text().as_str()).unwrap();
        let mut waits = tunnel(&a, &format!("[::]:{port}"), "127.0.0.1:9", 55, 56);
        let LinkKind::Causeway(ends) = &mut waits.kind else { panic!() };
        ends.remote = None;
        a.link(waits).unwrap();
        // Next to a link to an IPv4 peer on the same port, which shares the socket.
        let mut beside = tunnel(&a, &format!("0.0.0.0:{port}"), "127.0.0.1:9", 55, 57);
        beside.name = "beside".parse().unwrap();
        a.link(beside).unwrap();
        let own_port = port + 10;
        let (x, y) = (format!("{peer}:{own_port}"), format!("{hub}:{port}"));
        b.link(tunnel(&b, &x, &y, 56, 55)).unwrap();
        wait_state(&a, "tunnel", LinkState::Up);
        wait_state(&b, "tunnel", LinkState::Up);
        assert_eq!(a.link_view("tunnel").endpoint, Some(x.parse().unwrap()));
        let there = unicast(1, 2, 1_514);
        send(&mut one, &there);
        assert_eq!(receive(&mut two).1, there);
    }
}
