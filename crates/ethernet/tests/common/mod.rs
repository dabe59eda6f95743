//! A dispatcher with the Ethernet service, and native ports attached to it.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod bursts;
pub mod links;
pub mod raw;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use causeway_attach::native::{NET_HEADER_BYTES, NetOptions, NetPort};
use causeway_fabric::{Fabric, Handle, Options, PollConfig};
use causeway_model::Mac;
use causeway_model::Name;
use causeway_model::commands::trace;
use causeway_model::{Answer, Command, CommandError, PortView, TraceQuery, TraceView};
use causeway_model::{NetSpec, PortKind, PortSpec};
use causeway_testing::folder::Folder;
use causeway_wire::frame::Frame;
use causeway_wire::virtio::mask;
use causeway_wire::virtio_net::*;
use etherparse::PacketBuilder;

/// Every offload that a driver can negotiate.
pub const ALL: u64 = mask(VIRTIO_NET_F_CSUM)
    | mask(VIRTIO_NET_F_GUEST_CSUM)
    | mask(VIRTIO_NET_F_GUEST_TSO4)
    | mask(VIRTIO_NET_F_GUEST_TSO6)
    | mask(VIRTIO_NET_F_GUEST_ECN)
    | mask(VIRTIO_NET_F_GUEST_USO4)
    | mask(VIRTIO_NET_F_GUEST_USO6)
    | mask(VIRTIO_NET_F_HOST_TSO4)
    | mask(VIRTIO_NET_F_HOST_TSO6)
    | mask(VIRTIO_NET_F_HOST_ECN)
    | mask(VIRTIO_NET_F_HOST_USO)
    | mask(VIRTIO_NET_F_MAC)
    | MERGE;
/// Mergeable receive buffers.
pub const MERGE: u64 = mask(VIRTIO_NET_F_MRG_RXBUF);

pub use causeway_testing::wait::{PATIENCE, wait};

pub struct Rig {
    pub handle: Handle,
    fabric: Option<Fabric>,
    dir: Folder,
}

/// Returns the address of port `n`.
pub fn mac(n: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, n]
}

pub fn net(n: u8) -> NetSpec {
    NetSpec {
        mac: Mac(mac(n)),
        guest_mac: None,
        mtu: 1500,
        queue_pairs: 1,
        learn: false,
        offloads: Default::default(),
    }
}

/// Returns the specification of a port without limits.
pub fn port_spec(name: &str, group: &str, socket: &Path, net: NetSpec) -> PortSpec {
    PortSpec {
        name: name.parse().unwrap(),
        group: group.parse().unwrap(),
        socket: socket.to_owned(),
        access: Default::default(),
        memory_max: None,
        kind: PortKind::of(net),
    }
}

impl Rig {
    /// Starts dispatchers with the groups `red` and `blue`.
    pub fn new() -> Self {
        Self::paced(PollConfig::default())
    }

