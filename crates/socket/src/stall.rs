//! Receivers without room: the limits of queued data in space and time.
//!
//! A sender's single transmit ring serves all its connections. A receiver that does not take its
//! data may therefore hold only a part of the ring; further data is staged (copied,
//! [`crate::pack`]), up to a limit; beyond that the ring stops. While it is stopped,
//! [`crate::stall_tracker`] measures the receiver's progress: a guest that runs and makes too
//! little loses the connections on which data of the stopped sender waits for it, by a reset to
//! both sides. A guest that moves no index of any queue may be paused; its limit is
//! [`SILENT_NS_MAX`](crate::limits::SILENT_NS_MAX) (10 s).
//!
//! A connection is also held back while its receiver's kernel queues as many packets as it accounts
//! for ([`crate::unread`]); the receiver then gets credit requests, because not every kernel sends
//! updates by itself.
//!
//! `transmit` asks where data may wait ([`Socket::placement_of`]), delivery returns it
//! ([`Socket::release`]), and deadlines of the service call the checks, in the thread of the shard.
//! For one receiver at most 1/[`HELD_PART_ONE`] (a quarter) of the ring's entries are held, for all
//! 1/[`HELD_PART_ALL`] (half), and [`STAGED_BYTES_MAX`] (4 MiB) are staged per sender; the packet
//! that stops the ring is held beyond these parts. When the
//! frontend stops the queue, held data is staged too, until [`SAVED_BYTES_MAX`] (16 MiB) are staged
//! for the sender, and connections with data beyond, or in memory that is not granted, are reset.
//! Delays are bounded and not prevented: a stopped sender waits for a running receiver up to
//! [`STALL_WINDOW_NS`](crate::limits::STALL_WINDOW_NS) (1 s) without progress, and longer with
//! progress. The application learns of the loss only by the reset. Host processes as receivers are
//! not tracked: credit bounds their data.

use causeway_fabric::{Context, PortId};

use crate::conn::{PendingData, Role, Signals};
use crate::counters::bump;
use crate::limits::{
    CREDIT_REQUESTS_PER_TURN, HELD_PART_ALL, HELD_PART_ONE, SAVED_BYTES_MAX, STAGED_BYTES_MAX,
};
use crate::pack::staged_cost;
use crate::service::{QUEUES, Socket, TX};
use crate::stall_tracker::{ReceiverProgress, StallVerdict};
use crate::table::ConnId;
use crate::transmit::Placement;

/// Time of the first check of a receiver for which a sender stands still.
#[derive(Debug, Default)]
pub(crate) struct StallChecks(Option<u64>);

impl StallChecks {
    /// Notes a check that is due at a time.
    fn note(&mut self, due_ns: u64) {
        self.0 = Some(self.0.map_or(due_ns, |at| at.min(due_ns)));
    }

    /// Returns the time of the first check.
    pub(crate) const fn first_ns(&self) -> Option<u64> {
        self.0
    }
}

impl Socket {
    /// Returns where `left` bytes from `from` may wait for `to`; records nothing.
    pub(crate) fn placement_of(
        &self,
        cx: &mut Context<'_>,
        from: PortId,
        to: PortId,
        left: usize,
    ) -> Placement {
        let size = cx.ports.get_mut(from).and_then(|p| p.queue(TX).map(|(_, ring)| ring.size()));
        let (Some(size), Some(socket_port)) = (size, self.socket_ports.get(from)) else {
            return Placement::Full;
        };
        let one = (size / HELD_PART_ONE).max(1);
        let all = (size / HELD_PART_ALL).max(1);
        if socket_port.held < all && socket_port.held_for(to) < one {
            Placement::Held
        } else if socket_port.staged.saturating_add(staged_cost(left)) <= STAGED_BYTES_MAX {
            Placement::Staged
        } else {
            Placement::Full
        }
    }

    /// Returns the progress of the receiver `on`, with the indices of its driver.
    fn progress_of(&self, cx: &mut Context<'_>, on: PortId) -> ReceiverProgress {
        let mut progress = self
            .socket_ports
            .get(on)
            .map_or_else(ReceiverProgress::default, |socket_port| socket_port.progress);
        for queue in 0..QUEUES {
            // A queue that is stopped or broken does not move.
            if let Some((_, ring)) = cx.ports.get_mut(on).and_then(|port| port.queue(queue)) {
                let posted = ring.popped().wrapping_add(ring.available().unwrap_or(0).into());
                progress.indices = progress.indices.wrapping_add(posted);
            }
        }
        progress
    }

