//! A dispatcher with the Ethernet and TAP services in a network namespace of the test, and native
//! guests.

use std::collections::BTreeMap;
use std::process::Command as Process;
use std::time::{Duration, Instant};

use causeway_attach::native::{NetOptions, NetPort};
use causeway_fabric::{Fabric, Handle, Options};
use causeway_host::net::send::OutgoingFrame;
use causeway_host::net::socket::PacketSocket;
use causeway_model::port::{TapOffloads, TapSpec};
use causeway_model::{
    Answer, Command, CommandError, Mac, Name, NetSpec, PortKind, PortSpec, PortState, PortView,
};
use causeway_testing::folder::Folder;
use causeway_testing::wait::{PATIENCE, wait};
use causeway_wire::frame::Frame;
use causeway_wire::virtio::mask;
use causeway_wire::virtio_net::*;
use etherparse::PacketBuilder;

/// Set in the process that runs inside the namespace.
const INSIDE: &str = "CAUSEWAY_TEST_NAMESPACE";

/// Offloads of a guest that takes and sends unfinished segments.
pub const ALL: u64 = mask(VIRTIO_NET_F_CSUM)
    | mask(VIRTIO_NET_F_GUEST_CSUM)
    | mask(VIRTIO_NET_F_GUEST_TSO4)
    | mask(VIRTIO_NET_F_HOST_TSO4)
    | mask(VIRTIO_NET_F_HOST_USO)
    | mask(VIRTIO_NET_F_MRG_RXBUF);

pub fn ip(words: &str) {
    let done = Process::new("ip").args(words.split_whitespace()).status();
    assert!(done.is_ok_and(|status| status.success()), "ip {words}");
}

/// Runs `act` in a process of its own, in a network namespace without IPv6, which ends with it.
pub fn in_namespace(test: &str, act: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        for scope in ["all", "default"] {
            let file = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
            let _ = std::fs::write(file, "1");
        }
        ip("link set lo up");
        return act();
    }
    let may = Process::new("unshare").args(["--net", "true"]).status();
    if !may.is_ok_and(|status| status.success()) || !std::path::Path::new("/dev/net/tun").exists() {
        eprintln!("skipped: the test takes root, `unshare` and /dev/net/tun");
        return;
    }
    let this = std::env::current_exe().unwrap();
    let mut process = Process::new("unshare");
    process.arg("--net").arg(this).args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    assert!(process.status().unwrap().success(), "see above");
}

/// Returns the address of port `n`.
pub fn mac(n: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, n]
}

/// Returns a TAP port of interface `name`.
pub fn tap(name: &str, n: u8) -> TapSpec {
    TapSpec {
        interface: name.into(),
        mac: Mac(mac(n)),
        mtu: 1500,
        learn: false,
        offloads: TapOffloads::All,
        persistent: true,
    }
}

pub struct Rig {
    handle: Handle,
    fabric: Option<Fabric>,
    dir: Folder,
}

impl Rig {
    /// Starts two dispatchers with the group `red`.
    pub fn new() -> Self {
        let options = Options { dispatchers: 2, ..Options::default() };
        let services = [causeway_ethernet::SERVICE, causeway_tap::SERVICE];
        let fabric = Fabric::start(&services, options).unwrap();
        let rig = Self { handle: fabric.handle(), fabric: Some(fabric), dir: Folder::new("tap") };
        rig.handle.call(Command::GroupAdd("red".parse::<Name>().unwrap().into())).unwrap();
        rig
    }

    fn add(&self, name: &str, socket: &str, kind: PortKind) -> Result<Answer, CommandError> {
        self.handle.call(Command::PortAdd(PortSpec {
            name: name.parse().unwrap(),
            group: "red".parse().unwrap(),
            socket: if socket.is_empty() { Default::default() } else { self.dir.join(socket) },
            access: Default::default(),
            memory_max: None,
            kind,
        }))
    }

    /// Adds a port of a TAP interface, with the interface's name.
    pub fn try_tap(&self, spec: TapSpec) -> Result<Answer, CommandError> {
        self.add(&spec.interface.clone(), "", PortKind::of(spec))
    }

    /// As [`Self::try_tap`]; the interface is open then.
    pub fn tap(&self, spec: TapSpec) {
        let name = spec.interface.clone();
        self.try_tap(spec).unwrap();
        assert_eq!(self.view(&name).state, PortState::Running, "{:?}", self.view(&name));
    }

    pub fn delete(&self, name: &str) {
        self.handle.call(Command::PortDel(name.parse().unwrap())).unwrap();
    }

    /// Adds a net port and attaches a guest with these features.
    pub fn guest(&self, name: &str, n: u8, features: u64) -> NetPort {
        let net = NetSpec {
            guest_mac: None,
            mac: Mac(mac(n)),
            mtu: 1500,
            queue_pairs: 1,
            learn: false,
            offloads: Default::default(),
        };
        self.add(name, name, PortKind::of(net)).unwrap();
        let options = NetOptions { features, ..NetOptions::default() };
        let port = NetPort::attach(&self.dir.join(name), options).unwrap();
        let runs = || self.view(name).queues.iter().all(|queue| queue.running);
        wait(runs, || format!("{:?}", self.view(name)));
        port
    }

