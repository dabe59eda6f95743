//! Congestion marks and DSCPs cross links: a relay between two hosts reads and writes the traffic
//! class of outer headers, as a router does.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::hosts::{Host, mac, receive, send, spec, wait, wait_state};
use causeway_attach::native::NetPort;
use causeway_fabric::carrier::BufferPool;
use causeway_fabric::udp::{Fragmentation, Origin, Udp, UdpReceiver};
use causeway_model::keys::PrivateKey;
use causeway_model::{Dscp, LinkKind, TrafficClass, TunnelSpec, UdpSpec};
use causeway_wire::checksum;
use causeway_wire::ecn::{ECN_MASK, Ecn};
use etherparse::PacketBuilder;

/// The relay changes nothing.
const PASS: u16 = u16::MAX;

/// Forwards datagrams between two addresses, from an address of its own.
struct Relay {
    at: SocketAddr,
    /// The ECN field to write, or [`PASS`].
    writes: Arc<AtomicU16>,
    /// Traffic classes of datagrams from the first end, without the tunnel's own.
    saw: Arc<Mutex<Vec<u8>>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Relay {
    fn new(at: SocketAddr, ends: [SocketAddr; 2]) -> Self {
        let udp = Udp::bind(at, Fragmentation::Allowed).unwrap();
        udp.report_classes();
        let (writes, saw) = (Arc::new(AtomicU16::new(PASS)), Arc::new(Mutex::new(Vec::new())));
        let stop = Arc::new(AtomicBool::new(false));
        let (write, see, end) = (writes.clone(), saw.clone(), stop.clone());
        let mut receiver = UdpReceiver::new(BufferPool::default());
        let thread = std::thread::spawn(move || {
            let mut bursts = Vec::new();
            while !end.load(Ordering::Relaxed) {
                let more = receiver.receive(&udp, &mut bursts, false, usize::MAX);
                for burst in bursts.drain(..) {
                    let alike = ends[0].ip() == ends[1].ip();
                    let first = match alike {
                        true => burst.from == ends[0],
                        // VXLAN flows have different source ports.
                        false => burst.from.ip() == ends[0].ip(),
                    };
                    let to = ends[usize::from(first)];
                    if first && burst.len > LONG && burst.stride < LONGEST {
                        see.lock().unwrap().push(burst.class);
                    }
                    let ecn = write.load(Ordering::Relaxed);
                    // Heartbeats are Not-ECT: a router drops them rather than marking them.
                    let class = match u8::try_from(ecn) {
                        Ok(ecn) if burst.len > LONG => burst.class & !ECN_MASK | ecn,
                        _ => burst.class,
                    };
                    for datagram in burst.datagrams() {
                        let (bytes, origin) =
                            (&burst.buffer[datagram], Origin { from: None, class });
                        let _ = udp.send_as(to, origin, bytes, bytes.len());
                    }
                }
                if !more.unwrap_or(true) {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        });
        Self { at, writes, saw, stop, thread: Some(thread) }
    }

    fn write(&self, ecn: Option<Ecn>) {
        self.writes.store(ecn.map_or(PASS, |ecn| ecn as u16), Ordering::Relaxed);
    }

    /// Returns the traffic classes since the last call.
    fn saw(&self) -> Vec<u8> {
        std::mem::take(&mut *self.saw.lock().unwrap())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// Longer than heartbeats.
const LONG: usize = 300;
/// As long as probes for the longest datagram.
const LONGEST: usize = 65_507;

fn key(n: u8) -> PrivateKey {
    PrivateKey::new([n; 32])
}

/// Two hosts with a port each, and a link through a relay.
struct Pair {
    a: Host,
    b: Host,
    one: NetPort,
    two: NetPort,
    relay: Relay,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Vnet,
    Vxlan,
    Plain,
    Causeway,
}

const KINDS: [Kind; 4] = [Kind::Vnet, Kind::Vxlan, Kind::Plain, Kind::Causeway];

impl Pair {
    fn new(kind: Kind, port: u16, class: TrafficClass) -> Self {
        Self::at(kind, class, |n| SocketAddr::from(([127, 0, 3, n], port)))
    }

    /// The ends have addresses 1 and 2, the relay 3.
    fn at(kind: Kind, class: TrafficClass, at: impl Fn(u8) -> SocketAddr) -> Self {
        let relay = Relay::new(at(3), [at(1), at(2)]);
        let (a, b) = (Host::new(), Host::new());
        let merge = causeway_wire::virtio::mask(causeway_wire::virtio_net::VIRTIO_NET_F_MRG_RXBUF);
        let (one, two) = (a.port_with(1, "red", merge, 65535), b.port_with(2, "red", merge, 65535));
        for (host, n) in [(&a, 1), (&b, 2)] {
            let udp = UdpSpec { local: at(n), remote: relay.at, vni: 7, class };
            let kind = match kind {
                Kind::Vnet => LinkKind::Vnet(udp),
                Kind::Vxlan => LinkKind::Vxlan(udp),
                Kind::Plain => LinkKind::CausewayPlain(udp),
                Kind::Causeway => {
                    let private_key = host.path("key");
                    std::fs::write(&private_key, key(n).to_text().as_str()).unwrap();
                    LinkKind::Causeway(TunnelSpec {
                        remote: Some(relay.at),
                        local: at(n),
                        key: key(3 - n).public().to_string().parse().unwrap(),
                        private_key,
                        vni: 7,
                        idle: None,
                        has_directory: false,
                        class,
                    })
                }
            };
            host.link(spec("far", "red", kind)).unwrap();
        }
        use causeway_model::LinkState::{Open, Up};
        let state = if matches!(kind, Kind::Vnet | Kind::Vxlan) { Open } else { Up };
        wait_state(&a, "far", state);
        wait_state(&b, "far", state);
        // The search for the longest datagram has ended.
        for host in [&a, &b] {
            let settled = || host.link_view("far").path_mtu == Some(u16::MAX);
            wait(settled, || format!("{:?}", host.link_view("far")));
        }
        relay.saw();
        Self { a, b, one, two, relay }
    }

    /// Sends a packet and returns it as it arrives.
    fn crosses(&mut self, packet: &[u8]) -> Vec<u8> {
        send(&mut self.one, packet);
        receive(&mut self.two).1
    }

    /// Returns the traffic classes of the outer headers sent.
    fn outer(&self) -> Vec<u8> {
        let mut all = self.relay.saw();
        all.dedup();
        all
    }

    fn dropped(&self) -> u64 {
        self.b.link_counter("far", "drop_congestion_total")
    }
}

/// Returns a packet of that traffic class, with an IEEE 802.1Q tag if `tagged`.
fn packet(v4: bool, tagged: bool, class: u8, payload: usize) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(mac(1), mac(2));
    let mut plain = Vec::new();
    if v4 {
        let builder = builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1000, 2000);
        builder.write(&mut plain, &vec![0x5a; payload]).unwrap();
        plain[15] = class;
        plain[24..26].fill(0);
        let sum = checksum::of(&plain[14..34]);
        plain[24..26].copy_from_slice(&sum.to_be_bytes());
    } else {
        let builder = builder.ipv6([1; 16], [2; 16], 64).udp(1000, 2000);
        builder.write(&mut plain, &vec![0x5a; payload]).unwrap();
        plain[14] = 0x60 | class >> 4;
        plain[15] = class << 4;
    }
    if tagged {
        plain.splice(12..12, [0x81, 0x00, 0x20, 0x05]);
    }
    plain
}

/// EF, which no test configures for a link.
const EF: u8 = 46 << 2;

fn marks_survive(kind: Kind, mut pair: Pair) {
    // The first frame teaches the address.
    pair.crosses(&packet(true, false, 0, 1000));
    pair.relay.saw();
    for (v4, tagged) in [(true, false), (true, true), (false, false), (false, true)] {
        for inner in Ecn::ALL {
            let class = EF | inner as u8;
            let sent = packet(v4, tagged, class, 1000);
            pair.relay.write(None);
            assert!(pair.crosses(&sent) == sent, "{kind:?} {inner:?}");
            assert_eq!(pair.outer(), [inner as u8], "{kind:?}: ECN is inherited, DSCP is not");
            for outer in Ecn::ALL {
                pair.relay.write(Some(outer));
                match inner.combine(outer) {
                    Ok(ecn) => {
                        let arrives = packet(v4, tagged, EF | ecn as u8, 1000);
                        assert!(pair.crosses(&sent) == arrives, "{kind:?} {inner:?} {outer:?}");
                    }
                    Err(_) => {
                        let before = pair.dropped();
                        send(&mut pair.one, &sent);
                        wait(
                            || pair.dropped() == before + 1,
                            || format!("{:?}", pair.b.link_view("far")),
                        );
                    }
                }
            }
            pair.relay.saw();
        }
    }
    // A frame without an IP packet is neither marked nor dropped.
    pair.relay.write(Some(Ecn::Ce));
    let other = crate::hosts::unicast(1, 2, 1000);
    assert!(pair.crosses(&other) == other);
    assert_eq!(pair.a.link_counter("far", "drop_congestion_total"), 0);
}

#[test]
fn marks_on_the_way_reach_the_guest_by_vnet() {
    marks_survive(Kind::Vnet, Pair::new(Kind::Vnet, 22001, TrafficClass::default()));
}

#[test]
fn marks_on_the_way_reach_the_guest_by_vxlan() {
    marks_survive(Kind::Vxlan, Pair::new(Kind::Vxlan, 22002, TrafficClass::default()));
}

#[test]
fn marks_on_the_way_reach_the_guest_by_a_plain_tunnel() {
    marks_survive(Kind::Plain, Pair::new(Kind::Plain, 22003, TrafficClass::default()));
}

#[test]
fn marks_on_the_way_reach_the_guest_by_an_encrypted_tunnel() {
    marks_survive(Kind::Causeway, Pair::new(Kind::Causeway, 22004, TrafficClass::default()));
}

#[test]
fn marks_on_the_way_reach_the_guest_over_ipv6() {
    for (kind, port) in [(Kind::Vnet, 22011), (Kind::Plain, 22015), (Kind::Causeway, 22019)] {
        // All ends have the same address, so the relay distinguishes them by port.
        let at = |n: u8| SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port + u16::from(n)));
        marks_survive(kind, Pair::at(kind, TrafficClass::default(), at));
    }
}

#[test]
fn marks_of_one_datagram_of_many_mark_the_frame() {
    // The longest frame takes at least two datagrams, over any path.
    for (kind, port) in [(Kind::Plain, 22021), (Kind::Causeway, 22022)] {
        let mut pair = Pair::new(kind, port, TrafficClass::default());
        let sent = packet(true, false, Ecn::Ect0 as u8, 65_507);
        assert!(pair.crosses(&sent) == sent);
        // The rest of it is short, and is not marked.
        pair.relay.write(Some(Ecn::Ce));
        let arrives = pair.crosses(&sent);
        assert!(arrives == packet(true, false, Ecn::Ce as u8, 65_507));
    }
}

#[test]
fn marks_of_frames_that_leave_together_are_each_their_own() {
    for (kind, port) in KINDS.into_iter().zip(22030..) {
        let mut pair = Pair::new(kind, port, TrafficClass { dscp: Dscp::Inherit, ecn: true });
        pair.crosses(&packet(true, false, 0, 1000));
        pair.relay.saw();
        // Queued together and sent after a single notification.
        let classes: Vec<u8> = (0..64).map(|n| [0, 2, 2, EF, EF | 1, 0, 0x22][n % 7]).collect();
        let header = [0; causeway_attach::native::NET_HEADER_BYTES];
        for class in &classes {
            assert!(pair.one.queue(0, &header, &packet(true, false, *class, 400)).unwrap());
        }
        pair.one.flush(0).unwrap();
        for class in &classes {
            assert!(receive(&mut pair.two).1 == packet(true, false, *class, 400), "{kind:?}");
        }
        let mut expected = classes;
        expected.dedup();
        assert_eq!(pair.outer(), expected, "{kind:?}");
    }
}

#[test]
fn dscp_of_outer_headers_is_what_the_link_asks_for() {
    for (kind, port) in KINDS.into_iter().zip(22040..) {
        for (nth, (dscp, ecn, outer)) in [
            (Dscp::Fixed(10), true, 10 << 2 | 2),
            (Dscp::Inherit, true, EF | 2),
            (Dscp::Inherit, false, EF),
            (Dscp::Fixed(0), false, 0),
        ]
        .into_iter()
        .enumerate()
        {
            let port = port + 10 * u16::try_from(nth).unwrap();
            let mut pair = Pair::new(kind, port, TrafficClass { dscp, ecn });
            let sent = packet(true, false, EF | 2, 1000);
            assert!(pair.crosses(&sent) == sent, "the packet inside keeps its own");
            assert_eq!(pair.outer(), [outer], "{kind:?} {dscp:?}");
        }
    }
}
