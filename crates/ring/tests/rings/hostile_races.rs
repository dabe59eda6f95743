//! Tests of a guest that rewrites its ring while it is read, a hundred thousand times for each kind
//! of change. Popped chains are granted and bounded, no byte outside the grant changes, a broken
//! queue stays broken, and a bystander's queue keeps moving its content.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{INDIRECT, NEXT, WRITE, descriptor, file, pop};
use causeway_memory::{Cursor, Map, Mapping, Region, Span, View, copy};
use causeway_ring::{Chain, Queue, QueueSetup};
use causeway_testing::numbers::Numbers;
use std::os::fd::AsFd;

/// Repetitions of each case.
const RACES: u32 = 100_000;
/// Number of races between two turns of the bystander.
const BYSTANDS: u32 = 64;
const SIZE: u16 = 8;

/// Size of the file, and the granted part of it: not whole pages, so that bytes on both sides of
/// the grant are mapped too and would receive a stray write.
const FILE: u64 = 0x1_0000;
const EDGE: u64 = 0x800;
const GRANTED: u64 = FILE - 2 * EDGE;
const CANARY: u8 = 0xc5;

const GUEST: u64 = 0x10_0000;
const DESC: u64 = GUEST;
const AVAIL: u64 = GUEST + 0x1000;
const USED: u64 = GUEST + 0x2000;
const TABLES: u64 = GUEST + 0x3000;
const DATA: u64 = GUEST + 0x8000;
/// Flags that distinguish a packed descriptor of this pass from the last pass (virtio 1.3, 2.8.1).
const PACKED_AVAIL: u16 = 1 << 7;
const PACKED_USED: u16 = 1 << 15;

/// A guest's memory with canaries around the grant.
struct Memory {
    map: Map,
    whole: View,
}

impl Memory {
    fn new() -> Self {
        let file = file(FILE);
        let whole = Mapping::new(file.as_fd(), 0, FILE).unwrap();
        let whole = View::new(Arc::new(whole), 0, FILE as usize).unwrap();
        for at in edges() {
            whole.write(at, &[CANARY]).unwrap();
        }
        let mapping = Arc::new(Mapping::new(file.as_fd(), EDGE, GRANTED).unwrap());
        let map = Map::new(vec![Region { guest: GUEST, user: 0, mapping }]).unwrap();
        Self { map, whole }
    }

    fn assert_canaries(&self) {
        for at in edges() {
            assert_eq!(self.whole.read(at), Ok([CANARY]), "byte {at:#x} of the file");
        }
    }
}

fn edges() -> impl Iterator<Item = usize> {
    (0..EDGE as usize).chain((FILE - EDGE) as usize..FILE as usize)
}

fn granted(span: &Span) -> bool {
    let end = span.addr.checked_add(u64::from(span.len));
    span.addr >= GUEST && end.is_some_and(|end| end <= GUEST + GRANTED)
}

/// Returns a descriptor, mostly a valid one.
fn any_descriptor(numbers: &mut Numbers) -> [u8; 16] {
    let addr = numbers.one_of(&[
        DATA,
        DATA + 7,
        TABLES,
        DATA,
        GUEST + GRANTED - 64,
        GUEST + GRANTED - 8,
        0,
        u64::MAX - 3,
        GUEST - 1,
    ]);
    let len = numbers.one_of(&[16, 48, 64, 64, 0, 1, 128, 4096, u32::MAX]);
    let flags = numbers.one_of(&[0, WRITE, NEXT, NEXT | WRITE, INDIRECT, INDIRECT | NEXT]);
    let next = (numbers.next() % 12) as u16;
    descriptor(addr, len, flags, next)
}

/// Returns a descriptor with the flags and the buffer id of a packed ring.
fn any_packed_descriptor(numbers: &mut Numbers) -> [u8; 16] {
    let mut bytes = any_descriptor(numbers);
    let lap = numbers.one_of(&[PACKED_AVAIL, PACKED_AVAIL, PACKED_USED, 0, !0]);
    let flags = u16::from_le_bytes([bytes[12], bytes[13]]) | lap & (PACKED_AVAIL | PACKED_USED);
    let id = (numbers.next() % 12) as u16;
    bytes[12..14].copy_from_slice(&id.to_le_bytes());
    bytes[14..].copy_from_slice(&flags.to_le_bytes());
    bytes
}

