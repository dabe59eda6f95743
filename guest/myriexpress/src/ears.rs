//! What an endpoint hears by while a thread sleeps: its doorbell, and what the daemon says.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// See above. Who sleeps has a share of it: the endpoint may be closed meanwhile.
#[derive(Debug)]
pub struct Ears {
    bell: OwnedFd,
    daemon: OwnedFd,
}

impl Ears {
    pub fn new(bell: OwnedFd, daemon: impl AsFd) -> std::io::Result<Self> {
        Ok(Self { bell, daemon: daemon.as_fd().try_clone_to_owned()? })
    }

    /// Sleeps until there is something, at most so long. `parted`: the daemon is gone.
    pub fn listen(&self, parted: bool, time: Duration) {
        let both =
            &mut [PollFd::new(&self.bell, PollFlags::IN), PollFd::new(&self.daemon, PollFlags::IN)];
        let [bell, _] = both;
        let time = Timespec::try_from(time).ok();
        let _ = match parted {
            true => poll(std::slice::from_mut(bell), time.as_ref()),
            false => poll(both, time.as_ref()),
        };
    }

    /// Rings the doorbell.
    #[cold]
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// What it was rung for is known.
    pub fn hush(&self) {
        let mut count = [0_u8; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
    }

    /// In a child process: the threads that had shares are not there.
    pub fn abandon(self: Arc<Self>) {
        let shares = Arc::strong_count(&self);
        let raw = Arc::into_raw(self);
        for _ in 0..shares {
            // SAFETY: so many shares were made, and nobody else is there to give any of them back.
            unsafe { Arc::decrement_strong_count(raw) };
        }
    }
}
