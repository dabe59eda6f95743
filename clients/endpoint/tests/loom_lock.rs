//! Model check of the lock and the room: every interleaving of threads, and every value that a
//! weakly ordered machine may load. The steps are those of production
//! (`causeway_endpoint::lock::steps`).
//!
//! Mutations that it detects: a relaxed swap in `give` or in `take` loses another thread's write; a
//! swap of `HELD` in `take` leaves a thread asleep forever, and so does a room's call without
//! `increment`; without `near_fence` or `far_fence`, two threads hold a claimed lock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_endpoint::lock::steps::{
    FREE, FutexWord, call, claim, end_claim, give, take, try_take, try_take_alone,
};
use loom::sync::atomic::{AtomicU32, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// A word and its sleepers; as in the kernel, the check of the word and the wake-up hold one lock.
#[derive(Default)]
struct Futex {
    word: AtomicU32,
    kernel: Mutex<()>,
    sleepers: Condvar,
}

impl FutexWord for Futex {
    fn load(&self) -> u32 {
        self.word.load(Ordering::Relaxed)
    }

    fn acquire(&self) -> u32 {
        self.word.load(Ordering::Acquire)
    }

    fn release(&self, value: u32) {
        self.word.store(value, Ordering::Release);
    }

    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.word.swap(value, order)
    }

    // Between processes and threads, the kernel issues the fence.
    fn near_fence() {
        fence(Ordering::SeqCst);
    }

    fn far_fence() {
        fence(Ordering::SeqCst);
    }

    fn exchange(&self, from: u32, to: u32) -> bool {
        self.word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn increment(&self) {
        self.word.fetch_add(1, Ordering::Relaxed);
    }

    fn sleep(&self, value: u32, _: Option<Duration>) {
        let guard = self.kernel.lock().unwrap();
        if self.word.load(Ordering::Relaxed) == value {
            drop(self.sleepers.wait(guard).unwrap());
        }
    }

    fn wake(&self, count: u32) {
        let _guard = self.kernel.lock().unwrap();
        match count {
            1 => self.sleepers.notify_one(),
            _ => self.sleepers.notify_all(),
        }
    }
}

/// A value behind the lock, read and written in two relaxed steps: only the lock makes another
/// thread's write visible.
struct Shared {
    lock: Futex,
    value: AtomicU32,
    room: Futex,
}

impl Shared {
    fn new() -> Arc<Self> {
        let (lock, room) = (Futex::default(), Futex::default());
        Arc::new(Self { lock, value: AtomicU32::new(0), room })
    }

    fn with<R>(&self, run: impl FnOnce(&AtomicU32) -> R) -> R {
        if !try_take(&self.lock) {
            take(&self.lock, 0);
        }
        let done = run(&self.value);
        give(&self.lock);
        done
    }
}

fn more(value: &AtomicU32) {
    value.store(value.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Lets `threads` threads compete for a lock.
fn meet(threads: u32) {
    // Three threads have too many interleavings: those with at most two preemptions are checked.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = (threads > 2).then_some(2);
    model.check(move || {
        let shared = Shared::new();
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || shared.with(more))
            })
            .collect();
        shared.with(more);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(shared.with(|value| value.load(Ordering::Relaxed)), threads);
    });
}

#[test]
fn lock_has_one_holder_and_no_lost_wakeup() {
    meet(2);
    meet(3);
}

/// A thread takes the lock twice by plain stores, while `claimants` threads claim it.
fn claim_beside_an_owner(claimants: u32) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = (claimants > 1).then_some(2);
    model.check(move || {
        let (shared, claims) = (Shared::new(), Arc::new([Futex::default(), Futex::default()]));
        let run = |shared: Arc<Shared>, claims: Arc<[Futex; 2]>| {
            move || {
                claim(&shared.lock, &claims[0], &claims[1], thread::yield_now);
                more(&shared.value);
                end_claim(&claims[0], &claims[1]);
            }
        };
        let (theirs, their_claims) = (shared.clone(), claims.clone());
        let owner = thread::spawn(move || {
            let mut taken = 0;
            for _ in 0..2 {
                if try_take_alone(&theirs.lock, &their_claims[0]) {
                    more(&theirs.value);
                    theirs.lock.release(FREE);
                    taken += 1;
                }
            }
            taken
        });
        let others: Vec<_> =
            (1..claimants).map(|_| thread::spawn(run(shared.clone(), claims.clone()))).collect();
        run(shared.clone(), claims.clone())();
        others.into_iter().for_each(|other| other.join().unwrap());
        let taken = owner.join().unwrap();
        assert_eq!(shared.value.load(Ordering::Relaxed), taken + claimants);
        assert!(try_take_alone(&shared.lock, &claims[0]), "it is free again");
    });
}

#[test]
fn lock_claim_keeps_out_a_thread_that_takes_it_by_plain_stores() {
    claim_beside_an_owner(1);
}

/// Without the queue, both claimants would have the value at once.
#[test]
fn lock_claims_of_two_threads_come_one_after_the_other() {
    claim_beside_an_owner(2);
}

#[test]
fn room_sleeper_is_woken_or_sees_the_change() {
    loom::model(|| {
        let shared = Shared::new();
        let waits = shared.clone();
        let waiting = thread::spawn(move || {
            loop {
                let look = |value: &AtomicU32| (value.load(Ordering::Relaxed), waits.room.load());
                let (done, calls) = waits.with(look);
                if done == 1 {
                    return;
                }
                waits.room.sleep(calls, None);
            }
        });
        shared.with(|value| {
            more(value);
            call(&shared.room, 1);
        });
        waiting.join().unwrap();
    });
}
