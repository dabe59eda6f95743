//! Every interleaving of the signal handler and of threads that map and unmap, at an entry of the
//! handler's table. The steps are the table's own (`causeway_memory::slot`).
//!
//! Checked by hand: without either fence, or without the comparison in `get`, a base is seen with
//! the length of another mapping.

use std::sync::atomic::Ordering;

use causeway_memory::slot::{MappingSlot, SharedWord};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, fence};
use loom::thread;

struct Cell(AtomicUsize);

impl SharedWord for Cell {
    fn load(&self, order: Ordering) -> usize {
        self.0.load(order)
    }

    fn store(&self, value: usize, order: Ordering) {
        self.0.store(value, order);
    }

    fn exchange(&self, from: usize, to: usize) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn fence(order: Ordering) {
        fence(order);
    }
}

fn slot() -> Arc<MappingSlot<Cell>> {
    let cell = || Cell(AtomicUsize::new(0));
    Arc::new(MappingSlot::of(cell(), cell(), cell()))
}

const ONE: (usize, usize) = (0x1000, 0x10);
const TWO: (usize, usize) = (0x2000, 0x9000);

#[test]
fn slot_never_pairs_a_base_with_another_length() {
    loom::model(|| {
        let slot = slot();
        assert!(slot.claim());
        slot.fill(ONE.0, ONE.1);
        let changing = slot.clone();
        let other = thread::spawn(move || {
            changing.empty();
            assert!(changing.claim());
            changing.fill(TWO.0, TWO.1);
        });
        let seen = slot.get();
        assert!(seen.is_none_or(|seen| seen == ONE || seen == TWO), "{seen:x?}");
        other.join().unwrap();
        assert_eq!(slot.get(), Some(TWO));
    });
}

/// A thread accesses a mapping only after its entry was filled.
#[test]
fn slot_of_a_live_mapping_is_found_during_other_changes() {
    loom::model(|| {
        let (slot, told) = (slot(), Arc::new(AtomicUsize::new(0)));
        let (filling, tells) = (slot.clone(), told.clone());
        let other = thread::spawn(move || {
            if filling.claim() {
                filling.fill(ONE.0, ONE.1);
                tells.store(1, Ordering::Release);
            }
        });
        if slot.claim() {
            slot.fill(TWO.0, TWO.1);
            assert_eq!(slot.get(), Some(TWO), "it is ours");
        } else if told.load(Ordering::Acquire) == 1 {
            assert_eq!(slot.get(), Some(ONE));
        }
        other.join().unwrap();
    });
}
