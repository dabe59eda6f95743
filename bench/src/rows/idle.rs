//! Costs of an idle daemon.
//!
//! The rows attach 100 guests without traffic to a daemon in a process of its own
//! ([`crate::inner`]), and sample its processor time and resident memory. Attached guests are
//! native frontends in the benchmark's process that sleep. A sample of the processor time takes 3
//! s; the first follows half a second of rest. A port that the daemon refuses fails the row.
//! Adapters have rows of their own (`rdma::idle`).

use std::time::Duration;

use causeway_attach::native::{NetPort, VsockOptions, VsockPort};

use super::ethernet::options;
use crate::effort::Effort;
use crate::inner::Daemon;
use crate::row::{Against, Guest, Plan};

const PORTS: u8 = 100;

/// Idle guests.
type Guests = Vec<Box<dyn std::any::Any>>;
/// Attaches a guest to a new port of this number.
type Attach = fn(&mut Daemon, u8) -> Result<Box<dyn std::any::Any>, String>;

/// Attaches an idle guest to a new vsock port.
fn socket(daemon: &mut Daemon, number: u8) -> Result<Box<dyn std::any::Any>, String> {
    let path = daemon.vsock(u32::from(number) + 3)?;
    let port = VsockPort::attach(&path, VsockOptions::default()).map_err(|e| e.to_string())?;
    Ok(Box::new(port))
}

/// Attaches an idle guest to a new net port.
fn net(daemon: &mut Daemon, number: u8) -> Result<Box<dyn std::any::Any>, String> {
    let port = NetPort::attach(&daemon.net(number)?, options(64)).map_err(|e| e.to_string())?;
    Ok(Box::new(port))
}

/// Attaches 100 guests.
fn all(daemon: &mut Daemon, attach: Attach) -> Result<Guests, String> {
    (1..=PORTS).map(|number| attach(daemon, number)).collect()
}

/// Processor time of 100 attached ports without traffic, in percent of one core.
fn percent(effort: &Effort, attach: Attach) -> Result<Vec<f64>, String> {
    let mut daemon = Daemon::start()?;
    let ports = all(&mut daemon, attach)?;
    let percents = busy_percent(&mut daemon, effort);
    drop(ports);
    percents
}

/// Samples the processor time of a daemon that has nothing to do, in percent of one core.
pub(super) fn busy_percent(daemon: &mut Daemon, effort: &Effort) -> Result<Vec<f64>, String> {
    let time = effort.time(Duration::from_secs(3));
    std::thread::sleep(Duration::from_millis(500));
    effort.each(|| {
        let before = daemon.usage()?.busy_ns;
        std::thread::sleep(time);
        let ran = daemon.usage()?.busy_ns.saturating_sub(before);
        Ok(ran as f64 / time.as_nanos() as f64 * 100.0)
    })
}

/// Resident memory that 100 attached ports without traffic add to the daemon, for each of them, in
/// MiB.
fn memory_mib(effort: &Effort, attach: Attach) -> Result<Vec<f64>, String> {
    effort.each(|| {
        let mut daemon = Daemon::start()?;
        // The first command causes the allocations that are independent of the number of ports.
        daemon.vsock(u32::from(PORTS) + 4)?;
        daemon.net(PORTS + 1)?;
        let before = daemon.usage()?.resident_kib;
        let ports = all(&mut daemon, attach)?;
        std::thread::sleep(Duration::from_millis(200));
        let added = daemon.usage()?.resident_kib.saturating_sub(before);
        drop(ports);
        Ok(added as f64 / 1024.0 / f64::from(PORTS))
    })
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let kinds: [(&str, Attach); 2] = [("socket", socket), ("Ethernet", net)];
    let plans = kinds.map(|(kind, attach)| {
        let time = move |e: &Effort| percent(e, attach);
        let memory = move |e: &Effort| memory_mib(e, attach);
        let whole = "Resident memory of the daemon's process, with touched pages of the guests.";
        [
            Plan::new(format!("processor time of 100 idle {kind} ports"), "%", Guest::Native, time)
                .aim(Against::Figure, 0.1),
            Plan::new(
                format!("memory of an idle {kind} port, of 100"),
                "MiB",
                Guest::Native,
                memory,
            )
            .aim(Against::Figure, 1.0)
            .note(whole),
        ]
    });
    plans.into_iter().flatten().collect()
}
