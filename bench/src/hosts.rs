//! Two hosts, each with its own dispatcher, in namespaces connected by a veth pair.
//!
//! Rows of links and of sockets between hosts (`rows::links`, `rows::sockets`) create a [`Pair`] or
//! [`sockets()`], or call the round trips of this module. The dispatchers are threads of the
//! benchmark, each in the network namespace of its host, so that root is needed. The guests are
//! native frontends; they attach by Unix sockets, and most are outside of the namespaces. In a
//! round trip of this module a frame is lost if none arrives within [`LOST`] (500 ms) while asleep,
//! or after 3,000,000 polls; the figure then fails. So does a link that is not up within 10 s. The
//! namespaces are removed on drop.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use causeway_attach::native::{NET_HEADER_BYTES, NativeError, NetOptions, NetPort, VsockPort};
use causeway_fabric::{Handle, ManualFabric};
use causeway_model::LinkState;
use causeway_model::keys::PrivateKey;
use causeway_model::{LinkKind, LinkSpec, TunnelSpec, UdpSpec, metric_default};

use crate::effort::Effort;
use crate::peers::underlay::{Ends, PeerNetwork, Underlay};
use crate::pin::{CLIENT, pin};
use crate::rig::{GROUP, RING, Rig, SERVICES, mac, polling, vsock_options};
use crate::rows::ethernet::frame;

/// Frames in flight count as lost if none arrives within this time.
pub const LOST: Duration = Duration::from_millis(500);

/// Polls without an answer before a frame counts as lost.
const VAIN_MAX: u32 = 3_000_000;

/// Kind of link between the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Causeway's encrypted tunnel.
    Causeway,
    /// Causeway's tunnel without encryption.
    Plain,
    /// VXLAN.
    Vxlan,
}

/// Two hosts with a port each.
pub struct Pair {
    /// Port of the first host.
    pub near: NetPort,
    /// Port of the second host.
    pub far: NetPort,
    _rigs: [Rig; 2],
    _underlay: Underlay,
}

fn link(rig: &Rig, host: usize, kind: Kind) -> LinkSpec {
    let at = |host: usize| -> SocketAddr {
        let address = PeerNetwork::Veth.address(host).parse().expect("an address");
        SocketAddr::new(address, if kind == Kind::Vxlan { 4789 } else { 51871 })
    };
    let (local, remote) = (at(host), at(1 - host));
    let plain = UdpSpec { local, remote, vni: 7, class: Default::default() };
    let key = |host: usize| PrivateKey::new([host as u8 + 1; 32]);
    let kind = match kind {
        Kind::Plain => LinkKind::CausewayPlain(plain),
        Kind::Vxlan => LinkKind::Vxlan(plain),
        Kind::Causeway => {
            let file = rig.socket("key");
            std::fs::write(&file, key(host).to_text().as_str()).expect("a file for a key");
            LinkKind::Causeway(TunnelSpec {
                remote: Some(remote),
                local,
                key: key(1 - host).public().to_string().parse().expect("a key"),
                private_key: file,
                vni: 7,
                idle: None,
                has_directory: false,
                class: Default::default(),
            })
        }
    };
    let name = "far".parse().expect("a name");
    let group = GROUP.parse().expect("a name");
    LinkSpec {
        name,
        group,
        peer: None,
        metric: metric_default(),
        transit: false,
        remote_host: None,
        kind,
    }
}

/// Converts an error to text.
pub fn failed(error: NativeError) -> String {
    error.to_string()
}

