//! Devices that ran before this process did: their guests are told that connections are gone.
//!
//! A guest that is attached again by a frontend that outlived the last causewayd
//! has rings that begin in the middle. Nothing is known here of its connections,
//! so it gets the event that Linux answers by resetting all of them
//! (virtio 1.3, 5.10.6.7), and a reset for each that its ledger names: QEMU keeps
//! the event queue to itself.

use causeway_fabric::{Context, PortId, Progress};
use causeway_ring::RingError;
use causeway_wire::vsock::{EVENT_TRANSPORT_RESET, Header, Op};

use crate::seat::Reset;
use crate::service::{EVENT, RX, Socket, TX};

/// What a seat knows of the life that its device is in.
#[derive(Debug, Default)]
pub struct Revival {
    /// Queues that have been started in this life of the device, a bit each.
    met: u8,
    /// One of them did not begin at the beginning.
    resumed: bool,
    /// The guest is owed the event.
    event_due: bool,
}

impl Socket {
    /// A queue runs. If it is the first time since the device attached, looks where it begins.
    pub(crate) fn look_back(&mut self, cx: &mut Context<'_>, id: PortId, queue: usize) {
        let Some((port, seat)) = self.seats.with_port(cx, id) else { return };
        let bit = match queue {
            RX => 1,
            TX => 2,
            EVENT => 4,
            _ => return,
        };
        let Some((_, ring)) = port.queue(queue) else { return };
        if seat.revival.met & bit != 0 {
            return;
        }
        seat.revival.met |= bit;
        let both = seat.revival.met & 3 == 3;
        if ring.is_fresh() {
            // Only when both say so: an index may stand at zero in the middle of a life.
            if both
                && !seat.revival.resumed
                && let Some(ledger) = &mut seat.ledger
            {
                ledger.drop_left();
            }
            return;
        }
        if queue == EVENT || std::mem::replace(&mut seat.revival.resumed, true) {
            return;
        }
        seat.revival.event_due = true;
        let Some(ledger) = &mut seat.ledger else { return self.tell_of_reset(cx, id) };
        let cid = u64::from(seat.cid);
        let resets = ledger.take_left().into_iter().map(|(entry, open)| {
            let peer = (open.peer_cid.into(), open.peer_port);
            let header = Header::between(peer, (cid, open.local_port), open.kind, Op::Reset);
            Reset { header, entry: Some(entry) }
        });
        seat.resets.extend(resets);
        self.attend_seat(cx, id);
        self.attend_all(cx);
        self.tell_of_reset(cx, id);
    }

    /// Puts the event that is due in the guest's event queue, once there is a buffer.
    pub(crate) fn tell_of_reset(&mut self, cx: &mut Context<'_>, id: PortId) {
        let Some((port, seat)) = self.seats.with_port(cx, id) else { return };
        if !seat.revival.event_due {
            return;
        }
        let Some((map, ring)) = port.queue(EVENT) else { return };
        let mut told = || -> Result<bool, RingError> {
            if !ring.pop(map, &mut seat.scratch)? {
                return Ok(false);
            }
            let event = EVENT_TRANSPORT_RESET.to_le_bytes();
            let wrote = seat.scratch.writer().write(map, &event).is_ok();
            ring.push(seat.scratch.head(), if wrote { 4 } else { 0 })?;
            Ok(true)
        };
        match told() {
            Ok(true) => {
                seat.revival.event_due = false;
                cx.touch(id, EVENT);
                // It will drop those too that began meanwhile.
                self.end_all_of(cx, id);
                self.attend_all(cx);
            }
            Ok(false) => {}
            Err(error) => cx.fault(id, format_args!("event queue: {error}")),
        }
    }

    /// The event queue's turn: it is watched only while an event waits for a buffer.
    pub(crate) fn serve_events(&mut self, cx: &mut Context<'_>, id: PortId) -> Progress {
        self.tell_of_reset(cx, id);
        let due = self.seats.get(id).is_some_and(|seat| seat.revival.event_due);
        if due { Progress::Idle } else { Progress::Parked }
    }
}
