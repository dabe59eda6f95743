//! Large messages by direct memory access inside a host: the peer's memory is accessible, and the
//! hostile peer writes arbitrary values into the channel, above all into the word that controls
//! cooperative copy. Target `reached`, at most 100 steps. The peer's memory is a stand-in whose
//! accesses succeed, fall short or fail by a number of the input. The payload that this side writes
//! must be its own, and a send after the loss of the peer must end.

use std::sync::atomic::{AtomicU64, Ordering};

use causeway_channel::{EventHead, Layout, Receiver, Sender, Side, open};
use causeway_memory::View;
use causeway_message::library::{Inaccessible, RemoteMemory, RemoteRange};
use causeway_message::limits::{DIRECT_PLACES_MAX, SHARED_PART_BYTES};
use causeway_message::split::PeerId;
use causeway_message::status::Status;

use crate::Input;
use causeway_testing::messages::{B, End, channel as joined, memory, options, room};

/// Steps of one scenario.
const STEPS: usize = 100;
/// The unit of message lengths, in bytes, and the largest number of units.
const UNIT: usize = 16_384;
const UNITS: usize = 24;

/// The peer's memory. The result of each access is derived from a number that every access changes.
#[derive(Debug)]
struct Memory(AtomicU64);

impl Memory {
    fn end(&self, places: &[RemoteRange], len: usize) -> Result<usize, Inaccessible> {
        assert!(places.len() <= DIRECT_PLACES_MAX && places.iter().all(|place| place.len > 0));
        let all: u64 = places.iter().map(|place| place.len).sum();
        assert_eq!(all, len as u64, "{places:?}");
        let Self(state) = self;
        let next = state.load(Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        state.store(next, Ordering::Relaxed);
        match next >> 58 {
            0 => Err(Inaccessible),
            1 => Ok(0),
            2 => Ok(len / 2),
            _ => Ok(len),
        }
    }
}

impl RemoteMemory for Memory {
    fn read(&self, from: &[RemoteRange], into: &mut [u8]) -> Result<usize, Inaccessible> {
        into.fill(9);
        self.end(from, into.len())
    }

    fn write(&self, to: &[RemoteRange], from: &[u8]) -> Result<usize, Inaccessible> {
        assert!(from.iter().all(|byte| *byte == 3), "payload differs from the sent payload");
        self.end(to, from.len())
    }

    fn lives(&self) -> bool {
        let Self(state) = self;
        state.load(Ordering::Relaxed) >> 59 != 7
    }

    fn now_ns(&self) -> u64 {
        let Self(state) = self;
        // Time advances quickly, so that waits end soon.
        state.fetch_add(1 << 28, Ordering::Relaxed)
    }
}

struct Scene {
    memory: View,
    end: End,
    /// The peer's ends of the channel.
    sender: Sender,
    receiver: Receiver,
    /// Message identifiers that the peer has received.
    names: Vec<u64>,
}

/// Runs a hostile peer.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let sides = match input.u8() & 1 {
        0 => (Side::First, Side::Second),
        _ => (Side::Second, Side::First),
    };
    let memory = memory(Layout::DEFAULT);
    let mut end = End::new(options(1));
    let mut to_peer = joined(&memory, sides.0, 2);
    to_peer.direct = Some(Box::new(Memory(AtomicU64::new(input.u64()))));
    assert!(end.ways.add(to_peer));
    end.run();
    let Ok((sender, receiver)) = open(&memory, sides.1) else { return };
    let mut scene = Scene { memory, end, sender, receiver, names: vec![0, 1, 1 << 32] };
    input.steps(STEPS, |input| step(&mut scene, input));
    finish(scene);
}

fn step(scene: &mut Scene, input: &mut Input<'_>) {
    let Scene { memory, end, sender, receiver, names } = scene;
    let name = |input: &mut Input<'_>| names[usize::from(input.u8()) % names.len()];
    let units = |input: &mut Input<'_>| (usize::from(input.u8()) % UNITS) * UNIT;
    match input.u8() % 10 {
        // The cooperative copy word of either direction: parts copied from the front and from the
        // back, busy flag, message.
        0 | 1 => {
            let at = [1216, 2240][usize::from(input.u8() & 1)];
            let [front, back, flags] = [(); 3].map(|()| u64::from(input.u8()));
            let word = front | back << 21 | (flags & 1) << 42 | (flags >> 1) << 43;
            let _ = memory.write(at, &word.to_le_bytes());
        }
        // A pull of an announced message, or an announcement with memory ranges.
        2 | 3 => {
            let kind = [2, 7][usize::from(input.u8() & 1)];
            let (a, b, len) = (name(input), name(input), units(input) as u64);
            let cut = u64::from(input.u8()) * SHARED_PART_BYTES as u64;
            let first = cut.min(len);
            let mut words = vec![u64::from(input.u8() & 7), 4096, first];
            if len > first {
                words.extend([1 << 40, len - first]);
            }
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let _ = sender.send(EventHead { kind, words: [a, b, len] }, &bytes);
        }
        4 => {
            let kind = input.u8() % 9;
            let words = [name(input), name(input), units(input) as u64];
            let _ = sender.send(EventHead { kind, words }, &[]);
        }
        5 => {
            while let Ok(Some(event)) = receiver.poll() {
                names.extend(event.head.words);
                receiver.advance(&event);
                if names.len() > 256 {
                    names.drain(3..128);
                }
            }
        }
        6 => {
            let _ = end.library.irecv(&mut end.ways, 0, 0, 0, room(units(input)).0);
        }
        7 => drop(end.send(B, name(input), &vec![3; units(input)])),
        8 => {
            let _ = end.ways.arm();
            end.ways.disarm();
        }
        _ => drop(end.library.progress(&mut end.ways)),
    }
}

/// Checks that the endpoint still works: every operation that waits for the peer ends with the
/// peer.
fn finish(scene: Scene) {
    let Scene { mut end, .. } = scene;
    end.run();
    end.ways.report_lost(PeerId(2), Status::EndpointUnreachable);
    for _ in 0..4 {
        end.run();
    }
    let late = end.send(B, 0, b"x");
    assert!(end.library.test(late).is_ok_and(|done| done.is_some()), "send waits for a lost peer");
}

/// Returns scenarios that reach deep code paths: reads with cooperative copy, and cooperation with
/// a peer's reads.
pub fn seeds() -> Vec<Vec<u8>> {
    let begin = |side: u8, luck: u8| [vec![side], vec![luck; 8]].concat();
    let receive = [6, 16];
    let step = [9];
    let hear = [5];
    // Announcement: kind, match information, identifier, units, split, withdrawn before.
    let offered = [2, 0, 1, 1, 16, 0, 0];
    let word = |at: u8, front: u8, back: u8, flags: u8| [0, at, front, back, flags];
    let send = [7, 1, 16];
    let called = [2, 1, 4, 1, 16, 3, 1];
    vec![
        // A message by the channel, then messages that are read and copied cooperatively.
        [&begin(0, 5), &receive[..], &offered, &step, &hear, &receive, &offered, &step, &step]
            .concat(),
        [&begin(1, 5), &receive[..], &offered, &step, &word(0, 0, 32, 3), &step, &step, &hear]
            .concat(),
        [&begin(0, 6), &send[..], &step, &hear, &word(0, 0, 64, 2), &called, &step, &step].concat(),
        [&begin(1, 6), &send[..], &hear, &word(1, 16, 64, 2), &called, &step, &[8], &step].concat(),
    ]
}
