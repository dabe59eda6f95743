//! Two processes on one NIC send each other large messages: by direct reads and cooperative copies
//! where both permit it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use causeway_endpoint::nic::Conversation;
use causeway_endpoint::{Endpoint, OpenOptions};
use causeway_fabric::{Fabric, Handle, Options};
use causeway_message::library::{Buffer, DirectCounters, Partner, RequestId};
use causeway_message::split::{Address, NicId};
use causeway_message::status::Status;
use causeway_model::Command as Control;
use causeway_model::Mac;
use causeway_model::{MxSpec, PortKind, PortSpec};

const PATIENCE: Duration = Duration::from_secs(20);
const NIC: u64 = 0x0200_0000_0061;
/// Environment variable with the action of the other process.
const PLAY: &str = "CAUSEWAY_TEST_PLAY";
/// Environment variable with the path of the NIC's socket, for the other process.
const BOARD: &str = "CAUSEWAY_TEST_BOARD";

const LENS: [usize; 5] = [40_000, 65_536, 300_001, 1 << 20, 5 << 20];
const ROUNDS: usize = 4;

/// A buffer that stores its bytes at the end of its request.
#[derive(Debug)]
struct Pad(Vec<u8>, Arc<Mutex<Vec<u8>>>);

impl Buffer for Pad {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self, at: usize) -> &[u8] {
        self.0.get(at..).unwrap_or_default()
    }

    fn bytes_mut(&mut self, at: usize) -> &mut [u8] {
        self.0.get_mut(at..).unwrap_or_default()
    }
}

impl Drop for Pad {
    fn drop(&mut self) {
        *self.1.lock().unwrap() = std::mem::take(&mut self.0);
    }
}

fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(len)
    .collect()
}

struct Host {
    handle: Handle,
    _fabric: Fabric,
    dir: PathBuf,
}

impl Host {
    fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("causeway-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let fabric = Fabric::start(&[causeway_mx::SERVICE], Options::default()).unwrap();
        let host = Self { handle: fabric.handle(), _fabric: fabric, dir };
        let group: causeway_model::Name = "red".parse().unwrap();
        host.handle.call(Control::GroupAdd(group.clone().into())).unwrap();
        let [_, _, mac @ ..] = NIC.to_be_bytes();
        let kind = PortKind::of(MxSpec::local(Mac(mac), "a:0".to_owned()));
        let (name, socket) = ("a".parse().unwrap(), host.board());
        host.handle
            .call(Control::PortAdd(PortSpec {
                name,
                group,
                socket,
                access: Default::default(),
                memory_max: None,
                kind,
            }))
            .unwrap();
        host
    }

    fn board(&self) -> PathBuf {
        self.dir.join("a")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.handle.stop();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A process that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open(board: &Path, number: u8) -> Endpoint<Pad> {
    let stream = std::os::unix::net::UnixStream::connect(board).unwrap();
    let conversation = Conversation::over(stream, 0).unwrap();
    Endpoint::open_over(conversation, number, OpenOptions::default()).unwrap()
}

fn until<T>(
    endpoint: &mut Endpoint<Pad>,
    mut ask: impl FnMut(&mut Endpoint<Pad>) -> Option<T>,
) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = ask(endpoint) {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "it does not end");
        endpoint.step();
        endpoint.look();
        std::thread::yield_now();
    }
}

fn connect(endpoint: &mut Endpoint<Pad>, to: u8) -> Partner {
    until(endpoint, |endpoint| {
        let to = Address { nic: NicId(NIC), endpoint: to };
        let Endpoint { library, paths, .. } = endpoint;
        let asked = library.iconnect(paths, to, 0, 0, 0, None).unwrap();
        let done = until(endpoint, |endpoint| endpoint.library.test(asked).unwrap());
        // The other endpoint may not be open yet.
        done.partner.filter(|_| done.status == Status::Success)
    })
}

/// Destination of a receive, and the expected bytes.
type Expected = (Arc<Mutex<Vec<u8>>>, Vec<u8>);

/// Sends and receives at the same time; waits for the other process at the end.
fn exchange(endpoint: &mut Endpoint<Pad>, own: u64, other: Partner) -> DirectCounters {
    for round in 0..ROUNDS {
        let mut all: Vec<(RequestId, Option<Expected>)> = Vec::new();
        for (at, len) in LENS.into_iter().enumerate() {
            let info = (round * LENS.len() + at) as u64;
            let its = content(info << 1 | (1 - own), len);
            let (into, back) = (vec![0; len], Arc::default());
            let Endpoint { library, paths, .. } = &mut *endpoint;
            let pad = Pad(into, Arc::clone(&back));
            all.push((library.irecv(paths, info, u64::MAX, 0, pad).unwrap(), Some((back, its))));
            let data = Pad(content(info << 1 | own, len), Arc::default());
            all.push((library.issend(paths, other, info, 0, data).unwrap(), None));
        }
        for (request, receive) in all {
            let done = until(endpoint, |endpoint| endpoint.library.test(request).unwrap());
            assert_eq!(done.status, Status::Success);
            if let Some((back, bytes)) = receive {
                assert!(*back.lock().unwrap() == bytes, "{} bytes", bytes.len());
            }
        }
    }
    endpoint.paths.channels.fetched()
}

