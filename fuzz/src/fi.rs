//! The core of the libfabric provider: a hostile peer with a valid key violates the protocol while
//! an application starts arbitrary operations. Target `fi`: the endpoint and the peer run in one
//! process (`causeway_provider::scenario`), beside a daemon that the target plays, for at most 200
//! steps. Each operation gets the number of completions that the interface promises, none is left
//! at the end, and the guard bytes around buffers stay. Content from the hostile peer is not
//! judged.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use causeway_attach::doorbell;
use causeway_attach::local::LocalAttachment;
use causeway_channel::{Layout, format};
use causeway_endpoint::nic::Conversation;
use causeway_endpoint::{Endpoint, OpenOptions};
use causeway_memory::{Mapping, View, create};
use causeway_message::library::Partner;
use causeway_message::split::PeerId;
use causeway_message::status::Status;
use causeway_provider::scenario::{KEY, REGISTERED, ScenarioCompletion, ScenarioEndpoint};
use causeway_wire::local::{ClientMessage, DaemonMessage, Name, VERSION};

use crate::Input;

const NIC: u64 = 0x0200_0000_0061;
/// The endpoint numbers.
const OURS: u8 = 1;
const THEIRS: u8 = 2;
/// Steps of one scenario.
const STEPS: usize = 200;
/// The longest message and memory region, in bytes.
const LONGEST: usize = 20_000;
/// The kind of a message, encoded in the upper bits of the match information.
const SPACES: [u64; 5] = [0, 1 << 62, 2 << 62, 3 << 62, 7 << 61];
const PLAIN: u64 = 1 << 62;
const CONTROL: u64 = 2 << 62;
const BODY: u64 = 3 << 62;
const REPLY: u64 = 7 << 61;
/// The bits of an operation identifier.
const NAME: u64 = (1 << 30) - 1;
const NOTICE: u64 = 1 << 63;

/// A well-behaved daemon of one endpoint.
struct Daemon {
    local: LocalAttachment,
    own: u8,
    /// The other endpoint exists.
    there: bool,
}

impl Daemon {
    fn new(own: u8) -> (Self, UnixStream) {
        let (one, other) = UnixStream::pair().expect("a socket pair");
        let mut local = LocalAttachment::new(one.into());
        let name = Name::new("a:0").expect("a short name");
        let welcome = DaemonMessage::Welcome { version: VERSION, nic: NIC, host: [0; 16], name };
        let opened = DaemonMessage::Opened {
            tag: 0,
            code: 0,
            session: session(own),
            endpoint: own,
            bypass: 0,
        };
        for tell in [welcome, opened] {
            local.send(tell.emit(), Vec::new()).expect("room in the socket");
        }
        (Self { local, own, there: true }, other)
    }

    fn tell(&mut self, tell: DaemonMessage, fds: Vec<OwnedFd>) {
        let _ = self.local.send(tell.emit(), fds);
    }

    fn join(&mut self, other: u8, side: u8, fds: [OwnedFd; 2]) {
        let (endpoint, session) = (self.own, session(other));
        let tell = DaemonMessage::Channel {
            endpoint,
            of: other,
            side,
            session,
            way: 1,
            token: 0,
            nic: NIC,
        };
        self.tell(tell, fds.into());
    }

    /// Answers the pending requests: a connected endpoint is reported as reachable.
    fn go_on(&mut self) {
        while let Ok(Some(received)) = self.local.receive() {
            if let Ok(ClientMessage::Connect { token, to, .. }) =
                ClientMessage::parse(&received.bytes)
            {
                let reached = self.there && to == THEIRS;
                let status = if reached { Status::Success } else { Status::EndpointClosed };
                let status = u8::try_from(status as u32).expect("a small status");
                self.tell(DaemonMessage::Refused { endpoint: self.own, status, token }, Vec::new());
            }
        }
    }
}

fn session(endpoint: u8) -> u32 {
    100 + u32::from(endpoint)
}

/// Connects both endpoints by a small channel, so that senders wait for room.
fn join(one: &mut Daemon, other: &mut Daemon) {
    let layout = Layout::new(16, 8192).expect("a valid layout");
    let len = layout.bytes();
    let file = create("channel", len as u64).expect("a memory file");
    let mapping = Mapping::new(file.as_fd(), 0, len as u64).expect("a mapping");
    format(&View::new(Arc::new(mapping), 0, len).expect("a view of the whole mapping"), layout)
        .expect("a view as long as the layout");
    let [bell, peer_bell] = doorbell::pair().expect("a socket pair");
    one.join(other.own, 0, [file.try_clone().expect("a descriptor"), bell]);
    other.join(one.own, 1, [file, peer_bell]);
}

