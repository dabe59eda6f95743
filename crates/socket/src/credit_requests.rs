//! Schedule of the credit requests to receivers that are held back: at short intervals first, then
//! less often.
//!
//! `crate::deliver` finds that a side is held back; `crate::stall` schedules the side, once at a
//! time (`Side::has_scheduled_request`), and sends the request when it is due. The first due time
//! is a deadline of the service. After [`CREDIT_REQUESTS_SOON`] (20) requests, 1 ms apart, without
//! consumed packets the interval is 100 ms, for as long as the side is held back. The module sends
//! nothing, and an entry of a connection that is gone has no effect. It runs in the dispatcher's
//! thread that owns the connection.

use crate::conn::Role;
use crate::deadline::Deadlines;
use crate::limits::{CREDIT_REQUEST_LATER_NS, CREDIT_REQUEST_SOON_NS, CREDIT_REQUESTS_SOON};
use crate::table::{ConnId, ConnTable};

/// Times of the next credit requests.
#[derive(Debug, Default)]
pub(crate) struct CreditRequests {
    /// Sides that are held back.
    frequent: Deadlines<(ConnId, Role)>,
    /// The same, for sides that did not answer the first [`CREDIT_REQUESTS_SOON`] requests.
    rare: Deadlines<(ConnId, Role)>,
}

impl CreditRequests {
    /// Schedules the next request to side `role`.
    pub(crate) fn schedule(&mut self, table: &mut ConnTable, now_ns: u64, id: ConnId, role: Role) {
        let Some(conn) = table.get_mut(id) else { return };
        let side = conn.side_mut(role);
        side.credit_requests = side.credit_requests.saturating_add(1);
        let (list, after) = match side.credit_requests > CREDIT_REQUESTS_SOON {
            true => (&mut self.rare, CREDIT_REQUEST_LATER_NS),
            false => (&mut self.frequent, CREDIT_REQUEST_SOON_NS),
        };
        list.set(now_ns.saturating_add(after), (id, role), |_, (id, role)| {
            table.get(id).is_some_and(|conn| conn.side(role).has_scheduled_request)
        });
    }

    /// Removes the first side with a request that is due at `now_ns`; the side may not be held back
    /// any more.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<(ConnId, Role)> {
        let due = self.frequent.take_due(now_ns).or_else(|| self.rare.take_due(now_ns));
        due.map(|(_, side)| side)
    }

    /// Returns the time of the first request.
    pub(crate) fn first_ns(&self) -> Option<u64> {
        [&self.frequent, &self.rare].into_iter().filter_map(Deadlines::first_ns).min()
    }
}
