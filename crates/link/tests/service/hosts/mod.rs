//! Hosts in one process: each a fabric of its own with ports and links, on a loopback address.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use causeway_attach::native::{NET_HEADER_BYTES, NetOptions, NetPort};
use causeway_fabric::{Fabric, Handle, Options, ServiceRegistration};
use causeway_model::commands::links;
use causeway_model::{Answer, Command, CommandError, LinkState, LinkView, PortView, TypedRequest};
use causeway_model::{LinkKind, LinkSpec, NetSpec, PortKind, PortSpec, UdpSpec, metric_default};
use causeway_model::{Mac, Name};
use causeway_testing::folder::Folder;
use causeway_wire::virtio_net::{GSO_TCPV4, HDR_F_NEEDS_CSUM, Header};

pub use causeway_testing::wait::{PATIENCE, wait};

/// A host.
pub struct Host {
    pub handle: Handle,
    fabric: Option<Fabric>,
    dir: Folder,
}

/// Returns the address of port `n`.
pub fn mac(n: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, n]
}

pub fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub fn unicast(from: u8, to: u8, len: usize) -> Vec<u8> {
    frame(mac(to), mac(from), len)
}

pub fn frame(to: [u8; 6], from: [u8; 6], len: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from[..], &[0x88, 0xb5]].concat();
    frame.extend((frame.len()..len).map(|i| i as u8));
    frame
}

impl Host {
    pub fn new() -> Self {
        Self::with_links(causeway_link::SERVICE)
    }

    /// As `new`, with the test's own service of links.
    pub fn with_links(links: ServiceRegistration) -> Self {
        Self::with_services(&[causeway_ethernet::SERVICE, links])
    }

    /// As `new`, with sockets between guests.
    pub fn with_sockets() -> Self {
        let services =
            [causeway_ethernet::SERVICE, causeway_link::SERVICE, causeway_socket::SERVICE];
        Self::with_services(&services)
    }

