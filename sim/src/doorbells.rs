//! Doorbells and notifications of one guest: delivered in time, late, or lost.
//!
//! Each guest with a virtio device has one [`Doorbells`]. [`crate::play`](mod@crate::play) and
//! [`crate::lan`] ring the due doorbells of a guest's native frontend after it sent or received, in
//! the thread of the world. In the random phase of a stage, drawn from the seed, 8 % of the
//! doorbells come up to 3 ms late, and 7 % are lost until the guest repeats them by its own timer
//! after 5 to 40 ms; later, and in worlds of hosts, every doorbell is delivered at once. In the
//! second phase a guest that sleeps on a queue takes nothing from it until the backend notifies it.
//! Errors are those of the frontend: the queue does not exist, or a system call fails.

use causeway_attach::native::{Frontend, NativeError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::rng::Rng;

/// The longest delay of a doorbell, in nanoseconds.
const LATE_NS_MAX: u64 = 3_000_000;
/// The range of delays after which a guest repeats a lost doorbell by its own timer, in
/// nanoseconds.
const AGAIN_NS: (u64, u64) = (5_000_000, 40_000_000);

/// Delayed doorbells of a guest, and the queues on which the guest sleeps.
#[derive(Debug, Default)]
pub struct Doorbells {
    /// Due time and queue of each delayed doorbell.
    late: Vec<(u64, usize)>,
    asleep: Vec<usize>,
}

impl Doorbells {
    /// Rings every doorbell that is due. With `rng`, some doorbells are delayed, or lost until the
    /// guest repeats them by its own timer.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn ring(
        &mut self,
        frontend: &mut Frontend,
        queues: usize,
        now_ns: u64,
        mut rng: Option<&mut Rng>,
    ) -> Result<(), NativeError> {
        for queue in 0..queues {
            let (_, lane) = frontend.driver_queue(queue)?;
            let waits = self.late.iter().any(|(_, late)| *late == queue);
            if !lane.ring_due() || (waits && rng.is_some()) {
                continue;
            }
            let after = match &mut rng {
                None => 0,
                Some(rng) => match rng.below(100) {
                    0..85 => 0,
                    85..93 => rng.within(1, LATE_NS_MAX),
                    _ => rng.within(AGAIN_NS.0, AGAIN_NS.1),
                },
            };
            if after == 0 {
                lane.ring();
            } else {
                self.late.push((now_ns.saturating_add(after), queue));
            }
        }
        let due: Vec<usize> =
            self.late.iter().filter(|(at, _)| *at <= now_ns).map(|(_, queue)| *queue).collect();
        self.late.retain(|(at, _)| *at > now_ns);
        for queue in due {
            frontend.driver_queue(queue)?.1.ring();
        }
        Ok(())
    }

    /// Returns true if the guest polls a queue: the guest does not sleep on it, or was notified.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn wakes(&mut self, frontend: &mut Frontend, queue: usize) -> Result<bool, NativeError> {
        if !self.asleep.contains(&queue) {
            return Ok(true);
        }
        let (_, lane) = frontend.driver_queue(queue)?;
        let mut fds = [PollFd::new(lane.call(), PollFlags::IN)];
        let called = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0;
        if called {
            self.wake(queue);
            lane.disarm()?;
        }
        Ok(called)
    }

    /// Sleeps on a queue. Returns false if the queue already has entries for the guest.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn sleep(
        &mut self,
        frontend: &mut Frontend,
        queue: usize,
        sender: bool,
    ) -> Result<bool, NativeError> {
        let (_, lane) = frontend.driver_queue(queue)?;
        if lane.arm(sender)? {
            lane.disarm()?;
            return Ok(false);
        }
        self.asleep.push(queue);
        Ok(true)
    }

    /// Wakes the guest by its own timer.
    pub fn wake(&mut self, queue: usize) {
        self.asleep.retain(|asleep| *asleep != queue);
    }

    /// Wakes the guest on every queue and discards delayed doorbells, which are due again at once.
    pub fn wake_all(&mut self) {
        self.asleep.clear();
        self.late.clear();
    }
}
