//! Isolation in time: the latency of one tenant beside the work of another tenant, on one
//! dispatcher. Phases with the attacker alternate with control phases, in which the attacker's
//! thread burns the same processor time on the same core without touching the dispatcher.
//!
//! The attackers are those of [`super::tenants`], in a thread of their own with nice value 19; the
//! victim has -20 where the benchmark may set it, else the refusal is printed and the row goes on.
//! The figure is the growth of the victim's 99th percentile; the aim permits 200 us. A frame of the
//! victim that takes 10 s fails the row.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use causeway_attach::native::NetPort;
use causeway_fabric::PollConfig;
use rustix::process::setpriority_process;

use super::contain::{attackers_core, thread_s};
use super::ethernet::{frame, options};
use super::tenants::{ALL, Make, Work};
use crate::effort::Effort;
use crate::pin::pin;
use crate::rig::{Rig, mac};
use crate::row::{Against, Guest, Plan};

/// From the start of one round trip of the victim to the start of the next.
const INTERVAL: Duration = Duration::from_millis(1);
/// Pause of the attacker between two steps.
const STEP_PAUSE: Duration = Duration::from_micros(200);
/// Pairs of phases, their length, and the time after a change that does not count.
const PAIRS: usize = 4;
const PHASE: Duration = Duration::from_secs(1);
const SETTLE: Duration = Duration::from_millis(50);
/// A frame that takes longer is lost.
const LOST: Duration = Duration::from_secs(10);
/// Permitted increase of the victim's 99th percentile beside the attacker, in microseconds.
const EXCESS_US: f64 = 200.0;

/// The modes of the attacker's thread.
#[derive(Debug, Default)]
struct Modes {
    is_over: AtomicBool,
    attacks: AtomicBool,
    /// No work of the attacker is queued.
    is_calm: AtomicBool,
}

/// Sets the nice value of this thread. The victim and the attacker may share a core
/// ([`attackers_core`]): the victim preempts the attacker, so that a round trip holds none of the
/// attacker's time.
fn set_nice(nice: i32) {
    if let Err(error) = setpriority_process(None, nice) {
        eprintln!("- cannot set the nice value {nice} of a thread: {error}");
    }
}

/// Attacks, or burns as much processor time as a step of the attack takes.
fn attack(mut work: Work, modes: &Modes) {
    pin(attackers_core());
    set_nice(19);
    let (mut steps, mut busy) = (0.0, 0.0);
    while !modes.is_over.load(Ordering::Relaxed) {
        let start = thread_s();
        if modes.attacks.load(Ordering::Acquire) {
            modes.is_calm.store(false, Ordering::Release);
            work(true);
            busy += thread_s() - start;
            steps += 1.0;
        } else if modes.is_calm.load(Ordering::Acquire) {
            while thread_s() - start < busy / steps {
                std::hint::spin_loop();
            }
        } else {
            let is_calm = !work(false);
            modes.is_calm.store(is_calm, Ordering::Release);
        }
        thread::sleep(STEP_PAUSE);
    }
}

/// Two ports that exchange one frame at a time and sleep until it arrives.
struct Victim([NetPort; 2]);

impl Victim {
    /// Makes round trips while `more` returns true. Returns their times in microseconds.
    fn trips(&mut self, mut more: impl FnMut() -> bool) -> Result<Vec<f64>, String> {
        let mut trips = Vec::new();
        while more() {
            let start = Instant::now();
            self.hop(false)?;
            self.hop(true)?;
            let took = start.elapsed();
            trips.push(took.as_secs_f64() * 1e6);
            thread::sleep(INTERVAL.saturating_sub(took));
        }
        Ok(trips)
    }

    fn hop(&mut self, back: bool) -> Result<(), String> {
        let [one, two] = &mut self.0;
        let (from, to, addresses) =
            if back { (two, one, [mac(2), mac(1)]) } else { (one, two, [mac(1), mac(2)]) };
        let failed = |error: causeway_attach::native::NativeError| error.to_string();
        if !from.send(&frame(addresses[0], addresses[1], 64)).map_err(failed)? {
            return Err("the victim has no room to send".into());
        }
        let start = Instant::now();
        while to.discard(0).map_err(failed)?.is_none() {
            let left = LOST.checked_sub(start.elapsed()).ok_or("the victim lost a frame")?;
            to.wait(Some(left)).map_err(failed)?;
        }
        Ok(())
    }
}

fn p99(mut trips: Vec<f64>) -> Result<f64, String> {
    trips.sort_by(f64::total_cmp);
    let index = (trips.len() * 99).div_ceil(100).saturating_sub(1);
    trips.get(index).copied().ok_or_else(|| "no round trip".into())
}

/// The victim's 99th percentile beside the attacker, minus that of the control phases.
fn excess(effort: &Effort, make: Make) -> Result<Vec<f64>, String> {
    let rig = Rig::paced(PollConfig::default());
    let mut victim = Victim([1, 2].map(|number| rig.net(number, options(64))));
    let work = make(&rig)?;
    let modes = Modes::default();
    thread::scope(|scope| {
        scope.spawn(|| attack(work, &modes));
        set_nice(-20);
        let mut phase = |attacks: bool, len: Duration| {
            modes.attacks.store(attacks, Ordering::Release);
            victim.trips(|| modes.is_calm.load(Ordering::Acquire) == attacks)?;
            let start = Instant::now();
            victim.trips(|| start.elapsed() < SETTLE)?;
            let start = Instant::now();
            victim.trips(|| start.elapsed() < len)
        };
        // The control burns as much time as the attack takes, so an attack comes first.
        let warm = phase(true, SETTLE).map(drop);
        let figures = effort.each(|| {
            let (mut control, mut attack) = (Vec::new(), Vec::new());
            for _ in 0..PAIRS {
                control.extend(phase(false, effort.time(PHASE))?);
                attack.extend(phase(true, effort.time(PHASE))?);
            }
            Ok(p99(attack)? - p99(control)?)
        });
        modes.is_over.store(true, Ordering::Relaxed);
        set_nice(0);
        warm.and(figures)
    })
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let plan = |(what, make): (&str, Make)| {
        let name = format!("victim's p99 beside {what}, less its p99 beside a spinning process");
        Plan::new(name, "us", Guest::Native, move |effort| excess(effort, make))
            .aim(Against::Figure, EXCESS_US)
            .note(
                "The victim makes a round trip once a millisecond and sleeps in between, in \
                 another group on the same dispatcher. Phases alternate in one run; the spinning \
                 process takes the attacker's processor time on its core.",
            )
    };
    ALL.into_iter().map(plan).collect()
}
