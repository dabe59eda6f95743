//! Tests of a peer that writes any values into the shared memory.

mod common;

use causeway_channel::{BrokenChannel, EventHead, Layout};
use common::pair;
use proptest::prelude::*;

const HEAD: EventHead = EventHead { kind: 1, words: [2, 3, 4] };

/// Offsets of the first side's control words and first slot, from the table in the crate's
/// documentation.
const CONTROL: usize = 1024;
const SLOT: usize = 4096;

#[test]
fn hostile_consumed_counts_break_the_channel() {
    let layout = Layout::new(16, 4096).unwrap();
    for lie in [1_u64, 17, u64::from(u32::MAX), 1 << 32, 200 << 32, u64::MAX] {
        let (memory, (mut sender, _), _) = pair(layout);
        memory.write(CONTROL, &lie.to_le_bytes()).unwrap();
        assert_eq!(sender.arm_room(0), Err(BrokenChannel), "{lie:#x}");
    }
    // Decreasing counts too.
    let (memory, (mut sender, _), (_, mut receiver)) = pair(layout);
    for _ in 0..8 {
        assert!(sender.send(HEAD, &[]).unwrap());
        let event = receiver.poll().unwrap().unwrap();
        receiver.advance(&event);
    }
    assert!(sender.arm_room(0).unwrap());
    memory.write(CONTROL, &2_u64.to_le_bytes()).unwrap();
    assert_eq!(sender.arm_room(0), Err(BrokenChannel));
}

#[test]
fn hostile_event_lengths_break_the_channel() {
    let layout = Layout::new(16, 4096).unwrap();
    for len in [2049_u32, 4096, 4097, 1 << 31, u32::MAX] {
        let (memory, _, (_, receiver)) = pair(layout);
        let last = 0x8000_u64 | 1 << 16 | u64::from(len) << 32;
        memory.write(SLOT + 56, &last.to_le_bytes()).unwrap();
        assert_eq!(receiver.poll(), Err(BrokenChannel), "{len}");
    }
}

#[test]
fn hostile_id_of_another_pass_is_no_event() {
    let (memory, _, (_, receiver)) = pair(Layout::new(16, 4096).unwrap());
    for id in [0_u64, 1, 0x7fff, 0x8001, 0xffff] {
        memory.write(SLOT + 56, &id.to_le_bytes()).unwrap();
        assert_eq!(receiver.poll(), Ok(None), "{id:#x}");
    }
}

#[test]
fn hostile_change_after_the_poll_has_no_effect_on_the_event() {
    let (memory, (mut sender, _), (_, mut receiver)) = pair(Layout::new(16, 4096).unwrap());
    assert!(sender.send(HEAD, &[7; 20]).unwrap());
    let event = receiver.poll().unwrap().unwrap();
    // Another length, kind and content in the same slot.
    memory.write(SLOT, &[0xff; 64]).unwrap();
    assert_eq!((event.head, event.len), (HEAD, 20));
    // The peer can change the bytes, but not their number.
    let mut got = [0; 40];
    assert_eq!(receiver.copy(&event, 0, &mut got), 20);
    assert_eq!(got[20..], [0; 20]);
    receiver.advance(&event);
    assert_eq!(receiver.poll(), Ok(None));
}

proptest! {
    /// Any value at any offset, between any calls: each call terminates with a permitted result.
    #[test]
    fn hostile_writes_cost_only_the_channel(
        writes in prop::collection::vec((0..28_672_usize, any::<u64>()), 1..64),
        calls in prop::collection::vec((0..8_u8, 0..2100_usize), 1..64),
    ) {
        let layout = Layout::new(16, 4096).unwrap();
        let (memory, (mut sender, mut receiver), _) = pair(layout);
        let mut writes = writes.iter();
        for (call, len) in calls {
            if let Some((at, word)) = writes.next() {
                let at = (at % (layout.bytes() - 8)) & !7;
                memory.write(at, &word.to_le_bytes()).unwrap();
                // A slot that looks like the next.
                let next = 4096 + 16 * 64 + (at / 64 % 16) * 64 + 56;
                let last = 0x8000 | (word & 0x0003_ffff) << 16 | (word & 0xfff) << 32;
                memory.write(next, &last.to_le_bytes()).unwrap();
            }
            match call {
                0..=2 => { let _ = sender.send(HEAD, &vec![1; len]); }
                3 => { let _ = sender.arm_room(len); }
                4 => { let _ = sender.must_wake(); }
                5 => { let _ = receiver.arm(); }
                _ => if let Ok(Some(event)) = receiver.poll() {
                    prop_assert!(event.len <= layout.event_bytes_max());
                    let mut into = vec![0; len];
                    let n = receiver.copy(&event, len / 3, &mut into);
                    prop_assert!(n <= len);
                    receiver.advance(&event);
                }
            }
        }
    }

    /// A sender writes only into its own slots, data and control words.
    #[test]
    fn channel_sender_writes_only_its_own_direction(
        lengths in prop::collection::vec(0..2049_usize, 1..40),
    ) {
        let layout = Layout::new(16, 4096).unwrap();
        let (memory, (mut sender, _), _) = pair(layout);
        for len in lengths {
            let _ = sender.send(HEAD, &vec![0xee; len]);
        }
        let _ = sender.arm_room(2048);
        // Slots, control words and data of the other direction are unchanged.
        for (from, to) in [(2048, 4096), (5120, 6144), (10_240, 14_336)] {
            for at in (from..to).step_by(8) {
                prop_assert_eq!(memory.read::<8>(at).unwrap(), [0; 8], "at {}", at);
            }
        }
        // The receiver's words of this direction are unchanged.
        prop_assert_eq!(memory.read::<8>(CONTROL).unwrap(), [0; 8]);
        prop_assert_eq!(memory.read::<8>(CONTROL + 128).unwrap(), [0; 8]);
    }
}