/// The completions expected for a context.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expectation {
    /// One completion.
    Once,
    /// No further completion.
    Over,
    /// Any number of completions.
    Often,
    /// Any number of completions, until the buffer is released.
    Buffer,
}

/// The state of a scenario.
struct Scene {
    side: ScenarioEndpoint,
    daemon: Daemon,
    peer: Endpoint<Vec<u8>>,
    peer_daemon: Daemon,
    /// The peer's number in the address vector.
    peer_number: u64,
    expectations: Vec<Expectation>,
    /// Operation identifiers that the peer has received.
    names: Vec<u64>,
    /// Memory was registered at least once.
    registered: bool,
    /// All completions: flags and error.
    completions: Vec<(u64, i32)>,
}

impl Scene {
    fn new() -> Self {
        let (mut daemon, stream) = Daemon::new(OURS);
        let (mut peer_daemon, peer_stream) = Daemon::new(THEIRS);
        let mut side = ScenarioEndpoint::open(stream).expect("a well-behaved daemon");
        let conversation = Conversation::over(peer_stream, 0).expect("a well-behaved daemon");
        let opening = OpenOptions { key: KEY, context_bits: 2, context_shift: 62, raises: false };
        let mut peer =
            Endpoint::open_over(conversation, 255, opening).expect("a well-behaved daemon");
        join(&mut daemon, &mut peer_daemon);
        side.go_on();
        peer.look();
        peer.step();
        let peer_number = side.knows(&name(NIC, THEIRS, session(THEIRS))).expect("a valid name");
        let (expectations, names) = (vec![Expectation::Often], vec![0, 1, 2, NAME]);
        Self {
            side,
            daemon,
            peer,
            peer_daemon,
            peer_number,
            expectations,
            names,
            registered: false,
            completions: Vec::new(),
        }
    }

    fn says(&mut self, info: u64, bytes: Vec<u8>) {
        let to = Partner { peer: PeerId(0), epoch: 0 };
        let _ = self.peer.library.isend(&mut self.peer.paths, to, info, 0, bytes);
    }

    fn begun(&mut self, whether: bool, expectation: Expectation) {
        self.expectations.push(if whether { expectation } else { Expectation::Over });
    }

    fn go_on(&mut self) {
        self.daemon.go_on();
        self.side.go_on();
        for ScenarioCompletion { context, err, flags, len, last } in self.side.told() {
            self.completions.push((flags, err));
            assert!(err >= 0 && len <= 1 << 32, "{context} {err} {len}");
            let expectation = &mut self.expectations[context];
            assert!(*expectation != Expectation::Over, "context {context} completed again: {err}");
            if *expectation == Expectation::Once
                || (*expectation == Expectation::Buffer && (last || err != 0))
            {
                // A failed message does not release a multi-receive buffer.
                *expectation = if *expectation == Expectation::Once || last {
                    Expectation::Over
                } else {
                    Expectation::Buffer
                };
            }
        }
    }

    /// Runs the peer and collects operation identifiers from its messages.
    fn run_peer(&mut self) {
        self.peer_daemon.go_on();
        self.peer.look();
        self.peer.step();
        while let Ok(Some(_)) = self.peer.library.test_any(0, 0) {}
        while let Ok(Some(taken)) =
            self.peer.library.take_kept(&mut self.peer.paths, None, (CONTROL, 3 << 62))
        {
            if let Some(name) = taken.bytes.get(4..8).and_then(|name| name.first_chunk::<4>()) {
                self.names.push(u32::from_le_bytes(*name).into());
            }
            self.peer.library.give_back(taken.bytes);
        }
        if self.names.len() > 128 {
            self.names.drain(4..64);
        }
    }

    /// Lets the peer receive the first message that is not a request, up to the length of its
    /// buffer.
    fn peer_receives(&mut self, space: usize, len: usize) {
        let mut head = [0; 16];
        let (space, mask) = (SPACES[space % SPACES.len()], 3 << 62);
        if let Ok(Some((_, 16))) = self.peer.library.probe(None, (space, mask), &mut head) {
            let word = head.last_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
            self.names.push(word >> 32 & NAME);
        }
        let way = &mut self.peer.paths;
        let _ = self.peer.library.irecv_from(way, None, (space, mask), 0, vec![0; len]);
    }
}

/// Encodes an endpoint name, as applications exchange it.
fn name(nic: u64, endpoint: u8, session: u32) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&nic.to_le_bytes());
    bytes[8] = endpoint;
    bytes[12..16].copy_from_slice(&session.to_le_bytes());
    bytes[16..20].copy_from_slice(b"CWFI");
    bytes
}

