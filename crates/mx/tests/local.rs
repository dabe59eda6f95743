//! Processes that attach to boards, as they and hostile ones do.

use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use causeway_attach::local::{Ended, Local};
use causeway_fabric::control::{Answer, Command, CommandError};
use causeway_fabric::spec::{MxSpec, PortKind, PortSpec};
use causeway_fabric::{Fabric, Handle, Mac, Options};
use causeway_memory::{Mapping, View};
use causeway_message::status::Status;
use causeway_mx::Messages;
use causeway_ring::channel::{Head, Layout, Receiver, Sender, Side, open};
use causeway_wire::local::{Ask, Name, Tell, VERSION};

const PATIENCE: Duration = Duration::from_secs(20);

/// A daemon with boards `a` and `b` of group `red`, and `c` of group `blue`.
struct Host {
    handle: Handle,
    _fabric: Fabric,
    dir: PathBuf,
}

fn nic(board: &str) -> u64 {
    0x0200_0000_0000 | u64::from(board.as_bytes()[0])
}

impl Host {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("causeway-mx-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let fabric = Fabric::start(&[|| Box::new(Messages::new())], Options::default()).unwrap();
        let host = Self { handle: fabric.handle(), _fabric: fabric, dir };
        for group in ["red", "blue"] {
            let name: causeway_fabric::Name = group.parse().unwrap();
            host.handle.call(Command::GroupAdd(name.into())).unwrap();
        }
        for (board, group) in [("a", "red"), ("b", "red"), ("c", "blue")] {
            host.add(board, group, nic(board)).unwrap();
        }
        host
    }

    fn add(&self, board: &str, group: &str, nic: u64) -> Result<Answer, CommandError> {
        let [_, _, mac @ ..] = nic.to_be_bytes();
        let kind = PortKind::Mx(MxSpec::local(Mac(mac), format!("{board}:0")));
        let (name, group) = (board.parse().unwrap(), group.parse().unwrap());
        let socket = self.dir.join(board);
        self.handle.call(Command::PortAdd(PortSpec { name, group, socket, kind }))
    }

    fn counter(&self, board: &str, counter: &str) -> u64 {
        match self.handle.call(Command::PortShow(board.parse().unwrap())) {
            Ok(Answer::Port(view)) => view.counters[counter],
            other => panic!("{other:?}"),
        }
    }

    fn attach(&self, board: &str) -> Process {
        let stream = UnixStream::connect(self.dir.join(board)).unwrap();
        let mut process = Process(Local::new(stream.into()));
        process.ask(Ask::Hello { version: VERSION });
        let (tell, _) = process.hear();
        let Tell::Welcome { version, nic: its, name, .. } = tell else { panic!("{tell:?}") };
        assert_eq!((version, its, name.as_str()), (VERSION, nic(board), &*format!("{board}:0")));
        process
    }

