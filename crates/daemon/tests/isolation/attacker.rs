//! A thread that attacks or burns processor time.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::daemon::Daemon;

/// Sleep between two steps: long enough to leave the processors to others, short enough to keep
/// the queues full.
const STEP_PAUSE: Duration = Duration::from_micros(200);

/// A tenant that attacks.
pub trait Attacker: Send {
    /// Takes the arrived frames or packets, and queues more work.
    fn step(&mut self);
    /// Takes the arrived frames or packets. Returns whether no queued work is left.
    fn drain(&mut self) -> bool;
    /// Returns the number of arrivals so far, in the attacker's own unit.
    fn arrived(&self) -> u64;
}

/// Attaches an attacker.
pub type Make = fn(&Daemon) -> Box<dyn Attacker>;

/// Mode of the attacker's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Finishes the queued work, then burns processor time.
    Calm = 0,
    /// The queued work is finished.
    Control,
    /// Attacks.
    Attack,
    /// Returns.
    End,
}

/// The mode of the attacker's thread, shared with the victim's thread.
#[derive(Debug, Default)]
pub struct Switch(AtomicU8);

impl Switch {
    /// Sets the mode.
    pub fn set(&self, mode: Mode) {
        self.0.store(mode as u8, Ordering::Release);
    }

    /// Returns whether this is the mode.
    pub fn is(&self, mode: Mode) -> bool {
        self.0.load(Ordering::Acquire) == mode as u8
    }

    /// Notes that the queued work is finished, unless the mode changed meanwhile.
    fn calmed(&self) {
        let (from, to) = (Mode::Calm as u8, Mode::Control as u8);
        let _ = self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// Attacks or burns time as `switch` commands. Returns the number of arrivals.
pub fn run(mut attacker: Box<dyn Attacker>, switch: &Switch) -> u64 {
    let (mut steps, mut busy) = (0_u32, Duration::ZERO);
    while !switch.is(Mode::End) {
        if switch.is(Mode::Attack) {
            let start = thread_time();
            attacker.step();
            busy += thread_time() - start;
            steps += 1;
        } else if switch.is(Mode::Calm) {
            if attacker.drain() {
                switch.calmed();
            }
        } else {
            burn(busy / steps.max(1));
        }
        thread::sleep(STEP_PAUSE);
    }
    attacker.arrived()
}

/// Burns as much processor time as a step of the attack takes.
fn burn(time: Duration) {
    let start = thread_time();
    while thread_time() - start < time {
        std::hint::spin_loop();
    }
}

/// Returns the processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Calls `done` until it returns true.
pub fn wait(mut done: impl FnMut() -> bool, what: &str) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < crate::PATIENCE, "gave up waiting: {what}");
        thread::sleep(STEP_PAUSE);
    }
}