/// Waits until the link is up or open on both hosts, at most 10 s, and 1.5 s more, in which both
/// learn the other port's location and the path MTU.
fn wait_up(rigs: &[Rig; 2]) -> Result<(), String> {
    let since = Instant::now();
    while rigs.iter().any(|rig| rig.link_state("far") == LinkState::Down) {
        if since.elapsed() > Duration::from_secs(10) {
            return Err("the link does not come up".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(1500));
    Ok(())
}

fn ports(rigs: &[Rig; 2], features: u64) -> [NetPort; 2] {
    let options = || NetOptions { features: RING | features, ..NetOptions::default() };
    let [a, b] = rigs;
    [a.net(1, options()), b.net(2, options())]
}

/// Sends a frame of 64 B from one port to the other.
fn send(from: u8, port: &mut NetPort) -> Result<(), String> {
    let frame = frame(mac(from), mac(3 - from), 64);
    port.queue(0, &[0; NET_HEADER_BYTES], &frame).map_err(failed)?;
    port.flush(0).map_err(failed)
}

/// Two linked hosts, until dropped.
pub struct Linked {
    rigs: [Rig; 2],
    underlay: Underlay,
}

impl Linked {
    /// Links two hosts with parked dispatchers on these cores.
    fn new(kind: Kind, cores: [usize; 2]) -> Result<Self, String> {
        let underlay = Underlay::new()?;
        let host = |host: usize| {
            underlay.at(host, move || {
                let rig = Rig::on(cores[host], Duration::ZERO);
                rig.link(link(&rig, host, kind));
                Ok(rig)
            })
        };
        let rigs = [host(0)?, host(1)?];
        Ok(Self { rigs, underlay })
    }
}

/// Connects two hosts, with a vsock port of CID 3 on the first and of CID 4 on the second.
pub fn sockets(kind: Kind, cores: [usize; 2]) -> Result<(Linked, [VsockPort; 2]), String> {
    let linked = Linked::new(kind, cores)?;
    let [a, b] = &linked.rigs;
    let ports = [a.vsock(3, vsock_options()), b.vsock(4, vsock_options())];
    wait_up(&linked.rigs)?;
    pin(CLIENT);
    Ok((linked, ports))
}

impl Pair {
    /// Connects two hosts with parked dispatchers on these cores.
    pub fn new(kind: Kind, cores: [usize; 2], features: u64) -> Result<Self, String> {
        let Linked { rigs, underlay } = Linked::new(kind, cores)?;
        let [near, far] = ports(&rigs, features);
        wait_up(&rigs)?;
        pin(CLIENT);
        Ok(Self { near, far, _rigs: rigs, _underlay: underlay })
    }
}

/// Receives a frame, asleep until it arrives; an error after [`LOST`]. Returns false if `stop` is
/// set and no frame is there.
fn receive_asleep(
    port: &mut NetPort,
    room: &mut Vec<u8>,
    stop: &AtomicBool,
) -> Result<bool, String> {
    let since = Instant::now();
    while port.receive(0, room).map_err(failed)?.is_none() {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        if since.elapsed() > LOST {
            return Err("a frame was lost".into());
        }
        port.wait(Some(LOST)).map_err(failed)?;
    }
    Ok(true)
}

/// Round trips of 64 B from port to port and back with sleeping receivers: microseconds.
pub fn parked_round_us(effort: &Effort, kind: Kind, ends: Ends) -> Result<Vec<f64>, String> {
    let rounds = effort.rounds(30_000);
    effort.each(|| {
        let Pair { mut near, mut far, _rigs, _underlay } =
            Pair::new(kind, [ends.core(0), ends.core(1)], 0)?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let answers = scope.spawn(|| {
                pin(ends.core(1));
                let mut room = Vec::new();
                while receive_asleep(&mut far, &mut room, &stop)? {
                    send(2, &mut far)?;
                }
                Ok::<_, String>(())
            });
            pin(ends.core(0));
            let (mut room, mut since) = (Vec::new(), Instant::now());
            let asked = (0..=rounds).try_for_each(|round| {
                if round == 1 {
                    since = Instant::now();
                }
                send(1, &mut near)?;
                receive_asleep(&mut near, &mut room, &stop).map(drop)
            });
            let took = since.elapsed();
            stop.store(true, Ordering::Relaxed);
            answers.join().map_err(|_| "a host's thread panicked".to_owned())??;
            asked.map(|()| took.as_secs_f64() * 1e6 / rounds as f64)
        })
    })
}

/// Round trips of 64 B from port to port and back while all poll: microseconds. Each host has one
/// core, on which its guest and its dispatcher take turns.
pub fn polling_round_us(effort: &Effort, kind: Kind) -> Result<Vec<f64>, String> {
    let rounds = effort.rounds(30_000);
    effort.each(|| {
        let underlay = Underlay::new()?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let [(a, near, asks), (b, far, answers)] = [0, 1].map(|host| {
                let ((tell, handle), (give, port)) = (channel(), channel());
                let (underlay, stop) = (&underlay, &stop);
                let side = move || turn(host, rounds, &tell, &port, stop);
                (handle, give, scope.spawn(move || underlay.at(host, side)))
            });
            let joined = join(kind, [a, b]).map(|(rigs, [one, two])| {
                // The far end, which answers first.
                drop(far.send(two));
                drop(near.send(one));
                rigs
            });
            stop.store(joined.is_err(), Ordering::Relaxed);
            let took = asks.join().map_err(|_| "a host's thread panicked".to_owned())?;
            stop.store(true, Ordering::Relaxed);
            answers.join().map_err(|_| "a host's thread panicked".to_owned())??;
            joined.and(took).map(|us| us / rounds as f64)
        })
    })
}

/// Connects two hosts with dispatchers that other threads drive, and attaches to a port on each.
fn join(kind: Kind, handles: [Receiver<Handle>; 2]) -> Result<([Rig; 2], [NetPort; 2]), String> {
    let [a, b] = handles.map(|handle| handle.recv().map(Rig::with));
    let rigs = [a.map_err(|e| e.to_string())?, b.map_err(|e| e.to_string())?];
    for (host, rig) in rigs.iter().enumerate() {
        rig.link(link(rig, host, kind));
    }
    let ports = ports(&rigs, 0);
    wait_up(&rigs)?;
    Ok((rigs, ports))
}

/// Runs one host of two, in the thread of its namespace: polls its dispatcher, and its guest sends
/// (host 0) or answers until `stop`. Returns the time of all rounds, in microseconds.
fn turn(
    host: usize,
    rounds: u64,
    tell: &Sender<Handle>,
    port: &Receiver<NetPort>,
    stop: &AtomicBool,
) -> Result<f64, String> {
    pin(host);
    let turned = ManualFabric::new(SERVICES, polling(Duration::from_millis(100)));
    let mut turned = turned.map_err(|e| e.to_string())?;
    tell.send(turned.handle()).map_err(|e| e.to_string())?;
    let number = host as u8 + 1;
    let mut once = || turned.turn().map_err(|e| e.to_string());
    let stopped = || stop.load(Ordering::Relaxed);
    let mut port = loop {
        once()?;
        match port.try_recv() {
            Ok(port) => break port,
            Err(_) if stopped() => return Ok(0.0),
            Err(_) => {}
        }
    };
    let (mut room, mut done, mut vain, since) = (Vec::new(), 0, 0_u32, Instant::now());
    if host == 0 {
        send(number, &mut port)?;
    }
    while !stopped() && (host == 1 || done < rounds) {
        once()?;
        if port.receive(0, &mut room).map_err(failed)?.is_some() {
            (done, vain) = (done + 1, 0);
            send(number, &mut port)?;
        } else {
            vain += 1;
            if host == 0 && vain > VAIN_MAX {
                return Err("a frame was lost".into());
            }
        }
    }
    Ok(since.elapsed().as_secs_f64() * 1e6)
}
