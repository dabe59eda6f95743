//! Differential test with random bytes in place of a driver's, against rust-vmm's `virtio-queue`.
//!
//! The oracle ends a broken chain early and checks little else. So a chain that [`Queue`] pops must
//! be complete for the oracle too; and if the oracle returns a complete chain that [`Queue`]
//! refuses, the bytes must break a rule of [`stricter`].

use crate::common::*;
use crate::oracle::Both;
use causeway_ring::{Chain, Queue, RingError};
use proptest::prelude::*;
use virtio_queue::QueueOwnedT;

/// Start indices, some of them shortly before the wrap.
fn start() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0_u16), 65_500_u16..=65_535, any::<u16>()]
}

/// A hostile descriptor, plausible enough to be followed.
fn wild() -> impl Strategy<Value = (u64, u32, u16, u16)> {
    let addr = prop_oneof![
        6 => (0_u64..0x2_0000).prop_map(|at| DATA + at),
        4 => (0_u64..4).prop_map(|nth| TABLES + 256 * nth),
        2 => (0_u64..0x200).prop_map(|at| GUEST + FIRST - 0x100 + at),
        1 => (0_u64..0x200).prop_map(|at| GUEST + FIRST + SECOND - 0x100 + at),
        1 => any::<u64>(),
        1 => (0_u64..32).prop_map(|at| u64::MAX - at),
    ];
    let len = prop_oneof![
        4 => 0_u32..300,
        4 => (0_u32..17).prop_map(|n| 16 * n),
        1 => any::<u32>(),
    ];
    let flags = prop_oneof![
        4 => Just(0_u16),
        4 => Just(NEXT),
        2 => Just(WRITE),
        2 => Just(NEXT | WRITE),
        4 => Just(INDIRECT),
        1 => 0_u16..8,
        1 => any::<u16>(),
    ];
    let next = prop_oneof![12 => 0_u16..18, 1 => any::<u16>()];
    (addr, len, flags, next)
}

/// The bytes at `head`, followed without checks except for the oracle's bound.
struct Evidence {
    /// A table's descriptor also has NEXT, or the table has no entries.
    odd_table: bool,
    /// A table is not completely granted.
    lost_table: bool,
    indirect: bool,
}

fn evidence(both: &Both, head: u16, size: u16) -> Evidence {
    let mut found = Evidence { odd_table: false, lost_table: false, indirect: false };
    let mut at = DESC + 16 * u64::from(head);
    for _ in 0..size {
        let raw = both.read::<16>(at);
        let flags = u16::from_le_bytes([raw[12], raw[13]]);
        let next = u16::from_le_bytes([raw[14], raw[15]]);
        if flags & INDIRECT != 0 {
            let addr = u64::from_le_bytes(raw[..8].try_into().unwrap());
            let len = u32::from_le_bytes(raw[8..12].try_into().unwrap());
            found.indirect = true;
            found.odd_table = flags & NEXT != 0 || len == 0;
            found.lost_table = !granted(addr, u64::from(len));
            return found;
        }
        if flags & NEXT == 0 || next >= size {
            return found;
        }
        at = DESC + 16 * u64::from(next);
    }
    found
}

/// Returns whether `error` is a rule that the oracle does not check, and the bytes break it.
fn stricter(
    error: RingError,
    parts: &[crate::oracle::Part],
    seen: &Evidence,
    taken: bool,
    size: u16,
    indirect: bool,
) -> bool {
    match error {
        RingError::Order => {
            let first = parts.iter().position(|p| p.writable).unwrap_or(parts.len());
            parts[first..].iter().any(|p| !p.writable)
        }
        RingError::Twice(_) => taken,
        RingError::Descriptor(_) => {
            let outside = |p: &crate::oracle::Part| p.len > 0 && !granted(p.addr, u64::from(p.len));
            seen.lost_table || parts.iter().any(outside)
        }
        // virtio 1.3, 2.7.5.3.1: INDIRECT excludes NEXT.
        RingError::IndirectTable(_) => seen.odd_table,
        RingError::NotNegotiated => seen.indirect && !indirect,
        // virtio 1.3, 2.7.5.3.1: a chain is not longer than the queue, its table included.
        RingError::Endless(bound) => bound == u32::from(size) && parts.len() > usize::from(size),
        // The oracle checks these too.
        _ => false,
    }
}

/// A hostile guest's memory.
#[derive(Debug, Clone)]
struct Wild {
    ring: Vec<(u64, u32, u16, u16)>,
    tables: Vec<(u64, u32, u16, u16)>,
    heads: Vec<u16>,
    /// Increments of the available index before each poll.
    moves: Vec<u16>,
    /// Whether each chain is used at once.
    uses: Vec<bool>,
}

