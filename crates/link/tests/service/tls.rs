//! Hosts joined by links over TLS, and peers that are refused.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use crate::hosts::{
    Host, LENGTHS, crowd, dial, exchange, is_silent, receive, send, spec, unicast, wait, wait_up,
};
use causeway_model::LinkState;
use causeway_model::{LinkKind, LinkSpec, StreamSpec, TlsSpec};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    authority_called("causeway test")
}

fn authority_called(name: &str) -> Authority {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// The files of one side.
struct Files {
    certificate: PathBuf,
    private_key: PathBuf,
    authorities: PathBuf,
    key: String,
}

/// Writes the files of a host called `name`, whose certificate `by` signs; it trusts `trusts`.
fn files(host: &Host, name: &str, by: &Authority, trusts: &Authority, expired: bool) -> Files {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    if expired {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, by).unwrap();
    let write = |file: &str, text: &str| {
        let path = host.path(file);
        std::fs::write(&path, text).unwrap();
        path
    };
    Files {
        certificate: write("certificate.pem", &certificate.pem()),
        private_key: write("key.pem", &key.serialize_pem()),
        authorities: write("authorities.pem", &trusts.pem()),
        key: key.serialize_pem(),
    }
}

fn at(n: u8) -> SocketAddr {
    format!("127.0.0.{n}:23000").parse().unwrap()
}

/// Returns the address from which this host connects to `at`.
fn from(at: SocketAddr) -> IpAddr {
    if at.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
}

/// Returns a link whose peer is called `peer`: it listens at `n`, or connects there.
fn link(name: &str, n: u8, listens: bool, peer: &str, files: &Files) -> LinkSpec {
    link_at(name, at(n), listens, peer, files)
}

/// As [`link`], at any address of this host.
fn link_at(name: &str, at: SocketAddr, listens: bool, peer: &str, files: &Files) -> LinkSpec {
    let stream = match listens {
        true => StreamSpec { remote: SocketAddr::new(from(at), 1), listen: Some(at) },
        false => StreamSpec { remote: at, listen: None },
    };
    let kind = LinkKind::Tls(TlsSpec {
        stream,
        certificate: files.certificate.clone(),
        private_key: files.private_key.clone(),
        authorities: files.authorities.clone(),
        peer_name: peer.to_owned(),
    });
    spec(name, "red", kind)
}

fn wait_reason(host: &Host, link: &str, words: &str) {
    let is_reported = || host.link_view(link).reason.contains(words);
    wait(is_reported, || format!("{words}: {:?}", host.link_view(link)));
    assert_eq!(host.link_view(link).state, LinkState::Down);
}

#[test]
fn frames_of_every_length_cross_by_tls() {
    let (a, b, ca) = (Host::new(), Host::new(), authority());
    let merge = causeway_wire::virtio::mask(causeway_wire::virtio_net::VIRTIO_NET_F_MRG_RXBUF);
    let mut one = a.port_with(1, "red", merge, 65535);
    let mut two = b.port_with(2, "red", merge, 65535);
    let of_a = files(&a, "a.example", &ca, &ca, false);
    let of_b = files(&b, "b.example", &ca, &ca, false);
    b.link(link("to-a", 41, true, "a.example", &of_b)).unwrap();
    a.link(link("to-b", 41, false, "b.example", &of_a)).unwrap();
    wait_up(&a, "to-b");
    wait_up(&b, "to-a");
    exchange(&mut one, &mut two, &LENGTHS);
    crowd(&mut one, &mut two);
    let view = a.link_view("to-b");
    assert_eq!(view.counters["transmit_packets_total"], 406, "{view:?}");
    let shown = format!("{view:?} {}", serde_json::to_string(&view).unwrap());
    let secret = of_a.key.lines().nth(1).unwrap();
    assert!(!shown.contains(secret), "a private key is shown");
}

#[test]
fn frames_cross_by_tls_over_ipv6() {
    let (a, b, ca) = (Host::new(), Host::new(), authority());
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    let of_a = files(&a, "a.example", &ca, &ca, false);
    let of_b = files(&b, "b.example", &ca, &ca, false);
    let at = "[::1]:23000".parse().unwrap();
    b.link(link_at("to-a", at, true, "a.example", &of_b)).unwrap();
    a.link(link_at("to-b", at, false, "b.example", &of_a)).unwrap();
    wait_up(&a, "to-b");
    wait_up(&b, "to-a");
    exchange(&mut one, &mut two, &[60, 1514]);
}

/// Checks the reasons on both sides when the certificates are those that `of` returns.
fn refused(
    n: u8,
    of: impl FnOnce(&Host, &Host, &Authority) -> (Files, Files),
    peers: (&str, &str),
    words: (&str, &str),
) {
    let (a, b, ca) = (Host::new(), Host::new(), authority());
    let (mut one, mut two) = (a.port(1, "red"), b.port(2, "red"));
    let (of_a, of_b) = of(&a, &b, &ca);
    b.link(link("to-a", n, true, peers.0, &of_b)).unwrap();
    a.link(link("to-b", n, false, peers.1, &of_a)).unwrap();
    wait_reason(&a, "to-b", words.0);
    wait_reason(&b, "to-a", words.1);
    send(&mut one, &unicast(1, 2, 60));
    assert!(is_silent(&mut two));
    for view in [a.link_view("to-b"), b.link_view("to-a")] {
        assert_eq!(view.ups_total, 0, "{view:?}");
        assert_eq!(view.counters["transmit_packets_total"], 0, "{view:?}");
        assert!(view.counters["connections_failed_total"] > 0, "{view:?}");
    }
}

const RIGHT: (&str, &str) = ("a.example", "b.example");

#[test]
fn hostile_clients_by_another_authority_are_refused() {
    let of = |a: &Host, b: &Host, ca: &Authority| {
        // An authority of the same name.
        let other = authority();
        (files(a, RIGHT.0, &other, ca, false), files(b, RIGHT.1, ca, ca, false))
    };
    refused(42, of, RIGHT, ("the peer refuses us", "not from an authority that we trust"));
}

#[test]
fn hostile_servers_by_another_authority_are_refused() {
    let of = |a: &Host, b: &Host, ca: &Authority| {
        let other = authority_called("somebody else");
        (files(a, RIGHT.0, ca, ca, false), files(b, RIGHT.1, &other, ca, false))
    };
    refused(
        43,
        of,
        RIGHT,
        ("not from an authority that we trust", "not from an authority that it trusts"),
    );
}

#[test]
fn hostile_clients_of_another_name_are_refused() {
    let of = |a: &Host, b: &Host, ca: &Authority| {
        (files(a, "c.example", ca, ca, false), files(b, RIGHT.1, ca, ca, false))
    };
    refused(44, of, RIGHT, ("does not match its configuration", "a.example"));
}

#[test]
fn hostile_servers_of_another_name_are_refused() {
    let of = |a: &Host, b: &Host, ca: &Authority| {
        (files(a, RIGHT.0, ca, ca, false), files(b, "c.example", ca, ca, false))
    };
    refused(45, of, RIGHT, ("b.example", "does not match its configuration"));
}

#[test]
fn hostile_clients_with_an_expired_certificate_are_refused() {
    let of = |a: &Host, b: &Host, ca: &Authority| {
        (files(a, RIGHT.0, ca, ca, true), files(b, RIGHT.1, ca, ca, false))
    };
    refused(46, of, RIGHT, ("our certificate has expired", "certificate is refused: "));
}

#[test]
fn hostile_servers_with_an_expired_certificate_are_refused() {
    let of = |a: &Host, b: &Host, ca: &Authority| {
        (files(a, RIGHT.0, ca, ca, false), files(b, RIGHT.1, ca, ca, true))
    };
    refused(47, of, RIGHT, ("certificate is refused: ", "our certificate has expired"));
}

#[test]
fn hostile_clients_without_a_certificate_or_without_tls_are_refused() {
    let (b, ca) = (Host::new(), authority());
    let mut two = b.port(2, "red");
    let of_b = files(&b, "b.example", &ca, &ca, false);
    b.link(link("to-a", 48, true, "a.example", &of_b)).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "b.example".try_into().unwrap();
    let tls = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut nameless = rustls::StreamOwned::new(tls, dial(at(48)));
    let _ = nameless.write_all(b"et\x0e\0\0\0fourteen bytes");
    let answer = nameless.read(&mut [0]).unwrap_err();
    assert!(answer.to_string().contains("CertificateRequired"), "{answer}");
    wait_reason(&b, "to-a", "the peer sent no certificate");
    // Frames without TLS.
    let mut bare = dial(at(48));
    bare.write_all(&[b"et\x3c\0\0\0", &unicast(1, 2, 60)[..]].concat()).unwrap();
    // An alert, or a reset if the reset was faster.
    let _ = bare.read_to_end(&mut Vec::new());
    wait_reason(&b, "to-a", "TLS messages are invalid");
    // A silent connection does not block other connections.
    let _silent = dial(at(48));
    let a = Host::new();
    let of_a = files(&a, "a.example", &ca, &ca, false);
    let mut one = a.port(1, "red");
    a.link(link("to-b", 48, false, "b.example", &of_a)).unwrap();
    wait_up(&a, "to-b");
    wait_up(&b, "to-a");
    let there = unicast(1, 2, 60);
    send(&mut one, &there);
    assert_eq!(receive(&mut two).1, there);
    // A new connection does not end the peer's connection.
    let mut knocks = dial(at(48));
    knocks.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _ = knocks.read_to_end(&mut Vec::new());
    send(&mut one, &there);
    assert_eq!(receive(&mut two).1, there);
    assert_eq!(b.link_view("to-a").ups_total, 1);
}

/// Returns the client side of TLS, as host a.example has it, for host b.example.
fn client(ca: &Authority) -> rustls::ClientConnection {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, ca).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let name = "b.example".try_into().unwrap();
    rustls::ClientConnection::new(Arc::new(config), name).unwrap()
}

