//! Daemons in the test process, and processes that attach to their NICs.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod rings;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use causeway_attach::local::LocalAttachment;
use causeway_fabric::{Fabric, Handle, Options};
use causeway_host::ReceivedFd;
use causeway_model::Mac;
use causeway_model::commands::peers;
use causeway_model::{Answer, Command, CommandError, PeerView};
use causeway_model::{MxSpec, MxUdp, PortKind, PortSpec};
use causeway_testing::folder::Folder;
use causeway_testing::wait::wait;
use causeway_wire::local::{ClientMessage, DaemonMessage, VERSION};

pub use causeway_testing::wait::PATIENCE;

/// A daemon.
pub struct Host {
    pub handle: Handle,
    _fabric: Fabric,
    pub dir: Folder,
}

pub fn nic(board: &str) -> u64 {
    0x0200_0000_0000 | u64::from(board.as_bytes()[0])
}

/// Returns an address of this host: 127.0.0.`host`.
pub fn loopback(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, host], port))
}

/// Returns a NIC of group `red` with datagrams.
pub fn udp_board(dir: &Path, board: &str, listen: SocketAddr, peers: &[SocketAddr]) -> PortSpec {
    let udp = MxUdp { listen, peers: peers.to_vec() };
    board_of(dir, board, |local| MxSpec { udp: Some(udp), ..local })
}

/// Returns a NIC of group `red` on an interface.
pub fn interface_board(dir: &Path, board: &str, interface: &str) -> PortSpec {
    board_of(dir, board, |local| MxSpec { interface: Some(interface.to_owned()), ..local })
}

fn board_of(dir: &Path, board: &str, wired: impl FnOnce(MxSpec) -> MxSpec) -> PortSpec {
    let [_, _, mac @ ..] = nic(board).to_be_bytes();
    let kind = PortKind::of(wired(MxSpec::local(Mac(mac), format!("{board}:0"))));
    let (name, group) = (board.parse().unwrap(), "red".parse().unwrap());
    PortSpec {
        name,
        group,
        socket: dir.join(board),
        access: Default::default(),
        memory_max: None,
        kind,
    }
}

impl Host {
    /// Starts a daemon with NICs `a` and `b` of group `red`, and `c` of group `blue`.
    pub fn new() -> Self {
        let host = Self::without_boards();
        for (board, group) in [("a", "red"), ("b", "red"), ("c", "blue")] {
            host.add(board, group, nic(board)).unwrap();
        }
        host
    }

    /// Starts a daemon with a NIC of group `red` on an interface.
    pub fn on(interface: &str, board: &str) -> Self {
        let host = Self::without_boards();
        host.add_on(board, "red", nic(board), Some(interface)).unwrap();
        host
    }

    /// Starts a daemon with a NIC of group `red` with datagrams between ports of the loopback
    /// address.
    pub fn with_udp(board: &str, listen: u16, peers: &[u16]) -> Self {
        let peers: Vec<_> = peers.iter().map(|port| loopback(1, *port)).collect();
        Self::with_udp_at(board, loopback(1, listen), &peers)
    }

    /// As [`Self::with_udp`], at any addresses.
    pub fn with_udp_at(board: &str, listen: SocketAddr, peers: &[SocketAddr]) -> Self {
        let host = Self::without_boards();
        let port = udp_board(host.dir.path(), board, listen, peers);
        host.handle.call(Command::PortAdd(port)).unwrap();
        host
    }

    fn without_boards() -> Self {
        let dir = Folder::new("mx");
        let fabric = Fabric::start(&[causeway_mx::SERVICE], Options::default()).unwrap();
        let host = Self { handle: fabric.handle(), _fabric: fabric, dir };
        for group in ["red", "blue"] {
            let name: causeway_model::Name = group.parse().unwrap();
            host.handle.call(Command::GroupAdd(name.into())).unwrap();
        }
        host
    }

    pub fn add(&self, board: &str, group: &str, nic: u64) -> Result<Answer, CommandError> {
        self.add_on(board, group, nic, None)
    }

    pub fn add_on(
        &self,
        board: &str,
        group: &str,
        nic: u64,
        interface: Option<&str>,
    ) -> Result<Answer, CommandError> {
        let [_, _, mac @ ..] = nic.to_be_bytes();
        let local = MxSpec::local(Mac(mac), format!("{board}:0"));
        let kind = PortKind::of(MxSpec { interface: interface.map(str::to_owned), ..local });
        let (name, group) = (board.parse().unwrap(), group.parse().unwrap());
        let socket = self.dir.join(board);
        self.handle.call(Command::PortAdd(PortSpec {
            name,
            group,
            socket,
            access: Default::default(),
            memory_max: None,
            kind,
        }))
    }

