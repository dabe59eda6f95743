//! The link between a control thread and the dispatcher: notices in one direction, acknowledgements
//! in the other.
//!
//! The control thread publishes consequences of messages; the dispatcher takes all of them at once
//! when its eventfd is readable. Notices are coalesced and need no queue: the newest epoch, a set
//! of doorbells, a reset, a resumption, pending interrupts, an end. A reset voids the doorbells
//! before it; of several epochs the dispatcher sees the newest alone; a resumption follows the
//! newest epoch. The control thread can wait for a given time until the dispatcher uses a notice
//! and has dropped the earlier epochs.
//!
//! The lock is held for a few instructions. The dispatcher never waits for the thread; when the
//! dispatcher drops its end, the thread's waits end at once. Both eventfds belong to this process
//! alone. `super::control` is the thread's end, `super::attachment` the dispatcher's.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use causeway_memory::Map;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::fault::Reason;
use crate::limits::{EPOCH_CHECK_US, EPOCH_CHECK_US_MAX, REGION_DOORBELLS_MAX};

/// Consequences of messages that the dispatcher has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// The newest epoch of guest memory.
    pub map: Option<Arc<Map>>,
    /// Doorbells that were rung, a bit each.
    pub doorbells: u64,
    /// The frontend reset the device. Doorbells of the set were rung afterwards.
    pub reset: bool,
    /// The device is resumed: its set-up is complete.
    pub resumed: bool,
    /// A pending interrupt can be raised.
    pub interrupts: bool,
    /// The conversation is over: closed by the frontend, or for a reason.
    pub end: Option<Option<Reason>>,
}

/// The state that both ends share.
#[derive(Debug, Default)]
struct LinkState {
    notices: Notices,
    /// Notices that were published so far.
    published: u64,
    /// The last notice that the dispatcher uses.
    taken: u64,
    /// The control thread has published its end.
    is_ended: bool,
    /// The dispatcher has dropped its end.
    is_stopped: bool,
}

/// The link, shared by both ends.
#[derive(Debug)]
pub(super) struct Link {
    state: Mutex<LinkState>,
    /// Signalled when the dispatcher acknowledges notices or drops its end.
    changed: Condvar,
    /// Readable while notices wait.
    ready: OwnedFd,
    /// Readable once the dispatcher has dropped its end.
    stop: OwnedFd,
}

