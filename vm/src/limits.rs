//! Every limit of the guest harness, in one place.

use std::time::Duration;

/// How long a guest may take to boot, emulated and with other guests beside it.
pub const BOOT: Duration = Duration::from_secs(120);
/// How long the try of KVM may take in all.
pub const KVM_TRY: Duration = Duration::from_secs(15);
/// A kernel that KVM can run prints its first line well within this time.
pub const KVM_FIRST_LINE: Duration = Duration::from_secs(5);
/// How long causewayd may take until all its sockets exist.
pub const DAEMON_READY: Duration = Duration::from_secs(15);
/// How long causewayd may take to end when asked.
pub const DAEMON_STOP: Duration = Duration::from_secs(5);
/// How long a network namespace may take to be there, or to be gone.
pub const NAMESPACE_READY: Duration = Duration::from_secs(10);
/// How long beyond its own time limit the reply to a command may take.
pub const REPLY_SLACK: Duration = Duration::from_secs(20);
/// How often waiting code looks again.
pub const CHECK: Duration = Duration::from_millis(10);
/// Lines kept of a console or log, for errors.
pub const TAIL_LINES: usize = 60;
/// Longest console line kept, in bytes.
pub const TAIL_LINE_BYTES: usize = 512;
/// Memory of a guest, in MiB, unless its spec says otherwise.
pub const GUEST_MIB: u32 = 192;