    fn with_services(services: &[ServiceRegistration]) -> Self {
        let dir = Folder::new("link");
        // Two dispatchers, so that links and groups are served by different dispatchers.
        let options = Options { dispatchers: 2, ..Options::default() };
        let fabric = Fabric::start(services, options);
        let fabric = fabric.unwrap();
        let host = Self { handle: fabric.handle(), fabric: Some(fabric), dir };
        for group in ["red", "blue"] {
            host.call(Command::GroupAdd(name(group).into()));
        }
        host
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn call(&self, command: Command) -> Answer {
        let text = format!("{command:?}");
        self.handle.call(command).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Adds a port `pN` with address `n` and attaches to it.
    pub fn port(&self, n: u8, group: &str) -> NetPort {
        self.port_with(n, group, 0, 1500)
    }

    pub fn port_with(&self, n: u8, group: &str, features: u64, mtu: u16) -> NetPort {
        self.add(
            n,
            group,
            NetSpec {
                mac: Mac(mac(n)),
                guest_mac: None,
                mtu,
                queue_pairs: 1,
                learn: false,
                offloads: Default::default(),
            },
        );
        self.attach(n, features)
    }

    /// As [`Self::port`], for a port with other addresses behind it.
    pub fn learning_port(&self, n: u8, group: &str) -> NetPort {
        self.add(
            n,
            group,
            NetSpec {
                mac: Mac(mac(n)),
                guest_mac: None,
                mtu: 1500,
                queue_pairs: 1,
                learn: true,
                offloads: Default::default(),
            },
        );
        self.attach(n, 0)
    }

    /// As [`Self::port`], for a clone, whose guest has the address `guest`.
    pub fn clone_port(&self, n: u8, group: &str, guest: [u8; 6]) -> NetPort {
        self.add(
            n,
            group,
            NetSpec {
                mac: Mac(mac(n)),
                guest_mac: Some(Mac(guest)),
                mtu: 1500,
                queue_pairs: 1,
                learn: false,
                offloads: Default::default(),
            },
        );
        self.attach(n, 0)
    }

    fn add(&self, n: u8, group: &str, net: NetSpec) {
        let port = format!("p{n}");
        self.call(Command::PortAdd(PortSpec {
            name: name(&port),
            group: name(group),
            socket: self.path(&port),
            access: Default::default(),
            memory_max: None,
            kind: PortKind::of(net),
        }));
    }

    pub fn attach(&self, n: u8, features: u64) -> NetPort {
        let port = format!("p{n}");
        let options = NetOptions { features, ..NetOptions::default() };
        let attached = NetPort::attach(&self.path(&port), options).unwrap();
        let runs = || self.view(&port).queues.iter().all(|q| q.running);
        wait(runs, || format!("{:?}", self.view(&port)));
        attached
    }

    pub fn view(&self, port: &str) -> PortView {
        match self.call(Command::PortShow(name(port))) {
            Answer::Port(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    pub fn ask<T: TypedRequest>(&self, command: T) -> T::Answer {
        let text = format!("{command:?}");
        self.handle.ask(command).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    pub fn link(&self, spec: LinkSpec) -> Result<LinkView, CommandError> {
        self.handle.ask(links::Add(Box::new(spec)))
    }

    pub fn link_view(&self, link: &str) -> LinkView {
        self.ask(links::Show(name(link)))
    }

    pub fn link_counter(&self, link: &str, counter: &str) -> u64 {
        self.link_view(link).counters[counter]
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.fabric.take().map(Fabric::wait);
        if !std::thread::panicking() {
            ended.unwrap().expect("no dispatcher failed");
        }
    }
}

/// Returns a `vnet` or `vxlan` link.
pub fn bare(
    link: &str,
    group: &str,
    kind: fn(UdpSpec) -> LinkKind,
    udp: (&str, &str, u32),
) -> LinkSpec {
    let (local, remote, vni) = udp;
    let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
    spec(link, group, kind(UdpSpec { local, remote, vni, class: Default::default() }))
}

pub fn spec(link: &str, group: &str, kind: LinkKind) -> LinkSpec {
    LinkSpec {
        name: name(link),
        group: name(group),
        peer: None,
        metric: metric_default(),
        transit: false,
        remote_host: None,
        kind,
    }
}

/// Waits until a link is up.
pub fn wait_up(host: &Host, link: &str) {
    wait_state(host, link, LinkState::Up);
}

pub fn wait_state(host: &Host, link: &str, state: LinkState) {
    let there = || host.link_view(link).state == state;
    wait(there, || format!("{:?}", host.link_view(link)));
}

/// Waits until a counter of a link has this value.
pub fn wait_counter(host: &Host, link: &str, counter: &str, count: u64) {
    let there = || host.link_counter(link, counter) >= count;
    wait(there, || format!("{counter}: {:?}", host.link_view(link)));
}

pub fn receive(port: &mut NetPort) -> (Header, Vec<u8>) {
    let start = Instant::now();
    let mut frame = Vec::new();
    loop {
        if let Some(header) = port.receive(0, &mut frame).unwrap() {
            return (Header::parse(&header).unwrap(), frame);
        }
        assert!(start.elapsed() < PATIENCE, "gave up waiting for a frame");
        port.wait(Some(Duration::from_millis(100))).unwrap();
    }
}

/// Exchanges frames of many lengths between ports `near` (address 1) and `far` (2), in both
/// directions. Returns the number of frames per direction.
pub fn exchange(near: &mut NetPort, far: &mut NetPort, lengths: &[usize]) -> u64 {
    for &len in lengths {
        let there = unicast(1, 2, len);
        send(near, &there);
        assert!(receive(far).1 == there, "{len} there");
        let back = unicast(2, 1, len);
        send(far, &back);
        assert!(receive(near).1 == back, "{len} back");
    }
    lengths.len() as u64
}

/// Lengths up to the longest frame that a port accepts, in bytes.
pub const LENGTHS: [usize; 6] = [60, 300, 1514, 9014, 65_000, 65_549];

/// Sends bursts of frames, some of which wait in a stream's queue. Returns their number.
pub fn crowd(near: &mut NetPort, far: &mut NetPort) -> u64 {
    for round in 0..40 {
        let frames: Vec<_> = (0..10).map(|i| unicast(1, 2, 60 + round * 700 + i)).collect();
        for frame in &frames {
            send(near, frame);
        }
        for frame in &frames {
            assert!(receive(far).1 == *frame, "round {round}");
        }
    }
    400
}

/// Returns a TCP segment from address 1 to 2 with an offload for segments of 1460 B, as a guest
/// leaves it: its checksum is the sum of the pseudo-header.
pub fn segment(payload: usize) -> (Header, Vec<u8>) {
    let mut packet = Vec::new();
    let builder = etherparse::PacketBuilder::ethernet2(mac(1), mac(2))
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(1000, 2000, 1, 65535);
    builder.write(&mut packet, &vec![0x5a; payload]).unwrap();
    let len = u16::try_from(20 + payload).unwrap();
    let words = [0x0a00, 1, 0x0a00, 2, 6, len];
    packet[50..52].copy_from_slice(&words.iter().sum::<u16>().to_be_bytes());
    let header = Header {
        flags: HDR_F_NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        hdr_len: 54,
        gso_size: 1460,
        csum_start: 34,
        csum_offset: 16,
        num_buffers: 0,
    };
    (header, packet)
}

/// Connects to a link's listener; reads and writes have a limit of [`PATIENCE`].
pub fn dial(to: SocketAddr) -> TcpStream {
    limited(TcpStream::connect_timeout(&to, PATIENCE).unwrap())
}

/// Accepts a link's connection, within [`PATIENCE`]; reads and writes have that limit too.
pub fn accept(listener: &TcpListener) -> TcpStream {
    let mut stream = None;
    listener.set_nonblocking(true).unwrap();
    wait(
        || {
            stream = listener.accept().ok();
            stream.is_some()
        },
        || "the link does not connect".into(),
    );
    limited(stream.unwrap().0)
}

fn limited(stream: TcpStream) -> TcpStream {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Returns whether a link closes a connection, within [`PATIENCE`], without sending anything.
pub fn is_closed(stream: &mut TcpStream) -> bool {
    use std::io::{ErrorKind, Read as _};
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

/// Returns whether no frame is queued now.
pub fn is_silent(port: &mut NetPort) -> bool {
    port.receive(0, &mut Vec::new()).unwrap().is_none()
}

pub fn send(port: &mut NetPort, frame: &[u8]) {
    send_with(port, &Header::default(), frame);
}

pub fn send_with(port: &mut NetPort, header: &Header, frame: &[u8]) {
    let header: [u8; NET_HEADER_BYTES] = header.emit();
    let start = Instant::now();
    while !port.queue(0, &header, frame).unwrap() {
        assert!(start.elapsed() < PATIENCE, "gave up waiting for room");
        port.flush(0).unwrap();
        port.wait_room(0, Some(Duration::from_millis(100))).unwrap();
    }
    port.flush(0).unwrap();
}