/// Writes to an eventfd of this process alone.
fn signal(event: &OwnedFd) {
    // Fails only if the counter is full, and then the descriptor is readable already.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

impl Link {
    /// Returns a link without notices.
    ///
    /// # Errors
    /// Returns an error if the host has no free descriptors.
    pub fn new() -> Result<Self, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (ready, stop) = (eventfd(0, flags)?, eventfd(0, flags)?);
        Ok(Self { state: Mutex::default(), changed: Condvar::new(), ready, stop })
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the notices and wakes the dispatcher. Returns the number of the notice.
    fn publish(&self, change: impl FnOnce(&mut Notices)) -> u64 {
        let mut state = self.state();
        change(&mut state.notices);
        state.published = state.published.saturating_add(1);
        let number = state.published;
        drop(state);
        signal(&self.ready);
        number
    }

    /// Publishes a new epoch.
    pub fn publish_map(&self, map: Arc<Map>) -> u64 {
        // An epoch that the dispatcher never saw is dropped after the lock is released.
        let mut unseen = None;
        let number = self.publish(|notices| unseen = notices.map.replace(map));
        drop(unseen);
        number
    }

    /// Publishes a doorbell. Doorbells above the limit are ignored. If the dispatcher has not taken
    /// an earlier ring of the doorbell, it is not woken again.
    pub fn publish_doorbell(&self, doorbell: usize) {
        if doorbell < REGION_DOORBELLS_MAX {
            let bit = 1_u64.checked_shl(u32::try_from(doorbell).unwrap_or(u32::MAX)).unwrap_or(0);
            // Only this thread sets doorbells, so that the eventfd was written after the first
            // ring.
            if self.state().notices.doorbells & bit != bit {
                self.publish(|notices| notices.doorbells |= bit);
            }
        }
    }

    /// Publishes a reset. Doorbells that were rung before are void.
    pub fn publish_reset(&self) -> u64 {
        self.publish(|notices| {
            notices.doorbells = 0;
            notices.reset = true;
        })
    }

    /// Publishes that the set-up of a resumed device is complete.
    pub fn publish_resumed(&self) -> u64 {
        self.publish(|notices| notices.resumed = true)
    }

    /// Publishes that a pending interrupt can be raised.
    pub fn publish_interrupts(&self) {
        self.publish(|notices| notices.interrupts = true);
    }

    /// Publishes the end of the conversation, unless an end was published before.
    pub fn publish_end(&self, reason: Option<Reason>) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.is_ended, true) {
            state.notices.end = Some(reason);
        }
        drop(state);
        signal(&self.ready);
    }

    /// Takes all notices, for the dispatcher. The number is for [`Self::acknowledge`].
    pub fn take(&self) -> (Notices, u64) {
        let _ = rustix::io::read(&self.ready, &mut [0; 8]);
        let mut state = self.state();
        (std::mem::take(&mut state.notices), state.published)
    }

    /// Reports that the dispatcher uses all notices up to `number`.
    pub fn acknowledge(&self, number: u64) {
        self.state().taken = number;
        self.changed.notify_all();
    }

    /// Makes the descriptor of the dispatcher readable.
    pub fn wake_dispatcher(&self) {
        signal(&self.ready);
    }

    /// Ends the control thread: the dispatcher's end is gone.
    pub fn stop(&self) {
        self.state().is_stopped = true;
        self.changed.notify_all();
        signal(&self.stop);
    }

    /// Returns whether the dispatcher has dropped its end.
    pub fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }

    /// Returns the descriptor that is readable once the dispatcher has dropped its end.
    pub fn stop_fd(&self) -> BorrowedFd<'_> {
        self.stop.as_fd()
    }

    /// Waits until the dispatcher drops its end, at most `time`.
    pub fn sleep(&self, time: Duration) {
        let state = self.state();
        let waited = self.changed.wait_timeout_while(state, time, |state| !state.is_stopped);
        drop(waited);
    }

    /// Waits until the dispatcher has acknowledged notice `number` and the caller has the only
    /// reference to each epoch of `earlier`, at most `limit`. Returns whether both are so.
    pub fn wait_acknowledged(&self, number: u64, earlier: &[Arc<Map>], limit: Duration) -> bool {
        let began = Instant::now();
        let is_open = |state: &mut LinkState| state.taken < number && !state.is_stopped;
        let waited = self.changed.wait_timeout_while(self.state(), limit, is_open);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_used = state.taken >= number && !state.is_stopped;
        drop(state);
        if !is_used {
            return false;
        }
        let mut pause = EPOCH_CHECK_US;
        while earlier.iter().any(|epoch| Arc::strong_count(epoch) > 1) {
            if began.elapsed() >= limit || self.is_stopped() {
                return false;
            }
            self.sleep(Duration::from_micros(pause));
            pause = pause.saturating_mul(2).min(EPOCH_CHECK_US_MAX);
        }
        // The count is read without ordering. The dispatcher's last accesses to the epochs must
        // come before the reply.
        fence(Ordering::Acquire);
        true
    }
}

impl AsFd for Link {
    /// Returns the descriptor that is readable while notices wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the number of wake-ups of the dispatcher, and forgets them.
    fn wakes(link: &Link) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&link.ready, &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_) => 0,
        }
    }

    #[test]
    fn vfio_user_doorbell_wakes_the_dispatcher_once_until_it_is_taken() {
        let link = Link::new().unwrap();
        for _ in 0..100 {
            link.publish_doorbell(3);
        }
        assert_eq!(wakes(&link), 1);
        link.publish_doorbell(63);
        link.publish_doorbell(64);
        assert_eq!(wakes(&link), 1, "another doorbell");
        assert_eq!(link.take().0.doorbells, 1 << 3 | 1 << 63);
        link.publish_doorbell(3);
        assert_eq!(wakes(&link), 1, "a ring after the take");
        link.publish_reset();
        link.publish_doorbell(3);
        assert_eq!(wakes(&link), 2, "the reset made the earlier ring void");
        assert_eq!(link.take().0.doorbells, 1 << 3);
    }
}