#[test]
fn hostile_connections_take_nothing_from_one_that_is_under_way() {
    let (b, ca) = (Host::new(), authority());
    let mut two = b.port(2, "red");
    let of_b = files(&b, "b.example", &ca, &ca, false);
    b.link(link("to-a", 51, true, "a.example", &of_b)).unwrap();
    let mut tls = client(&ca);
    let mut socket = dial(at(51));
    // Its first message: the handshake has begun.
    tls.write_tls(&mut socket).unwrap();
    let mut knocks = dial(at(51));
    knocks.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let _ = knocks.read_to_end(&mut Vec::new());
    wait_reason(&b, "to-a", "TLS messages are invalid");
    let mut peer = rustls::StreamOwned::new(tls, socket);
    peer.write_all(&[b"et\x3c\0\0\0", &unicast(7, 2, 60)[..]].concat()).unwrap();
    assert_eq!(receive(&mut two).1, unicast(7, 2, 60));
}

#[test]
fn hostile_tls_readers_that_do_not_read_cost_frames_and_no_memory() {
    let (b, ca) = (Host::new(), authority());
    let mut two = b.port(2, "red");
    let of_b = files(&b, "b.example", &ca, &ca, false);
    b.link(link("to-a", 50, true, "a.example", &of_b)).unwrap();
    let tls = client(&ca);
    let mut peer = rustls::StreamOwned::new(tls, dial(at(50)));
    peer.write_all(&[b"et\x3c\0\0\0", &unicast(7, 2, 60)[..]].concat()).unwrap();
    assert_eq!(receive(&mut two).1, unicast(7, 2, 60));
    let back = unicast(2, 7, 1514);
    for sent in 0..100_000 {
        send(&mut two, &back);
        if sent % 100 == 0 && b.link_counter("to-a", "drop_no_room_total") > 100 {
            break;
        }
    }
    let view = b.link_view("to-a");
    assert!(view.counters["drop_no_room_total"] > 100, "what waits has no bound: {view:?}");
    // The peer reads again: it receives whole frames.
    let mut bytes = vec![0; 6 + 1514];
    for _ in 0..view.counters["transmit_packets_total"] {
        peer.read_exact(&mut bytes).unwrap();
        assert!(bytes[6..] == back);
    }
}

