//! Rows of the bare KVM guest: frames through rings in a memory slot, and the cost of a doorbell
//! with a VM exit.
//!
//! The guest (`crate::bare`) runs in a process of its own and is attached to two ports of the rig's
//! dispatcher, which polls on the other core. The doorbell is compared with that of a process (a
//! write to an eventfd). Where /dev/kvm is missing or cannot run the guest, the rows are left out
//! with the reason; each answer may take 20 s. The guest writes and reads 8 bytes of each frame; a
//! frame that the dispatcher drops stops it until an answer is overdue.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::bare::Bare;
use crate::effort::Effort;
use crate::rig::{GROUP, Rig};
use crate::row::{Guest, Plan};

/// Starts a dispatcher with two ports, and the guest on them.
fn guest() -> Result<(Rig, Bare), String> {
    let rig = Rig::new(Duration::from_millis(100));
    let (a, b) = (rig.idle_net(GROUP, 1, false), rig.idle_net(GROUP, 2, false));
    let bare = Bare::start([&a, &b])?;
    Ok((rig, bare))
}

/// 64 B frames per second, in millions.
fn mpps(effort: &Effort, burst: u64) -> Result<Vec<f64>, String> {
    let (_rig, mut bare) = guest()?;
    let count = effort.rounds(3_000_000);
    bare.frames_s(count / 10 + 1, burst)?;
    effort.each(|| Ok(count as f64 / bare.frames_s(count, burst)? / 1e6))
}

/// Cost of a guest's doorbell, in microseconds.
fn bell_us(effort: &Effort) -> Result<Vec<f64>, String> {
    let (_rig, mut bare) = guest()?;
    let count = effort.rounds(100_000);
    effort.each(|| Ok(bare.bells_s(count)? * 1e6 / count as f64))
}

/// Cost of a process's doorbell, in microseconds.
fn write_us(effort: &Effort) -> Result<Vec<f64>, String> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| e.to_string())?;
    let count = effort.rounds(1_000_000);
    effort.each(|| {
        let since = Instant::now();
        for _ in 0..count {
            rustix::io::write(bell.as_fd(), &1_u64.to_ne_bytes()).map_err(|e| e.to_string())?;
        }
        Ok(since.elapsed().as_secs_f64() * 1e6 / count as f64)
    })
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for burst in [1, 4, 32] {
        let name = format!("Ethernet frames of a bare guest, 64 B, burst {burst}");
        let plan = Plan::new(name, "Mpps", Guest::BareKvm, move |e| mpps(e, burst));
        plans.push(plan.at("bare-burst", burst as usize).note(
            "One virtual processor drives both ports, in 64-bit user mode without a kernel; \
             it polls and takes no interrupts.",
        ));
    }
    let bell = Plan::new("doorbell of a bare guest", "us", Guest::BareKvm, bell_us);
    plans.push(bell.beside("eventfd write", write_us));
    plans
}
