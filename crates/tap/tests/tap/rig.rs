//! A dispatcher with the Ethernet and TAP services in a network namespace of the test, and native
//! guests.

use std::ops::Deref;
use std::path::Path;
use std::process::Command as Process;
use std::time::{Duration, Instant};

use causeway_attach::native::NetPort;
use causeway_fabric::Options;
use causeway_host::net::send::OutgoingFrame;
use causeway_host::net::socket::PacketSocket;
use causeway_model::port::{TapOffloads, TapSpec};
use causeway_model::{Answer, Command, CommandError, Mac, PortKind, PortState};
use causeway_testing::fabric::{TestFabric, net, port_spec};
use causeway_testing::wait::PATIENCE;
use causeway_wire::virtio::mask;
use causeway_wire::virtio_net::*;

pub use causeway_testing::fabric::{receive, send};
pub use causeway_testing::segments::{checksum_is_right, mac, pattern, payload_of, tcp, udp};

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

/// Returns a TAP port of interface `name`.
pub fn tap(name: &str, n: u8) -> TapSpec {
    TapSpec {
        interface: name.into(),
        mac: Mac(mac(n)),
        address: None,
        mtu: 1500,
        learn: false,
        offloads: TapOffloads::All,
        persistent: true,
    }
}

/// A [`TestFabric`] with the group `red`.
pub struct Rig(TestFabric);

impl Deref for Rig {
    type Target = TestFabric;

    fn deref(&self) -> &TestFabric {
        &self.0
    }
}

impl Rig {
    /// Starts two dispatchers with the group.
    pub fn new() -> Self {
        let options = Options { dispatchers: 2, ..Options::default() };
        let services = [causeway_ethernet::SERVICE, causeway_tap::SERVICE];
        Self(TestFabric::start(&services, &["red"], options))
    }

    /// Adds a port of a TAP interface, with the interface's name.
    pub fn try_tap(&self, spec: TapSpec) -> Result<Answer, CommandError> {
        let name = spec.interface.clone();
        let port = port_spec(&name, "red", Path::new(""), PortKind::of(spec));
        self.handle.call(Command::PortAdd(port))
    }

    /// As [`Self::try_tap`]; the interface is open then.
    pub fn tap(&self, spec: TapSpec) {
        let name = spec.interface.clone();
        self.try_tap(spec).unwrap();
        assert_eq!(self.view(&name).state, PortState::Running, "{:?}", self.view(&name));
    }

    /// Adds a net port and attaches a guest with these features.
    pub fn guest(&self, name: &str, n: u8, features: u64) -> NetPort {
        let port = self.0.guest(name, "red", net(n), features);
        self.wait_running(&[name]);
        port
    }
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