    pub fn counter(&self, board: &str, counter: &str) -> u64 {
        match self.handle.call(Command::PortShow(board.parse().unwrap())) {
            Ok(Answer::Port(view)) => view.counters.get(counter).copied().unwrap_or(0),
            other => panic!("{other:?}"),
        }
    }

    pub fn peers(&self) -> Vec<PeerView> {
        self.handle.ask(peers::List).unwrap()
    }

    pub fn attach(&self, board: &str) -> Process {
        self.attach_as(board, 0)
    }

    pub fn connect(&self, board: &str) -> UnixStream {
        UnixStream::connect(self.dir.join(board)).unwrap()
    }

    /// Attaches a process. `direct`: bits of `ClientMessage::Hello`.
    pub fn attach_as(&self, board: &str, direct: u8) -> Process {
        let mut process = Process(LocalAttachment::new(self.connect(board).into()));
        process.ask(ClientMessage::Hello { version: VERSION, direct });
        let (tell, _) = process.hear();
        let DaemonMessage::Welcome { version, nic: its, name, .. } = tell else {
            panic!("{tell:?}")
        };
        assert_eq!((version, its, name.as_str()), (VERSION, nic(board), &*format!("{board}:0")));
        process
    }

    pub fn wait(&self, board: &str, counter: &str, value: u64) {
        let count = || self.counter(board, counter);
        wait(|| count() == value, || format!("{counter}: {}", count()));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.handle.stop();
    }
}

pub struct Process(pub LocalAttachment);

impl Process {
    pub fn ask(&mut self, ask: ClientMessage) {
        self.0.send(ask.emit(), Vec::new()).unwrap();
    }

    pub fn hear(&mut self) -> (DaemonMessage, Vec<OwnedFd>) {
        let since = Instant::now();
        loop {
            if let Some(received) = self.0.receive().unwrap() {
                return (
                    DaemonMessage::parse(&received.bytes).unwrap(),
                    received.fds.into_iter().map(ReceivedFd::into_fd).collect(),
                );
            }
            assert!(since.elapsed() < PATIENCE, "no message arrives");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn is_parted(&mut self) -> bool {
        let since = Instant::now();
        loop {
            match self.0.receive() {
                Err(_) => return true,
                Ok(_) if since.elapsed() > PATIENCE => return false,
                Ok(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Opens an endpoint. Returns its session.
    pub fn open(&mut self, endpoint: u8, key: u32) -> u32 {
        self.ask(ClientMessage::Open { tag: 5, endpoint, key });
        let (tell, fds) = self.hear();
        let DaemonMessage::Opened { tag: 5, code: 0, session, .. } = tell else {
            panic!("{tell:?}")
        };
        assert!(fds.is_empty(), "the endpoint has no network");
        session
    }

    pub fn refused(&mut self, endpoint: u8, to: (&str, u8), key: u32) -> u8 {
        self.ask(ClientMessage::Connect { endpoint, to: to.1, key, token: 9, nic: nic(to.0) });
        let (tell, _) = self.hear();
        let DaemonMessage::Refused { status, token: 9, .. } = tell else { panic!("{tell:?}") };
        status
    }
}

/// Waits until a condition is true.
pub fn soon(mut is: impl FnMut() -> bool, else_: &str) {
    let since = Instant::now();
    while !is() {
        assert!(since.elapsed() < PATIENCE, "{else_}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

const INSIDE: &str = "CAUSEWAY_TEST_NAMESPACE";

pub fn ip(words: &str) {
    let done = std::process::Command::new("ip").args(words.split_whitespace()).status();
    assert!(done.is_ok_and(|status| status.success()), "ip {words}");
}

/// Runs `act` in a separate process, in a namespace with the interfaces `near` and `far`. Skips the
/// test if the process may not create one.
pub fn with_wire(test: &str, act: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        ip("link add near type veth peer name far");
        for interface in ["near", "far"] {
            ip(&format!("link set {interface} mtu 9000 up"));
        }
        return act();
    }
    let unshare = || std::process::Command::new("unshare");
    if !unshare().args(["--net", "true"]).status().is_ok_and(|s| s.success()) {
        eprintln!("skipped: a network namespace takes root and `unshare`");
        return;
    }
    let this = std::env::current_exe().unwrap();
    let mut process = unshare();
    process.arg("--net").arg(this).args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    assert!(process.status().unwrap().success(), "the output of the process has the reason");
}
