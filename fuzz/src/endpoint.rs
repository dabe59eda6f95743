//! Matching endpoints inside a host: a hostile peer writes arbitrary values into the channel
//! memory, and applications make arbitrary calls, compared with a model. Targets `channel` (a
//! hostile peer) and `matching` (two honest applications). A scenario has at most 200 steps.
//! Afterwards the endpoint must still deliver messages to itself, and a send to the lost peer must
//! fail; which messages a hostile peer delivers is not judged.

use causeway_channel::{EventHead, Layout, Receiver, Sender, Side, open};
use causeway_memory::View;
use causeway_message::library::Partner;
use causeway_message::split::PeerId;
use causeway_message::status::Status;

use crate::Input;
use causeway_testing::messages::model::{Op, play};
use causeway_testing::messages::{B, Back, End, channel as joined, memory, options, room};

/// Small, so that positions wrap around quickly and senders wait for room.
const SLOTS: u32 = 16;
const DATA: u32 = 4096;
/// Steps of one scenario.
const STEPS: usize = 200;
/// Receive buffers are shorter than this, in bytes.
const LONGEST: usize = 6000;

/// The state of a scenario.
struct Scene {
    memory: View,
    end: End,
    /// The peer's ends of the channel, used for well-formed events.
    sender: Sender,
    receiver: Receiver,
    /// Message identifiers that the peer has received.
    names: Vec<u64>,
    backs: Vec<Back>,
}

/// Runs a hostile peer against one endpoint.
pub fn channel(data: &[u8]) {
    let Ok(layout) = Layout::new(SLOTS, DATA) else { return };
    let memory = memory(layout);
    let mut end = End::new(options(1));
    assert!(end.ways.add(joined(&memory, Side::First, 2)));
    end.run();
    let Ok((sender, receiver)) = open(&memory, Side::Second) else { return };
    let (names, backs) = (vec![0, 1, 1 << 32, u64::MAX], Vec::new());
    let mut scene = Scene { memory, end, sender, receiver, names, backs };
    let mut input = Input::new(data);
    input.steps(STEPS, |input| step(&mut scene, input));
    finish(scene);
}

fn step(scene: &mut Scene, input: &mut Input<'_>) {
    let Scene { memory, end, sender, receiver, names, backs } = scene;
    match input.u8() % 12 {
        // An arbitrary value at an arbitrary place.
        0 => {
            let at = (usize::from(input.u16()) % (memory.len() - 8)) & !7;
            let _ = memory.write(at, &input.u64().to_le_bytes());
        }
        // A small number in a counter, or in the last word of a slot.
        1 => {
            let places = [1024, 1152, 1280, 1408, 2048, 2176, 2304, 2432];
            let at = places[usize::from(input.u8()) % places.len()];
            let word = u64::from(input.u8()) | u64::from(input.u8()) << 32;
            let _ = memory.write(at, &word.to_le_bytes());
        }
        2 => {
            let slot = 4096 + (usize::from(input.u8()) % 32) * 64 + 56;
            let last = u64::from(input.u8() & 3) | 0x8000 | u64::from(input.u8() & 7) << 16;
            let last = last | u64::from(input.u16()) << 32;
            let _ = memory.write(slot, &last.to_le_bytes());
        }
        // A well-formed event of any kind, with identifiers that were received.
        3..=5 => {
            let kind = input.u8() % 7;
            let words = [(); 3].map(|()| names[usize::from(input.u8()) % names.len()]);
            let len = usize::from(input.u16()) % 2100;
            let _ = sender.send(EventHead { kind, words }, &vec![9; len]);
        }
        6 => {
            while let Ok(Some(event)) = receiver.poll() {
                names.extend(event.head.words);
                receiver.advance(&event);
                if names.len() > 256 {
                    names.drain(4..128);
                }
            }
        }
        7 | 8 => {
            let len = usize::from(input.u16()) % LONGEST;
            let info = names[usize::from(input.u8()) % names.len()];
            let mask = [u64::MAX, 0, 1][usize::from(input.u8() % 3)];
            let (pad, back) = room(len);
            if end.library.irecv(&mut end.ways, info & mask, mask, 0, pad).is_ok() {
                backs.push(back);
            }
        }
        9 => {
            let len = usize::from(input.u16()) % 20_000;
            let info = names[usize::from(input.u8()) % names.len()];
            end.send(B, info, &vec![3; len]);
        }
        10 => {
            let _ = end.ways.arm();
            end.ways.disarm();
        }
        _ => drop(end.run()),
    }
}