/// Runs a hostile peer.
pub fn run(data: &[u8]) {
    play(data);
}

fn play(data: &[u8]) -> Scene {
    let mut scene = Scene::new();
    let mut input = Input::new(data);
    input.steps(STEPS, |input| step(&mut scene, input));
    finish(&mut scene);
    scene
}

fn length(input: &mut Input<'_>) -> usize {
    match input.u8() {
        0xff => usize::from(input.u16()) % LONGEST,
        0xfe => 4097,
        short => usize::from(short),
    }
}

fn step(scene: &mut Scene, input: &mut Input<'_>) {
    let choice = input.u8();
    let context = scene.expectations.len();
    let from = (choice & 0x80 != 0).then_some(scene.peer_number);
    match choice % 16 {
        0 | 1 => {
            let tag = input.bool().then(|| (u64::from(input.u8() % 4), u64::from(input.u8() % 2)));
            let begun = scene.side.receive(from, tag, context, (length(input), false));
            scene.begun(begun, Expectation::Once);
        }
        2 => {
            let begun = scene.side.receive(from, None, context, (length(input), true));
            scene.begun(begun, Expectation::Buffer);
        }
        3 => {
            let how = (input.bool(), input.bool());
            let begun = scene.side.peek(from, (u64::from(input.u8() % 4), 0), context, how);
            scene.begun(begun, Expectation::Often);
        }
        4 => {
            let len = input.bool().then(|| length(input));
            let context = usize::from(input.u8()) % context;
            if scene.expectations[context] == Expectation::Often {
                scene.side.claimed(context, len);
            }
        }
        5 => drop(scene.side.cancel(usize::from(input.u8()) % context)),
        6 => {
            let what = (length(input), input.bool());
            let begun = scene.side.send(scene.peer_number, input.u8().into(), context, what);
            scene.begun(begun, Expectation::Once);
        }
        7 => {
            let begun = scene.side.reach(scene.peer_number, context, length(input), input.bool());
            scene.begun(begun, Expectation::Once);
        }
        8 => {
            let len = length(input);
            let begun = scene.side.change(scene.peer_number, context, &vec![1; len]);
            scene.begun(begun, Expectation::Once);
        }
        9 | 10 => message(scene, input),
        11 | 12 => request(scene, input),
        13 => scene.peer_receives(input.u8().into(), length(input)),
        14 => rare_action(scene, input),
        _ => {
            scene.go_on();
            scene.run_peer();
        }
    }
}

/// Applies rare actions: unknown names, registered and deregistered memory, a full channel.
fn rare_action(scene: &mut Scene, input: &mut Input<'_>) {
    match input.u8() % 5 {
        0 => {
            let mut name = name(NIC, input.u8() % 4, session(THEIRS) + u32::from(input.u8() % 2));
            if input.bool() {
                name[usize::from(input.u8()) % 24] = input.u8();
            }
            if let Some(number) = scene.side.knows(&name) {
                let context = scene.expectations.len();
                let begun = scene.side.send(number, 1, context, (length(input), false));
                scene.begun(begun, Expectation::Once);
            }
        }
        1 => {
            scene.registered = true;
            scene.side.register(7, true);
        }
        2 => scene.side.register(7, false),
        3 => scene.side.hold(input.bool()),
        _ => scene.says(input.u64(), input.bytes(64).to_vec()),
    }
}

/// Sends a possible message from the peer, with or without a header, announced or not.
fn message(scene: &mut Scene, input: &mut Input<'_>) {
    let what = input.u8();
    let name = scene.names[usize::from(input.u8()) % scene.names.len()] & NAME;
    let len = length(input);
    let info = match what % 5 {
        0 => u64::from(what >> 3 & 3),
        1 => PLAIN,
        2 => BODY | name,
        3 => REPLY | name,
        _ => SPACES[usize::from(input.u8()) % SPACES.len()] | u64::from(input.u8()),
    };
    let mut bytes = vec![9; len];
    if what & 0x80 != 0 && len >= 16 {
        // The header describes inline data or announces later data; the header of a reply carries a
        // result.
        let word = match what & 0x60 {
            0 => 0,
            0x20 => NOTICE | name << 32 | length(input) as u64,
            0x40 => NOTICE | 1 << 62 | name << 32 | 0xffff_ffff,
            _ => input.u64(),
        };
        bytes[..8].copy_from_slice(&u64::from(input.u8() % 3).to_le_bytes());
        bytes[8..16].copy_from_slice(&word.to_le_bytes());
        if what & 0x60 == 0x20 {
            bytes.truncate(16);
        }
    }
    scene.says(info, bytes);
}

