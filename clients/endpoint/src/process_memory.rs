//! Access to the memory of other processes, where the kernel permits it.
//!
//! The daemon names the process of a peer, by a process descriptor; the peer cannot. The process
//! number is read from the descriptor. After a read, the descriptor shows whether the process still
//! lives, so that its number was not reused meanwhile. Before a write it shows the same for that
//! moment; a number is reused only after all other numbers, which takes longer than a copy. The
//! kernel decides the rest: same user, no more rights than this process, both dumpable
//! (`PR_SET_DUMPABLE`), and Yama. With `ptrace_scope` 1, only a process's ancestors may read it,
//! unless it permits more (`PR_SET_PTRACER`). The application may do so; this library never does,
//! and the ranks of a job use the channel then.
//!
//! The daemon names the process that connected to it; a child has none of its parent's endpoints. A
//! process that executes another program ends its endpoints, and its peers notice a moment later.
//! Until then they read memory of the new program, which they may read anyway; and they write to
//! addresses of the old program, within a bound ([cooperative copy](causeway_message::library)). A
//! program must not execute another program while it receives.
//!
//! `CAUSEWAY_DIRECT=0` in the environment disables both directions for a process.
//!
//! # Place
//! `paths::control` creates a [`ProcessMemory`] for a new channel if the daemon sent a process
//! descriptor. [`Channels`](causeway_message::library::Channels) reads and writes through it, in
//! the thread that makes progress, and decides which messages are long enough. A call copies at
//! most [`DIRECT_PLACES_MAX`] (8) ranges and may copy fewer bytes than requested, also none: where
//! an address is not mapped, or after a signal. [`Inaccessible`] means that the kernel refuses or
//! the process has ended: after a refused read the channel carries the messages of this peer from
//! then on, after a refused write the receiver reads the message alone.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Instant;

use causeway_message::library::{Inaccessible, RemoteMemory, RemoteRange};
use causeway_message::limits::DIRECT_PLACES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Returns whether direct access is enabled in this process.
pub fn is_wanted() -> bool {
    std::env::var_os("CAUSEWAY_DIRECT").is_none_or(|value| value != "0")
}

/// The memory of another process.
#[derive(Debug)]
pub struct ProcessMemory {
    /// Process number, valid while `process` shows a living process.
    pid: libc::pid_t,
    /// Process descriptor (pidfd).
    process: OwnedFd,
    /// Origin of [`RemoteMemory::now_ns`].
    start: Instant,
}

impl ProcessMemory {
    /// Returns the memory of a process, or `None` if the process is invisible or has ended, or
    /// direct access is disabled.
    pub fn of(process: OwnedFd) -> Option<Self> {
        let info = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
        let pid = pid_in(&std::fs::read_to_string(info).ok()?)?;
        is_wanted().then(|| Self { pid, process, start: Instant::now() })
    }
}

/// Parses the process number in the `fdinfo` of a process descriptor.
fn pid_in(info: &str) -> Option<libc::pid_t> {
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    // 0: outside this process namespace. -1: ended.
    pid.trim().parse().ok().filter(|pid| *pid > 0)
}

/// Converts ranges for the kernel; `None` for invalid ranges.
fn vectors(places: &[RemoteRange]) -> Option<([libc::iovec; DIRECT_PLACES_MAX], usize)> {
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut remote = [nothing; DIRECT_PLACES_MAX];
    for (vector, place) in remote.iter_mut().zip(places) {
        vector.iov_base = std::ptr::without_provenance_mut(usize::try_from(place.at).ok()?);
        vector.iov_len = usize::try_from(place.len).ok()?;
    }
    Some((remote, places.len().min(remote.len())))
}

/// Converts the kernel's result of a copy.
fn copied(bytes: libc::ssize_t) -> Result<usize, Inaccessible> {
    let error = std::io::Error::last_os_error().raw_os_error();
    match usize::try_from(bytes) {
        Ok(bytes) => Ok(bytes),
        Err(_) if matches!(error, Some(libc::EFAULT | libc::ENOMEM | libc::EINTR)) => Ok(0),
        Err(_) => Err(Inaccessible),
    }
}

