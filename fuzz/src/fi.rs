//! The core of the libfabric provider: a partner that knows the key and keeps to no rule, and an
//! application that begins what it likes meanwhile.

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
/// The numbers of both endpoints.
const OURS: u8 = 1;
const THEIRS: u8 = 2;
/// Steps of one story.
const STEPS: usize = 200;
/// Longest message and piece of memory.
const LONGEST: usize = 20_000;
/// What a message is for, in the upper bits of what is matched.
const SPACES: [u64; 5] = [0, 1 << 62, 2 << 62, 3 << 62, 7 << 61];
const PLAIN: u64 = 1 << 62;
const CONTROL: u64 = 2 << 62;
const BODY: u64 = 3 << 62;
const REPLY: u64 = 7 << 61;
/// Bits of an operation's name.
const NAME: u64 = (1 << 30) - 1;
const NOTICE: u64 = 1 << 63;

/// A daemon for one endpoint, which answers as it should.
struct Daemon {
    local: LocalAttachment,
    own: u8,
    /// The other endpoint is there.
    there: bool,
}

impl Daemon {
    fn new(own: u8) -> (Self, UnixStream) {
        let (one, other) = UnixStream::pair().expect("the host gives sockets");
        let mut local = LocalAttachment::new(one.into());
        let name = Name::new("a:0").expect("it is short");
        let welcome = DaemonMessage::Welcome { version: VERSION, nic: NIC, host: [0; 16], name };
        let opened = DaemonMessage::Opened {
            tag: 0,
            code: 0,
            session: session(own),
            endpoint: own,
            bypass: 0,
        };
        for tell in [welcome, opened] {
            local.send(tell.emit(), Vec::new()).expect("there is room");
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

    /// Answers what is asked: who is joined already is reached.
    fn go_on(&mut self) {
        while let Ok(Some(received)) = self.local.receive() {
            if let Ok(ClientMessage::Connect { token, to, .. }) =
                ClientMessage::parse(&received.bytes)
            {
                let reached = self.there && to == THEIRS;
                let status = if reached { Status::Success } else { Status::EndpointClosed };
                let status = u8::try_from(status as u32).expect("they are few");
                self.tell(DaemonMessage::Refused { endpoint: self.own, status, token }, Vec::new());
            }
        }
    }
}

fn session(endpoint: u8) -> u32 {
    100 + u32::from(endpoint)
}

/// Joins both by a small channel, so that everything waits for room.
fn join(one: &mut Daemon, other: &mut Daemon) {
    let layout = Layout::new(16, 8192).expect("it is one");
    let len = layout.bytes();
    let file = create("channel", len as u64).expect("the host gives memory");
    let mapping = Mapping::new(file.as_fd(), 0, len as u64).expect("it can be mapped");
    format(&View::new(Arc::new(mapping), 0, len).expect("it is as long"), layout)
        .expect("so is it");
    let [bell, its_bell] = doorbell::pair().expect("the host gives sockets");
    one.join(other.own, 0, [file.try_clone().expect("the host gives descriptors"), bell]);
    other.join(one.own, 1, [file, its_bell]);
}

/// What becomes of a context.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is told once.
    Once,
    /// It was.
    Over,
    /// It is told as often as messages come.
    Often,
    /// The same, until it is said that the buffer is given back.
    Buffer,
}

/// What is played with.
struct Scene {
    side: ScenarioEndpoint,
    daemon: Daemon,
    foe: Endpoint<Vec<u8>>,
    its_daemon: Daemon,
    /// The number of the foe in our book.
    foes: u64,
    fates: Vec<Fate>,
    /// What the foe heard, by which operations are named.
    names: Vec<u64>,
    /// Memory was registered once.
    registered: bool,
    /// All that was told: what, and how it went.
    told: Vec<(u64, i32)>,
}

impl Scene {
    fn new() -> Self {
        let (mut daemon, stream) = Daemon::new(OURS);
        let (mut its_daemon, its_stream) = Daemon::new(THEIRS);
        let mut side = ScenarioEndpoint::open(stream).expect("the daemon plays its part");
        let conversation = Conversation::over(its_stream, 0).expect("the same");
        let opening = OpenOptions { key: KEY, context_bits: 2, context_shift: 62, raises: false };
        let mut foe = Endpoint::open_over(conversation, 255, opening).expect("the same");
        join(&mut daemon, &mut its_daemon);
        side.go_on();
        foe.look();
        foe.step();
        let foes = side.knows(&name(NIC, THEIRS, session(THEIRS))).expect("it is a name");
        let (fates, names) = (vec![Fate::Often], vec![0, 1, 2, NAME]);
        Self {
            side,
            daemon,
            foe,
            its_daemon,
            foes,
            fates,
            names,
            registered: false,
            told: Vec::new(),
        }
    }

