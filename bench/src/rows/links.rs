//! Links: two hosts, each with its own dispatcher, in namespaces connected by a veth pair.
//!
//! The rows measure round trips of 64 B and segments of 64 KiB from a port of one host to a port of
//! the other, by each kind of link ([`crate::hosts`]), beside the kernel's VXLAN, bare UDP and TCP,
//! relays, and overlays in user space. Everything but the overlays' programs is threads of the
//! benchmark. Causeway's hosts have a core each (except in rows on one core); TCP and the overlays
//! have one in all ([`crate::pin`]). Root is needed for the namespaces; otherwise these rows are
//! left out with the reason. A stream of segments may lose a fiftieth of its bytes, which lowers
//! the figure; more fails it. Four rows measure the look-up among 10 to 10,000 routes alone,
//! without a link.

use std::time::Instant;

use causeway_attach::native::NET_HEADER_BYTES;
use causeway_ethernet::route::RouteTable;
use causeway_model::Forwarding;
use causeway_model::{Mac, Name};
use causeway_model::{MacMatch, RouteEnd, RouteSpec};
use causeway_wire::ethernet;

use super::ethernet::frame;
use crate::effort::Effort;
use crate::hosts::{Kind, LOST, Pair, failed, parked_round_us, polling_round_us};
use crate::peers::overlay::{Overlay, tcp_gbits as overlay_gbits};
use crate::peers::relay::relay_round_us;
use crate::peers::underlay::{Ends, PeerNetwork, tcp_gbits, udp_round_us};
use crate::pin::{CLIENT, SERVER};
use crate::rig::{GROUP, leave, mac};
use crate::row::{Against, Guest, Plan};

/// VIRTIO_NET_F_CSUM, GUEST_CSUM, GUEST_TSO4, HOST_TSO4, MRG_RXBUF.
const OFFLOADS: u64 = 1 | 1 << 1 | 1 << 7 | 1 << 11 | 1 << 15;

/// Payload of the pieces into which a segment may be cut: the segment size of a guest behind a
/// VXLAN link, MTU 1450 B.
const PIECE: u16 = 1398;

/// Returns the virtio-net header of a TCP segment that is to be cut into such pieces.
fn segment_header() -> [u8; NET_HEADER_BYTES] {
    let mut header = [0; NET_HEADER_BYTES];
    let [low, high] = PIECE.to_le_bytes();
    // NEEDS_CSUM, TCPV4, length of headers, size of pieces, position of the checksum.
    let fields = [1, 1, 66, 0, low, high, 34, 0, 16, 0];
    header[..fields.len()].copy_from_slice(&fields);
    header
}

