//! Pauses of ports: listening sockets whose connection rate is too high, frontends whose messages
//! cost too much, and notifications that take too long.
//!
//! A pause unwatches the descriptor, so a frontend that connects or changes its setup without end
//! costs the dispatcher nothing meanwhile. A pause delays and never refuses a frontend; the end of
//! a pause is a deadline of the shard.

use std::io;
use std::os::fd::AsFd as _;

use causeway_attach::Connection;

use super::Shard;
use crate::limits::{MESSAGES_PER_SECOND, SHUT_NS};
use crate::listen::Listener;
use crate::port::PortId;
use crate::watch::{Poller, Token, Watch, When};

/// Watches the listening socket of a port.
pub(super) fn watch_door(poller: &Poller, id: PortId, listener: &Listener) -> io::Result<Watch> {
    let token = Token::Listener { slot: id.slot, serial: id.serial };
    poller.watch(listener.as_fd(), token, When::Readable)
}

/// Watches the messages of a port's frontend.
pub(super) fn watch_frontend(
    poller: &Poller,
    id: PortId,
    connection: &Connection,
) -> io::Result<Watch> {
    let token = Token::Frontend { slot: id.slot, serial: id.serial };
    poller.watch(connection.as_fd(), token, When::Readable)
}

/// An activity of a port that can be paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alone {
    /// Accepting frontends.
    Door,
    /// Reading the frontend's messages.
    Frontend,
    /// Notifying the guest.
    Notifications,
}

impl Shard {
    /// Pauses the listening socket of a port.
    pub(super) fn shut(&mut self, id: PortId) {
        if let Some(door) = self.ports.get_mut(id).and_then(|port| port.listener.as_mut()) {
            door.watch = None;
            self.leave_alone(id, Alone::Door, SHUT_NS);
        }
    }

    /// Charges the messages of a port's frontend, and pauses the frontend if they exceed the limit.
    pub(super) fn charge(&mut self, id: PortId, cost: u64) {
        let Some(port) = self.ports.get_mut(id) else { return };
        let wait = port.messages.charge(self.now_ns, MESSAGES_PER_SECOND, cost);
        if wait > 0 && port.connection.is_some() {
            self.pause_frontend(id, wait);
            self.warn(id, "its frontend changes its set-up without end: it is heard now and then");
        }
    }

    /// Stops reading messages of a port's frontend for `for_ns`.
    pub(super) fn pause_frontend(&mut self, id: PortId, for_ns: u64) {
        if let Some(port) = self.ports.get_mut(id) {
            port.connection_watch = None;
            self.leave_alone(id, Alone::Frontend, for_ns);
        }
    }

    pub(super) fn leave_alone(&mut self, id: PortId, what: Alone, for_ns: u64) {
        self.alone.insert((self.now_ns.saturating_add(for_ns), id, what));
    }

    /// Returns the end of the first pause.
    pub(super) fn doors_ns(&self) -> Option<u64> {
        self.alone.first().map(|(at, ..)| *at)
    }

    /// Ends the pauses whose time has passed.
    pub(super) fn open_doors(&mut self) {
        while let Some(&due) = self.alone.first().filter(|(at, ..)| *at <= self.now_ns) {
            self.alone.remove(&due);
            let (_, id, what) = due;
            if self.watch_again(id, what).is_err() {
                // No descriptor is free now: retry later.
                self.leave_alone(id, what, SHUT_NS);
            }
        }
    }

    /// Sends the notifications that a pause delayed; each may begin the next pause.
    fn notify_late(&mut self, id: PortId) {
        let queues = self.ports.get(id).map_or(0, |port| port.queues.len());
        for queue in 0..queues {
            let Some(port) = self.ports.get_mut(id) else { return };
            if port.queues.get(queue).is_some_and(|work| work.unwoken) {
                self.notify_at_end(id, queue);
            }
        }
        self.settle();
    }

    /// Resumes an activity of a port; a port or frontend that is gone or was replaced needs
    /// nothing.
    fn watch_again(&mut self, id: PortId, what: Alone) -> io::Result<()> {
        let Some(port) = self.ports.get_mut(id) else { return Ok(()) };
        match what {
            Alone::Door => {
                if let Some(door) = port.listener.as_mut() {
                    door.watch = Some(watch_door(&self.poller, id, &door.listener)?);
                }
            }
            Alone::Notifications => self.notify_late(id),
            Alone::Frontend => {
                let unwatched = port.connection_watch.is_none();
                if let Some(connection) = port.connection.as_ref().filter(|_| unwatched) {
                    port.connection_watch = Some(watch_frontend(&self.poller, id, connection)?);
                }
            }
        }
        Ok(())
    }
}
