//! Returning frontends: after a restart of causewayd, what the guests of held ports had sent waits
//! until the other held ports of the shard have their frontends again. A shard has the ports of one
//! group and one service: frames wait for `net` ports, connects for `vsock` ports.
//!
//! The frontends of held ports return by themselves within [`RETURN_NS`] (200 ms) after their ports
//! were added, each at its own time: the holder's relays look for the daemon every 50 ms. A frame
//! that a guest sent while no daemon ran would be lost if its port returned before that of the
//! receiver. Therefore a transmit queue that continues where another daemon stopped is *withheld*:
//! not served until
//!
//! - every held port of the shard receives again, or was added 200 ms ago and has no frontend, and
//!   no held port was added in the last [`SETTLE_NS`] (50 ms), as the start of the daemon adds them
//!   one after the other, or
//! - [`WITHHELD_MAX_NS`] (500 ms) have passed since the shard withheld its first queue.
//!
//! Fresh queues and those of other ports are never withheld. The shard does not wait for
//! frontends that are not held, and frames to them may be lost. [`super::ports`] announces held ports,
//! [`super::frontend`] their queues; the times are pauses of [`super::pauses`].

use std::collections::BTreeSet;

use super::pauses::Pausable;
use super::ports::is_held;
use super::{Shard, is_transmit};
use crate::limits::{RETURN_NS, SETTLE_NS, WITHHELD_MAX_NS};
use crate::port::PortId;

/// The queues that run in each port that receives: sockets are refused at a port with one of them.
const FIRST_PAIR: [usize; 2] = [0, 1];

/// Held ports without their frontends, and the queues that wait for them.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// Held ports that wait for their frontends.
    awaited: BTreeSet<PortId>,
    /// No held port was added before this time, in the shard's clock.
    settled_ns: u64,
    /// Queues that are withheld.
    withheld: BTreeSet<(PortId, usize)>,
    /// Time at which the first of them was withheld.
    since_ns: u64,
}

impl Returns {
    /// Returns whether a queue must wait at `now_ns`.
    fn is_pending(&self, now_ns: u64) -> bool {
        !self.awaited.is_empty() || now_ns < self.settled_ns
    }
}

impl Shard {
    /// Expects the frontend of a held port that was added now.
    pub(super) fn expect_return(&mut self, id: PortId) {
        self.returns.awaited.insert(id);
        self.returns.settled_ns = self.now_ns.saturating_add(SETTLE_NS);
        self.pause(id, Pausable::Withheld, SETTLE_NS);
        self.pause(id, Pausable::Return, RETURN_NS);
    }

    /// Withholds a queue that has started, if it continues and other frontends are to return. Notes
    /// that a port receives.
    pub(super) fn withhold(&mut self, id: PortId, queue: usize) {
        let runs = |queue: &usize| self.ports.get(id).is_some_and(|port| port.is_running(*queue));
        if FIRST_PAIR.contains(&queue) && FIRST_PAIR.iter().all(runs) {
            self.forget_return(id);
        }
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(id).filter(|port| is_held(&port.spec.socket)) else {
            return;
        };
        let continues = port.queue(queue).is_some_and(|(_, ring)| !ring.is_fresh());
        if !is_transmit(queue) || !continues || !self.returns.is_pending(now) {
            return;
        }
        let Some(work) = port.queues.get_mut(queue) else { return };
        work.is_withheld = true;
        if self.returns.withheld.is_empty() {
            self.returns.since_ns = now;
            self.pause(id, Pausable::Withheld, WITHHELD_MAX_NS);
        }
        self.returns.withheld.insert((id, queue));
    }

    /// Expects no frontend of a port any more: its guest receives, or the port is deleted.
    pub(super) fn forget_return(&mut self, id: PortId) {
        self.returns.awaited.remove(&id);
        self.release_withheld();
    }

    /// Expects no frontend of a port any more if none has connected in time. One that has connected
    /// gets as much time again to set its queues up.
    pub(super) fn end_return(&mut self, id: PortId) {
        let until_ns = self.returns.settled_ns.saturating_add(WITHHELD_MAX_NS);
        let connects = self.ports.get(id).is_some_and(|port| port.connection.is_some());
        if connects && self.returns.awaited.contains(&id) && self.now_ns < until_ns {
            self.pause(id, Pausable::Return, RETURN_NS);
        } else {
            self.forget_return(id);
        }
    }

    /// Serves the withheld queues, if they need not wait any longer.
    pub(super) fn release_withheld(&mut self) {
        let Returns { withheld, since_ns, .. } = &self.returns;
        let is_over = self.now_ns.saturating_sub(*since_ns) >= WITHHELD_MAX_NS;
        if withheld.is_empty() || (self.returns.is_pending(self.now_ns) && !is_over) {
            return;
        }
        for (id, queue) in std::mem::take(&mut self.returns.withheld) {
            let work = self.ports.get_mut(id).and_then(|port| port.queues.get_mut(queue));
            if work.is_some_and(|work| std::mem::take(&mut work.is_withheld)) {
                self.activate(id, queue);
            }
        }
    }
}