impl RemoteMemory for ProcessMemory {
    fn read(&self, from: &[RemoteRange], into: &mut [u8]) -> Result<usize, Inaccessible> {
        let Some((remote, count)) = vectors(from) else { return Ok(0) };
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let (remote, count) = (remote.as_ptr(), count as libc::c_ulong);
        // SAFETY: only `into` is written, which this function borrows exclusively. The read memory
        // is the other process's; the kernel checks its addresses. Both lists outlive the call.
        copied(unsafe { libc::process_vm_readv(self.pid, &local, 1, remote, count, 0) })
    }

    fn write(&self, to: &[RemoteRange], from: &[u8]) -> Result<usize, Inaccessible> {
        let Some((remote, count)) = vectors(to) else { return Ok(0) };
        let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
        let (remote, count) = (remote.as_ptr(), count as libc::c_ulong);
        // SAFETY: `from` is only read. The written memory is the other process's, at the addresses
        // that it sent; the kernel checks them. Both lists outlive the call.
        copied(unsafe { libc::process_vm_writev(self.pid, &local, 1, remote, count, 0) })
    }

    fn lives(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.process, PollFlags::IN)], Some(&now)) == Ok(0)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    fn own() -> Option<ProcessMemory> {
        ProcessMemory::of(pidfd_open(getpid(), PidfdFlags::empty()).unwrap())
    }

    #[test]
    fn process_memory_invisible_process_has_no_number() {
        assert_eq!(pid_in("pos:\t0\nPid:\t77\nNSpid:\t77\n"), Some(77));
        for info in ["Pid:\t0\n", "Pid:\t-1\n", "Pid:\t\n", "NSpid:\t77\n", "pos:\t0\n", ""] {
            assert_eq!(pid_in(info), None, "{info:?}");
        }
    }

    #[test]
    fn process_memory_needs_a_living_process() {
        let file = rustix::fs::memfd_create("t", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(ProcessMemory::of(file).is_none());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let memory = ProcessMemory::of(process.try_clone().unwrap()).expect("it is not waited for");
        child.wait().unwrap();
        assert!(ProcessMemory::of(process).is_none(), "it ended");
        let place = [RemoteRange { at: 4096, len: 1 }];
        assert!(!memory.lives());
        assert_eq!(memory.read(&place, &mut [0]), Err(Inaccessible));
        assert_eq!(memory.write(&place, &[0]), Err(Inaccessible));
    }

    #[test]
    fn process_memory_writes_the_ranges_only() {
        let memory = own().unwrap();
        assert!(memory.lives());
        let mut into = [[b'.'; 8]; 2];
        let places = into
            .each_mut()
            .map(|bytes| RemoteRange { at: bytes.as_mut_ptr().expose_provenance() as u64, len: 6 });
        assert_eq!(memory.write(&places, b"first second"), Ok(12));
        assert_eq!(std::hint::black_box(&mut into), &[*b"first ..", *b"second.."]);
        let nowhere = RemoteRange { at: 16, len: 6 };
        assert_eq!(memory.write(&[nowhere], b"nobody"), Ok(0));
        assert_eq!(memory.write(&[RemoteRange { at: u64::MAX, len: 1 }], b"x"), Ok(0));
        // Read-only memory.
        let text = RemoteRange { at: (own as fn() -> _ as usize) as u64, len: 6 };
        assert_eq!(memory.write(&[text], b"nobody"), Ok(0));
    }

    #[test]
    fn process_memory_reads_the_ranges_only() {
        let memory = own().unwrap();
        let (one, two) = (*b"first ", *b"second");
        let place = |bytes: &[u8]| RemoteRange {
            at: bytes.as_ptr().addr() as u64,
            len: bytes.len() as u64,
        };
        let mut into = [0; 12];
        assert_eq!(memory.read(&[place(&one), place(&two)], &mut into), Ok(12));
        assert_eq!(&into, b"first second");
        // The first page is never mapped.
        let nowhere = RemoteRange { at: 16, len: 6 };
        assert_eq!(memory.read(&[nowhere], &mut into[..6]), Ok(0));
        assert_eq!(memory.read(&[place(&one), nowhere], &mut into), Ok(6));
        assert_eq!(memory.read(&[RemoteRange { at: u64::MAX, len: 12 }], &mut into), Ok(0));
        assert_eq!(&into[6..], b"second");
    }
}
