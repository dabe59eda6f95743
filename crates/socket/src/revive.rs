//! Resumed devices: resets for connections that an earlier process served.
//!
//! A guest whose frontend survived the last causewayd attaches with rings that start at a non-zero
//! index. Its connections are unknown here, so it gets the event by which Linux resets all of them
//! (virtio 1.3, 5.10.6.7), and a reset for each connection in its ledger, because QEMU keeps the
//! event queue to itself. Traffic is not restored: lost data stays lost.

use causeway_fabric::{Context, PortId, Progress};
use causeway_ring::RingError;
use causeway_wire::vsock::{EVENT_TRANSPORT_RESET, Header, Op};

use crate::seat::Reset;
use crate::service::{EVENT, RX, Socket, TX};

/// Resume state of a device.
#[derive(Debug, Default)]
pub struct Revival {
    /// Queues that have started since the device attached, a bit each.
    met: u8,
    /// A queue started at a non-zero index.
    resumed: bool,
    /// The transport reset event is still to be sent.
    event_due: bool,
}

impl Socket {
    /// Checks at the first start of a queue whether the device is resumed.
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
            // Both queues must start at zero: the index of one queue may have wrapped to zero.
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

    /// Sends the pending transport reset event once the event queue has a buffer.
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
                // The guest will also drop connections that began meanwhile.
                self.end_all_of(cx, id);
                self.attend_all(cx);
            }
            Ok(false) => {}
            Err(error) => cx.fault(id, format_args!("event queue: {error}")),
        }
    }

    /// Serves the event queue: it is watched only while an event waits for a buffer.
    pub(crate) fn serve_events(&mut self, cx: &mut Context<'_>, id: PortId) -> Progress {
        self.tell_of_reset(cx, id);
        let due = self.seats.get(id).is_some_and(|seat| seat.revival.event_due);
        if due { Progress::Idle } else { Progress::Parked }
    }
}
