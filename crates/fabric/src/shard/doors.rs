//! Sockets to which frontends come too fast: they are left alone for a while, so that who connects
//! again and again costs the dispatcher nothing meanwhile. Nobody is turned away by it.

use std::io;
use std::os::fd::AsFd as _;

use super::Shard;
use crate::limits::SHUT_NS;
use crate::listen::Listener;
use crate::port::PortId;
use crate::watch::{Poller, Token, Watch, When};

/// Watches the socket of a port.
pub(super) fn watch_door(poller: &Poller, id: PortId, listener: &Listener) -> io::Result<Watch> {
    let token = Token::Listener { slot: id.slot, serial: id.serial };
    poller.watch(listener.as_fd(), token, When::Readable)
}

impl Shard {
    /// Leaves the socket of a port alone for a while.
    pub(super) fn shut(&mut self, id: PortId) {
        if let Some(door) = self.ports.get_mut(id).and_then(|port| port.listener.as_mut()) {
            door.watch = None;
            self.doors.push_back((self.now_ns.saturating_add(SHUT_NS), id));
        }
    }

    /// When a socket is looked at again.
    pub(super) fn doors_ns(&self) -> Option<u64> {
        self.doors.front().map(|(at, _)| *at)
    }

    /// Looks again at the sockets whose time has come.
    pub(super) fn open_doors(&mut self) {
        while self.doors_ns().is_some_and(|at| at <= self.now_ns) {
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