    /// Stops the transmit ring of `from` until the port `on` makes room.
    pub(crate) fn stop_transmit(&mut self, cx: &mut Context<'_>, from: PortId, on: PortId) {
        let progress = self.progress_of(cx, on);
        let Some(socket_port) = self.socket_ports.get_mut(from) else { return };
        bump(&mut socket_port.counters.waited);
        let due = socket_port.stalls.stop(cx.now_ns, on, progress);
        self.stall_checks.note(due);
    }

    /// Resumes the sender's transmit ring if it is stopped.
    fn resume_sender(&mut self, cx: &mut Context<'_>, from: PortId) {
        let stopped =
            self.socket_ports.get(from).and_then(|socket_port| socket_port.stalls.stopped_for());
        let Some(on) = stopped else { return };
        let progress = self.progress_of(cx, on);
        if let Some(socket_port) = self.socket_ports.get_mut(from)
            && socket_port.stalls.resume(cx.now_ns, &progress)
        {
            cx.wake(from, TX);
        }
    }

    /// Ends queued data, delivered or dropped: returns the sender's descriptors and quota, and
    /// resumes its ring. `to` is the receiver, if that is a guest.
    pub(crate) fn release(
        &mut self,
        cx: &mut Context<'_>,
        to: Option<PortId>,
        pending: PendingData,
    ) {
        let from = match pending {
            PendingData::Held { from, chain, .. } => {
                self.return_chain(cx, from, chain.head());
                cx.touch(from, TX);
                if let (Some(socket_port), Some(to)) = (self.socket_ports.get_mut(from), to) {
                    socket_port.unhold(to);
                }
                from
            }
            PendingData::Staged(pack) => {
                if let Some(socket_port) = self.socket_ports.get_mut(pack.from) {
                    socket_port.staged = socket_port.staged.saturating_sub(pack.cost());
                }
                pack.from
            }
        };
        self.resume_sender(cx, from);
        let Some(socket_port) = self.socket_ports.get_mut(from) else { return };
        if socket_port.held == 0 && socket_port.staged == 0 {
            socket_port.stalls.clear();
        }
    }

    /// Stages the data in descriptors of `from`, whose queue the frontend stops, which takes them
    /// back. A connection with data beyond [`SAVED_BYTES_MAX`], or in memory that is not granted,
    /// is reset.
    pub(crate) fn stage_held(&mut self, cx: &mut Context<'_>, from: PortId) {
        let Some(socket_port) = self.socket_ports.get_mut(from).filter(|s| s.held > 0) else {
            return;
        };
        socket_port.forget_holds();
        let mut room = SAVED_BYTES_MAX.saturating_sub(socket_port.staged);
        let mut lost = Vec::new();
        let map = cx.ports.get(from).and_then(|p| p.map());
        let ids: Vec<_> = self.table.of_port(from).map(|(id, _)| id).collect();
        for id in ids {
            let Some(conn) = self.table.get_mut(id) else { continue };
            for role in [Role::Caller, Role::Callee] {
                for piece in conn.side_mut(role).pending.iter_mut().filter(|p| p.is_held_by(from)) {
                    let cost = staged_cost(piece.left());
                    let copied =
                        map.is_some_and(|map| cost <= room && piece.copy_aside(map).is_ok());
                    if copied {
                        room = room.saturating_sub(cost);
                        socket_port.staged = socket_port.staged.saturating_add(piece.staged_cost());
                    } else {
                        lost.push(id);
                    }
                }
            }
        }
        for id in lost {
            self.end(cx, id, true);
        }
    }