/// Sends a possible request from the peer.
fn request(scene: &mut Scene, input: &mut Input<'_>) {
    let mut bytes = vec![0; 40];
    let what = input.u8();
    bytes[0] = what % 8;
    bytes[1] = input.u8() % 12;
    bytes[2] = input.u8() % 24;
    bytes[3] = what >> 7 & 1;
    bytes[4..8].copy_from_slice(&u32::from(input.u8()).to_le_bytes());
    bytes[8] = if what & 0x40 == 0 { 7 } else { input.u8() };
    let odd = [u64::MAX, 1 << 40, REGISTERED as u64, 0];
    let mut near = |bit: u8| match what & bit {
        0 => u64::from(input.u16() % 4200),
        _ => odd[usize::from(input.u8()) % odd.len()],
    };
    let (address, len) = (near(0x20), near(0x10));
    bytes[16..24].copy_from_slice(&address.to_le_bytes());
    bytes[24..32].copy_from_slice(&len.to_le_bytes());
    // Usually as many bytes as the request announces; a compare carries two operands.
    let rows = if what % 8 == 6 { 2 } else { 1 };
    let more = usize::try_from(len).unwrap_or(usize::MAX).min(4096).saturating_mul(rows);
    let more = if what & 8 == 0 { more } else { length(input) };
    if what % 8 != 2 && what % 8 != 3 {
        bytes.extend(vec![3; more]);
    }
    if input.u8() == 0xff {
        bytes.truncate(usize::from(input.u8()));
    }
    scene.says(CONTROL, bytes);
}

/// Ends the peer and checks that no operation remains and no protected byte was written.
fn finish(scene: &mut Scene) {
    scene.side.hold(false);
    for _ in 0..8 {
        scene.go_on();
        scene.run_peer();
    }
    scene.peer.paths.end();
    scene.daemon.there = false;
    let gone = DaemonMessage::Gone { endpoint: OURS, of: THEIRS, way: 1, nic: NIC };
    scene.daemon.tell(gone, Vec::new());
    for _ in 0..64 {
        scene.go_on();
        for context in 0..scene.expectations.len() {
            scene.side.cancel(context);
        }
    }
    scene.go_on();
    assert_eq!(scene.side.operations(), 0);
    assert_eq!(scene.side.counted(), [0; 3]);
    let once =
        scene.expectations.iter().filter(|expectation| **expectation == Expectation::Once).count();
    assert_eq!(once, 0, "operations without a completion");
    assert!(scene.side.is_guarded());
    assert!(scene.registered || !scene.side.is_written());
}

