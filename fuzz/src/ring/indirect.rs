//! One chain with tables, against a plain model of virtio 1.3, 2.7.5 and 2.8.

use causeway_memory::Span;
use causeway_ring::{Chain, Queue, QueueSetup};

use crate::Input;
use crate::ground::{self, GUEST, Ground};

const BYTES: usize = 16 << 10;
const AVAIL: usize = 0x400;
const USED: usize = 0x600;
/// Four tables of sixteen entries.
const TABLES: usize = 0x1000;
const TABLE: usize = 0x100;
const DATA: usize = 0x2000;
const SIZE: u16 = 8;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

#[derive(Clone, Copy)]
struct Entry {
    addr: u64,
    len: u32,
    flags: u16,
    next: u16,
}

/// What a chain comes to: readable spans and then writable ones, if it is any.
type Told = Option<(Vec<Span>, Vec<Span>)>;

fn entry(input: &mut Input<'_>, len: usize) -> Entry {
    let addr = match input.below(8) {
        0 => input.u64(),
        1 => GUEST + len as u64 - u64::from(input.u8()),
        2 | 3 => GUEST + (TABLES + TABLE * input.below(4)) as u64,
        _ => GUEST + DATA as u64 + u64::from(input.u16() & 0x1fff),
    };
    let len = match input.below(4) {
        0 => input.u32(),
        1 | 2 => 16 * (u32::from(input.u8()) % 12),
        _ => u32::from(input.u8()),
    };
    let flags = if input.below(16) == 0 { input.u16() } else { u16::from(input.u8()) & 7 };
    let next = if input.below(16) == 0 { input.u16() } else { u16::from(input.u8()) % SIZE };
    Entry { addr, len, flags, next }
}

/// Reads an entry of a table back, wherever in the grant it lies.
fn read(ground: &Ground, addr: u64, packed: bool) -> Entry {
    let raw: [u8; 16] = ground.read((addr - GUEST) as usize);
    let word = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
    let (flags, next) = if packed { (word(14), 0) } else { (word(12), word(14)) };
    let addr = u64::from_le_bytes(std::array::from_fn(|n| raw[n]));
    let len = u32::from_le_bytes(std::array::from_fn(|n| raw[8 + n]));
    Entry { addr, len, flags, next }
}

/// What the chain that begins at descriptor 0 of `ring` comes to.
fn expected(ground: &Ground, ring: &[Entry], packed: bool, indirect: bool) -> Told {
    let mut spans = Vec::new();
    let mut at = 0;
    for steps in 0..SIZE {
        let one = *ring.get(usize::from(at))?;
        if one.flags & INDIRECT != 0 {
            let alone = !packed || steps == 0;
            if !indirect || one.flags & NEXT != 0 || !alone {
                return None;
            }
            table(ground, one, packed, &mut spans)?;
            return judge(ground, &spans);
        }
        spans.push(one);
        if one.flags & NEXT == 0 {
            return judge(ground, &spans);
        }
        at = if packed { at + 1 } else { one.next };
    }
    None
}

fn table(ground: &Ground, named: Entry, packed: bool, spans: &mut Vec<Entry>) -> Option<()> {
    let count = named.len / 16;
    if named.len == 0
        || !named.len.is_multiple_of(16)
        || !ground.grants(named.addr, named.len.into())
    {
        return None;
    }
    // Of a packed ring all entries count; of a split ring those that are linked.
    if packed && count > u32::from(SIZE) {
        return None;
    }
    let mut at = 0;
    loop {
        if at >= count {
            return packed.then_some(());
        }
        let one = read(ground, named.addr + 16 * u64::from(at), packed);
        if one.flags & INDIRECT != 0 || spans.len() >= usize::from(SIZE) {
            return None;
        }
        spans.push(one);
        if packed {
            at += 1;
        } else if one.flags & NEXT == 0 {
            return Some(());
        } else {
            at = u32::from(one.next);
        }
    }
}

fn judge(ground: &Ground, spans: &[Entry]) -> Told {
    let (mut readable, mut writable) = (Vec::new(), Vec::new());
    for one in spans {
        if one.len > 0 && !ground.grants(one.addr, one.len.into()) {
            return None;
        }
        let span = Span { addr: one.addr, len: one.len };
        if one.flags & WRITE != 0 {
            writable.push(span);
        } else if writable.is_empty() {
            readable.push(span);
        } else {
            return None;
        }
    }
    Some((readable, writable))
}

fn put(ground: &mut Ground, at: usize, one: Entry, packed: bool) {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&one.addr.to_le_bytes());
    bytes[8..12].copy_from_slice(&one.len.to_le_bytes());
    let (first, second) = if packed { (0, one.flags) } else { (one.flags, one.next) };
    bytes[12..14].copy_from_slice(&first.to_le_bytes());
    bytes[14..].copy_from_slice(&second.to_le_bytes());
    ground.write(at, &bytes);
}

/// Plays one input.
pub fn run(data: &[u8]) {
    ground::with::<BYTES>(|ground| {
        let mut input = Input::new(data);
        let flags = input.u8();
        let (packed, indirect) = (flags & 1 != 0, flags & 2 != 0);
        let mut ring = Vec::new();
        for nth in 0..usize::from(SIZE) {
            let mut one = entry(&mut input, ground.len());
            if packed {
                // All available, in the first round of the ring.
                one.flags = one.flags & !(1 << 15) | 1 << 7;
            }
            put(ground, 16 * nth, one, packed);
            ring.push(one);
        }
        for table in 0..4 {
            for nth in 0..16 {
                let one = entry(&mut input, ground.len());
                put(ground, TABLES + TABLE * table + 16 * nth, one, packed);
            }
        }
        let places = [0, AVAIL, USED].map(|at| GUEST + at as u64);
        let [desc, avail, used] = places;
        let next = if packed { 0x8000 } else { 0 };
        let setup =
            QueueSetup { size: SIZE, desc, avail, used, event_index: false, indirect, next };
        let queue = match packed {
            true => Queue::packed(setup, next, &ground.map),
            false => Queue::new(setup, &ground.map),
        };
        if !packed {
            ground.write(AVAIL + 2, &1_u16.to_le_bytes());
        }
        let mut queue = queue.expect("the usual places");
        let mut chain = Chain::new();
        queue.prefetch(&ground.map, u16::MAX);
        let got = queue.pop(&ground.map, &mut chain);
        match expected(ground, &ring, packed, indirect) {
            Some((readable, writable)) => {
                assert_eq!(got, Ok(true));
                assert_eq!((chain.readable(), chain.writable()), (&readable[..], &writable[..]));
            }
            None => assert!(got.is_err(), "{got:?}: {chain:?}"),
        }
        ground.assert_untouched(&[]);
    });
}

/// Tables that are whole, in rings of both formats.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for flags in [2_u8, 3, 0, 1] {
        let mut story = vec![flags];
        // A table of three entries, named by the first descriptor.
        story.extend([2, 0, 1, 3, 1, 4, 1, 0]);
        for _ in 1..SIZE {
            story.extend([7, 0, 0, 3, 64, 1, 0, 1, 0]);
        }
        for nth in 0..64_u8 {
            let last = u8::from(nth % 16 == 2);
            story.extend([7, nth, 0, 3, 32, 1, 1 - last, 1, (nth + 1) % 8]);
        }
        all.push(story);
    }
    all
}
