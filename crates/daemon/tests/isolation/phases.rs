//! Phases of control and attack in turn.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use crate::PATIENCE;
use crate::attacker::{self, Attacker, Mode, Switch};
use crate::victim::{RoundTrip, Victim};

/// Phases of each kind.
const PHASES: usize = 2;
/// Length of a phase; some 250 round trips, so that five of a kind exceed the 99th percentile.
const PHASE: Duration = Duration::from_millis(300);
/// Time after a change during which round trips do not count.
const SETTLE: Duration = Duration::from_millis(50);

/// The victim's round trips beside one attacker.
#[derive(Debug)]
pub struct Measurement {
    control: Vec<RoundTrip>,
    attack: Vec<RoundTrip>,
    /// Number of arrivals at the attacker's own ports.
    arrived: u64,
}

impl Measurement {
    /// Returns the excess of the 99th percentile during the attack over the control's.
    pub fn excess(&self) -> Duration {
        let p99 = |trips| percentile(trips, 99, |trip| trip.served);
        p99(&self.attack).saturating_sub(p99(&self.control))
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, trips) in [("control", &self.control), ("attack", &self.attack)] {
            let served = [50, 99, 100].map(|part| percentile(trips, part, |trip| trip.served));
            let whole = percentile(trips, 99, |trip| trip.whole);
            let [p50, p99, max] = served;
            let count = trips.len();
            write!(f, "{name}: {count} trips, p50 {p50:?}, p99 {p99:?}, max {max:?}, ")?;
            write!(f, "p99 with waits for a processor {whole:?}; ")?;
        }
        write!(f, "arrived at the attacker: {}", self.arrived)
    }
}

/// Returns the time that `part` percent of the round trips do not exceed.
fn percentile(trips: &[RoundTrip], part: usize, time: fn(&RoundTrip) -> Duration) -> Duration {
    let mut times: Vec<_> = trips.iter().map(time).collect();
    times.sort_unstable();
    let index = (times.len() * part).div_ceil(100).saturating_sub(1);
    times.get(index).copied().unwrap_or_default()
}

/// Measures the victim beside an attacker.
pub fn measure(victim: &mut Victim, attacker: Box<dyn Attacker>) -> Measurement {
    let switch = Switch::default();
    thread::scope(|scope| {
        let _end = End(&switch);
        let thread = scope.spawn(|| attacker::run(attacker, &switch));
        // The control burns as much time as the attack takes, so an attack comes first.
        phase(victim, &switch, Mode::Attack, SETTLE);
        let (mut control, mut attack) = (Vec::new(), Vec::new());
        for _ in 0..PHASES {
            control.extend(phase(victim, &switch, Mode::Control, PHASE));
            attack.extend(phase(victim, &switch, Mode::Attack, PHASE));
            assert!(!thread.is_finished(), "the attacker failed");
        }
        switch.set(Mode::End);
        let arrived = thread.join().expect("an attacker that does not fail");
        assert!(arrived > 0, "the attack did not reach the daemon");
        Measurement { control, attack, arrived }
    })
}

/// Changes the mode and makes round trips for `len`.
fn phase(victim: &mut Victim, switch: &Switch, mode: Mode, len: Duration) -> Vec<RoundTrip> {
    let start = Instant::now();
    if mode == Mode::Control {
        switch.set(Mode::Calm);
        victim.ping_while(|| {
            assert!(start.elapsed() < PATIENCE, "the attacker's queued work does not end");
            !switch.is(Mode::Control)
        });
    } else {
        switch.set(mode);
    }
    let start = Instant::now();
    victim.ping_while(|| start.elapsed() < SETTLE);
    let start = Instant::now();
    victim.ping_while(|| start.elapsed() < len)
}

/// Ends the attacker's thread, also when the victim fails.
struct End<'a>(&'a Switch);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.set(Mode::End);
    }
}
