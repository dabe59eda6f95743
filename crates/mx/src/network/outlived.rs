//! Endpoints whose processes are at the network themselves outlive the daemon. The next one must know
//! of them: their numbers are taken, and what is for them is not refused in their name. So do those
//! that the daemon served: until their processes resume them, and not for long, nothing is refused in
//! their name either. Their files have another name.
//!
//! Of each such endpoint there is a file beside the board's socket, which its process holds locked as
//! long as it has the endpoint: the daemon locks it, hands the descriptor on and keeps none. So what
//! is locked is alive, whoever asks; and a file that nobody holds says nothing and is removed.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, unlink};
use rustix::io::Errno;

use crate::limits::OUTLIVED_LOOK_NS;

/// Where the files of a board are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locks {
    /// Its socket.
    socket: PathBuf,
    /// What the names of its files have after the socket's, before the endpoint.
    mark: &'static str,
}

impl Locks {
    /// Of the board with this socket.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), mark: "." }
    }

    /// Those of endpoints that the daemon serves.
    pub fn served(&self) -> Self {
        Self { socket: self.socket.clone(), mark: ".r" }
    }

    fn path(&self, endpoint: u8) -> PathBuf {
        let mut path = self.socket.clone().into_os_string();
        path.push(format!("{}{endpoint}", self.mark));
        path.into()
    }

    /// Locks an endpoint's file, for its process.
    ///
    /// # Errors
    /// Somebody has it, or there is no room.
    pub fn take(&self, endpoint: u8) -> io::Result<OwnedFd> {
        // To hold it is all that it is for.
        let flags = OFlags::CREATE | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = open(self.path(endpoint), flags, Mode::RUSR | Mode::WUSR)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    /// Nobody is to find an endpoint's file any more.
    pub fn remove(&self, endpoint: u8) {
        let _ = unlink(self.path(endpoint));
    }

    /// Whether a process holds an endpoint's file. Where none does, it is removed.
    fn is_held(&self, endpoint: u8) -> bool {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match open(self.path(endpoint), flags, Mode::empty()) {
            Ok(file) => file,
            // Where it cannot be looked now, it is looked again.
            Err(error) => return !matches!(error, Errno::NOENT | Errno::LOOP),
        };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return true;
        }
        self.remove(endpoint);
        false
    }

    /// Endpoints of which there are files.
    fn all(&self) -> Vec<u8> {
        let (Some(folder), Some(name)) = (self.socket.parent(), self.socket.file_name()) else {
            return Vec::new();
        };
        let Some(name) = name.to_str() else { return Vec::new() };
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let endpoint = |entry: std::fs::DirEntry| {
            let number =
                entry.file_name().to_str()?.strip_prefix(name)?.strip_prefix(self.mark)?.to_owned();
            number.parse().ok()
        };
        entries.filter_map(endpoint).collect()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Outlived {
    locks: Locks,
    endpoints: BTreeSet<u8>,
    look_ns: u64,
}

impl Outlived {
    /// Those that there are.
    pub fn new(locks: Locks, now_ns: u64) -> Self {
        let all = locks.all().into_iter();
        let endpoints = all.filter(|endpoint| locks.is_held(*endpoint)).collect();
        Self { locks, endpoints, look_ns: now_ns.saturating_add(OUTLIVED_LOOK_NS) }
    }

    /// The files.
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Those that are not known to have ended.
    pub fn endpoints(&self) -> impl Iterator<Item = u8> {
        self.endpoints.iter().copied()
    }

    /// When it is to be looked whether any ended.
    pub fn deadline(&self) -> u64 {
        if self.endpoints.is_empty() { u64::MAX } else { self.look_ns }
    }

    /// An endpoint is not to be asked after any more.
    pub fn forget(&mut self, endpoint: u8) {
        self.endpoints.remove(&endpoint);
    }

    /// An endpoint is over, and its number is not another's while anybody holds its file: a child of
    /// its process, say, which hears what is for it.
    pub fn over(&mut self, endpoint: u8, now_ns: u64) {
        if self.locks.is_held(endpoint) {
            self.look_ns = now_ns.saturating_add(OUTLIVED_LOOK_NS);
            self.endpoints.insert(endpoint);
        }
    }

    /// Looks whether any ended, if it is time: those that did.
    pub fn look(&mut self, now_ns: u64) -> Vec<u8> {
        if self.deadline() > now_ns {
            return Vec::new();
        }
        self.look_ns = now_ns.saturating_add(OUTLIVED_LOOK_NS);
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
    fn what_is_held_is_found_until_nobody_holds_it() {
        let folder = std::env::temp_dir().join(format!("causeway-outlived-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let locks = Locks::new(&folder.join("mx0.sock"));
        let held = [7, 250].map(|endpoint| locks.take(endpoint).unwrap());
        assert!(locks.take(7).is_err(), "somebody has it");
        for name in ["mx0.sock", "mx0.sock.9", "mx0.sock.256", "mx0.sock.x", "mx1.sock.3"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let mut outlived = Outlived::new(locks.clone(), 5);
        assert_eq!(outlived.endpoints().collect::<Vec<_>>(), [7, 250]);
        assert!(!folder.join("mx0.sock.9").exists() && folder.join("mx1.sock.3").exists());
        let [one, other] = held;
        // A share of it holds it too, as a child's does.
        let share = one.try_clone().unwrap();
        drop(one);
        assert!(outlived.look(outlived.deadline()).is_empty());
        drop(share);
        // Those that the daemon serves have files of their own.
        let served = locks.served();
        let seven = served.take(7).unwrap();
        assert_eq!(Outlived::new(served.clone(), 5).endpoints().collect::<Vec<_>>(), [7]);
        drop(seven);
        assert_eq!(Outlived::new(served, 5).endpoints().count(), 0);
        assert!(outlived.look(outlived.deadline() - 1).is_empty(), "it is not time");
        assert_eq!(outlived.look(outlived.deadline()), [7]);
        locks.take(7).unwrap();
        drop(other);
        assert_eq!(outlived.look(outlived.deadline()), [250]);
        assert_eq!(outlived.deadline(), u64::MAX, "there is nothing to look for");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
