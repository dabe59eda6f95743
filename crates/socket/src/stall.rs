//! Receivers without room: the limits of queued data in space and time.
//!
//! A sender's single transmit ring serves all its connections. A receiver that does not take its
//! data may therefore hold only a part of the ring; further data is staged, up to a limit; beyond
//! that the ring stops. While it is stopped, the receiver's progress is measured
//! ([`crate::stall_tracker`]) in packets, bytes and consumed packets: a guest that runs and makes
//! too little progress loses the connections for which the sender stands still, by a reset to both
//! sides. A guest that moves no index of any queue may be paused; its limit is
//! [`SILENT_NS_MAX`](crate::limits::SILENT_NS_MAX).
//!
//! A connection is also held back while its receiver's kernel queues as many packets as it accounts
//! for ([`crate::unread`]). The receiver gets credit requests, because not every kernel sends
//! updates by itself.

use causeway_fabric::{Context, PortId};

use crate::conn::{Pending, Signals, Which};
use crate::counters::bump;
use crate::limits::{
    ASK_LATER_NS, ASK_SOON_NS, ASKS_PER_TURN, ASKS_SOON, HELD_PART_ALL, HELD_PART_ONE,
    SAVED_BYTES_MAX, STAGED_BYTES_MAX,
};
use crate::pack::staged_cost;
use crate::service::{QUEUES, Socket, TX};
use crate::table::ConnId;
use crate::transmit::Room;
use crate::wait::{Pace, Verdict};

impl Socket {
    /// Returns where `left` bytes from `from` may wait for `to`.
    pub(crate) fn room_to_hold(
        &self,
        cx: &mut Context<'_>,
        from: PortId,
        to: PortId,
        left: usize,
    ) -> Room {
        let size = cx.ports.get_mut(from).and_then(|p| p.queue(TX).map(|(_, ring)| ring.size()));
        let (Some(size), Some(seat)) = (size, self.seats.get(from)) else { return Room::Full };
        let one = (size / HELD_PART_ONE).max(1);
        let all = (size / HELD_PART_ALL).max(1);
        if seat.held < all && seat.held_for(to) < one {
            Room::Held
        } else if seat.staged.saturating_add(staged_cost(left)) <= STAGED_BYTES_MAX {
            Room::Staged
        } else {
            Room::Full
        }
    }

    /// Returns the progress of a receiver, with the indices of its driver.
    fn pace_of(&self, cx: &mut Context<'_>, on: PortId) -> Pace {
        let mut pace = self.seats.get(on).map_or_else(Pace::default, |seat| seat.pace);
        for queue in 0..QUEUES {
            // A queue that is stopped or broken does not move.
            if let Some((_, ring)) = cx.ports.get_mut(on).and_then(|port| port.queue(queue)) {
                let posted = ring.popped().wrapping_add(ring.available().unwrap_or(0).into());
                pace.indices = pace.indices.wrapping_add(posted);
            }
        }
        pace
    }

    /// Stops a sender's transmit ring until `on` makes room.
    pub(crate) fn stop(&mut self, cx: &mut Context<'_>, from: PortId, on: PortId) {
        let pace = self.pace_of(cx, on);
        let Some(seat) = self.seats.get_mut(from) else { return };
        bump(&mut seat.counters.waited);
        let due = seat.waits.stop(cx.now_ns, on, pace);
        self.judge_ns = Some(self.judge_ns.map_or(due, |at| at.min(due)));
    }

    /// Resumes the sender's transmit ring if it is stopped.
    fn go_on(&mut self, cx: &mut Context<'_>, from: PortId) {
        let stopped = self.seats.get(from).and_then(|seat| seat.waits.stopped_for());
        let Some(on) = stopped else { return };
        let pace = self.pace_of(cx, on);
        if let Some(seat) = self.seats.get_mut(from)
            && seat.waits.go_on(cx.now_ns, &pace)
        {
            cx.wake(from, TX);
        }
    }

    /// Ends queued data: returns the sender's descriptors and quota.
    pub(crate) fn release(&mut self, cx: &mut Context<'_>, to: Option<PortId>, pending: Pending) {
        let from = match pending {
            Pending::Held { from, chain, .. } => {
                self.give_back(cx, from, chain.head());
                cx.touch(from, TX);
                if let (Some(seat), Some(to)) = (self.seats.get_mut(from), to) {
                    seat.unhold(to);
                }
                from
            }
            Pending::Staged(pack) => {
                if let Some(seat) = self.seats.get_mut(pack.from) {
                    seat.staged = seat.staged.saturating_sub(pack.cost());
                }
                pack.from
            }
        };
        self.go_on(cx, from);
        let Some(seat) = self.seats.get_mut(from) else { return };
        if seat.held == 0 && seat.staged == 0 {
            seat.waits.clear();
        }
    }

