//! One descriptor chain with indirect tables, compared with a simple model of virtio 1.3, 2.7.5 and
//! 2.8. Target `indirect`. A popped chain must equal that of the model, or both refuse it, and the
//! memory does not change.

use causeway_memory::Span;
use causeway_ring::{Chain, Queue, QueueSetup};

use crate::Input;
use crate::guest_memory::{self, GUEST, GuestMemory};

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

/// The readable and the writable spans of a chain; `None` for an invalid chain.
type ExpectedChain = Option<(Vec<Span>, Vec<Span>)>;

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

/// Reads a table entry anywhere in the grant.
fn read(guest_memory: &GuestMemory, addr: u64, packed: bool) -> Entry {
    let raw: [u8; 16] = guest_memory.read((addr - GUEST) as usize);
    let word = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
    let (flags, next) = if packed { (word(14), 0) } else { (word(12), word(14)) };
    let addr = u64::from_le_bytes(std::array::from_fn(|n| raw[n]));
    let len = u32::from_le_bytes(std::array::from_fn(|n| raw[8 + n]));
    Entry { addr, len, flags, next }
}

/// Returns the expected result for the chain that begins at descriptor 0 of `ring`.
fn expected(
    guest_memory: &GuestMemory,
    ring: &[Entry],
    packed: bool,
    indirect: bool,
) -> ExpectedChain {
    let mut spans = Vec::new();
    let mut at = 0;
    for steps in 0..SIZE {
        let one = *ring.get(usize::from(at))?;
        if one.flags & INDIRECT != 0 {
            let alone = !packed || steps == 0;
            if !indirect || one.flags & NEXT != 0 || !alone {
                return None;
            }
            table(guest_memory, one, packed, &mut spans)?;
            return judge(guest_memory, &spans);
        }
        spans.push(one);
        if one.flags & NEXT == 0 {
            return judge(guest_memory, &spans);
        }
        at = if packed { at + 1 } else { one.next };
    }
    None
}

fn table(
    guest_memory: &GuestMemory,
    named: Entry,
    packed: bool,
    spans: &mut Vec<Entry>,
) -> Option<()> {
    let count = named.len / 16;
    if named.len == 0
        || !named.len.is_multiple_of(16)
        || !guest_memory.grants(named.addr, named.len.into())
    {
        return None;
    }
    // In a packed ring every entry of a table counts; in a split ring the linked entries count.
    if packed && count > u32::from(SIZE) {
        return None;
    }
    let mut at = 0;
    loop {
        if at >= count {
            return packed.then_some(());
        }
        let one = read(guest_memory, named.addr + 16 * u64::from(at), packed);
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

fn judge(guest_memory: &GuestMemory, spans: &[Entry]) -> ExpectedChain {
    let (mut readable, mut writable) = (Vec::new(), Vec::new());
    for one in spans {
        if one.len > 0 && !guest_memory.grants(one.addr, one.len.into()) {
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

fn put(guest_memory: &mut GuestMemory, at: usize, one: Entry, packed: bool) {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&one.addr.to_le_bytes());
    bytes[8..12].copy_from_slice(&one.len.to_le_bytes());
    let (first, second) = if packed { (0, one.flags) } else { (one.flags, one.next) };
    bytes[12..14].copy_from_slice(&first.to_le_bytes());
    bytes[14..].copy_from_slice(&second.to_le_bytes());
    guest_memory.write(at, &bytes);
}

/// Runs one input.
pub fn run(data: &[u8]) {
    guest_memory::with::<BYTES>(|guest_memory| {
        let mut input = Input::new(data);
        let flags = input.u8();
        let (packed, indirect) = (flags & 1 != 0, flags & 2 != 0);
        let mut ring = Vec::new();
        for nth in 0..usize::from(SIZE) {
            let mut one = entry(&mut input, guest_memory.len());
            if packed {
                // Marks every descriptor as available in the first round of the ring.
                one.flags = one.flags & !(1 << 15) | 1 << 7;
            }
            put(guest_memory, 16 * nth, one, packed);
            ring.push(one);
        }
        for table in 0..4 {
            for nth in 0..16 {
                let one = entry(&mut input, guest_memory.len());
                put(guest_memory, TABLES + TABLE * table + 16 * nth, one, packed);
            }
        }
        let places = [0, AVAIL, USED].map(|at| GUEST + at as u64);
        let [desc, avail, used] = places;
        let next = if packed { 0x8000 } else { 0 };
        let setup =
            QueueSetup { size: SIZE, desc, avail, used, event_index: false, indirect, next };
        let queue = match packed {
            true => Queue::packed(setup, next, &guest_memory.map),
            false => Queue::new(setup, &guest_memory.map),
        };
        if !packed {
            guest_memory.write(AVAIL + 2, &1_u16.to_le_bytes());
        }
        let mut queue = queue.expect("the usual places");
        let mut chain = Chain::new();
        queue.prefetch(&guest_memory.map, u16::MAX);
        let got = queue.pop(&guest_memory.map, &mut chain);
        match expected(guest_memory, &ring, packed, indirect) {
            Some((readable, writable)) => {
                assert_eq!(got, Ok(true));
                assert_eq!((chain.readable(), chain.writable()), (&readable[..], &writable[..]));
            }
            None => assert!(got.is_err(), "{got:?}: {chain:?}"),
        }
        guest_memory.assert_untouched(&[]);
    });
}

/// Returns valid tables in rings of both formats.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for flags in [2_u8, 3, 0, 1] {
        let mut scenario = vec![flags];
        // A table of three entries, referenced by the first descriptor.
        scenario.extend([2, 0, 1, 3, 1, 4, 1, 0]);
        for _ in 1..SIZE {
            scenario.extend([7, 0, 0, 3, 64, 1, 0, 1, 0]);
        }
        for nth in 0..64_u8 {
            let last = u8::from(nth % 16 == 2);
            scenario.extend([7, nth, 0, 3, 32, 1, 1 - last, 1, (nth + 1) % 8]);
        }
        all.push(scenario);
    }
    all
}