/// Returns a TCP segment over IPv4 of `len` bytes with 12 bytes of options.
fn segment(len: usize) -> Vec<u8> {
    let mut bytes = frame(mac(1), mac(2), len);
    bytes[12..14].copy_from_slice(&[8, 0]);
    let total = (len - 14) as u16;
    let ip = [0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0x40, 0, 64, 6, 0, 0];
    bytes[14..26].copy_from_slice(&ip);
    bytes[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    bytes[46] = 0x80;
    bytes
}

/// Segments of 64 KiB from port to port: Gbit/s of payload.
pub fn gbits(effort: &Effort, kind: Kind) -> Result<Vec<f64>, String> {
    const HEADERS: usize = 66;
    let bytes = segment(65_226);
    let payload = (bytes.len() - HEADERS) as u64;
    // If segments are cut into pieces, those in flight have to fit the receiver's ring.
    let window = if kind == Kind::Vxlan { 4 } else { 16 };
    let all = effort.rounds(40_000).max(2 * window) * payload;
    effort.each(|| {
        let mut pair = Pair::new(kind, [CLIENT, SERVER], OFFLOADS)?;
        leave(&mut pair.near, &mut pair.far, &segment_header(), &bytes).map_err(failed)?;
        let whole = (NET_HEADER_BYTES + bytes.len()) as u32;
        // Bytes sent, received, lost, and received before the clock started.
        let (mut sent, mut got, mut lost, mut before) = (0, 0, 0, 0);
        let (mut since, mut last) = (Instant::now(), Instant::now());
        while got + lost < all {
            let mut queued = false;
            while sent < all && sent < got + lost + window * payload {
                if !pair.near.queue_as_is(0, whole).map_err(failed)? {
                    break;
                }
                sent += payload;
                queued = true;
            }
            if queued {
                pair.near.flush(0).map_err(failed)?;
            }
            let had = got;
            while let Some(there) = pair.far.discard(0).map_err(failed)? {
                got += there.saturating_sub(HEADERS) as u64;
            }
            if got > had {
                last = Instant::now();
                if had == 0 {
                    (since, before) = (last, got);
                }
            } else if last.elapsed() > LOST {
                // Links may lose frames; the time until the loss is detected counts too.
                lost = sent - got;
                if lost > all / 50 {
                    return Err(format!("{lost} bytes of {sent} were lost"));
                }
            } else {
                std::thread::yield_now();
            }
        }
        Ok((got - before) as f64 * 8.0 / last.duration_since(since).as_secs_f64() / 1e9)
    })
}

/// Reference of the look-ups among many routes.
const FEW: &str = "10 routes";

/// Time of a route look-up for a frame with a known pair of addresses, among `count` routes:
/// nanoseconds.
fn look_up_ns(effort: &Effort, count: u32) -> Result<Vec<f64>, String> {
    const PAIRS: u64 = 64;
    let looks = effort.rounds(20_000_000);
    let address = |n: u32| {
        let [a, b, c, d] = n.to_be_bytes();
        Mac([2, 0, a, b, c, d])
    };
    let group: Name = GROUP.parse().map_err(|_| "a name")?;
    let edge = RouteEnd::Edge("far".parse().map_err(|_| "a name")?);
    let route = |n: u32| RouteSpec {
        group: group.clone(),
        source: MacMatch::Any,
        destination: MacMatch::Only(address(n)),
        to: edge.clone(),
        from: None,
    };
    let mut routes = RouteTable::default();
    let all = (0..count).map(|n| (u64::from(n) + 1, route(n))).collect();
    routes.replace(all, Forwarding::Routes, |_| Some(7));
    let pairs: Vec<(u64, u64)> =
        (0..PAIRS as u32).map(|n| (1, ethernet::number(address(n % count).0))).collect();
    effort.each(|| {
        let since = Instant::now();
        let mut found = 0_u64;
        for n in 0..looks {
            let (source, destination) = pairs[(n % PAIRS) as usize];
            found += u64::from(routes.look_up(3, source, destination).is_some());
        }
        if found != looks {
            return Err(format!("{found} of {looks} were found"));
        }
        Ok(since.elapsed().as_secs_f64() * 1e9 / looks as f64)
    })
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let mut plans = route_plans();
    plans.extend(segment_plans());
    plans.extend(round_trip_plans());
    plans
}

/// Rows of looked up routes.
fn route_plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for count in [10, 100, 1000, 10_000] {
        let name = format!("Route of a known pair, {count} routes");
        let plan = Plan::new(name, "ns", Guest::Native, move |e| look_up_ns(e, count));
        let plan = plan.aim(Against::Figure, 30.0).at("routes", count as usize);
        // Constant time: as fast among many routes as among few, within the machine's own
        // variation.
        plans.push(match count {
            10 => plan,
            _ => plan.beside(FEW, |e| look_up_ns(e, 10)).aim(Against::Peer(FEW), 0.9),
        });
    }
    plans
}