/// First one side sends message after message, then the other.
fn take_turns(endpoint: &mut Endpoint<Pad>, own: u64, other: Partner) -> DirectCounters {
    for message in 0..ROUNDS * LENS.len() * 2 {
        let (info, len) = (message as u64, LENS[message % LENS.len()]);
        let bytes = content(info, len);
        let Endpoint { library, paths, .. } = &mut *endpoint;
        let back = Arc::default();
        let request = if info / LENS.len() as u64 % 2 == own {
            library.issend(paths, other, info, 0, Pad(bytes.clone(), Arc::clone(&back)))
        } else {
            library.irecv(paths, info, u64::MAX, 0, Pad(vec![0; len], Arc::clone(&back)))
        };
        let request = request.unwrap();
        let done = until(endpoint, |endpoint| endpoint.library.test(request).unwrap());
        assert_eq!(done.status, Status::Success);
        assert!(*back.lock().unwrap() == bytes, "{len} bytes");
    }
    endpoint.paths.channels.fetched()
}

/// Receives, or sends, long messages until the other process has ended.
fn until_gone(endpoint: &mut Endpoint<Pad>, sends: bool, other: Partner) -> Status {
    loop {
        let Endpoint { library, paths, .. } = &mut *endpoint;
        let pad = Pad(vec![0; 8 << 20], Arc::default());
        let request = if sends {
            library.issend(paths, other, 1, 0, pad)
        } else {
            library.irecv(paths, 1, u64::MAX, 0, pad)
        };
        let request = request.unwrap();
        let done = until(endpoint, |endpoint| {
            let ended = endpoint.library.test(request).unwrap().map(|done| done.status);
            // An unmatched receive does not depend on a peer.
            ended
                .or_else(|| (!endpoint.library.is_reached(other)).then_some(Status::EndpointClosed))
        });
        if done != Status::Success {
            return done;
        }
    }
}

/// The other process; no effect when the test runner calls it.
#[test]
fn other_process() {
    let Some(board) = std::env::var_os(BOARD) else { return };
    let mut endpoint = open(Path::new(&board), 1);
    let other = connect(&mut endpoint, 0);
    match std::env::var(PLAY).unwrap().as_str() {
        "exchange" => drop(exchange(&mut endpoint, 1, other)),
        "turns" => drop(take_turns(&mut endpoint, 1, other)),
        "sends" => drop(until_gone(&mut endpoint, true, other)),
        _ => drop(until_gone(&mut endpoint, false, other)),
    }
    endpoint.finish();
}

fn start(host: &Host, play: &str, direct: &str) -> Running {
    let process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "other_process"])
        .env(BOARD, host.board())
        .env(PLAY, play)
        .env("CAUSEWAY_DIRECT", direct)
        .stdout(Stdio::null())
        .spawn();
    Running(process.unwrap())
}

fn with_other(test: &str, play: &str, direct: &str) -> DirectCounters {
    let host = Host::new(test);
    let mut endpoint = open(&host.board(), 0);
    let mut process = start(&host, play, direct);
    let other = connect(&mut endpoint, 1);
    let fetched = match play {
        "turns" => take_turns(&mut endpoint, 0, other),
        _ => exchange(&mut endpoint, 0, other),
    };
    let ended = until(&mut endpoint, |_| process.0.try_wait().unwrap());
    assert!(ended.success(), "{ended}");
    endpoint.finish();
    fetched
}

/// Returns whether the kernel permits a process to read its child's memory. The test does not
/// change that.
fn is_allowed() -> bool {
    let text = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    text.map_or(true, |scope| scope.trim() < "2")
}

#[test]
fn direct_read_works_both_ways_between_processes() {
    let fetched = with_other("direct", "exchange", "1");
    if is_allowed() {
        assert!(fetched.messages > 0 && fetched.refused == 0, "{fetched:?}");
    } else {
        assert_eq!((fetched.messages, fetched.refused), (0, 1));
    }
    assert_eq!(fetched.unknown, 0);
}

#[test]
fn direct_read_disabled_process_uses_the_channel() {
    let DirectCounters { messages, helped, fell_back, refused, unknown } =
        with_other("channel", "exchange", "0");
    assert_eq!((messages, helped, fell_back, refused, unknown), (0, 0, 0, 0, 1));
}

#[test]
fn cooperative_copy_is_made_by_a_sending_process() {
    let fetched = with_other("turns", "turns", "1");
    if is_allowed() {
        assert!(fetched.helped > 0 && fetched.refused == 0, "{fetched:?}");
    }
}

/// The process is killed at an arbitrary point: within its own copy or this side's.
#[test]
fn cooperative_copy_ends_when_a_process_is_killed() {
    for round in 0..10 {
        for (play, sends) in [("sends", false), ("receives", true)] {
            let host = Host::new(&format!("killed-{play}-{round}"));
            let mut endpoint = open(&host.board(), 0);
            let mut process = start(&host, play, "1");
            let other = connect(&mut endpoint, 1);
            let killer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(3000 + 1700 * round));
                process.0.kill().unwrap();
                process
            });
            let status = until_gone(&mut endpoint, sends, other);
            assert_ne!(status, Status::Success);
            drop(killer.join().unwrap());
            endpoint.finish();
        }
    }
}