    fn wait(&self, board: &str, counter: &str, value: u64) {
        let since = Instant::now();
        while self.counter(board, counter) != value {
            assert!(since.elapsed() < PATIENCE, "{counter}: {}", self.counter(board, counter));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.handle.stop();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

struct Process(Local);

impl Process {
    fn ask(&mut self, ask: Ask) {
        self.0.send(ask.emit(), Vec::new()).unwrap();
    }

    fn hear(&mut self) -> (Tell, Vec<OwnedFd>) {
        let since = Instant::now();
        loop {
            if let Some(received) = self.0.receive().unwrap() {
                return (Tell::parse(&received.bytes).unwrap(), received.fds);
            }
            assert!(since.elapsed() < PATIENCE, "nothing is heard");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_parted(&mut self) -> bool {
        let since = Instant::now();
        loop {
            match self.0.receive() {
                Err(_) => return true,
                Ok(_) if since.elapsed() > PATIENCE => return false,
                Ok(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Opens an endpoint; gives its session.
    fn open(&mut self, endpoint: u8, key: u32) -> u32 {
        self.ask(Ask::Open { tag: 5, endpoint, key });
        let (tell, fds) = self.hear();
        let Tell::Opened { tag: 5, code: 0, session, .. } = tell else { panic!("{tell:?}") };
        assert!(fds.is_empty(), "nothing leads to other hosts");
        session
    }

    fn refused(&mut self, endpoint: u8, to: (&str, u8), key: u32) -> u8 {
        self.ask(Ask::Connect { endpoint, to: to.1, key, token: 9, nic: nic(to.0) });
        let (tell, _) = self.hear();
        let Tell::Refused { status, token: 9, .. } = tell else { panic!("{tell:?}") };
        status
    }
}

/// A channel: its ends, the bell that we ring, and the one that is rung for us.
type Joined = (Sender, Receiver, [OwnedFd; 2]);

fn channel(tell: Tell, fds: Vec<OwnedFd>) -> Joined {
    let Tell::Channel { side, .. } = tell else { panic!("{tell:?}") };
    let [file, theirs, ours]: [OwnedFd; 3] = fds.try_into().unwrap();
    let len = Layout::DEFAULT.bytes();
    let mapping = Mapping::new(file.as_fd(), 0, len as u64).unwrap();
    let view = View::new(Arc::new(mapping), 0, len).unwrap();
    let side = if side == 0 { Side::First } else { Side::Second };
    let (sender, receiver) = open(&view, side).unwrap();
    (sender, receiver, [theirs, ours])
}

#[test]
fn two_processes_are_joined_by_a_channel_of_their_own() {
    let host = Host::new();
    let (mut one, mut two) = (host.attach("a"), host.attach("b"));
    let (of_one, of_two) = (one.open(0, 1), two.open(3, 77));
    one.ask(Ask::Connect { endpoint: 0, to: 3, key: 77, token: 9, nic: nic("b") });
    let (tell, fds) = two.hear();
    let Tell::Channel { way, .. } = tell else { panic!("{tell:?}") };
    let (session, token) = (of_one, 0);
    let asked = Tell::Channel { endpoint: 3, of: 0, side: 1, session, way, token, nic: nic("a") };
    assert_eq!(tell, asked);
    let (mut to_one, from_one, bells_of_two) = channel(tell, fds);
    let (tell, fds) = one.hear();
    let (session, token) = (of_two, 9);
    let joined = Tell::Channel { endpoint: 0, of: 3, side: 0, session, way, token, nic: nic("b") };
    assert_eq!(tell, joined);
    let (mut to_two, from_two, bells_of_one) = channel(tell, fds);
    assert!(to_two.send(Head { kind: 1, words: [1, 2, 3] }, b"there").unwrap());
    assert!(to_one.send(Head { kind: 2, words: [4, 5, 6] }, b"back").unwrap());
    let bytes = |receiver: &Receiver| {
        let event = receiver.poll().unwrap().unwrap();
        let mut bytes = vec![0; event.len];
        assert_eq!(receiver.copy(&event, 0, &mut bytes), event.len);
        (event.head.kind, event.head.words, bytes)
    };
    assert_eq!(bytes(&from_one), (1, [1, 2, 3], b"there".to_vec()));
    assert_eq!(bytes(&from_two), (2, [4, 5, 6], b"back".to_vec()));
    // Each direction has a doorbell of its own.
    for (ring, hear, other) in [
        (&bells_of_one[0], &bells_of_two[1], &bells_of_one[1]),
        (&bells_of_two[0], &bells_of_one[1], &bells_of_two[1]),
    ] {
        rustix::io::write(ring, &1_u64.to_ne_bytes()).unwrap();
        let mut count = [0; 8];
        assert!(rustix::io::read(other, &mut count).is_err());
        assert_eq!((rustix::io::read(hear, &mut count), count[0]), (Ok(8), 1));
    }
    // Once is enough, from either side.
    assert_eq!(two.refused(3, ("a", 0), 1), Status::Success as u8);
    assert_eq!(host.counter("a", "ways_total"), 1);
    // One of them dies; the other hears of it, and may be connected to again.
    drop(one);
    let (tell, _) = two.hear();
    assert_eq!(tell, Tell::Gone { endpoint: 3, of: 0, way, nic: nic("a") });
    host.wait("a", "endpoints", 0);
    let mut one = host.attach("a");
    assert_ne!(one.open(0, 1), of_one, "a session of its own");
    one.ask(Ask::Connect { endpoint: 0, to: 3, key: 77, token: 9, nic: nic("b") });
    assert!(matches!(two.hear().0, Tell::Channel { .. }));
}

#[test]
fn hostile_connects_to_strangers_and_with_wrong_keys_are_refused() {
    let host = Host::new();
    let (mut one, mut two, mut other) = (host.attach("a"), host.attach("b"), host.attach("c"));
    one.open(0, 1);
    two.open(1, 2);
    other.open(2, 3);
    assert_eq!(one.refused(0, ("b", 1), 3), Status::BadKey as u8);
    assert_eq!(one.refused(0, ("b", 2), 2), Status::EndpointClosed as u8);
    assert_eq!(one.refused(0, ("c", 2), 3), Status::EndpointUnknown as u8, "another group's");
    assert_eq!(one.refused(0, ("a", 0), 1), Status::BadEndpoint as u8, "itself");
    assert_eq!(one.refused(1, ("b", 1), 2), Status::BadEndpoint as u8, "it has no such endpoint");
    let mut third = host.attach("a");
    assert_eq!(third.refused(0, ("b", 1), 2), Status::BadEndpoint as u8, "somebody else's");
    // Nor can it be closed or opened by another.
    third.ask(Ask::Close { endpoint: 0 });
    third.ask(Ask::Open { tag: 1, endpoint: 0, key: 0 });
    assert!(matches!(third.hear().0, Tell::Opened { code: 20, .. }));
    third.ask(Ask::Open { tag: 1, endpoint: 255, key: 0 });
    assert!(matches!(third.hear().0, Tell::Opened { code: 0, endpoint: 1, .. }), "any other");
}

#[test]
fn boards_are_found_by_name_in_their_group_alone() {
    let host = Host::new();
    let mut one = host.attach("a");
    for (name, known) in [("b:0", 1), ("b", 0), ("c:0", 0)] {
        one.ask(Ask::Find { tag: 3, name: Name::new(name).unwrap() });
        let (tell, _) = one.hear();
        let Tell::Host { tag: 3, known: found, nic: its, .. } = tell else { panic!("{tell:?}") };
        assert_eq!(found, known, "{name}");
        assert!(found == 0 || its == nic("b"));
    }
    one.ask(Ask::Name { tag: 4, nic: nic("b") });
    let Tell::Host { tag: 4, known: 1, name, .. } = one.hear().0 else { panic!() };
    assert_eq!(name.as_str(), "b:0");
    one.ask(Ask::Name { tag: 4, nic: nic("c") });
    assert!(matches!(one.hear().0, Tell::Host { known: 0, .. }));
    let text = host.add("d", "red", nic("b")).unwrap_err().to_string();
    assert!(text.contains("mac"), "{text}");
}

#[test]
fn hostile_processes_cost_only_themselves() {
    let host = Host::new();
    let mut honest = host.attach("a");
    honest.open(7, 0);
    // Garbage, questions before a greeting, endless questions without listening.
    let mut garbage = UnixStream::connect(host.dir.join("a")).unwrap();
    garbage.write_all(&[0xff; 1000]).unwrap();
    assert!(Process(Local::new(garbage.into())).is_parted());
    let rude = UnixStream::connect(host.dir.join("a")).unwrap();
    let mut rude = Process(Local::new(rude.into()));
    rude.ask(Ask::Open { tag: 0, endpoint: 1, key: 0 });
    assert!(rude.is_parted());
    let mut deaf = host.attach("a");
    let since = Instant::now();
    loop {
        match deaf.0.send(Ask::Name { tag: 0, nic: 1 }.emit(), Vec::new()) {
            Ok(()) => {}
            // It asks faster than it is heard.
            Err(Ended::Unread) if deaf.0.flush().is_ok() => {}
            Err(_) => break,
        }
        assert!(since.elapsed() < PATIENCE, "it is listened to for ever");
    }
    // Descriptors that nobody asked for.
    let mut odd = host.attach("a");
    let file = causeway_memory::create("odd", 4096).unwrap();
    odd.0.send(Ask::Close { endpoint: 0 }.emit(), vec![file]).unwrap();
    assert!(odd.is_parted());
    // A port that goes takes its processes along.
    host.wait("a", "processes", 1);
    assert_eq!(host.counter("a", "endpoints"), 1);
    host.handle.call(Command::PortDel("a".parse().unwrap())).unwrap();
    assert!(honest.is_parted());
}
