//! Attackers whose descriptors are expensive to use.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use causeway_attach::native::NetOptions;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::attacker::{Attacker, wait};
use crate::daemon::{Daemon, NIC, RED_CIDS, RED_NET_PORTS};
use crate::frames;

/// Epoll watches on a descriptor: a wake-up takes milliseconds of the thread that writes to it.
const WATCHES: usize = 15_000;
/// Connections that one step makes.
const CONNECTS: usize = 16;
/// Messages that one step sends.
const MESSAGES: usize = 64;
/// `SET_FEATURES` of vhost-user, and the version in each message's flags.
const SET_FEATURES: u32 = 2;
const VERSION: u32 = 1;
/// The length of each message between a process and its NIC, in bytes.
const NIC_MESSAGE_BYTES: usize = 128;

/// Epoll watches on one descriptor.
struct Watches {
    _epoll: OwnedFd,
    _duplicates: Vec<OwnedFd>,
}

impl Watches {
    fn new(on: impl AsFd) -> Self {
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let mut duplicates = Vec::new();
        for _ in 0..WATCHES {
            let duplicate = rustix::io::dup(&on).unwrap();
            epoll::add(&epoll, &duplicate, EventData::new_u64(0), EventFlags::IN).unwrap();
            duplicates.push(duplicate);
        }
        Self { _epoll: epoll, _duplicates: duplicates }
    }
}

/// A sender whose sent frames are reported by an expensive eventfd. The daemon may detach it.
struct WatchedSender {
    sender: Option<frames::Sender>,
    _watches: Watches,
    steps: u64,
}

impl Attacker for WatchedSender {
    fn step(&mut self) {
        if let Some(sender) = &mut self.sender {
            self.steps += 1;
            if sender.try_step().and_then(|()| sender.arm()).is_err() {
                self.sender = None;
            }
        }
    }

    fn drain(&mut self) -> bool {
        // The daemon takes frames of a penalised port only after the penalty.
        true
    }

    fn arrived(&self) -> u64 {
        self.steps
    }
}

/// A port whose notifications wake thousands of watches.
pub fn watched_port(daemon: &Daemon) -> Box<dyn Attacker> {
    let mut sender = frames::small(daemon, NetOptions::default());
    let watches = Watches::new(sender.transmit_call());
    Box::new(WatchedSender { sender: Some(sender), _watches: watches, steps: 0 })
}

/// Requests of a process to its NIC over a socket with thousands of watches.
struct WatchedProcess {
    socket: Option<UnixStream>,
    _watches: Watches,
    answers: u64,
}

impl WatchedProcess {
    fn receive(&mut self) {
        let mut answers = [0; 64 * NIC_MESSAGE_BYTES];
        match self.socket.as_mut().map(|socket| socket.read(&mut answers)) {
            Some(Ok(len)) if len > 0 => self.answers += (len / NIC_MESSAGE_BYTES) as u64,
            Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => {}
            _ => self.socket = None,
        }
    }
}

impl Attacker for WatchedProcess {
    fn step(&mut self) {
        let mut question = [0; NIC_MESSAGE_BYTES];
        question[0] = 7;
        for _ in 0..CONNECTS {
            if let Some(socket) = &mut self.socket {
                let _ = socket.write(&question);
            }
        }
        self.receive();
    }

    fn drain(&mut self) -> bool {
        self.receive();
        true
    }

    fn arrived(&self) -> u64 {
        self.answers
    }
}

/// A process on a NIC whose answers wake thousands of watches.
pub fn watched_process(daemon: &Daemon) -> Box<dyn Attacker> {
    let mut socket = UnixStream::connect(daemon.socket(NIC)).unwrap();
    let mut hello = [0; NIC_MESSAGE_BYTES];
    (hello[0], hello[4]) = (1, 4);
    socket.write_all(&hello).unwrap();
    let mut answer = [0; 64 * NIC_MESSAGE_BYTES];
    assert!(socket.read(&mut answer).unwrap() > 0, "the NIC refuses the process");
    socket.set_nonblocking(true).unwrap();
    let watches = Watches::new(&socket);
    Box::new(WatchedProcess { socket: Some(socket), _watches: watches, answers: 0 })
}

/// Connects to a port's host socket, asks for a guest's port, and leaves.
struct HostConnects {
    path: PathBuf,
    made: u64,
}

impl Attacker for HostConnects {
    fn step(&mut self) {
        for _ in 0..CONNECTS {
            let Ok(mut socket) = UnixStream::connect(&self.path) else { continue };
            self.made += u64::from(socket.write_all(b"CONNECT 7777\n").is_ok());
        }
    }

    fn drain(&mut self) -> bool {
        true
    }

    fn arrived(&self) -> u64 {
        self.made
    }
}

/// Connects of a host process without end.
pub fn host_connects(daemon: &Daemon) -> Box<dyn Attacker> {
    let path = daemon.host_socket(RED_CIDS[0]);
    wait(|| path.exists(), "there is no host socket");
    Box::new(HostConnects { path, made: 0 })
}

/// A frontend that negotiates again and again.
struct SetUp {
    socket: UnixStream,
    sent: u64,
}

impl Attacker for SetUp {
    fn step(&mut self) {
        let header = [SET_FEATURES, VERSION, 8].map(u32::to_ne_bytes).concat();
        // VIRTIO_F_VERSION_1, and VHOST_USER_F_PROTOCOL_FEATURES, which keeps the queues' state.
        let message = [header, (1_u64 << 32 | 1 << 30).to_ne_bytes().to_vec()].concat();
        for _ in 0..MESSAGES {
            match self.socket.write(&message) {
                Ok(len) if len == message.len() => self.sent += 1,
                _ => break,
            }
        }
    }

    fn drain(&mut self) -> bool {
        true
    }

    fn arrived(&self) -> u64 {
        self.sent
    }
}

/// Set-up messages without end.
pub fn set_up(daemon: &Daemon) -> Box<dyn Attacker> {
    let socket = UnixStream::connect(daemon.socket(&format!("red-{}", RED_NET_PORTS - 1))).unwrap();
    socket.set_nonblocking(true).unwrap();
    Box::new(SetUp { socket, sent: 0 })
}
