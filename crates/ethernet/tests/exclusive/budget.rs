//! Cost of frames in system calls and sleeps: the table "What a frame costs" of ARCHITECTURE.md.
//! The dispatchers' threads are found by their names.

use std::path::PathBuf;

use crate::common::bursts::{BURST, Bursts};
use causeway_model::PollPolicy;
use causeway_wire::virtio::mask;

const ROUNDS: u64 = 500;

/// Counters of the dispatchers: read and write calls, doorbells included, voluntary context
/// switches, and involuntary ones.
#[derive(Debug, Clone, Copy)]
struct CallCounters {
    calls: u64,
    sleeps: u64,
    preempted: u64,
}

impl CallCounters {
    /// Returns the counters, or `None` if the kernel does not provide them.
    fn read() -> Option<Self> {
        let mut all = Self { calls: 0, sleeps: 0, preempted: 0 };
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            let path: PathBuf = task.unwrap().path();
            let read = |name: &str| std::fs::read_to_string(path.join(name));
            if !read("comm").unwrap().starts_with("dispatcher") {
                continue;
            }
            let number = |text: &str, key: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(key))?;
                line.trim().parse::<u64>().ok()
            };
            let io = read("io").ok()?;
            all.calls += number(&io, "syscr:")? + number(&io, "syscw:")?;
            let status = read("status").unwrap();
            all.sleeps += number(&status, "voluntary_ctxt_switches:")?;
            all.preempted += number(&status, "nonvoluntary_ctxt_switches:")?;
        }
        Some(all)
    }
}

/// Returns the cost of [`ROUNDS`] bursts under a poll policy: the first measurement within the
/// bounds, or the last of several.
///
/// Other processes and reclaimed pages make a dispatcher yield and sleep more often, so a single
/// measurement proves little; a systematic cost shows in all of them. Returns `None` if other
/// processes always had the processors.
fn cost(
    policy: PollPolicy,
    features: u64,
    sleep: bool,
    within: impl Fn(&CallCounters) -> bool,
) -> Option<CallCounters> {
    let mut last = None;
    for _ in 0..20 {
        last = cost_now(policy, features, sleep).filter(|spent| spent.preempted < 20).or(last);
        if last.as_ref().is_some_and(&within) {
            break;
        }
    }
    last
}

fn cost_now(policy: PollPolicy, features: u64, sleep: bool) -> Option<CallCounters> {
    let mut bursts = Bursts::new(policy, features, 32, sleep);
    let before = CallCounters::read()?;
    for _ in 0..ROUNDS {
        bursts.round();
    }
    let after = CallCounters::read()?;
    Some(CallCounters {
        calls: after.calls - before.calls,
        sleeps: after.sleeps - before.sleeps,
        preempted: after.preempted - before.preempted,
    })
}

#[test]
fn ethernet_calls_and_sleeps_match_the_cost_table() {
    let _turn = crate::turn();
    let packed = mask(causeway_wire::virtio::VIRTIO_F_RING_PACKED);
    for (ring, features) in [("split", 0), ("packed", packed)] {
        // None for a burst; a few belong to other events of the dispatcher.
        let few = |spent: &CallCounters| spent.calls < ROUNDS / 10 && spent.sleeps < ROUNDS / 10;
        let Some(polled) = cost(PollPolicy::VmmDriven, features, false, few) else {
            eprintln!("skipped: this kernel does not count the calls of threads, or is too busy");
            return;
        };
        assert!(few(&polled), "{ring}, polled: {polled:?}");
        // One doorbell to the receiver and one sleep for each burst; the dispatcher does not read
        // its own doorbell. On a busy machine a burst may arrive in parts.
        let some = |spent: &CallCounters| spent.calls < 3 * ROUNDS && spent.sleeps < 3 * ROUNDS;
        let Some(parked) = cost(PollPolicy::GuestDriven, features, true, some) else {
            eprintln!("skipped: this machine is too busy");
            return;
        };
        assert!(some(&parked), "{ring}, parked: {parked:?}");
        println!("{ring}: polled {polled:?}, parked {parked:?} of {ROUNDS} bursts of {BURST}");
    }
}
