//! Receivers without room: what may wait where, and for how long.
//!
//! A sender's one transmit ring serves all its connections. So a receiver that
//! does not take its data may hold only a part of the ring; beyond it data is
//! copied aside, up to a bound; beyond that the ring stops. While it stops, the
//! receiver's pace is watched ([`crate::wait`]): one that takes less than
//! [`STALL_BYTES_MIN`](crate::limits::STALL_BYTES_MIN) in
//! [`STALL_WINDOW_NS`](crate::limits::STALL_WINDOW_NS) of such waiting loses the
//! connections that the sender waits for, by a reset that both sides see.

use causeway_fabric::{Context, PortId};

use crate::conn::{Pending, Which, staged_cost};
use crate::counters::bump;
use crate::limits::{HELD_PART_ALL, HELD_PART_ONE, SAVED_BYTES_MAX, STAGED_BYTES_MAX};
use crate::service::{Socket, TX};
use crate::transmit::Room;

impl Socket {
    /// Where `left` bytes from `from` may wait for `to`.
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

    /// Stops a sender's transmit ring until `on` takes something.
    pub(crate) fn stop(&mut self, now_ns: u64, from: PortId, on: PortId) {
        let taken = self.seats.get(on).map_or(0, |s| s.taken);
        let Some(seat) = self.seats.get_mut(from) else { return };
        bump(&mut seat.counters.waited);
        let due = seat.waits.stop(now_ns, on, taken);
        self.judge_ns = Some(self.judge_ns.map_or(due, |at| at.min(due)));
    }

    /// Waiting data is done with: its sender gets its descriptors and its quota back.
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
            Pending::Staged { from, .. } => {
                if let Some(seat) = self.seats.get_mut(from) {
                    seat.staged = seat.staged.saturating_sub(pending.staged_cost());
                }
                from
            }
        };
        let Some(seat) = self.seats.get_mut(from) else { return };
        if seat.waits.go_on(cx.now_ns) {
            cx.wake(from, TX);
        }
        if seat.held == 0 && seat.staged == 0 {
            seat.waits.clear();
        }
    }

    /// The ring of `from` stops and takes its descriptors back: what waits in them is copied
    /// aside. A connection whose data finds no room even so, or is not granted, ends.
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
                        seat.staged = seat.staged.saturating_add(cost);
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

    /// Judges the receivers that senders stand still for.
    pub(crate) fn judge_stalls(&mut self, cx: &mut Context<'_>) {
        let now = cx.now_ns;
        if self.judge_ns.is_none_or(|at| at > now) {
            return;
        }
        let due = self.seats.iter().filter_map(|s| Some((s.id, s.waits.due(now)?)));
        let due: Vec<(PortId, PortId)> = due.collect();
        for (from, on) in due {
            let taken = self.seats.get(on).map_or(0, |s| s.taken);
            let Some(seat) = self.seats.get_mut(from) else { continue };
            if !seat.waits.judge(now, on, taken) {
                self.reset_stalled(cx, from, on);
            }
        }
        self.judge_ns = self.seats.iter().filter_map(|s| s.waits.due_ns()).min();
        self.attend_all(cx);
    }

    /// Resets the connections on which data of `from` waits for `on`.
    fn reset_stalled(&mut self, cx: &mut Context<'_>, from: PortId, on: PortId) {
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
            cx.note(on, "connections reset: the guest takes no data while a sender waits for it");
        }
        for id in ids {
            self.end(cx, id, true);
        }
        if let Some(seat) = self.seats.get_mut(from) {
            seat.waits.forget(on);
        }
        cx.wake(from, TX);
    }
}
