//! A host with two dispatchers and group `red`, and peers on plain sockets.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use causeway_attach::native::{NET_HEADER_BYTES, NetOptions, NetPort};
use causeway_fabric::{Fabric, Handle, Options};
use causeway_model::port::{DgramSpec, StreamSpec};
use causeway_model::{
    Answer, Command, CommandError, Mac, Name, NetSpec, PortKind, PortSpec, PortState, PortView,
    SocketAccess,
};
use causeway_testing::folder::Folder;
use causeway_testing::wait::{PATIENCE, wait};

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

pub struct Host {
    pub handle: Handle,
    fabric: Option<Fabric>,
    dir: Folder,
}

impl Host {
    pub fn new() -> Self {
        // Two dispatchers, so that sockets and frames are served by different threads.
        let options = Options { dispatchers: 2, ..Options::default() };
        let services = [causeway_ethernet::SERVICE, causeway_stream::SERVICE];
        let fabric = Fabric::start(&services, options).unwrap();
        let dir = Folder::new("stream");
        let host = Self { handle: fabric.handle(), fabric: Some(fabric), dir };
        host.handle.call(Command::GroupAdd("red".parse::<Name>().unwrap().into())).unwrap();
        host
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
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
        let spec = PortSpec {
            name: name.parse().unwrap(),
            group: "red".parse().unwrap(),
            socket: socket.to_owned(),
            access,
            memory_max: None,
            kind,
        };
        self.handle.call(Command::PortAdd(spec)).map(drop)
    }

    #[track_caller]
    pub fn add(&self, name: &str, kind: PortKind) {
        self.try_add(name, kind, false).unwrap();
    }

    pub fn delete(&self, name: &str) {
        self.handle.call(Command::PortDel(name.parse().unwrap())).unwrap();
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
        let (mac, offloads) = (Mac(mac(number)), Default::default());
        let spec =
            NetSpec { mac, guest_mac: None, mtu: 1500, queue_pairs: 1, learn: false, offloads };
        self.add(name, PortKind::of(spec));
        let options = NetOptions { features, ..NetOptions::default() };
        let port = NetPort::attach(&self.path(name), options).unwrap();
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

    #[track_caller]
    pub fn wait_state(&self, name: &str, state: PortState) {
        wait(|| self.view(name).state == state, || format!("{:?}", self.view(name)));
    }

    pub fn counter(&self, name: &str, counter: &str) -> u64 {
        self.view(name).counters[counter]
    }

    #[track_caller]
    pub fn wait_counter(&self, name: &str, counter: &str, least: u64) {
        wait(
            || self.counter(name, counter) >= least,
            || format!("{name} {counter}: {:?}", self.view(name).counters),
        );
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
    let (start, mut frame) = (Instant::now(), Vec::new());
    while port.receive(0, &mut frame).unwrap().is_none() {
        assert!(start.elapsed() < PATIENCE, "no frame");
        port.wait(Some(Duration::from_millis(100))).unwrap();
    }
    frame
}

/// Sends a frame of a virtio-net guest with a virtio-net header.
pub fn send(port: &mut NetPort, header: &[u8; NET_HEADER_BYTES], frame: &[u8]) {
    let start = Instant::now();
    while !port.queue(0, header, frame).unwrap() {
        assert!(start.elapsed() < PATIENCE, "no room");
        port.flush(0).unwrap();
        port.wait_room(0, Some(Duration::from_millis(100))).unwrap();
    }
    port.flush(0).unwrap();
}
