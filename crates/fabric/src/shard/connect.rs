//! Ports that connect to their frontends.
//!
//! [`super::ports`] makes the first attempt when it adds the port; each further attempt is the end
//! of a pause ([`super::pauses`]) in the dispatcher's thread: after an attempt that failed, and
//! after the connection closed, for whatever reason. A frontend is then admitted as one that
//! connected by itself ([`super::frontend`]), with the same rules. A port that refuses frontends
//! for a time (30 s or more) connects at the end of that time.
//!
//! A frontend that accepts and sends no message within [`FIRST_MESSAGE_NS`] (5 s) is disconnected:
//! a VMM that hangs must not occupy the port while another listens at the same path. A failure is
//! logged if its reason differs from that of the last; `causeway port show` has the last reason
//! until a frontend accepts.
//!
//! [`FIRST_MESSAGE_NS`]: crate::limits::FIRST_MESSAGE_NS

use causeway_model::PortState;

use super::Shard;
use super::pauses::Pausable;
use crate::connector::open;
use crate::port::PortId;

impl Shard {
    /// Connects a port to its frontend, if the port does so and has no frontend; plans the next
    /// attempt if that fails.
    pub(super) fn connect_out(&mut self, id: PortId) {
        let Some(port) = self.ports.get_mut(id).filter(|port| port.connection.is_none()) else {
            return;
        };
        let Some(connector) = port.connector.as_mut() else { return };
        connector.begin();
        let path = port.spec.socket.clone();
        let outcome = open(&path).map_err(|error| error.to_string());
        match outcome.and_then(|stream| self.admit(id, stream)) {
            Ok(()) => {
                let now = self.now_ns;
                let connector = self.ports.get_mut(id).and_then(|port| port.connector.as_mut());
                if let Some(wait) = connector.map(|connector| connector.connected(now)) {
                    self.pause(id, Pausable::FirstMessage, wait);
                }
            }
            Err(why) => {
                self.connect_failed(id, &why);
                self.connect_later(id);
            }
        }
    }

    /// Records why a port could not connect, and logs a new reason.
    fn connect_failed(&mut self, id: PortId, why: &str) {
        let Some(port) = self.ports.get_mut(id) else { return };
        let text = format!("cannot connect to {}: {why}", port.spec.socket.display());
        if port.connector.as_mut().is_some_and(|connector| connector.failed(text.clone())) {
            self.warn(id, &format!("{text}; the port tries again until the VMM listens there"));
        }
    }

    /// Plans the next attempt of a port that connects.
    pub(super) fn connect_later(&mut self, id: PortId) {
        let now = self.now_ns;
        let Some(port) = self.ports.get_mut(id) else { return };
        let barred_until_ns = port.barred_until_ns;
        let pause = port.connector.as_mut().and_then(|c| c.plan(now, barred_until_ns));
        if let Some(pause) = pause {
            self.pause(id, Pausable::Connect, pause);
        }
    }

    /// Disconnects a frontend that accepted the port's connection and has sent no message within 5
    /// s.
    pub(super) fn check_first_message(&mut self, id: PortId) {
        let now = self.now_ns;
        let Some(port) = self.ports.get(id) else { return };
        let is_silent = port.connection.as_ref().is_some_and(|c| c.attachment().cost() == 0);
        if is_silent && port.connector.as_ref().is_some_and(|c| c.is_overdue(now)) {
            self.close_frontend(id, PortState::Listening, None);
            self.connect_failed(id, "the VMM accepted and sent no message for 5 s");
            self.apply_and_notify();
        }
    }
}