    pub fn view(&self, name: &str) -> PortView {
        match self.handle.call(Command::PortShow(name.parse().unwrap())).unwrap() {
            Answer::Port(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the nonzero counters of a port.
    pub fn counters(&self, name: &str) -> BTreeMap<String, u64> {
        self.view(name).counters.into_iter().filter(|(_, n)| *n > 0).collect()
    }

    /// Waits until a counter of a port is `value`.
    #[track_caller]
    pub fn wait_counter(&self, name: &str, counter: &str, value: u64) {
        let is = || self.view(name).counters.get(counter) == Some(&value);
        wait(is, || format!("{name} {counter} {value}: {:?}", self.counters(name)));
    }

    /// Waits until a port is in a state.
    #[track_caller]
    pub fn wait_state(&self, name: &str, state: PortState) {
        wait(|| self.view(name).state == state, || format!("{:?}", self.view(name)));
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

/// Returns the next frame of a guest, with its header.
pub fn receive(port: &mut NetPort) -> (Header, Vec<u8>) {
    let (start, mut frame) = (Instant::now(), Vec::new());
    loop {
        if let Some(header) = port.receive(0, &mut frame).unwrap() {
            return (Header::parse(&header).unwrap(), frame);
        }
        assert!(start.elapsed() < PATIENCE, "gave up waiting for a frame");
        port.wait(Some(Duration::from_millis(100))).unwrap();
    }
}

/// Sends a frame of a guest.
pub fn send(port: &mut NetPort, header: &Header, frame: &[u8]) {
    assert!(port.queue(0, &header.emit(), frame).unwrap());
    port.flush(0).unwrap();
}

/// Returns the next frame that the host receives at an interface, with its header.
pub fn host_receive(socket: &PacketSocket) -> (Header, Vec<u8>) {
    let (start, mut room) = (Instant::now(), vec![0; 70_000]);
    loop {
        match socket.receive(&mut room) {
            Ok(packet) => {
                let header = Header::from_host(room.first_chunk().unwrap());
                return (header, room[HOST_HEADER_LEN..packet.len].to_vec());
            }
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
        assert!(start.elapsed() < PATIENCE, "gave up waiting for a frame");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends a frame of the host by an interface.
pub fn host_send(socket: &PacketSocket, header: &Header, frame: &[u8]) {
    let bytes = [&header.to_host()[..], frame].concat();
    let sent = socket.send(std::iter::once(OutgoingFrame { head: &bytes, body: None }));
    assert_eq!(sent.unwrap(), 1);
}

/// Returns a frame of an unknown ethertype.
pub fn plain(from: [u8; 6], to: [u8; 6], payload: &[u8]) -> Vec<u8> {
    [&to[..], &from[..], &[0x88, 0xb5], payload].concat()
}

/// Returns a TCP segment with an incomplete checksum, and the header for segments of `size`.
pub fn tcp(from: u8, to: u8, payload: &[u8], size: u16) -> (Header, Vec<u8>) {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2(mac(from), mac(to))
        .ipv4([10, 0, 0, from], [10, 0, 0, to], 64)
        .tcp(1000, 2000, 77, 4096)
        .ack(5)
        .write(&mut bytes, payload)
        .unwrap();
    ask(bytes, GSO_TCPV4, size)
}

/// As [`tcp`], for a UDP datagram.
pub fn udp(from: u8, to: u8, payload: &[u8], size: u16) -> (Header, Vec<u8>) {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2(mac(from), mac(to))
        .ipv4([10, 0, 0, from], [10, 0, 0, to], 64)
        .udp(1000, 2000)
        .write(&mut bytes, payload)
        .unwrap();
    ask(bytes, GSO_UDP_L4, size)
}

/// Returns the sum over the pseudo-header of an IPv4 frame.
fn pseudo(bytes: &[u8]) -> causeway_wire::checksum::Sum {
    let network = Frame::parse(bytes).unwrap().network.unwrap();
    let transport = network.transport.unwrap();
    let mut sum = causeway_wire::checksum::Sum::new();
    sum.add(&bytes[network.offset + 12..network.offset + 20]);
    sum.add_u16(u16::from(transport.protocol.number()));
    sum.add_u16((bytes.len() - transport.offset) as u16);
    sum
}

/// Makes the checksum incomplete and builds the header; a size of 0 requests no segmentation.
fn ask(mut bytes: Vec<u8>, gso_type: u8, size: u16) -> (Header, Vec<u8>) {
    let transport = Frame::parse(&bytes).unwrap().network.unwrap().transport.unwrap();
    let field = transport.offset + transport.protocol.checksum_offset();
    let partial = pseudo(&bytes).partial();
    bytes[field..field + 2].copy_from_slice(&partial.to_be_bytes());
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

/// Returns whether the transport checksum is right.
pub fn checksum_is_right(bytes: &[u8]) -> bool {
    let transport = Frame::parse(bytes).unwrap().network.unwrap().transport.unwrap();
    let mut sum = pseudo(bytes);
    sum.add(&bytes[transport.offset..]);
    sum.finish() == 0
}

/// Returns a frame's payload.
pub fn payload_of(bytes: &[u8]) -> &[u8] {
    &bytes[Frame::parse(bytes).unwrap().network.unwrap().transport.unwrap().payload..]
}

/// Returns bytes that differ from each other.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(31) >> 3) as u8).collect()
}