    /// Checks the receivers for which senders stand still.
    pub(crate) fn check_stalls(&mut self, cx: &mut Context<'_>) {
        let now = cx.now_ns;
        if self.stall_checks.0.is_none_or(|at| at > now) {
            return;
        }
        let due = self.socket_ports.iter().filter_map(|s| Some((s.id, s.stalls.due(now)?)));
        let due: Vec<(PortId, PortId)> = due.collect();
        for (from, on) in due {
            let progress = self.progress_of(cx, on);
            let Some(socket_port) = self.socket_ports.get_mut(from) else { continue };
            match socket_port.stalls.check(now, &progress) {
                StallVerdict::Continue => {}
                StallVerdict::Slow => self.reset_stalled(
                    cx,
                    from,
                    on,
                    "connections reset: the guest receives too little data while a sender waits for it",
                ),
                StallVerdict::Silent => self.reset_stalled(
                    cx,
                    from,
                    on,
                    "connections reset: the guest does not run while a sender waits for it",
                ),
            }
        }
        self.stall_checks.0 = self.socket_ports.iter().filter_map(|s| s.stalls.due_ns()).min();
        self.deliver_scheduled(cx);
    }

    /// Resets the connections on which data of `from` waits for the port `on`.
    fn reset_stalled(&mut self, cx: &mut Context<'_>, from: PortId, on: PortId, why: &str) {
        let is_waiting = |&(id, role): &(_, Role)| {
            self.table.get(id).is_some_and(|conn| {
                !conn.side(role).pending.is_empty() && conn.side(role.other()).guest() == Some(from)
            })
        };
        let ids: Vec<_> = self.table.of_port(on).filter(is_waiting).map(|(id, _)| id).collect();
        if let Some(socket_port) = self.socket_ports.get_mut(on) {
            socket_port.counters.stalled =
                socket_port.counters.stalled.wrapping_add(ids.len() as u64);
        }
        if !ids.is_empty() {
            cx.remark(on, why);
        }
        for id in ids {
            self.end(cx, id, true);
        }
        if let Some(socket_port) = self.socket_ports.get_mut(from) {
            socket_port.stalls.forget(on);
        }
        cx.wake(from, TX);
    }

    /// Holds a connection's data back until side `role` has consumed packets.
    pub(crate) fn hold_back(&mut self, cx: &mut Context<'_>, id: ConnId, role: Role) {
        let Some(conn) = self.table.get_mut(id) else { return };
        conn.side_mut(role).is_queued = false;
        self.schedule_credit_request(cx.now_ns, id, role);
    }

    /// Schedules credit requests to side `role` until it no longer awaits credit.
    pub(crate) fn schedule_credit_request(&mut self, now_ns: u64, id: ConnId, role: Role) {
        let Some(conn) = self.table.get_mut(id) else { return };
        let side = conn.side_mut(role);
        if !std::mem::replace(&mut side.has_scheduled_request, true) {
            side.credit_requests = 0;
            self.credit_requests.schedule(&mut self.table, now_ns, id, role);
        }
    }

    /// Handles new credit of side `role`, the guest `from`.
    pub(crate) fn handle_credit(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        id: ConnId,
        role: Role,
    ) {
        let Some(conn) = self.table.get_mut(id) else { return };
        let side = conn.side_mut(role);
        let returned = std::mem::take(&mut side.returned);
        if returned == 0 {
            return;
        }
        side.credit_requests = 0;
        let must_resume = side.is_held_back;
        if let Some(socket_port) = self.socket_ports.get_mut(from) {
            socket_port.progress.returned =
                socket_port.progress.returned.wrapping_add(returned.into());
        }
        if must_resume {
            self.schedule_side(cx, id, role);
        }
    }

    /// Sends credit requests to receivers that are held back, or whose peer may have no credit left.
    pub(crate) fn send_credit_requests(&mut self, cx: &mut Context<'_>) {
        let now = cx.now_ns;
        for _ in 0..CREDIT_REQUESTS_PER_TURN {
            let Some((id, role)) = self.credit_requests.take_due(now) else { return };
            let Some(conn) = self.table.get_mut(id) else { continue };
            let side = conn.side_mut(role);
            side.has_scheduled_request = side.awaits_credit();
            if !side.has_scheduled_request {
                continue;
            }
            side.credit_requested = true;
            side.signals |= Signals::CREDIT_REQUEST;
            self.credit_requests.schedule(&mut self.table, now, id, role);
            self.schedule_side(cx, id, role);
        }
    }
}
