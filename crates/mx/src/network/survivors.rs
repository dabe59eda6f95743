//! Endpoints that survive the daemon.
//!
//! Endpoints in direct mode (their processes run the NIC side on a packet socket) continue while
//! the daemon is away. The next daemon must not assign their numbers, and must not refuse packets
//! in their name. The same applies for `SERVED_AWAITED_NS` (60 s) to endpoints that the daemon
//! served, until their processes resume them; their lock files have other names.
//!
//! Each such endpoint has a lock file beside the socket of its NIC. The daemon locks the file and
//! passes the descriptor to the process, which holds it as long as it has the endpoint. A locked
//! file means a live endpoint for any daemon; a file without a lock is removed, and a file that
//! cannot be opened counts as locked, except a symbolic link. After the 60 s the numbers of served
//! endpoints are free, and packets to them are refused; a process can still resume its number until
//! it is assigned anew.
//!
//! Ended endpoints are found at intervals of [`SURVIVORS_CHECK_NS`] (250 ms), so a number is free
//! again with that delay. The lock vouches for a live process, not for a correct one. If a lock
//! file cannot be locked, the endpoint is not opened in direct mode, and the daemon serves it; a
//! served endpoint without a lock file is opened nevertheless, and not waited for after a restart.
//! This module keeps no state of connections; processes do. Called by `mx::network` at the creation
//! of a NIC, at opens and closes of host processes' endpoints, and in its ticks.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, unlink};
use rustix::io::Errno;

use crate::limits::SURVIVORS_CHECK_NS;

/// The lock files of a NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockFiles {
    /// Path of the socket of the NIC.
    socket: PathBuf,
    /// Separator between the name of the socket and the endpoint number.
    separator: &'static str,
}

impl LockFiles {
    /// Returns the lock files of the NIC with this socket.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), separator: "." }
    }

    /// Returns the lock files of the endpoints that the daemon serves.
    pub fn served(&self) -> Self {
        Self { socket: self.socket.clone(), separator: ".r" }
    }

    /// Returns the path of the lock file of an endpoint.
    fn path(&self, endpoint: u8) -> PathBuf {
        let mut path = self.socket.clone().into_os_string();
        path.push(format!("{}{endpoint}", self.separator));
        path.into()
    }

    /// Creates and locks the file of an endpoint for its process.
    ///
    /// # Errors
    /// A process holds the file, or the file cannot be created or opened.
    pub fn take(&self, endpoint: u8) -> io::Result<OwnedFd> {
        // Read access suffices for a lock.
        let flags = OFlags::CREATE | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = open(self.path(endpoint), flags, Mode::RUSR | Mode::WUSR)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    /// Removes the file of an endpoint.
    pub fn remove(&self, endpoint: u8) {
        let _ = unlink(self.path(endpoint));
    }

    /// Returns whether a process holds the file of an endpoint. Removes the file otherwise.
    fn is_held(&self, endpoint: u8) -> bool {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match open(self.path(endpoint), flags, Mode::empty()) {
            Ok(file) => file,
            // If the file cannot be opened at present, the next check opens it.
            Err(error) => return !matches!(error, Errno::NOENT | Errno::LOOP),
        };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return true;
        }
        self.remove(endpoint);
        false
    }

    /// Returns the endpoints with files.
    fn all(&self) -> Vec<u8> {
        let (Some(folder), Some(name)) = (self.socket.parent(), self.socket.file_name()) else {
            return Vec::new();
        };
        let Some(name) = name.to_str() else { return Vec::new() };
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let endpoint = |entry: std::fs::DirEntry| {
            let number = entry
                .file_name()
                .to_str()?
                .strip_prefix(name)?
                .strip_prefix(self.separator)?
                .to_owned();
            number.parse().ok()
        };
        entries.filter_map(endpoint).collect()
    }
}

