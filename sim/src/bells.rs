//! Doorbells and notifications of one guest: late, lost, or as they should be.

use causeway_attach::native::{Frontend, NativeError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::rng::Rng;

/// How late a doorbell may be, in nanoseconds.
const LATE_NS_MAX: u64 = 3_000_000;
/// After how long a guest rings again by its own timer, in nanoseconds.
const AGAIN_NS: (u64, u64) = (5_000_000, 40_000_000);

/// Doorbells on their way, and which queues the guest sleeps on.
#[derive(Debug, Default)]
pub struct Bells {
    /// When each is rung, for which queue.
    late: Vec<(u64, usize)>,
    asleep: Vec<usize>,
}

impl Bells {
    /// Rings what a guest would ring. With `rng` some of it comes late, or is lost until the guest
    /// rings again by its own timer.
    ///
    /// # Errors
    /// There is no such queue.
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

    /// Whether the guest looks at a queue: it does not sleep on it, or was notified.
    ///
    /// # Errors
    /// There is no such queue.
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

    /// Goes to sleep on a queue; `false` if something is there already.
    ///
    /// # Errors
    /// There is no such queue.
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

    /// The guest looks by its own timer.
    pub fn wake(&mut self, queue: usize) {
        self.asleep.retain(|asleep| *asleep != queue);
    }

    /// Wakes all, and forgets doorbells on their way: they are rung anew.
    pub fn wake_all(&mut self) {
        self.asleep.clear();
        self.late.clear();
    }
}