/// The part of the ring that is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Descriptors,
    Tables,
    Indices,
    Everything,
}

fn rewrite(map: &Map, numbers: &mut Numbers, packed: bool, what: What) {
    let what = match what {
        What::Everything => numbers.one_of(&[What::Descriptors, What::Tables, What::Indices]),
        one => one,
    };
    match what {
        What::Descriptors => {
            let at = DESC + 16 * (numbers.next() % u64::from(SIZE));
            let bytes =
                if packed { any_packed_descriptor(numbers) } else { any_descriptor(numbers) };
            map.write(at, &bytes).unwrap();
        }
        What::Tables => {
            let at = TABLES + 16 * (numbers.next() % 10);
            let bytes =
                if packed { any_packed_descriptor(numbers) } else { any_descriptor(numbers) };
            map.write(at, &bytes).unwrap();
        }
        // Flags, indices, heads and event structures of both parts.
        _ => {
            let at = numbers.one_of(&[AVAIL, USED]) + 2 * (numbers.next() % 10);
            let value = numbers.one_of(&[0, 1, 2, 3, 7, 8, 9, 0x8000, 0xffff]);
            map.write(at, &u16::to_le_bytes(value)).unwrap();
        }
    }
}

fn queue(map: &Map, packed: bool) -> Queue {
    let (event_index, indirect) = (true, true);
    let mut setup = QueueSetup {
        size: SIZE,
        desc: DESC,
        avail: AVAIL,
        used: USED,
        event_index,
        indirect,
        next: 0,
    };
    if packed {
        setup.next = 1 << 15;
        Queue::packed(setup, 1 << 15, map).unwrap()
    } else {
        Queue::new(setup, map).unwrap()
    }
}

/// Makes a valid chain available, direct or indirect.
fn offer(map: &Map, numbers: &mut Numbers, packed: bool) {
    let table = numbers.next() & 1 == 1;
    let (addr, len, flags) = if table { (TABLES, 64, INDIRECT) } else { (DATA, 64, 0) };
    for n in 0..4 {
        // A packed table has no links; its flags are at another offset than in a split table.
        let flags = if n < 3 && !packed { NEXT } else { 0 };
        let next = if packed { 0 } else { n + 1 };
        let entry = descriptor(DATA + 64 * u64::from(n), 64, flags, next);
        map.write(TABLES + 16 * u64::from(n), &entry).unwrap();
    }
    if packed {
        // A new queue is in its first pass.
        let mut bytes = descriptor(addr, len, 3, flags | PACKED_AVAIL);
        bytes[12..14].copy_from_slice(&3_u16.to_le_bytes());
        bytes[14..].copy_from_slice(&(flags | PACKED_AVAIL).to_le_bytes());
        map.write(DESC, &bytes).unwrap();
    } else {
        map.write(DESC, &descriptor(addr, len, flags, 0)).unwrap();
        map.write(AVAIL + 4, &[0; 16]).unwrap();
        map.write(AVAIL + 2, &1_u16.to_le_bytes()).unwrap();
    }
}

/// Does all that a service does with a queue, once. Returns the number of popped chains.
fn turn(queue: &mut Queue, chain: &mut Chain, guest: &Memory, peer: &Memory) -> u32 {
    let mut given = 0;
    for _ in 0..3 {
        queue.prefetch(&guest.map, 8);
        match pop(queue, &guest.map, chain) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                assert_eq!(queue.broken(), Some(error));
                assert_eq!(queue.push(0, 0), Err(error));
                assert_eq!(queue.publish(), Err(error));
                break;
            }
        }
        given += 1;
        let spans = chain.readable().len() + chain.writable().len();
        assert!(spans <= usize::from(SIZE), "{spans} spans in a queue of {SIZE}");
        for span in chain.readable().iter().chain(chain.writable()).filter(|s| s.len > 0) {
            assert!(granted(span), "{span:?}");
        }
        use_chain(chain, guest, peer);
        let written = u32::try_from(chain.writable_bytes()).unwrap_or(u32::MAX);
        if queue.push(chain.head(), written).is_err() {
            break;
        }
    }
    let _ = queue.publish();
    let _ = queue.arm();
    let _ = queue.disarm();
    given
}

