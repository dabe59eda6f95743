//! Limits of the guest harness that several modules or tests share; limits of a single module, such
//! as those of `bridge` and of programs in guests, stand in that module.
//!
//! Most waits that exceed a limit are errors ([`crate::Error`]); a KVM trial that fails selects
//! emulation, and a daemon that does not stop in time is killed. `CAUSEWAY_PATIENCE` (1 to 100;
//! another number counts as the nearest, another text as 1) multiplies the time limits of boots and
//! of commands in guests, of RDMA devices, servers and exchanges with kills, and of the daemon's
//! start ([`patient`]), for a busy machine or slow emulation; no other limit can be configured.
//!
//! `guest` and `accel` read the times of a boot, `daemon` and `namespace` those of their
//! processes, `rdma` and `monitor` their own, `console` the lines that it keeps (older lines, and
//! the rest of a longer line, are dropped).

use std::sync::OnceLock;
use std::time::Duration;

/// Names a factor of time limits, for a busy machine.
const PATIENCE: &str = "CAUSEWAY_PATIENCE";

/// Returns a time limit, multiplied by the number in `CAUSEWAY_PATIENCE` (1 to 100, default 1).
#[must_use]
pub fn patient(limit: Duration) -> Duration {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    let read = || std::env::var(PATIENCE).ok()?.parse().ok();
    limit.saturating_mul(*FACTOR.get_or_init(|| read().unwrap_or(1).clamp(1, 100)))
}

/// Time limit of a guest's boot, under emulation and with other guests running.
pub const BOOT: Duration = Duration::from_secs(120);
/// Time limit of the KVM trial.
pub const KVM_TRY: Duration = Duration::from_secs(15);
/// Time limit for the first console line of a kernel under KVM.
pub const KVM_FIRST_LINE: Duration = Duration::from_secs(5);
/// Time limit until all sockets of causewayd exist.
pub const DAEMON_READY: Duration = Duration::from_secs(15);
/// Time limit of causewayd's shutdown, after which it is killed.
pub const DAEMON_STOP: Duration = Duration::from_secs(5);
/// Time limit of a network namespace's creation.
pub const NAMESPACE_READY: Duration = Duration::from_secs(10);
/// Time allowed for the reply to a command beyond the command's own limit.
pub const REPLY_SLACK: Duration = Duration::from_secs(20);
/// Polling interval of waits.
pub const CHECK: Duration = Duration::from_millis(10);
/// Lines of a console or log kept for errors.
pub const TAIL_LINES: usize = 60;
/// Longest console line kept, in bytes.
pub const TAIL_LINE_BYTES: usize = 512;
/// Default memory of a guest, in MiB.
pub const GUEST_MIB: u32 = 192;
/// Memory of a guest with an RDMA device, in MiB: the initramfs holds the RDMA programs, and the
/// driver's queues need memory too.
pub const RDMA_GUEST_MIB: u32 = 512;
/// Time limit until the driver has set up an RDMA device and its port is active, or has recovered
/// the device.
pub const RDMA_DEVICE: Duration = Duration::from_secs(40);
/// Time limit until a server program in a guest listens.
pub const LISTENING: Duration = Duration::from_secs(20);
/// Time limit of QEMU's silence on its monitor, of the wait for the monitor's socket, and of a
/// migration.
pub const MONITOR: Duration = Duration::from_secs(60);