    /// Stages the data in descriptors of `from`, whose ring stops and takes them back. A connection
    /// whose data finds no room, or is not granted, ends.
    pub(crate) fn save_held(&mut self, cx: &mut Context<'_>, from: PortId) {
        let Some(seat) = self.seats.get_mut(from).filter(|s| s.held > 0) else { return };
        seat.forget_holds();
        let mut room = SAVED_BYTES_MAX.saturating_sub(seat.staged);
        let mut lost = Vec::new();
        let map = cx.ports.get(from).and_then(|p| p.map());
        let ids: Vec<_> = self.table.of_port(from).map(|(id, _)| id).collect();
        for id in ids {
            let Some(conn) = self.table.get_mut(id) else { continue };
            for which in [Which::Caller, Which::Callee] {
                for piece in conn.side_mut(which).pending.iter_mut().filter(|p| p.is_held_by(from))
                {
                    let cost = staged_cost(piece.left());
                    let copied =
                        map.is_some_and(|map| cost <= room && piece.copy_aside(map).is_ok());
                    if copied {
                        room = room.saturating_sub(cost);
                        seat.staged = seat.staged.saturating_add(piece.staged_cost());
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
    pub(crate) fn judge_stalls(&mut self, cx: &mut Context<'_>) {
        let now = cx.now_ns;
        if self.judge_ns.is_none_or(|at| at > now) {
            return;
        }
        let due = self.seats.iter().filter_map(|s| Some((s.id, s.waits.due(now)?)));
        let due: Vec<(PortId, PortId)> = due.collect();
        for (from, on) in due {
            let pace = self.pace_of(cx, on);
            let Some(seat) = self.seats.get_mut(from) else { continue };
            match seat.waits.look(now, &pace) {
                Verdict::Wait => {}
                Verdict::Slow => self.reset_stalled(
                    cx,
                    from,
                    on,
                    "connections reset: the guest receives too little data while a sender waits for it",
                ),
                Verdict::Silent => self.reset_stalled(
                    cx,
                    from,
                    on,
                    "connections reset: the guest does not run while a sender waits for it",
                ),
            }
        }
        self.judge_ns = self.seats.iter().filter_map(|s| s.waits.due_ns()).min();
        self.attend_all(cx);
    }

    /// Resets the connections on which data of `from` waits for `on`.
    fn reset_stalled(&mut self, cx: &mut Context<'_>, from: PortId, on: PortId, why: &str) {
        let waits = |&(id, which): &(_, Which)| {
            self.table.get(id).is_some_and(|conn| {
                !conn.side(which).pending.is_empty()
                    && conn.side(which.other()).guest() == Some(from)
            })
        };
        let ids: Vec<_> = self.table.of_port(on).filter(waits).map(|(id, _)| id).collect();
        if let Some(seat) = self.seats.get_mut(on) {
            seat.counters.stalled = seat.counters.stalled.wrapping_add(ids.len() as u64);
        }
        if !ids.is_empty() {
            cx.remark(on, why);
        }
        for id in ids {
            self.end(cx, id, true);
        }
        if let Some(seat) = self.seats.get_mut(from) {
            seat.waits.forget(on);
        }
        cx.wake(from, TX);
    }

    /// Holds a connection's data back until side `which` has consumed packets.
    pub(crate) fn hold_back(&mut self, cx: &mut Context<'_>, id: ConnId, which: Which) {
        let Some(conn) = self.table.get_mut(id) else { return };
        let side = conn.side_mut(which);
        side.queued = false;
        if !std::mem::replace(&mut side.ask_due, true) {
            side.asks = 0;
            self.ask_later(cx.now_ns, id, which);
        }
    }

    /// Schedules a credit request: at short intervals first, then less often.
    fn ask_later(&mut self, now_ns: u64, id: ConnId, which: Which) {
        let Some(conn) = self.table.get_mut(id) else { return };
        let side = conn.side_mut(which);
        side.asks = side.asks.saturating_add(1);
        let (list, after) = match side.asks > ASKS_SOON {
            true => (&mut self.asks_later, ASK_LATER_NS),
            false => (&mut self.asks_soon, ASK_SOON_NS),
        };
        let table = &self.table;
        list.set(now_ns.saturating_add(after), (id, which), |_, (id, which)| {
            table.get(id).is_some_and(|conn| conn.side(which).ask_due)
        });
    }

    /// Handles new credit of side `which`, the guest `from`.
    pub(crate) fn credited(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        id: ConnId,
        which: Which,
    ) {
        let Some(conn) = self.table.get_mut(id) else { return };
        let side = conn.side_mut(which);
        let returned = std::mem::take(&mut side.returned);
        if returned == 0 {
            return;
        }
        side.asks = 0;
        let goes_on = side.held_back;
        if let Some(seat) = self.seats.get_mut(from) {
            seat.pace.returned = seat.pace.returned.wrapping_add(returned.into());
        }
        if goes_on {
            self.attend(cx, id, which);
        }
    }

    /// Sends credit requests to receivers that are held back.
    pub(crate) fn ask_held_back(&mut self, cx: &mut Context<'_>) {
        let now = cx.now_ns;
        for _ in 0..ASKS_PER_TURN {
            let due = self.asks_soon.take_due(now).or_else(|| self.asks_later.take_due(now));
            let Some((_, (id, which))) = due else { return };
            let Some(conn) = self.table.get_mut(id) else { continue };
            let side = conn.side_mut(which);
            side.ask_due = side.held_back;
            if !side.held_back {
                continue;
            }
            side.asked = true;
            side.signals |= Signals::CREDIT_REQUEST;
            self.ask_later(now, id, which);
            self.attend(cx, id, which);
        }
    }
}