/// Reads into private memory with guards, copies to the peer, and writes all writable bytes.
fn use_chain(chain: &Chain, guest: &Memory, peer: &Memory) {
    let mut room = [CANARY; 128];
    let len = chain.readable_bytes().min(64) as usize;
    chain.reader().read(&guest.map, &mut room[32..32 + len]).unwrap();
    assert!(room[..32].iter().chain(&room[32 + len..]).all(|&byte| byte == CANARY));
    let into = [Span { addr: DATA, len: len as u32 }];
    let mut from = chain.reader();
    copy::copy((&guest.map, &mut from), (&peer.map, &mut Cursor::new(&into)), len as u64).unwrap();
    let len = chain.writable_bytes().min(64);
    Cursor::new(chain.writable()).write(&guest.map, &vec![7; len as usize]).unwrap();
}

/// The queue of a conforming guest.
struct Bystander {
    guest: Memory,
    packed: bool,
    rounds: u32,
}

impl Bystander {
    fn go_on(&mut self, chain: &mut Chain) {
        self.rounds += 1;
        let mut queue = queue(&self.guest.map, self.packed);
        let said = self.rounds.to_le_bytes();
        // Overwrites the leftovers of the last round.
        self.guest.map.write(DESC, &[0; 16 * SIZE as usize]).unwrap();
        offer(&self.guest.map, &mut Numbers::new(u64::from(self.rounds)), self.packed);
        self.guest.map.write(DATA, &said).unwrap();
        assert_eq!(queue.pop(&self.guest.map, chain), Ok(true));
        let mut heard = [0; 4];
        chain.reader().read(&self.guest.map, &mut heard).unwrap();
        assert_eq!(heard, said);
        queue.push(chain.head(), 0).unwrap();
        queue.publish().unwrap();
        assert_eq!(queue.broken(), None);
    }
}

fn race(packed: bool, what: What) {
    let (guest, peer) = (Arc::new(Memory::new()), Memory::new());
    let mut bystander = Bystander { guest: Memory::new(), packed, rounds: 0 };
    let stop = Arc::new(AtomicBool::new(false));
    let (theirs, stopped) = (Arc::clone(&guest), Arc::clone(&stop));
    let scribbler = std::thread::spawn(move || {
        let mut numbers = Numbers::new(1);
        while !stopped.load(Ordering::Relaxed) {
            rewrite(&theirs.map, &mut numbers, packed, what);
        }
    });
    let (mut chain, mut other, mut numbers) = (Chain::new(), Chain::new(), Numbers::new(2));
    let (mut given, mut broken) = (0, 0);
    for n in 0..RACES {
        let mut queue = queue(&guest.map, packed);
        offer(&guest.map, &mut numbers, packed);
        // The race must also run here, in case a single processor runs both threads.
        rewrite(&guest.map, &mut numbers, packed, what);
        given += turn(&mut queue, &mut chain, &guest, &peer);
        broken += u32::from(queue.broken().is_some());
        if n % BYSTANDS == 0 {
            bystander.go_on(&mut other);
        }
    }
    stop.store(true, Ordering::Relaxed);
    scribbler.join().unwrap();
    for memory in [&guest, &peer, &bystander.guest] {
        memory.assert_canaries();
        assert!(!memory.map.is_poisoned());
    }
    assert!(given > RACES / 100, "{given} chains only: the race is too one-sided");
    assert!(broken > 0, "nothing was ever refused");
}

#[test]
fn hostile_race_of_split_descriptors() {
    race(false, What::Descriptors);
}

#[test]
fn hostile_race_of_split_tables() {
    race(false, What::Tables);
}

#[test]
fn hostile_race_of_split_indices() {
    race(false, What::Indices);
}

#[test]
fn hostile_race_of_everything_in_a_split_ring() {
    race(false, What::Everything);
}

#[test]
fn hostile_race_of_packed_descriptors() {
    race(true, What::Descriptors);
}

#[test]
fn hostile_race_of_packed_tables() {
    race(true, What::Tables);
}

#[test]
fn hostile_race_of_everything_in_a_packed_ring() {
    race(true, What::Everything);
}