#[test]
fn tls_names_missing_and_unusable_files() {
    let (a, ca) = (Host::new(), authority());
    let good = files(&a, "a.example", &ca, &ca, false);
    let missing = a.path("missing.pem");
    for (files, words) in [
        (Files { certificate: missing.clone(), ..files(&a, "a", &ca, &ca, false) }, "certificate"),
        (Files { private_key: missing.clone(), ..files(&a, "a", &ca, &ca, false) }, "private key"),
        (Files { authorities: missing.clone(), ..files(&a, "a", &ca, &ca, false) }, "authorities"),
    ] {
        let error = a.link(link("bad", 49, false, "b.example", &files)).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("missing.pem"), "{error}");
    }
    let swapped = Files {
        certificate: good.private_key.clone(),
        private_key: good.certificate.clone(),
        ..files(&a, "a.example", &ca, &ca, false)
    };
    let error = a.link(link("bad", 49, false, "b.example", &swapped)).unwrap_err().to_string();
    assert!(error.contains("the file has no PEM certificate"), "{error}");
    let swapped = Files { certificate: good.certificate.clone(), ..swapped };
    let error = a.link(link("bad", 49, false, "b.example", &swapped)).unwrap_err().to_string();
    assert!(error.contains("the file has no PEM private key"), "{error}");
    let good = files(&a, "a.example", &ca, &ca, false);
    let error = a.link(link("bad", 49, false, "not a name", &good)).unwrap_err().to_string();
    assert!(error.contains("peer name"), "{error}");
}

#[test]
fn a_renewed_certificate_is_used_and_its_expiry_shown() {
    let (a, b, ca) = (Host::new(), Host::new(), authority());
    let old = files(&a, "a.example", &ca, &ca, true);
    let of_b = files(&b, "b.example", &ca, &ca, false);
    b.link(link("to-a", 67, true, "a.example", &of_b)).unwrap();
    a.link(link("to-b", 67, false, "b.example", &old)).unwrap();
    wait_reason(&a, "to-b", "expired");
    let expired = a.link_view("to-b").certificate_expires.unwrap();
    // Overwritten in place, as some tools for renewal do.
    files(&a, "a.example", &ca, &ca, false);
    wait_up(&a, "to-b");
    wait_up(&b, "to-a");
    let renewed = || a.link_view("to-b").certificate_expires.unwrap() > expired;
    wait(renewed, || format!("{:?}", a.link_view("to-b")));
}
