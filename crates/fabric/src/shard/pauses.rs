//! Pauses of ports: listening sockets whose connection rate is too high, frontends whose messages
//! cost too much, and notifications that take too long; and the timers of ports that connect.
//!
//! [`super::frontend`] begins a pause, [`super::connect`] starts the timers. A listening socket
//! pauses for [`LISTENER_PAUSE_NS`] (100 ms), a frontend until its messages are within
//! [`MESSAGES_PER_SECOND`] (4,096) again or, while its earlier grants wait to be unmapped, for 10
//! ms at a time, notifications for the time that `crate::wakes` determines. The end of a pause is a
//! deadline of the shard, whose `tick` resumes the activity.
//!
//! A pause of a socket unwatches its descriptor, so a frontend that connects or changes its setup
//! without end costs the dispatcher nothing meanwhile. A pause delays and never refuses a frontend,
//! and loses no notification: delayed notifications are sent at its end. If two pauses of an
//! activity overlap, the activity resumes at the first end. If no descriptor is free for the new
//! watch, the pause lasts [`LISTENER_PAUSE_NS`] longer.

use std::io;
use std::os::fd::AsFd as _;

use causeway_attach::Connection;

use super::Shard;
use crate::limits::{LISTENER_PAUSE_NS, MESSAGES_PER_SECOND};
use crate::listen::Listener;
use crate::port::PortId;
use crate::watch::{Poller, Trigger, Watch, WatchToken};

/// Watches the listening socket of a port.
pub(super) fn watch_listener(
    poller: &Poller,
    id: PortId,
    listener: &Listener,
) -> io::Result<Watch> {
    let token = WatchToken::Listener { slot: id.slot, serial: id.serial };
    poller.watch(listener.as_fd(), token, Trigger::Readable)
}

/// Watches the messages of a port's frontend.
pub(super) fn watch_frontend(
    poller: &Poller,
    id: PortId,
    connection: &Connection,
) -> io::Result<Watch> {
    let token = WatchToken::Frontend { slot: id.slot, serial: id.serial };
    poller.watch(connection.as_fd(), token, Trigger::Readable)
}

/// An activity of a port that can be paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pausable {
    /// Accepting frontends.
    Listener,
    /// Reading the frontend's messages.
    Frontend,
    /// Notifying the guest.
    Notifications,
    /// Connecting to the frontend.
    Connect,
    /// Waiting for the first message of a frontend to which the port connected.
    FirstMessage,
    /// Waiting for the frontend of a held port.
    Return,
    /// Serving the queues that wait for other frontends; the port does not matter.
    Withheld,
}

impl Shard {
    /// Pauses the listening socket of a port.
    pub(super) fn pause_listener(&mut self, id: PortId) {
        if let Some(listening) = self.ports.get_mut(id).and_then(|port| port.listener.as_mut()) {
            listening.watch = None;
            self.pause(id, Pausable::Listener, LISTENER_PAUSE_NS);
        }
    }

    /// Charges `cost` for messages of a port's frontend, and pauses the frontend if the sum exceeds
    /// [`MESSAGES_PER_SECOND`] (4,096).
    pub(super) fn charge(&mut self, id: PortId, cost: u64) {
        let Some(port) = self.ports.get_mut(id) else { return };
        let wait = port.messages.charge(self.now_ns, MESSAGES_PER_SECOND, cost);
        if wait > 0 && port.connection.is_some() {
            self.pause_frontend(id, wait);
            self.warn(
                id,
                "the frontend sends too many messages: the port reads them at a limited rate",
            );
        }
    }

    /// Stops reading messages of a port's frontend for `for_ns`.
    pub(super) fn pause_frontend(&mut self, id: PortId, for_ns: u64) {
        if let Some(port) = self.ports.get_mut(id) {
            port.connection_watch = None;
            self.pause(id, Pausable::Frontend, for_ns);
        }
    }

    /// Records a pause of `for_ns`; the caller has stopped the activity.
    pub(super) fn pause(&mut self, id: PortId, activity: Pausable, for_ns: u64) {
        self.pauses.insert((self.now_ns.saturating_add(for_ns), id, activity));
    }

    /// Returns the end of the first pause.
    pub(super) fn next_pause_end_ns(&self) -> Option<u64> {
        self.pauses.first().map(|(at, ..)| *at)
    }

    /// Ends the pauses that have expired.
    pub(super) fn end_pauses(&mut self) {
        while let Some(&due) = self.pauses.first().filter(|(at, ..)| *at <= self.now_ns) {
            self.pauses.remove(&due);
            let (_, id, activity) = due;
            if self.resume(id, activity).is_err() {
                // No descriptor is free now: retry later.
                self.pause(id, activity, LISTENER_PAUSE_NS);
            }
        }
    }

    /// Sends the notifications that a pause delayed; each may begin the next pause.
    fn notify_delayed(&mut self, id: PortId) {
        let queues = self.ports.get(id).map_or(0, |port| port.queues.len());
        for queue in 0..queues {
            let Some(port) = self.ports.get_mut(id) else { return };
            if port.queues.get(queue).is_some_and(|work| work.notify_later) {
                self.notify_at_end(id, queue);
            }
        }
        self.apply_and_notify();
    }

    /// Resumes an activity of a port; a port or frontend that is gone or was replaced needs
    /// nothing.
    fn resume(&mut self, id: PortId, activity: Pausable) -> io::Result<()> {
        if activity == Pausable::Withheld {
            self.release_withheld();
            return Ok(());
        }
        let Some(port) = self.ports.get_mut(id) else { return Ok(()) };
        match activity {
            Pausable::Listener => {
                if let Some(listening) = port.listener.as_mut() {
                    listening.watch = Some(watch_listener(&self.poller, id, &listening.listener)?);
                }
            }
            Pausable::Notifications => self.notify_delayed(id),
            Pausable::Connect => self.connect_out(id),
            Pausable::FirstMessage => self.check_first_message(id),
            Pausable::Return => self.end_return(id),
            Pausable::Withheld => {}
            Pausable::Frontend => {
                let unwatched = port.connection_watch.is_none();
                if let Some(connection) = port.connection.as_ref().filter(|_| unwatched) {
                    port.connection_watch = Some(watch_frontend(&self.poller, id, connection)?);
                }
            }
        }
        Ok(())
    }
}