    fn says(&mut self, info: u64, bytes: Vec<u8>) {
        let to = Partner { peer: PeerId(0), epoch: 0 };
        let _ = self.foe.library.isend(&mut self.foe.paths, to, info, 0, bytes);
    }

    fn begun(&mut self, whether: bool, fate: Fate) {
        self.fates.push(if whether { fate } else { Fate::Over });
    }

    fn go_on(&mut self) {
        self.daemon.go_on();
        self.side.go_on();
        for ScenarioCompletion { context, err, flags, len, last } in self.side.told() {
            self.told.push((flags, err));
            assert!(err >= 0 && len <= 1 << 32, "{context} {err} {len}");
            let fate = &mut self.fates[context];
            assert!(*fate != Fate::Over, "{context} is told of again: {err}");
            if *fate == Fate::Once || (*fate == Fate::Buffer && (last || err != 0)) {
                // An error of one message is not the end of its buffer.
                *fate = if *fate == Fate::Once || last { Fate::Over } else { Fate::Buffer };
            }
        }
    }

    /// The foe goes on, and learns what there is to learn.
    fn foe_goes_on(&mut self) {
        self.its_daemon.go_on();
        self.foe.look();
        self.foe.step();
        while let Ok(Some(_)) = self.foe.library.test_any(0, 0) {}
        while let Ok(Some(taken)) =
            self.foe.library.take_kept(&mut self.foe.paths, None, (CONTROL, 3 << 62))
        {
            if let Some(name) = taken.bytes.get(4..8).and_then(|name| name.first_chunk::<4>()) {
                self.names.push(u32::from_le_bytes(*name).into());
            }
            self.foe.library.give_back(taken.bytes);
        }
        if self.names.len() > 128 {
            self.names.drain(4..64);
        }
    }

    /// The foe takes the first message that is not a question, as far as there is room for it.
    fn foe_takes(&mut self, space: usize, len: usize) {
        let mut head = [0; 16];
        let (space, mask) = (SPACES[space % SPACES.len()], 3 << 62);
        if let Ok(Some((_, 16))) = self.foe.library.probe(None, (space, mask), &mut head) {
            let word = head.last_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
            self.names.push(word >> 32 & NAME);
        }
        let way = &mut self.foe.paths;
        let _ = self.foe.library.irecv_from(way, None, (space, mask), 0, vec![0; len]);
    }
}

/// A name, as it is passed round.
fn name(nic: u64, endpoint: u8, session: u32) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&nic.to_le_bytes());
    bytes[8] = endpoint;
    bytes[12..16].copy_from_slice(&session.to_le_bytes());
    bytes[16..20].copy_from_slice(b"CWFI");
    bytes
}

/// A hostile partner.
pub fn run(data: &[u8]) {
    play(data);
}

fn play(data: &[u8]) -> Scene {
    let mut scene = Scene::new();
    let mut input = Input::new(data);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        step(&mut scene, &mut input);
    }
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
    let context = scene.fates.len();
    let from = (choice & 0x80 != 0).then_some(scene.foes);
    match choice % 16 {
        0 | 1 => {
            let tag = input.bool().then(|| (u64::from(input.u8() % 4), u64::from(input.u8() % 2)));
            let begun = scene.side.receive(from, tag, context, (length(input), false));
            scene.begun(begun, Fate::Once);
        }
        2 => {
            let begun = scene.side.receive(from, None, context, (length(input), true));
            scene.begun(begun, Fate::Buffer);
        }
        3 => {
            let how = (input.bool(), input.bool());
            let begun = scene.side.peek(from, (u64::from(input.u8() % 4), 0), context, how);
            scene.begun(begun, Fate::Often);
        }
        4 => {
            let len = input.bool().then(|| length(input));
            let context = usize::from(input.u8()) % context;
            if scene.fates[context] == Fate::Often {
                scene.side.claimed(context, len);
            }
        }
        5 => drop(scene.side.cancel(usize::from(input.u8()) % context)),
        6 => {
            let what = (length(input), input.bool());
            let begun = scene.side.send(scene.foes, input.u8().into(), context, what);
            scene.begun(begun, Fate::Once);
        }
        7 => {
            let begun = scene.side.reach(scene.foes, context, length(input), input.bool());
            scene.begun(begun, Fate::Once);
        }
        8 => {
            let len = length(input);
            let begun = scene.side.change(scene.foes, context, &vec![1; len]);
            scene.begun(begun, Fate::Once);
        }
        9 | 10 => message(scene, input),
        11 | 12 => question(scene, input),
        13 => scene.foe_takes(input.u8().into(), length(input)),
        14 => aside(scene, input),
        _ => {
            scene.go_on();
            scene.foe_goes_on();
        }
    }
}