/// Rows of segments of 64 KiB.
fn segment_plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for (name, kind, aim) in [
        ("Link causeway (encrypted), segments of 64 KiB", Kind::Causeway, 5.0),
        ("Link causeway-plain, segments of 64 KiB", Kind::Plain, 10.0),
        ("Link vxlan, segments of 64 KiB, cut to 1398 B", Kind::Vxlan, 10.0),
    ] {
        let plan = Plan::new(name, "Gbit/s", Guest::Native, move |e| gbits(e, kind));
        // Overlays of the same level of encryption.
        let plan = match kind {
            Kind::Causeway => plan
                .beside("n2n, TCP", |e| overlay_gbits(e, Overlay::N2n))
                .beside("tinc, TCP", |e| overlay_gbits(e, Overlay::Tinc))
                .aim(Against::Peer("n2n, TCP"), 10.0)
                .aim(Against::Peer("tinc, TCP"), 10.0),
            Kind::Plain | Kind::Vxlan => plan
                .beside("tinc without cipher, TCP", |e| overlay_gbits(e, Overlay::TincPlain))
                .aim(Against::Peer("tinc without cipher, TCP"), 10.0),
        };
        plans.push(
            plan.beside("kernel VXLAN, TCP", |e| tcp_gbits(e, PeerNetwork::Vxlan))
                .beside("raw veth, TCP", |e| tcp_gbits(e, PeerNetwork::Veth))
                .aim(Against::Figure, aim)
                .aim(Against::Peer("kernel VXLAN, TCP"), 1.0)
                .note(
                    "Two daemons in two namespaces; the client leaves the segments in its \
                     buffers. The peers' figures are TCP with 64 KiB writes, the stack included, \
                     each end on the core of its host.",
                ),
        );
    }
    plans
}

/// Rows of round trips.
fn round_trip_plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for (name, kind) in [
        ("causeway (encrypted)", Kind::Causeway),
        ("causeway-plain", Kind::Plain),
        ("vxlan", Kind::Vxlan),
    ] {
        for (how, ends) in [("parked", Ends::Apart), ("parked, all on one core", Ends::Together)] {
            let title = format!("Link {name}, round trip of 64 B, {how}");
            let measure = move |e: &Effort| parked_round_us(e, kind, ends);
            let plan = Plan::new(title, "us", Guest::Native, measure)
                .beside("kernel VXLAN, UDP", move |e| udp_round_us(e, PeerNetwork::Vxlan, ends))
                .beside("raw veth, UDP", move |e| udp_round_us(e, PeerNetwork::Veth, ends))
                .beside("relays that do nothing else", move |e| relay_round_us(e, ends))
                .aim(Against::Peer("kernel VXLAN, UDP"), 1.0 / 1.3);
            plans.push(match ends {
                Ends::Apart => plan.note(
                    "Each host on its own core, shared by its guest and its dispatcher; the core \
                     is halted when a frame arrives.",
                ),
                _ => plan.note(
                    "Both hosts, and both ends of each peer, on one core, which excludes the cost \
                     of waking a halted core. Six wake-ups a round, like the relays \
                     (guest, dispatcher, dispatcher, guest, and back); the kernel needs two.",
                ),
            });
        }
        let title = format!("Link {name}, round trip of 64 B, polling");
        let plan = Plan::new(title, "us", Guest::Native, move |e| polling_round_us(e, kind));
        plans.push(
            plan.beside("raw veth, UDP", |e| udp_round_us(e, PeerNetwork::Veth, Ends::Apart))
                .beside("raw veth, UDP, polling", |e| {
                    udp_round_us(e, PeerNetwork::Veth, Ends::Spinning)
                })
                .aim(Against::Peer("raw veth, UDP"), 1.0 / 1.5)
                .aim(Against::Peer("raw veth, UDP, polling"), 1.0 / 1.5)
                .note(
                    "Each host on its own core, where its guest and its dispatcher take turns in \
                     one thread. The peers are sockets whose ends sleep, as Causeway would without \
                     polling, and sockets whose ends poll on a core each.",
                ),
        );
    }
    plans
}
