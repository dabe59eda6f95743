//! The machine and the date of a run, for plots and tables.
//!
//! `report` calls both functions once, before the first row, in the benchmark's main thread.
//! Neither fails: an unknown processor is named so, and a text that cannot be read is empty. The
//! date is that of the program `date`, in the local time zone; the call waits for the program, at
//! most 5 minutes ([`run`]).

use std::process::Command;

use crate::peers::process::run;

/// Returns the processor, the number of cores that this process may use, whether the machine is a
/// virtual one, and the release of the kernel.
pub fn describe() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, name)| name);
    let cores = crate::pin::cores();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let hypervisor = if info.contains(" hypervisor") { ", in a virtual machine" } else { "" };
    format!("{model}, {cores} cores{hypervisor}; Linux {}", kernel.trim())
}

/// Returns the date, as 2026-01-31.
pub fn date() -> String {
    let said = run(Command::new("date").arg("+%Y-%m-%d")).unwrap_or_default();
    said.trim().to_owned()
}
