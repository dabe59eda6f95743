//! Containment: the loss of two ports while another port attacks.
//!
//! The victims are in one group. The attacker is in the victims' group and shard in rows of frames,
//! and in another group in rows of sockets. In both cases a single dispatcher serves all.
//!
//! The victims' rate is relative to the processor time of their own thread, which polls: while the
//! dispatcher serves the attacker, they poll without progress. An attacker that shares their core
//! therefore does not count as an attack by itself; in control phases it only consumes processor
//! time. A lost frame of a victim delays the victim by 300 ms, and so lowers the rate of its phase.
//! A lost packet of the socket rows, which stalls their stream for 5 s, and an attack of which no
//! step reaches the daemon in a run, fail the row.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::attacks::{self, Make};
use super::ethernet::{Pair, frame, options};
use super::scale::Packets;
use crate::effort::Effort;
use crate::pin::{CLIENT, SERVER, cores, pin};
use crate::rig::{GROUP, Rig, mac};
use crate::row::{Against, Guest, Plan};

/// Returns the processor time of this thread, in seconds.
pub(super) fn thread_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the core of attackers: a third core if the process has more than two, else [`CLIENT`].
pub(super) fn attackers_core() -> usize {
    if cores() > 2 {
        (0..).find(|core| ![CLIENT, SERVER].contains(core)).unwrap_or(CLIENT)
    } else {
        CLIENT
    }
}

/// Frames between two changes from control to attack or back, and the number of them that do not
/// count: until the change has taken effect.
const PHASE: u64 = 250_000;
const SETTLE: u64 = 25_000;

/// Sends the given number of frames, or packets, between two victims.
type Cross = Box<dyn FnMut(u64) -> Result<(), String>>;

/// Creates two ports that exchange frames.
fn frames(rig: &Rig) -> Result<Cross, String> {
    let frames = vec![frame(mac(1), mac(2), 64)];
    let mut pair = Pair::new(rig.net(1, options(64)), rig.net(2, options(64)), frames);
    Ok(Box::new(move |more| {
        let until = pair.got + more;
        while pair.got < until {
            pair.turn(32, until);
        }
        Ok(())
    }))
}

/// Creates two ports with a connection.
fn packets(rig: &Rig) -> Result<Cross, String> {
    let mut packets = Packets::new(rig, 1)?;
    Ok(Box::new(move |more| packets.send(more)))
}

/// Returns the victims' rate during an attack, as a share of their rate without. Phases alternate
/// many times a run: on a machine with cores that move, each rate varies by more than any attack
/// costs.
fn share(
    effort: &Effort,
    victims: fn(&Rig) -> Result<Cross, String>,
    make: Make,
    group: &str,
) -> Result<Vec<f64>, String> {
    let rig = Rig::new(Duration::from_millis(100));
    if group != GROUP {
        rig.group(group);
    }
    let mut cross = victims(&rig)?;
    let mut attack = make(&rig, group)?;
    let phases = (effort.rounds(20_000_000) / PHASE).max(4);
    let (stop, attacked) = (AtomicBool::new(false), AtomicBool::new(false));
    let steps = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(attackers_core());
            while !stop.load(Ordering::Relaxed) {
                if attacked.load(Ordering::Relaxed) {
                    steps.fetch_add(u64::from(attack()), Ordering::Relaxed);
                } else {
                    (0..1000).for_each(|_| std::hint::spin_loop());
                }
            }
        });
        let mut took = |count: u64| {
            let since = thread_s();
            cross(count).map(|()| thread_s() - since)
        };
        let warm = took(PHASE);
        let shares = effort.each(|| {
            let mut seconds = [0.0; 2];
            for phase in 0..phases {
                let now = phase % 2 == 1;
                attacked.store(now, Ordering::Relaxed);
                took(SETTLE)?;
                seconds[usize::from(now)] += took(PHASE - SETTLE)?;
            }
            let [alone, with] = seconds;
            match steps.swap(0, Ordering::Relaxed) {
                0 => Err("no step of the attack reached the daemon".into()),
                _ => Ok(alone / with),
            }
        });
        stop.store(true, Ordering::Relaxed);
        warm.and(shares)
    })
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let plan = |name: String, victims, attack, group| {
        Plan::new(name, "of peace", Guest::Native, move |e| share(e, victims, attack, group))
            .aim(Against::Figure, 0.95)
            .note(
                "Share of the victims' rate without an attack; both are measured alternately in the \
                 same run. Rates are per processor time of the victims' own thread, which polls.",
            )
    };
    let mut plans = Vec::new();
    for (what, attack) in attacks::ALL {
        let name = format!("victims' 64 B frames while a neighbour {what}");
        plans.push(plan(name, frames, attack, GROUP));
    }
    for (what, attack) in attacks::ALL {
        let name = format!("victims' 64 B socket packets while a neighbour {what}");
        let victims: fn(&Rig) -> Result<Cross, String> = packets;
        plans.push(plan(name, victims, attack, attacks::OTHERS));
    }
    plans
}
