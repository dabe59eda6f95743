//! Attempts of a port to connect to its frontend's socket.
//!
//! A vhost-user port with `connect` set is the client of a VMM that listens (QEMU's `server=on`,
//! libvirt's `mode='server'`); ports of kind `stream` connect in their own service.
//! `crate::shard::connect` makes the attempts in the dispatcher's thread, and admits the socket as
//! that of a frontend that connected by itself; [`Connector`] determines when, and keeps the last
//! error for the operator. The pause between two attempts doubles from 100 ms to 1 s
//! ([`CONNECT_PAUSE_NS`]) until a queue runs, so that a frontend that accepts and closes without
//! end costs as little as a frontend that is away. A port that refuses frontends for a time (30 s
//! or more) connects at the end of that time. The number of attempts is not bounded.
//!
//! A frontend that accepted has [`FIRST_MESSAGE_NS`] (5 s) for its first message;
//! `crate::shard::connect` disconnects it then, and plans the next attempt. [`open`] never blocks:
//! a listener with a full backlog counts as refusing. The module watches no directory: a socket
//! that appears is found by the next attempt.

use std::io;
use std::path::Path;

use causeway_host::fd::receive::UntrustedSocket;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::limits::{CONNECT_PAUSE_NS, CONNECT_PAUSE_NS_MAX, FIRST_MESSAGE_NS};

/// Returns a non-blocking socket that is connected to the listener at `path`.
///
/// # Errors
/// The kernel's.
pub(crate) fn open(path: &Path) -> io::Result<UntrustedSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UntrustedSocket::from(socket))
}

/// When a port connects, and why it could not.
#[derive(Debug)]
pub(crate) struct Connector {
    /// Pause before the attempt after the next failure.
    pause_ns: u64,
    /// Time of the next attempt, if one is due.
    due_ns: Option<u64>,
    /// Time until which the present frontend must send its first message.
    first_message_by_ns: u64,
    /// Why the last attempt failed.
    error: Option<String>,
}

impl Default for Connector {
    fn default() -> Self {
        Self { pause_ns: CONNECT_PAUSE_NS, due_ns: None, first_message_by_ns: 0, error: None }
    }
}

impl Connector {
    /// Returns why the last attempt failed, or its frontend was disconnected as silent; `None`
    /// after an attempt that succeeded.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Records why an attempt failed. Returns whether the reason is new.
    pub(crate) fn failed(&mut self, error: String) -> bool {
        let is_new = self.error.as_ref() != Some(&error);
        self.error = Some(error);
        is_new
    }

    /// Plans the next attempt, at `not_before_ns` or later, and doubles the next pause, up to 1 s.
    /// Returns the pause until then in nanoseconds, or `None` if an attempt is planned already.
    pub(crate) fn plan(&mut self, now_ns: u64, not_before_ns: u64) -> Option<u64> {
        if self.due_ns.is_some() {
            return None;
        }
        let due_ns = now_ns.saturating_add(self.pause_ns).max(not_before_ns);
        self.due_ns = Some(due_ns);
        self.pause_ns = self.pause_ns.saturating_mul(2).min(CONNECT_PAUSE_NS_MAX);
        Some(due_ns.saturating_sub(now_ns))
    }

    /// Begins an attempt.
    pub(crate) fn begin(&mut self) {
        self.due_ns = None;
    }

    /// The frontend accepted: its first message is due. Returns the time that it has, in
    /// nanoseconds.
    pub(crate) fn connected(&mut self, now_ns: u64) -> u64 {
        self.first_message_by_ns = now_ns.saturating_add(FIRST_MESSAGE_NS);
        self.error = None;
        FIRST_MESSAGE_NS
    }

    /// Returns whether the time for the first message is over; the caller knows whether one came.
    pub(crate) fn is_overdue(&self, now_ns: u64) -> bool {
        now_ns >= self.first_message_by_ns
    }

    /// A queue runs: the next attempt follows the shortest pause again.
    pub(crate) fn running(&mut self) {
        self.pause_ns = CONNECT_PAUSE_NS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connector_pauses_grow_to_a_second_until_a_queue_runs() {
        let mut connector = Connector::default();
        let mut pauses = Vec::new();
        for _ in 0..6 {
            pauses.extend(connector.plan(7, 0).map(|ns| ns / 1_000_000));
            assert_eq!(connector.plan(8, 0), None, "one attempt is planned at a time");
            connector.begin();
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000]);
        connector.running();
        assert_eq!(connector.plan(0, 0), Some(CONNECT_PAUSE_NS));
        connector.begin();
        assert_eq!(connector.plan(1, 30_000_000_001), Some(30_000_000_000), "a barred port waits");
    }

    #[test]
    fn connector_reports_each_reason_once() {
        let mut connector = Connector::default();
        assert!(connector.failed("a".into()) && !connector.failed("a".into()));
        assert!(connector.failed("b".into()));
        assert_eq!(connector.connected(5), FIRST_MESSAGE_NS);
        assert_eq!(connector.error(), None);
        assert!(!connector.is_overdue(FIRST_MESSAGE_NS + 4));
        assert!(connector.is_overdue(FIRST_MESSAGE_NS + 5));
        assert!(connector.failed("b".into()));
    }
}