fn wild_memory() -> impl Strategy<Value = Wild> {
    let head = || prop_oneof![20 => 0_u16..16, 1 => any::<u16>()];
    let moves = prop_oneof![20 => 0_u16..6, 1 => any::<u16>()];
    (
        prop::collection::vec(wild(), 16),
        prop::collection::vec(wild(), 64),
        prop::collection::vec(head(), 16),
        prop::collection::vec(moves, 1..20),
        prop::collection::vec(any::<bool>(), 64),
    )
        .prop_map(|(ring, tables, heads, moves, uses)| Wild {
            ring,
            tables,
            heads,
            moves,
            uses,
        })
}

impl Wild {
    fn write(&self, both: &Both) {
        let entries = |table: u64, list: &[(u64, u32, u16, u16)]| {
            for (nth, &(addr, len, flags, next)) in list.iter().enumerate() {
                both.write(table + 16 * nth as u64, &descriptor(addr, len, flags, next));
            }
        };
        entries(DESC, &self.ring);
        entries(TABLES, &self.tables);
        for (nth, head) in self.heads.iter().enumerate() {
            both.write(AVAIL + 4 + 2 * nth as u64, &head.to_le_bytes());
        }
    }
}

/// Runs a hostile guest against both, and returns the error that broke the queue, if any.
fn against(wild: &Wild, size: u16, indirect: bool, start: u16) -> Option<RingError> {
    let both = Both::new();
    wild.write(&both);
    let setup = causeway_ring::QueueSetup { indirect, ..setup(size, false, start) };
    let mut ours = Queue::new(setup, &both.ours).unwrap();
    let mut theirs = both.oracle(setup);
    let mut taken = vec![false; usize::from(size)];
    let mut uses = wild.uses.iter().copied();
    let mut chain = Chain::new();
    let mut index = start;
    for by in &wild.moves {
        index = index.wrapping_add(*by);
        both.write(AVAIL + 2, &index.to_le_bytes());
        loop {
            // Prefetching has no effect on any bytes.
            ours.prefetch(&both.ours, u16::MAX);
            let got = pop(&mut ours, &both.ours, &mut chain);
            // The oracle's iterator refuses the same index jumps.
            let chains = theirs.iter(&both.theirs).ok().map(|mut all| all.next());
            let Some(theirs) = chains else {
                assert!(matches!(got, Err(RingError::IndexJump { .. })), "{got:?}");
                break;
            };
            let Some(theirs) = theirs else {
                assert_eq!(got, Ok(false));
                break;
            };
            let head = theirs.head_index();
            let (parts, whole) = crate::oracle::parts(theirs);
            match got {
                Ok(more) => {
                    assert!(more, "the oracle has a chain");
                    assert!(whole, "the oracle finds the chain broken: {parts:?}");
                    assert_eq!(chain.head(), head);
                    assert!(parts.len() <= usize::from(size));
                    let (readable, writable) = crate::oracle::split(&parts);
                    assert_eq!(
                        (chain.readable(), chain.writable()),
                        (&readable[..], &writable[..])
                    );
                    assert!(parts.iter().all(|p| p.len == 0 || granted(p.addr, p.len.into())));
                    assert!(!std::mem::replace(&mut taken[usize::from(head)], true), "twice");
                }
                Err(error) if whole => {
                    let held = taken[usize::from(head)];
                    let seen = evidence(&both, head, size);
                    assert!(stricter(error, &parts, &seen, held, size, indirect), "{error:?}");
                }
                Err(_) => {}
            }
            if got.is_err() {
                break;
            }
            if uses.next().unwrap_or(true) {
                ours.push(head, 0).unwrap();
                taken[usize::from(head)] = false;
            }
        }
        if ours.broken().is_some() {
            break;
        }
    }
    if let Some(error) = ours.broken() {
        assert_latched(&mut ours, &both.ours, error);
    }
    ours.broken()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// For any bytes in the ring, a popped chain equals the oracle's, is granted and not longer
    /// than the queue. A chain that only the oracle returns breaks a rule of [`stricter`], and the
    /// queue stays broken.
    #[test]
    fn hostile_bytes(wild in wild_memory(), size_log in 0_u32..5, indirect: bool, start in start()) {
        against(&wild, 1 << size_log, indirect, start);
    }
}

/// The property above is not vacuous: its guests reach every rule.
#[test]
fn hostile_bytes_reach_every_rule() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut seen = std::collections::BTreeMap::<String, u32>::new();
    for round in 0..6000_u32 {
        let wild = wild_memory().new_tree(&mut runner).unwrap().current();
        let broken = against(&wild, 1 << (round % 5), round % 8 != 0, 0);
        let name = broken.map_or("none".to_owned(), |error| format!("{error:?}"));
        let name = name.split(['(', ' ']).next().unwrap_or_default().to_owned();
        *seen.entry(name).or_default() += 1;
    }
    for rule in [
        "none",
        "IndexJump",
        "Head",
        "Twice",
        "Next",
        "Endless",
        "Bytes",
        "Nested",
        "NotNegotiated",
        "IndirectTable",
        "Order",
        "Descriptor",
    ] {
        // A chain of more than 2^32 bytes needs large grants; `hostile.rs` has it.
        assert!(seen.contains_key(rule) || rule == "Bytes", "{rule} not in {seen:?}");
    }
}