/// What is rare: names of nobody, memory that comes and goes, no room.
fn aside(scene: &mut Scene, input: &mut Input<'_>) {
    match input.u8() % 5 {
        0 => {
            let mut name = name(NIC, input.u8() % 4, session(THEIRS) + u32::from(input.u8() % 2));
            if input.bool() {
                name[usize::from(input.u8()) % 24] = input.u8();
            }
            if let Some(number) = scene.side.knows(&name) {
                let context = scene.fates.len();
                let begun = scene.side.send(number, 1, context, (length(input), false));
                scene.begun(begun, Fate::Once);
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

/// The foe sends what may be a message: with a head or none, told of or not.
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
        // A head: of bytes, or a notice of some; of a reply, how it went.
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

/// The foe asks for something that there may be.
fn question(scene: &mut Scene, input: &mut Input<'_>) {
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
    // As many bytes as it says, mostly; a compare has two rows.
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

/// The foe goes, and nothing of it is left; nothing was written that may not be.
fn finish(scene: &mut Scene) {
    scene.side.hold(false);
    for _ in 0..8 {
        scene.go_on();
        scene.foe_goes_on();
    }
    scene.foe.paths.end();
    scene.daemon.there = false;
    let gone = DaemonMessage::Gone { endpoint: OURS, of: THEIRS, way: 1, nic: NIC };
    scene.daemon.tell(gone, Vec::new());
    for _ in 0..64 {
        scene.go_on();
        for context in 0..scene.fates.len() {
            scene.side.cancel(context);
        }
    }
    scene.go_on();
    assert_eq!(scene.side.operations(), 0);
    assert_eq!(scene.side.counted(), [0; 3]);
    let once = scene.fates.iter().filter(|fate| **fate == Fate::Once).count();
    assert_eq!(once, 0, "all that was begun is told");
    assert!(scene.side.is_guarded());
    assert!(scene.registered || !scene.side.is_written());
}

/// Stories that get far: of each kind of message and question, one that is taken.
pub fn seeds() -> Vec<Vec<u8>> {
    /// Both go on.
    const ON: &[u8] = &[15, 15, 15];
    /// A receive of a tag, and messages with it: short, without a head, a notice.
    const RECEIVE: [u8; 4] = [0, 1, 1, 0];
    const SHORT: [u8; 3] = [9, 0x8c, 0];
    const HEADLESS: [u8; 4] = [9, 10, 0, 5];
    const NOTICED: &[u8] = &[9, 0xaa, 1, 16, 0xff, 0, 60, 0];
    /// Bytes of that name, and a reply to what is called as the foe heard it last.
    const BYTES: &[u8] = &[9, 2, 1, 0xff, 0, 60];
    const REPLIES: [u8; 3] = [9, 0x80, 4];
    /// Messages without a tag: short, and a notice.
    const PLAINLY: [u8; 3] = [9, 0x88, 0];
    const PLAIN_NOTICE: &[u8] = &[9, 0xa1, 1, 16, 200, 0];
    /// One that is looked for.
    const KEPT: &[u8] = &[9, 0x82, 0, 50, 0];
    const REGISTERS: &[u8] = &[14, 1];
    /// A long write of 800 bytes.
    const LONG: &[u8] = &[11, 2, 0, 0, 1, 0, 0, 0x20, 3, 0];
    let asks = |kind: u8, datatype: u8, operation: u8, len: u8| {
        vec![11, kind, datatype, operation, 5, 0, 0, len, 0, 0]
    };
    let stories: [&[&[u8]]; 19] = [
        &[&RECEIVE, &[100], &SHORT, &[50, 0], ON, &[0, 0, 100], &PLAINLY, &[50, 0], ON],
        &[&RECEIVE, &[10], &SHORT, &[90, 0], ON, &RECEIVE, &[10], &HEADLESS, ON],
        // Long ones: before the receive and after it.
        &[NOTICED, ON, &RECEIVE, &[0xff, 0, 70], ON, BYTES, ON],
        &[&RECEIVE, &[0xff, 0, 70], BYTES, NOTICED, ON],
        // Into a buffer for many: short ones, one of no bytes, long ones; until it is full.
        &[&[2, 0xff, 0, 80], ON, &PLAINLY, &[50, 0], &PLAINLY, &[16, 0], ON, &[5, 1], ON],
        &[&[2, 0xff, 0, 80], PLAIN_NOTICE, ON, &[9, 2, 1, 200], ON],
        &[&[2, 100], &PLAINLY, &[50, 0], ON],
        // Looked at, claimed, taken; thrown away; looked for in vain.
        &[KEPT, ON, &[3, 1, 0, 0, 4, 1, 90, 1], ON],
        &[KEPT, ON, &[3, 0, 0, 0, 3, 0, 1, 0, 3, 0, 0, 0], ON],
        // Ours: sent short and long, and taken; read, written and changed, and answered.
        &[&[6, 50, 0, 1, 6, 0xff, 0, 60, 0, 1], ON, &[13, 0, 20, 13, 3, 0xff, 0, 60], ON],
        &[&[6, 50, 1, 1], ON, &[13, 3, 50], ON],
        &[&[7, 50, 0], ON, &REPLIES, &[66, 0], ON],
        &[&[7, 0xff, 0, 60, 1], ON, &[13, 3, 0xff, 0, 60], &REPLIES, &[16, 0], ON],
        &[&[8, 8], ON, &REPLIES, &[24, 0], ON, &[8, 8], ON, &[9, 0x80, 5, 24, 1], ON],
        // Held back; a name of somebody who is not there.
        &[REGISTERS, &[14, 3, 1], &asks(0x81, 0, 0, 8), ON, &[14, 3, 0], ON],
        &[&[14, 0, 3, 0, 0, 20], ON, &RECEIVE, &[20, 5, 2], ON],
        // A long write, its bytes; the memory taken back while it goes on; no such key.
        &[REGISTERS, LONG, ON, &[9, 2, 1, 0xff, 0x20, 3], ON],
        &[REGISTERS, LONG, ON, &[14, 2], ON],
        &[REGISTERS, &[11, 0x41, 0, 0, 5, 9, 0, 0, 8, 0, 0], ON],
    ];
    let mut seeds: Vec<Vec<u8>> = stories.iter().map(|story| story.concat()).collect();
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

    /// Of libfabric's interface: `FI_MSG`, `FI_TAGGED`, `FI_RECV`, `FI_SEND`, `FI_MULTI_RECV`,
    /// `FI_REMOTE_READ`, `FI_REMOTE_WRITE`, `FI_REMOTE_CQ_DATA`; what is cut, taken back, refused,
    /// looked for in vain, no message at all, and to nobody.
    const FLAGS: [u64; 8] = [1 << 1, 1 << 3, 1 << 10, 1 << 11, 1 << 16, 1 << 12, 1 << 13, 1 << 17];
    const ERRORS: [i32; 6] = [265, 125, 1, 42, 5, 111];

    #[test]
    fn what_the_stories_begin_from_reaches_all_there_is() {
        let (mut told, mut counted) = (Vec::new(), BTreeMap::new());
        for seed in seeds() {
            let scene = play(&seed);
            told.extend(scene.told);
            for (name, value) in scene.side.account() {
                *counted.entry(name).or_insert(0) += value;
            }
        }
        let well = told.iter().filter(|(_, err)| *err == 0).fold(0, |all, (flags, _)| all | flags);
        let errors: std::collections::BTreeSet<i32> = told.iter().map(|(_, err)| *err).collect();
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