/// Returns scenarios that reach deep code paths: an accepted message and request of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    /// Runs both endpoints.
    const ON: &[u8] = &[15, 15, 15];
    /// A tagged receive, and messages that match: short, without a header, an announcement.
    const RECEIVE: [u8; 4] = [0, 1, 1, 0];
    const SHORT: [u8; 3] = [9, 0x8c, 0];
    const HEADLESS: [u8; 4] = [9, 10, 0, 5];
    const NOTICED: &[u8] = &[9, 0xaa, 1, 16, 0xff, 0, 60, 0];
    /// The data of the announced message, and a reply to the operation whose identifier the peer
    /// received last.
    const BYTES: &[u8] = &[9, 2, 1, 0xff, 0, 60];
    const REPLIES: [u8; 3] = [9, 0x80, 4];
    /// Untagged messages: short, and an announcement.
    const PLAINLY: [u8; 3] = [9, 0x88, 0];
    const PLAIN_NOTICE: &[u8] = &[9, 0xa1, 1, 16, 200, 0];
    /// A message for a probe.
    const KEPT: &[u8] = &[9, 0x82, 0, 50, 0];
    const REGISTERS: &[u8] = &[14, 1];
    /// A write of 800 bytes with an announcement.
    const LONG: &[u8] = &[11, 2, 0, 0, 1, 0, 0, 0x20, 3, 0];
    let asks = |kind: u8, datatype: u8, operation: u8, len: u8| {
        vec![11, kind, datatype, operation, 5, 0, 0, len, 0, 0]
    };
    let scenarios: [&[&[u8]]; 19] = [
        &[&RECEIVE, &[100], &SHORT, &[50, 0], ON, &[0, 0, 100], &PLAINLY, &[50, 0], ON],
        &[&RECEIVE, &[10], &SHORT, &[90, 0], ON, &RECEIVE, &[10], &HEADLESS, ON],
        // Long messages: announced before the receive and after it.
        &[NOTICED, ON, &RECEIVE, &[0xff, 0, 70], ON, BYTES, ON],
        &[&RECEIVE, &[0xff, 0, 70], BYTES, NOTICED, ON],
        // A multi-receive buffer: short, empty and long messages until the buffer is full.
        &[&[2, 0xff, 0, 80], ON, &PLAINLY, &[50, 0], &PLAINLY, &[16, 0], ON, &[5, 1], ON],
        &[&[2, 0xff, 0, 80], PLAIN_NOTICE, ON, &[9, 2, 1, 200], ON],
        &[&[2, 100], &PLAINLY, &[50, 0], ON],
        // Probed, claimed and received; discarded; probed without a match.
        &[KEPT, ON, &[3, 1, 0, 0, 4, 1, 90, 1], ON],
        &[KEPT, ON, &[3, 0, 0, 0, 3, 0, 1, 0, 3, 0, 0, 0], ON],
        // The application's own operations: short and long sends that are received; read, write and
        // atomic operations with replies.
        &[&[6, 50, 0, 1, 6, 0xff, 0, 60, 0, 1], ON, &[13, 0, 20, 13, 3, 0xff, 0, 60], ON],
        &[&[6, 50, 1, 1], ON, &[13, 3, 50], ON],
        &[&[7, 50, 0], ON, &REPLIES, &[66, 0], ON],
        &[&[7, 0xff, 0, 60, 1], ON, &[13, 3, 0xff, 0, 60], &REPLIES, &[16, 0], ON],
        &[&[8, 8], ON, &REPLIES, &[24, 0], ON, &[8, 8], ON, &[9, 0x80, 5, 24, 1], ON],
        // A peer that is held back; a name of an unknown endpoint.
        &[REGISTERS, &[14, 3, 1], &asks(0x81, 0, 0, 8), ON, &[14, 3, 0], ON],
        &[&[14, 0, 3, 0, 0, 20], ON, &RECEIVE, &[20, 5, 2], ON],
        // A long write with its data; memory deregistered during the write; an unknown key.
        &[REGISTERS, LONG, ON, &[9, 2, 1, 0xff, 0x20, 3], ON],
        &[REGISTERS, LONG, ON, &[14, 2], ON],
        &[REGISTERS, &[11, 0x41, 0, 0, 5, 9, 0, 0, 8, 0, 0], ON],
    ];
    let mut seeds: Vec<Vec<u8>> = scenarios.iter().map(|scenario| scenario.concat()).collect();
    for (kind, datatype, operation) in
        [(1, 0, 0), (0x81, 0, 0), (3, 0, 0), (4, 7, 2), (5, 7, 2), (6, 7, 12), (5, 9, 3)]
    {
        seeds.push([REGISTERS, &asks(kind, datatype, operation, 16), ON].concat());
    }
    seeds
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Flags and errors of libfabric: `FI_MSG`, `FI_TAGGED`, `FI_RECV`, `FI_SEND`, `FI_MULTI_RECV`,
    /// `FI_REMOTE_READ`, `FI_REMOTE_WRITE`, `FI_REMOTE_CQ_DATA`; truncated, cancelled, refused,
    /// probed without a match, malformed, and to an unreachable peer.
    const FLAGS: [u64; 8] = [1 << 1, 1 << 3, 1 << 10, 1 << 11, 1 << 16, 1 << 12, 1 << 13, 1 << 17];
    const ERRORS: [i32; 6] = [265, 125, 1, 42, 5, 111];

    #[test]
    fn fi_seeds_cover_every_flag_and_error() {
        let (mut completions, mut counted) = (Vec::new(), BTreeMap::new());
        for seed in seeds() {
            let scene = play(&seed);
            completions.extend(scene.completions);
            for (name, value) in scene.side.account() {
                *counted.entry(name).or_insert(0) += value;
            }
        }
        let well =
            completions.iter().filter(|(_, err)| *err == 0).fold(0, |all, (flags, _)| all | flags);
        let errors: std::collections::BTreeSet<i32> =
            completions.iter().map(|(_, err)| *err).collect();
        eprintln!("{well:x} {errors:?} {counted:?}");
        for flag in FLAGS {
            assert!(well & flag != 0, "{flag:x} of {well:x}");
        }
        for err in ERRORS {
            assert!(errors.contains(&err), "{err} of {errors:?}");
        }
        for name in ["sent_long", "received_long", "atomics", "remote_atomics", "unexpected"] {
            assert!(counted[name] > 0, "{name}: {counted:?}");
        }
    }
}
