//! Every limit of the guest harness, in one place.
//!
//! The modules of the crate read these constants; a limit that ends is an error of the test
//! ([`crate::Error`]). `CAUSEWAY_PATIENCE` (1 to 100; another number counts as the nearest, another
//! text as 1) multiplies the time limits of guests, their commands and RDMA devices, and of the
//! daemon's start ([`patient`]), for a busy machine or slow emulation; nothing else can be
//! configured.
//!
//! `guest` and `accel` read the times of a boot, `daemon` and `namespace` those of their
//! processes, `rdma` and `monitor` their own, `console` the lines that it keeps (older lines, and
//! the rest of a longer line, are dropped), in the thread of the test, which blocks meanwhile. A
//! KVM trial that fails is no error: emulation is used.

use std::sync::OnceLock;
use std::time::Duration;

/// Names a factor of all time limits of guests and their commands, for a busy machine.
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
/// Time limit of causewayd's shutdown.
pub const DAEMON_STOP: Duration = Duration::from_secs(5);
/// Time limit of a network namespace's creation or removal.
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
/// Time limit until the driver has set up an RDMA device and its port is active.
pub const RDMA_DEVICE: Duration = Duration::from_secs(40);
/// Time limit until a server program in a guest listens.
pub const LISTENING: Duration = Duration::from_secs(20);
/// Time limit of an answer of QEMU's monitor, and of a migration.
pub const MONITOR: Duration = Duration::from_secs(60);
