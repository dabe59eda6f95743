//! How much shared memory the kernel charges to this process.
//!
//! Where the process has a control group of its own (cgroup v2), the group's `shmem` says it. In a
//! group with other processes that figure contains their memory, too, and then what this process
//! has mapped and touched serves: it is never less, but contains pages that others paid for.
//!
//! A thread reads it: the kernel may take milliseconds to add the group's figures up.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::limits::{FOOTPRINT_LOOK_NS, FOOTPRINT_MAX_DEFAULT, FOOTPRINT_PART};

static CHARGED: AtomicU64 = AtomicU64::new(0);
/// Somebody asked since the thread last looked.
static WANTED: AtomicBool = AtomicBool::new(false);
/// What a port may have this process pay for unless the operator says; `None`: any amount.
static DEFAULT: OnceLock<Option<u64>> = OnceLock::new();

/// Returns the last figure, in bytes. It is at most some tenths of a second old from the second call
/// on.
pub(crate) fn charged() -> u64 {
    WANTED.store(true, Ordering::Relaxed);
    CHARGED.load(Ordering::Relaxed)
}

/// Returns the bytes that a port may have this process pay for unless the operator says; `None`: any
/// amount, because the figure of this process is not exact.
pub(crate) fn default_max() -> Option<u64> {
    *DEFAULT.get()?
}

/// Starts the thread, once in a process.
///
/// # Errors
/// The host refuses a thread.
pub(crate) fn watch() -> std::io::Result<()> {
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
    let look = || {
        let group = own_group();
        loop {
            if WANTED.swap(false, Ordering::Relaxed)
                && let Some(bytes) = figure(group.as_deref())
            {
                CHARGED.store(bytes, Ordering::Relaxed);
            }
            thread::sleep(Duration::from_nanos(FOOTPRINT_LOOK_NS));
        }
    };
    thread::Builder::new().name("causeway-memory".into()).spawn(look).map(drop)
}

fn figure(group: Option<&Path>) -> Option<u64> {
    match group {
        Some(group) => shmem(&std::fs::read_to_string(group.join("memory.stat")).ok()?),
        None => shared(&std::fs::read_to_string("/proc/self/statm").ok()?),
    }
}

/// The control group of this process, if it counts memory and all its processes are ours.
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

/// Whether a process is this one or another of this program's.
fn is_ours(pid: &str) -> bool {
    let program = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    pid.parse() == Ok(std::process::id())
        || program(pid).is_some_and(|name| name.starts_with("causeway"))
}

/// The figure in a group's `memory.stat`, in bytes.
fn shmem(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("shmem "))?.trim().parse().ok()
}

/// The figure in `/proc/self/statm`, in pages there.
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
