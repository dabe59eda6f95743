//! Containment: what two ports of one group lose while another port attacks, which
//! is beside frames one of their own group and shard, and beside sockets one of
//! another group. With a dispatcher for both, either way.
//!
//! The victims' rate is counted by the processor time of their own thread, which
//! polls: time in which the dispatcher serves the attacker is time in which they
//! poll in vain. So an attacker that shares their core, for want of a third one,
//! does not count as an attack by itself; in peace it only burns time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::attacks::{self, Make};
use super::ethernet::{Pair, frame, options};
use super::scale::Packets;
use crate::effort::Effort;
use crate::pin::{CLIENT, SERVER, pin};
use crate::rig::{GROUP, Rig, mac};
use crate::row::{Against, Guest, Plan};

/// Processor time of this thread, in seconds.
pub(super) fn thread_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The core of attackers: a third one where there is one.
pub(super) fn attackers_core() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores > 2 {
        (0..).find(|core| ![CLIENT, SERVER].contains(core)).unwrap_or(CLIENT)
    } else {
        CLIENT
    }
}

/// Frames between two changes from peace to attack or back, and how many of them do not count:
/// until the change has taken effect.
const PHASE: u64 = 250_000;
const SETTLE: u64 = 25_000;

/// Has so many frames, or packets, cross between two victims.
type Cross = Box<dyn FnMut(u64) -> Result<(), String>>;

/// Two ports that exchange frames.
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

/// Two ports with a connection.
fn packets(rig: &Rig) -> Result<Cross, String> {
    let mut packets = Packets::new(rig, 1)?;
    Ok(Box::new(move |more| packets.send(more)))
}

/// The victims' rate while an attack goes on, as a share of their rate without. Both are taken in
/// turn, many times a run: a machine whose cores move changes either rate by more than any attack.
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
                "A share of the victims' rate in peace, taken in turn with it in the same run; \
                 rates are by the processor time of the victims' own thread, which polls.",
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
