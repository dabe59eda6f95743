//! A host with two dispatchers and group `red`, and peers on plain sockets.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use causeway_attach::native::{NET_HEADER_BYTES, NetPort};
use causeway_fabric::Options;
use causeway_model::port::{DgramSpec, StreamSpec};
use causeway_model::{
    Command, CommandError, Mac, NetSpec, PortKind, PortSpec, PortState, SocketAccess,
};
use causeway_testing::fabric::{self, TestFabric, net, port_spec};
use causeway_testing::wait::PATIENCE;
use causeway_wire::virtio_net::Header;

/// Time without a frame after which none is expected.
const SILENCE: Duration = Duration::from_millis(200);
/// Broadcast address.
pub const ALL: [u8; 6] = [0xff; 6];

pub fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// Returns a frame of an unknown EtherType.
pub fn frame(from: u8, to: [u8; 6], payload: &[u8]) -> Vec<u8> {
    [&to[..], &mac(from), &[0x88, 0xb5], payload].concat()
}

pub fn stream(number: u8) -> StreamSpec {
    StreamSpec { mac: Mac(mac(number)), mtu: 1500, learn: false, tcp: None }
}

pub fn dgram(number: u8) -> DgramSpec {
    let (peer, udp, remote) = (None, None, None);
    DgramSpec { mac: Mac(mac(number)), mtu: 1500, learn: false, peer, udp, remote }
}

/// A [`TestFabric`] with the group `red`.
pub struct Host(TestFabric);

impl Deref for Host {
    type Target = TestFabric;

    fn deref(&self) -> &TestFabric {
        &self.0
    }
}

impl Host {
    pub fn new() -> Self {
        // Two dispatchers, so that sockets and frames are served by different threads.
        let options = Options { dispatchers: 2, ..Options::default() };
        let services = [causeway_ethernet::SERVICE, causeway_stream::SERVICE];
        Self(TestFabric::start(&services, &["red"], options))
    }

    pub fn try_add(&self, name: &str, kind: PortKind, connect: bool) -> Result<(), CommandError> {
        self.try_add_at(name, &self.path(name), kind, connect)
    }

    /// As [`Self::try_add`], with another socket than that of the name.
    pub fn try_add_at(
        &self,
        name: &str,
        socket: &Path,
        kind: PortKind,
        connect: bool,
    ) -> Result<(), CommandError> {
        let access = SocketAccess { connect, ..SocketAccess::default() };
        let spec = PortSpec { access, ..port_spec(name, "red", socket, kind) };
        self.handle.call(Command::PortAdd(spec)).map(drop)
    }

    #[track_caller]
    pub fn add(&self, name: &str, kind: PortKind) {
        self.try_add(name, kind, false).unwrap();
    }

    /// Adds the stream port `name` and connects to it.
    #[track_caller]
    pub fn peer(&self, name: &str, spec: StreamSpec) -> StreamPeer {
        self.add(name, PortKind::of(spec));
        let peer = StreamPeer::unix(UnixStream::connect(self.path(name)).unwrap());
        self.wait_state(name, PortState::Running);
        peer
    }

    /// Adds a virtio-net port and attaches to it.
    pub fn guest(&self, name: &str, number: u8, features: u64) -> NetPort {
        let spec = NetSpec { mac: Mac(mac(number)), ..net(number) };
        let port = self.0.guest(name, "red", spec, features);
        self.wait_running(&[name]);
        port
    }
}

/// A stream of either family.
pub trait Stream: std::io::Read + std::io::Write + Send {
    fn limit(&self, time: Duration);
}

impl Stream for UnixStream {
    fn limit(&self, time: Duration) {
        self.set_read_timeout(Some(time)).unwrap();
    }
}

impl Stream for std::net::TcpStream {
    fn limit(&self, time: Duration) {
        self.set_read_timeout(Some(time)).unwrap();
    }
}

/// A peer that speaks QEMU's framing.
pub struct StreamPeer(pub Box<dyn Stream>);

impl StreamPeer {
    pub fn unix(stream: UnixStream) -> Self {
        Self(Box::new(stream))
    }

    pub fn tcp(to: SocketAddr) -> Self {
        Self(Box::new(std::net::TcpStream::connect(to).unwrap()))
    }

    pub fn send(&mut self, frame: &[u8]) {
        let length = u32::try_from(frame.len()).unwrap().to_be_bytes();
        self.0.write_all(&[&length[..], frame].concat()).unwrap();
    }

    #[track_caller]
    pub fn receive(&mut self) -> Vec<u8> {
        self.0.limit(PATIENCE);
        let mut length = [0; 4];
        self.0.read_exact(&mut length).expect("a frame");
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut frame).expect("a whole frame");
        frame
    }

    #[track_caller]
    pub fn expect_silence(&mut self) {
        self.0.limit(SILENCE);
        let error = self.0.read(&mut [0]).expect_err("no frame is expected");
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    }

    #[track_caller]
    pub fn expect_end(&mut self) {
        self.0.limit(PATIENCE);
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}

/// Returns the next frame of a virtio-net guest.
#[track_caller]
pub fn receive(port: &mut NetPort) -> Vec<u8> {
    fabric::receive(port).1
}

/// Sends a frame of a virtio-net guest with a virtio-net header.
#[track_caller]
pub fn send(port: &mut NetPort, header: &[u8; NET_HEADER_BYTES], frame: &[u8]) {
    fabric::send(port, &Header::parse(header).unwrap(), frame);
}
