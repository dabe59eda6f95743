//! What a daemon costs that has nothing to do.

use std::time::Duration;

use causeway_attach::native::VsockOptions;

use crate::rig::Rig;

/// Processor time of this process so far, in seconds.
fn busy_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    // utime and stime are fields 14 and 15 of the whole line; a tick is 10 ms on Linux.
    (ticks(11) + ticks(12)) / 100.0
}

/// Processor time of 100 attached ports without traffic, in percent of one core.
pub fn hundred_ports_percent() -> f64 {
    const PORTS: u32 = 100;
    let rig = Rig::new(Duration::from_micros(20));
    let ports: Vec<_> = (0..PORTS).map(|i| rig.vsock(i + 3, VsockOptions::default())).collect();
    std::thread::sleep(Duration::from_millis(300));
    let start = busy_s();
    std::thread::sleep(Duration::from_secs(3));
    let percent = (busy_s() - start) / 3.0 * 100.0;
    drop(ports);
    percent
}