    /// As [`Self::new`], with the given poll_config of queues.
    pub fn paced(poll_config: PollConfig) -> Self {
        let dir = Folder::new("ethernet");
        // Two dispatchers, one for each group.
        let options = Options { dispatchers: 2, poll_config, ..Options::default() };
        let fabric = Fabric::start(&[causeway_ethernet::SERVICE], options).unwrap();
        let rig = Self { handle: fabric.handle(), fabric: Some(fabric), dir };
        for group in ["red", "blue"] {
            rig.handle.call(Command::GroupAdd(group.parse::<Name>().unwrap().into())).unwrap();
        }
        rig
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn try_add(&self, name: &str, group: &str, net: NetSpec) -> Result<Answer, CommandError> {
        self.handle.call(Command::PortAdd(port_spec(name, group, &self.path(name), net)))
    }

    pub fn attach(&self, name: &str, options: NetOptions) -> NetPort {
        NetPort::attach(&self.path(name), options).unwrap()
    }

    /// Adds a port to group `red` and attaches to it.
    pub fn port(&self, name: &str, net: NetSpec, features: u64) -> NetPort {
        self.try_add(name, "red", net).unwrap();
        self.attach(name, NetOptions { features, ..NetOptions::default() })
    }

    /// Waits until every queue of these ports runs.
    pub fn wait_running(&self, names: &[&str]) {
        for name in names {
            let runs = || self.view(name).queues.iter().all(|q| q.running);
            wait(runs, || format!("{:?}", self.view(name)));
        }
    }

    pub fn view(&self, name: &str) -> PortView {
        match self.handle.call(Command::PortShow(name.parse().unwrap())).unwrap() {
            Answer::Port(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    pub fn counter(&self, name: &str, counter: &str) -> u64 {
        self.view(name).counters[counter]
    }

    /// Waits until a counter reaches a value, and asserts that it does not exceed it.
    pub fn wait_counter(&self, name: &str, counter: &str, value: u64) {
        wait(
            || self.counter(name, counter) >= value,
            || format!("{name} {counter}: {:?}", self.view(name).counters),
        );
        assert_eq!(self.counter(name, counter), value, "{name} {counter}");
    }

    /// Returns the nonzero counters of a port.
    pub fn counters(&self, name: &str) -> BTreeMap<String, u64> {
        self.view(name).counters.into_iter().filter(|(_, n)| *n > 0).collect()
    }

    pub fn trace(&self, from: &str, source: Option<[u8; 6]>, destination: [u8; 6]) -> TraceView {
        let from = from.parse().unwrap();
        let (source, destination) = (source.map(Mac), Mac(destination));
        match self.handle.call(Command::Trace(TraceQuery::new(&trace::Frame {
            from,
            source,
            destination,
        }))) {
            Ok(Answer::Trace(view)) => view,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.fabric.take().map(Fabric::wait);
        if !std::thread::panicking() {
            ended.unwrap().expect("no dispatcher failed");
        }
    }
}

/// Returns the next frame of any queue pair, with its header.
pub fn receive_of(port: &mut NetPort, pairs: u16) -> (u16, Header, Vec<u8>) {
    let start = Instant::now();
    let mut frame = Vec::new();
    loop {
        for pair in 0..pairs {
            if let Some(header) = port.receive(pair, &mut frame).unwrap() {
                return (pair, Header::parse(&header).unwrap(), frame);
            }
        }
        assert!(start.elapsed() < PATIENCE, "gave up waiting for a frame");
        port.wait(Some(Duration::from_millis(100))).unwrap();
    }
}

pub fn receive(port: &mut NetPort) -> (Header, Vec<u8>) {
    let (_, header, frame) = receive_of(port, 1);
    (header, frame)
}

/// Returns whether no frame is available.
pub fn is_silent(port: &mut NetPort) -> bool {
    port.receive(0, &mut Vec::new()).unwrap().is_none()
}

/// Sends a frame with a header, waiting for room.
pub fn send(port: &mut NetPort, header: &Header, frame: &[u8]) {
    send_by(port, 0, header, frame);
}

pub fn send_by(port: &mut NetPort, pair: u16, header: &Header, frame: &[u8]) {
    let header: [u8; NET_HEADER_BYTES] = header.emit();
    let start = Instant::now();
    while !port.queue(pair, &header, frame).unwrap() {
        assert!(start.elapsed() < PATIENCE, "gave up waiting for room");
        port.flush(pair).unwrap();
        port.wait_room(pair, Some(Duration::from_millis(100))).unwrap();
    }
    port.flush(pair).unwrap();
}

/// Returns a frame of an unknown ethertype.
pub fn plain(from: u8, to: [u8; 6], payload: &[u8]) -> Vec<u8> {
    [&to[..], &mac(from)[..], &[0x88, 0xb5], payload].concat()
}

/// Returns a TCP segment with an incomplete checksum, and the header for segments of `size`.
pub fn tcp(from: u8, to: u8, v6: bool, payload: &[u8], size: u16) -> (Header, Vec<u8>) {
    let builder = PacketBuilder::ethernet2(mac(from), mac(to));
    let ip = match v6 {
        false => builder.ipv4([10, 0, 0, from], [10, 0, 0, to], 64),
        true => builder.ipv6([from; 16], [to; 16], 64),
    };
    let mut bytes = Vec::new();
    ip.tcp(1000, 2000, 77, 4096).ack(5).psh().write(&mut bytes, payload).unwrap();
    ask(bytes, if v6 { GSO_TCPV6 } else { GSO_TCPV4 }, size)
}

/// Returns a UDP datagram with an incomplete checksum, and the header for segments of `size`.
pub fn udp(from: u8, to: u8, payload: &[u8], size: u16) -> (Header, Vec<u8>) {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2(mac(from), mac(to))
        .ipv4([10, 0, 0, from], [10, 0, 0, to], 64)
        .udp(1000, 2000)
        .write(&mut bytes, payload)
        .unwrap();
    ask(bytes, GSO_UDP_L4, size)
}

/// Makes the checksum incomplete and builds the header; a size of 0 requests no segmentation.
fn ask(mut bytes: Vec<u8>, gso_type: u8, size: u16) -> (Header, Vec<u8>) {
    let network = Frame::parse(&bytes).unwrap().network.unwrap();
    let transport = network.transport.unwrap();
    let field = transport.offset + transport.protocol.checksum_offset();
    // The complement of the checksum, minus everything except the pseudo-header.
    bytes[field..field + 2].fill(0);
    let mut pseudo = causeway_wire::checksum::Sum::new();
    let addresses = match bytes[network.offset] >> 4 {
        4 => network.offset + 12..network.offset + 20,
        _ => network.offset + 8..network.offset + 40,
    };
    pseudo.add(&bytes[addresses]);
    pseudo.add_u16(u16::from(transport.protocol.number()));
    pseudo.add_u16((bytes.len() - transport.offset) as u16);
    bytes[field..field + 2].copy_from_slice(&pseudo.partial().to_be_bytes());
    let header = Header {
        flags: HDR_F_NEEDS_CSUM,
        gso_type: if size == 0 { GSO_NONE } else { gso_type },
        hdr_len: transport.payload as u16,
        gso_size: size,
        csum_start: transport.offset as u16,
        csum_offset: transport.protocol.checksum_offset() as u16,
        num_buffers: 0,
    };
    (header, bytes)
}

/// Returns whether the transport checksum is correct, by summing pseudo-header and payload.
pub fn checksum_is_right(bytes: &[u8]) -> bool {
    let network = Frame::parse(bytes).unwrap().network.unwrap();
    let transport = network.transport.unwrap();
    let addresses = match bytes[network.offset] >> 4 {
        4 => network.offset + 12..network.offset + 20,
        _ => network.offset + 8..network.offset + 40,
    };
    let mut sum = causeway_wire::checksum::Sum::new();
    sum.add(&bytes[addresses]);
    sum.add_u16(u16::from(transport.protocol.number()));
    sum.add_u16((bytes.len() - transport.offset) as u16);
    sum.add(&bytes[transport.offset..]);
    sum.finish() == 0
}

/// Returns the offset of a frame's payload.
pub fn payload_of(bytes: &[u8]) -> &[u8] {
    &bytes[Frame::parse(bytes).unwrap().network.unwrap().transport.unwrap().payload..]
}

/// Returns bytes that differ from each other.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(31) >> 3) as u8).collect()
}
