//! Sockets to which frontends come too fast, and frontends that say too much: they are left alone
//! for a while, so that who connects or changes its set-up again and again costs the dispatcher
//! nothing meanwhile. Nobody is turned away by it.

use std::io;
use std::os::fd::AsFd as _;

use causeway_attach::Server;

use super::Shard;
use crate::limits::{MESSAGES_PER_SECOND, SHUT_NS};
use crate::listen::Listener;
use crate::port::PortId;
use crate::watch::{Poller, Token, Watch, When};

/// Watches the socket of a port.
pub(super) fn watch_door(poller: &Poller, id: PortId, listener: &Listener) -> io::Result<Watch> {
    let token = Token::Listener { slot: id.slot, serial: id.serial };
    poller.watch(listener.as_fd(), token, When::Readable)
}

/// Watches the frontend of a port.
pub(super) fn watch_frontend(poller: &Poller, id: PortId, server: &Server) -> io::Result<Watch> {
    let token = Token::Frontend { slot: id.slot, serial: id.serial };
    poller.watch(server.as_fd(), token, When::Readable)
}

impl Shard {
    /// Leaves the socket of a port alone for a while.
    pub(super) fn shut(&mut self, id: PortId) {
        if let Some(door) = self.ports.get_mut(id).and_then(|port| port.listener.as_mut()) {
            door.watch = None;
            self.doors.push_back((self.now_ns.saturating_add(SHUT_NS), id));
        }
    }

    /// When a socket is looked at, or a frontend heard, again.
    pub(super) fn doors_ns(&self) -> Option<u64> {
        let doors = self.doors.front().map(|(at, _)| *at);
        let unheard = self.unheard.first().map(|(at, _)| *at);
        doors.into_iter().chain(unheard).min()
    }

    /// Messages of a port's frontend cost so much: if that is too much, it is not heard for a while.
    pub(super) fn charge(&mut self, id: PortId, cost: u64) {
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(id) else { return };
        let wait = port.messages.charge(now, MESSAGES_PER_SECOND, cost);
        if wait > 0 && port.server.is_some() {
            port.server_watch = None;
            self.unheard.insert((now.saturating_add(wait), id));
            self.warn(id, "its frontend changes its set-up without end: it is heard now and then");
        }
    }

    /// Hears again the frontends whose time has come.
    fn hear_again(&mut self) {
        while let Some(&(at, id)) = self.unheard.first().filter(|(at, _)| *at <= self.now_ns) {
            self.unheard.remove(&(at, id));
            let Some(port) = self.ports.get_mut(id) else { continue };
            let Some(server) = port.server.as_ref().filter(|_| port.server_watch.is_none()) else {
                continue;
            };
            match watch_frontend(&self.poller, id, server) {
                Ok(watch) => port.server_watch = Some(watch),
                // Without a descriptor now: later.
                Err(_) => drop(self.unheard.insert((self.now_ns.saturating_add(SHUT_NS), id))),
            }
        }
    }

    /// Looks again at the sockets whose time has come.
    pub(super) fn open_doors(&mut self) {
        self.hear_again();
        while self.doors.front().is_some_and(|(at, _)| *at <= self.now_ns) {
            let Some((_, id)) = self.doors.pop_front() else { return };
            let Some(port) = self.ports.get_mut(id) else { continue };
            let Some(door) = port.listener.as_mut() else { continue };
            match watch_door(&self.poller, id, &door.listener) {
                Ok(watch) => door.watch = Some(watch),
                // Without a descriptor now: later.
                Err(_) => self.shut(id),
            }
        }
    }
}
