//! Every bound of the tool, in one place.

use std::time::Duration;

/// Bytes of one reply of the daemon: more than every port that it may have, shown in full.
pub const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Headers of one reply.
pub const REPLY_HEADERS_MAX: usize = 32;
/// Seconds to wait for the daemon unless told otherwise.
pub const TIMEOUT_S_DEFAULT: u64 = 10;
/// Longest such wait, and longest time between two reports of `stats`: a day.
pub const SECONDS_MAX: u64 = 86_400;
/// Bytes of a file that is sent to the daemon.
pub const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Bytes of a key's file: a key, its line's end, and some blanks.
pub const KEY_FILE_BYTES_MAX: u64 = 256;
/// How long `qemu-system-… --version` may take: it reads no file of a guest, and loads its libraries.
pub const QEMU_VERSION_TIME_MAX: Duration = Duration::from_secs(5);
/// How often its end is checked.
pub const QEMU_VERSION_CHECK: Duration = Duration::from_millis(5);
/// Bytes of its output that are read: the version stands in the first line.
pub const QEMU_VERSION_BYTES_MAX: u64 = 4096;
