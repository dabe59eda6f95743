//! Shared memory that the kernel charges to this process.
//!
//! If the process has its own control group (cgroup v2, and not the root group), `shmem` in the
//! group's `memory.stat` is the figure; other programs of Causeway may be in the group. In a group
//! with foreign processes that figure includes their memory; then the memory that this process has
//! mapped and touched is used: an upper bound, which includes pages charged to others.
//!
//! A separate thread, which [`Fabric::start`](crate::Fabric::start) starts once in a process, reads
//! the figure every [`FOOTPRINT_SAMPLE_NS`] (100 ms), because the kernel may take milliseconds to
//! sum it up; it reads only if a dispatcher asked since the last sample. [`crate::footprint`] uses
//! the figure to bound the charge of a port. The first answer after a pause is old, and the answer
//! before the first sample is 0. If the kernel's files cannot be read, the last figure stays.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::limits::{FOOTPRINT_MAX_DEFAULT, FOOTPRINT_PART, FOOTPRINT_SAMPLE_NS};

/// Last sample, in bytes.
static CHARGED: AtomicU64 = AtomicU64::new(0);
/// Set by readers since the last sample.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Default limit of a port; `None`: no limit.
static DEFAULT: OnceLock<Option<u64>> = OnceLock::new();

/// Returns the last sample, in bytes, and requests the next. The sample is some tenths of a second
/// old if the last call was as recent, and older after a pause.
pub(crate) fn charged_bytes() -> u64 {
    WANTED.store(true, Ordering::Relaxed);
    CHARGED.load(Ordering::Relaxed)
}

/// Returns the default limit of a port, in bytes: 1 GiB ([`FOOTPRINT_MAX_DEFAULT`]), or a quarter
/// of the control group's `memory.max` if that is less. `None`: no limit, because the figure of
/// this process is not exact, or before [`start_sampling`].
pub(crate) fn default_max() -> Option<u64> {
    *DEFAULT.get()?
}

/// Starts the sampling thread, once in a process.
///
/// # Errors
/// The host refuses a thread.
pub(crate) fn start_sampling() -> std::io::Result<()> {
    let mut first = false;
    DEFAULT.get_or_init(|| {
        first = true;
        let group = own_group()?;
        let limit = std::fs::read_to_string(group.join("memory.max")).ok();
        let limit = limit.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(u64::MAX);
        Some(limit.checked_div(FOOTPRINT_PART).unwrap_or(0).min(FOOTPRINT_MAX_DEFAULT))
    });
    if !first {
        return Ok(());
    }
    let sample = || {
        let group = own_group();
        loop {
            if WANTED.swap(false, Ordering::Relaxed)
                && let Some(bytes) = figure(group.as_deref())
            {
                CHARGED.store(bytes, Ordering::Relaxed);
            }
            thread::sleep(Duration::from_nanos(FOOTPRINT_SAMPLE_NS));
        }
    };
    thread::Builder::new().name("causeway-memory".into()).spawn(sample).map(drop)
}

/// Reads the figure of the control group, or of the process without a group; in bytes.
fn figure(group: Option<&Path>) -> Option<u64> {
    match group {
        Some(group) => shmem(&std::fs::read_to_string(group.join("memory.stat")).ok()?),
        None => shared(&std::fs::read_to_string("/proc/self/statm").ok()?),
    }
}

/// Returns the control group of this process if it counts memory and holds no foreign process.
fn own_group() -> Option<PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // The root group counts the whole host.
    if path.is_empty() {
        return None;
    }
    let group = Path::new("/sys/fs/cgroup").join(path);
    shmem(&std::fs::read_to_string(group.join("memory.stat")).ok()?)?;
    let processes = std::fs::read_to_string(group.join("cgroup.procs")).ok()?;
    processes.lines().all(is_ours).then_some(group)
}

/// Returns whether a process is this process or belongs to another program of Causeway.
fn is_ours(pid: &str) -> bool {
    let program = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    pid.parse() == Ok(std::process::id())
        || program(pid).is_some_and(|name| name.starts_with("causeway"))
}

/// Parses the figure of a group's `memory.stat`, in bytes.
fn shmem(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("shmem "))?.trim().parse().ok()
}

/// Parses the figure of `/proc/self/statm`, which is in pages, and returns bytes.
fn shared(statm: &str) -> Option<u64> {
    let pages: u64 = statm.split_whitespace().nth(2)?.parse().ok()?;
    pages.checked_mul(u64::try_from(rustix::param::page_size()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charged_figures_are_read() {
        assert_eq!(shmem("anon 5\nfile 9\nshmem 4096\nshmem_thp 7\n"), Some(4096));
        assert_eq!(shmem("anon 5\n"), None);
        let page = rustix::param::page_size() as u64;
        assert_eq!(shared("900 70 3 4 0 5 0\n"), Some(3 * page));
        assert!(figure(None).is_some());
        assert!(is_ours(&std::process::id().to_string()) && !is_ours("1"));
    }
}
