//! What a daemon costs that has nothing to do.

use std::time::Duration;

use causeway_attach::native::{VsockOptions, VsockPort};

use crate::effort::Effort;
use crate::inner::Daemon;
use crate::row::{Against, Guest, Plan};

const PORTS: u32 = 100;

fn attach(daemon: &mut Daemon) -> Result<Vec<VsockPort>, String> {
    let attach = |i: u32| {
        let path = daemon.vsock(i + 3)?;
        VsockPort::attach(&path, VsockOptions::default()).map_err(|e| e.to_string())
    };
    (0..PORTS).map(attach).collect()
}

/// Processor time of 100 attached ports without traffic, in percent of one core.
fn percent(effort: &Effort) -> Result<Vec<f64>, String> {
    let mut daemon = Daemon::start()?;
    let ports = attach(&mut daemon)?;
    let time = effort.time(Duration::from_secs(3));
    std::thread::sleep(Duration::from_millis(500));
    let percents = effort.each(|| {
        let before = daemon.usage()?.busy_ns;
        std::thread::sleep(time);
        let ran = daemon.usage()?.busy_ns.saturating_sub(before);
        Ok(ran as f64 / time.as_nanos() as f64 * 100.0)
    });
    drop(ports);
    percents
}

/// What each of 100 attached ports without traffic adds to the daemon's resident memory, in MiB.
fn memory_mib(effort: &Effort) -> Result<Vec<f64>, String> {
    effort.each(|| {
        let mut daemon = Daemon::start()?;
        // The first command makes what is there once.
        daemon.vsock(2 + PORTS + 1)?;
        let before = daemon.usage()?.resident_kib;
        let ports = attach(&mut daemon)?;
        std::thread::sleep(Duration::from_millis(200));
        let added = daemon.usage()?.resident_kib.saturating_sub(before);
        drop(ports);
        Ok(added as f64 / 1024.0 / f64::from(PORTS))
    })
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let time = Plan::new("processor time of 100 idle ports", "%", Guest::Native, percent);
    let memory = Plan::new("memory of an idle port, of 100", "MiB", Guest::Native, memory_mib);
    let whole = "Resident memory of the daemon's process, with what it touched of the guests'.";
    vec![time.aim(Against::Figure, 0.1), memory.aim(Against::Figure, 1.0).note(whole)]
}
