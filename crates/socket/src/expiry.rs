//! Times after which connections end: unanswered connects, connections that are shut down, and
//! connections that only drain to a process.
//!
//! Each reason has a fixed time, and so a list of its own ([`crate::deadline`]). A connection has
//! one expiry at a time (`Conn::expires_ns`). The answer to a connect clears that of the connect;
//! nothing clears the others. `crate::transmit` and `crate::host` set expiries through the service,
//! which takes due connections at its tick and resets them; it skips an entry with a time that is
//! no longer that of the connection. The number of entries is bounded by that of connections
//! ([`crate::deadline`]). All of it runs in the thread of the shard.

use crate::deadline::Deadlines;
use crate::limits::{DRAIN_NS_MAX, LINGER_NS_MAX, REQUEST_NS_MAX};
use crate::table::{ConnId, ConnTable};

/// Reason for which a connection expires; each reason has a fixed time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Expiry {
    /// The connect is unanswered: [`REQUEST_NS_MAX`].
    Request,
    /// No more data may be sent, and the connection is not reset: [`LINGER_NS_MAX`].
    Linger,
    /// A process still has data of its guest to take: [`DRAIN_NS_MAX`].
    Drain,
}

/// Expiries of all connections.
#[derive(Debug, Default)]
pub(crate) struct Expiries {
    /// Connects without an answer.
    requests: Deadlines<ConnId>,
    /// Connections that are shut down.
    lingering: Deadlines<ConnId>,
    /// Connections that only drain to a process.
    draining: Deadlines<ConnId>,
}

impl Expiries {
    /// Sets the expiry of a connection.
    pub(crate) fn set(&mut self, table: &mut ConnTable, now_ns: u64, id: ConnId, why: Expiry) {
        let Some(conn) = table.get_mut(id) else { return };
        let (list, after) = match why {
            Expiry::Request => (&mut self.requests, REQUEST_NS_MAX),
            Expiry::Linger => (&mut self.lingering, LINGER_NS_MAX),
            Expiry::Drain => (&mut self.draining, DRAIN_NS_MAX),
        };
        let at = now_ns.saturating_add(after);
        conn.expires_ns = Some(at);
        list.set(at, id, |at, id| table.get(id).is_some_and(|c| c.expires_ns == Some(at)));
    }

    /// Removes the entries that are due at `now_ns`, each with its time. An entry is valid if the
    /// time is still that of the connection.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Vec<(u64, ConnId)> {
        let mut due = Vec::new();
        for list in [&mut self.requests, &mut self.lingering, &mut self.draining] {
            due.extend(std::iter::from_fn(|| list.take_due(now_ns)));
        }
        due
    }

    /// Returns the time of the first expiry, or earlier.
    pub(crate) fn first_ns(&self) -> Option<u64> {
        let lists = [&self.requests, &self.lingering, &self.draining];
        lists.into_iter().filter_map(Deadlines::first_ns).min()
    }
}