/// Checks that the endpoint still works, and that no receive holds more bytes than its buffer has.
fn finish(scene: Scene) {
    let Scene { mut end, backs, .. } = scene;
    end.run();
    end.ways.report_lost(PeerId(2), Status::EndpointUnreachable);
    for _ in 0..4 {
        end.run();
    }
    let late = end.send(B, 0, b"x");
    let own = 1 << 50;
    // Receives that match any message are older and match first, and the peer may have sent
    // messages with the same match information.
    let mut owns = Vec::new();
    let alive = (0..=backs.len() + STEPS).any(|_| {
        owns.push(end.receive(own, u64::MAX, 5).1);
        end.send(Partner::SELF, own, b"alive");
        while let Ok(Some(done)) = end.library.test_any(0, 0) {
            assert!(done.xfer_length <= done.msg_length, "{done:?}");
        }
        owns.iter().any(|back| back.lock().unwrap().as_deref().is_some_and(|b| b == b"alive"))
    });
    assert!(alive && end.library.test(late).is_err());
    for back in backs {
        // The peer's bytes are 9 or were written by the input; the length must stay below the limit
        // of the receive.
        if let Ok(mut bytes) = back.lock()
            && let Some(bytes) = bytes.take()
        {
            assert!(bytes.len() < LONGEST);
        }
    }
}

/// Returns scenarios that reach deep code paths: messages, rendezvous with pull and data, arbitrary
/// writes.
pub fn channel_seeds() -> Vec<Vec<u8>> {
    let event = |kind: u8, names: [u8; 3], len: u16| {
        let [a, b, c] = names;
        let [low, high] = len.to_le_bytes();
        vec![3, kind, a, b, c, low, high]
    };
    let receive = |len: u16, name: u8, mask: u8| {
        let [low, high] = len.to_le_bytes();
        vec![7, low, high, name, mask]
    };
    vec![
        [event(1, [1, 0, 0], 20), receive(50, 1, 0), vec![11], event(1, [1, 0, 0], 900), vec![11]]
            .concat(),
        // A rendezvous of one byte is pulled by its identifier, and its data arrives.
        [receive(50, 1, 1), event(2, [1, 1, 1], 0), vec![11, 6], event(4, [5, 0, 0], 1), vec![11]]
            .concat(),
        // The endpoint's own rendezvous is announced and pulled.
        [vec![9, 0x20, 0x4e, 1, 11, 6], event(3, [5, 2, 6], 0), vec![11, 6, 11, 6, 11]].concat(),
        [vec![2, 16, 0, 1, 255, 255, 11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 0, 200, 1, 11, 10]]
            .concat(),
        [event(5, [0; 3], 0), event(6, [0; 3], 0), vec![10, 11]].concat(),
    ]
}

/// Runs two applications that make arbitrary calls.
pub fn matching(data: &[u8]) {
    let mut input = Input::new(data);
    let layout = match input.u8() & 1 {
        0 => Layout::DEFAULT,
        _ => Layout::new(SLOTS, 16_384).unwrap_or(Layout::DEFAULT),
    };
    let mut ops = Vec::new();
    while !input.is_empty() && ops.len() < STEPS {
        ops.push(op(&mut input));
    }
    play(ops, layout, 0);
}

fn op(input: &mut Input<'_>) -> Op {
    let choice = input.u8();
    let at = usize::from(choice >> 7);
    let matching = |input: &mut Input<'_>| {
        let byte = input.u8();
        let mask = [u64::MAX, 0, 1, 3][usize::from(byte >> 6)];
        (u64::from(byte & 7) & mask, mask)
    };
    let length = |input: &mut Input<'_>| match input.u8() {
        0xff => usize::from(input.u16()),
        0xfe => 8192,
        short => usize::from(short),
    };
    match choice & 15 {
        0..=4 => {
            let byte = input.u8();
            let (own, sync) = (byte & 0xc0 == 0xc0, byte & 0x30 == 0x30);
            Op::Send { from: at, own, info: u64::from(byte & 7), len: length(input), sync }
        }
        5..=9 => {
            let (info, mask) = matching(input);
            Op::Receive { at, info, mask, room: length(input) }
        }
        10 => Op::Cancel { at, which: usize::from(input.u8() % 64) },
        11 => Op::Forget { at, which: usize::from(input.u8() % 64) },
        12 => {
            let (info, mask) = matching(input);
            Op::Probe { at, info, mask }
        }
        _ => Op::Run,
    }
}

/// Returns scenarios with expected, unexpected, truncated, large and cancelled messages, and
/// messages to self.
pub fn matching_seeds() -> Vec<Vec<u8>> {
    vec![
        vec![0, 5, 1, 20, 0x80, 1, 30, 15, 0x80, 2, 9, 15, 5, 2, 9, 15],
        vec![1, 0, 3, 0xff, 0, 0x90, 15, 0x85, 3, 0xff, 0, 0xf0, 15, 0, 3, 0xfe, 15, 0x85, 3, 0xfe],
        vec![0, 0, 0xc1, 40, 5, 1, 10, 5, 0x41, 9, 0, 0xf1, 50, 10, 0, 11, 1, 12, 0x40, 15],
        [
            vec![1],
            [0, 2, 0xff, 0, 0x20, 0x80, 0x32, 3].repeat(10),
            [0x85, 0x40, 200, 15].repeat(10),
        ]
        .concat(),
    ]
}