/// The surviving endpoints of a NIC.
#[derive(Debug)]
pub struct Survivors {
    locks: LockFiles,
    /// Endpoints that are not known to have ended.
    endpoints: BTreeSet<u8>,
    /// Time of the next check.
    check_at_ns: u64,
}

impl Survivors {
    /// Finds the surviving endpoints.
    pub fn new(locks: LockFiles, now_ns: u64) -> Self {
        let all = locks.all().into_iter();
        let endpoints = all.filter(|endpoint| locks.is_held(*endpoint)).collect();
        Self { locks, endpoints, check_at_ns: now_ns.saturating_add(SURVIVORS_CHECK_NS) }
    }

    /// Returns the lock files.
    pub fn locks(&self) -> &LockFiles {
        &self.locks
    }

    /// Returns the endpoints that are not known to have ended.
    pub fn endpoints(&self) -> impl Iterator<Item = u8> {
        self.endpoints.iter().copied()
    }

    /// Returns the time of the next check in ns.
    pub fn deadline(&self) -> u64 {
        if self.endpoints.is_empty() { u64::MAX } else { self.check_at_ns }
    }

    /// Removes an endpoint, because its process resumed it or is no longer waited for.
    pub fn forget(&mut self, endpoint: u8) {
        self.endpoints.remove(&endpoint);
    }

    /// Records the end of an endpoint. Its number stays reserved while another process holds its
    /// file, for example a child that inherited its socket and would receive the frames of the next
    /// endpoint.
    pub fn end(&mut self, endpoint: u8, now_ns: u64) {
        if self.locks.is_held(endpoint) {
            self.check_at_ns = now_ns.saturating_add(SURVIVORS_CHECK_NS);
            self.endpoints.insert(endpoint);
        }
    }

    /// Checks which endpoints have ended, if it is time, and removes them.
    pub fn check(&mut self, now_ns: u64) -> Vec<u8> {
        if self.deadline() > now_ns {
            return Vec::new();
        }
        self.check_at_ns = now_ns.saturating_add(SURVIVORS_CHECK_NS);
        let ended: Vec<u8> =
            self.endpoints().filter(|endpoint| !self.locks.is_held(*endpoint)).collect();
        self.endpoints.retain(|endpoint| !ended.contains(endpoint));
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survivors_are_found_until_their_locks_are_released() {
        let folder = std::env::temp_dir().join(format!("causeway-outlived-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let locks = LockFiles::new(&folder.join("mx0.sock"));
        let held = [7, 250].map(|endpoint| locks.take(endpoint).unwrap());
        assert!(locks.take(7).is_err(), "the file is locked");
        for name in ["mx0.sock", "mx0.sock.9", "mx0.sock.256", "mx0.sock.x", "mx1.sock.3"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let mut outlived = Survivors::new(locks.clone(), 5);
        assert_eq!(outlived.endpoints().collect::<Vec<_>>(), [7, 250]);
        assert!(!folder.join("mx0.sock.9").exists() && folder.join("mx1.sock.3").exists());
        let [one, other] = held;
        // A duplicate of the descriptor, as in a child process, also holds the file.
        let share = one.try_clone().unwrap();
        drop(one);
        assert!(outlived.check(outlived.deadline()).is_empty());
        drop(share);
        // Endpoints that the daemon serves have separate files.
        let served = locks.served();
        let seven = served.take(7).unwrap();
        assert_eq!(Survivors::new(served.clone(), 5).endpoints().collect::<Vec<_>>(), [7]);
        drop(seven);
        assert_eq!(Survivors::new(served, 5).endpoints().count(), 0);
        assert!(outlived.check(outlived.deadline() - 1).is_empty(), "the check is not due");
        assert_eq!(outlived.check(outlived.deadline()), [7]);
        locks.take(7).unwrap();
        drop(other);
        assert_eq!(outlived.check(outlived.deadline()), [250]);
        assert_eq!(outlived.deadline(), u64::MAX, "no endpoint is left to check");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
