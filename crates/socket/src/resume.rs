//! Resumed devices: resets for connections that an earlier process served.
//!
//! A guest whose frontend survived the last causewayd attaches with rings that start at a non-zero
//! index. Its connections are unknown here, so it gets the event by which Linux resets all of them
//! (virtio 1.3, 5.10.6.7), and a reset for each connection in its ledger, because QEMU keeps the
//! event queue to itself.
//!
//! The service calls this module when a queue starts, and when the event queue has buffers, in the
//! thread of the shard. Traffic is not restored: lost data stays lost, and connections that began
//! before the event was sent end too. The event is sent once per attachment; it waits if the event
//! queue has no buffer. The guest of a port without a ledger (the port is not held) gets the event
//! alone. A device with all indices wrapped to exactly 0 counts as new. Host processes see the end
//! of their streams with the old daemon.

use causeway_fabric::{Context, PortId, Progress};
use causeway_ring::RingError;
use causeway_wire::vsock::{EVENT_TRANSPORT_RESET, Header, Op};

use crate::service::{EVENT, RX, Socket, TX};
use crate::socket_port::Reset;

/// Resume state of a device.
#[derive(Debug, Default)]
pub struct ResumeState {
    /// Queues that have started since the device attached, a bit each: 1 receive, 2 transmit, 4
    /// event.
    started_queues: u8,
    /// A queue started at a non-zero index.
    is_resumed: bool,
    /// The transport reset event is still to be sent.
    is_event_due: bool,
}

impl Socket {
    /// Checks at the first start of a queue whether the device is resumed.
    pub(crate) fn detect_resume(&mut self, cx: &mut Context<'_>, id: PortId, queue: usize) {
        let Some((port, socket_port)) = self.socket_ports.with_port(cx, id) else { return };
        let bit = match queue {
            RX => 1,
            TX => 2,
            EVENT => 4,
            _ => return,
        };
        let Some((_, ring)) = port.queue(queue) else { return };
        if socket_port.resume.started_queues & bit != 0 {
            return;
        }
        socket_port.resume.started_queues |= bit;
        let both = socket_port.resume.started_queues & 3 == 3;
        if ring.is_fresh() {
            // Both queues must start at zero: the index of one queue may have wrapped to zero.
            if both
                && !socket_port.resume.is_resumed
                && let Some(ledger) = &mut socket_port.ledger
            {
                ledger.clear_survivors();
            }
            return;
        }
        if queue == EVENT || std::mem::replace(&mut socket_port.resume.is_resumed, true) {
            return;
        }
        socket_port.resume.is_event_due = true;
        let Some(ledger) = &mut socket_port.ledger else {
            return self.send_transport_reset(cx, id);
        };
        let cid = u64::from(socket_port.cid);
        let resets = ledger.take_survivors().into_iter().map(|(slot, open)| {
            let peer = (open.peer_cid.into(), open.peer_port);
            let header = Header::between(peer, (cid, open.local_port), open.kind, Op::Reset);
            Reset { header, slot: Some(slot) }
        });
        socket_port.resets.extend(resets);
        self.schedule_port(cx, id);
        self.deliver_scheduled(cx);
        self.send_transport_reset(cx, id);
    }

    /// Sends the pending transport reset event once the event queue has a buffer.
    pub(crate) fn send_transport_reset(&mut self, cx: &mut Context<'_>, id: PortId) {
        let Some((port, socket_port)) = self.socket_ports.with_port(cx, id) else { return };
        if !socket_port.resume.is_event_due {
            return;
        }
        let Some((map, ring)) = port.queue(EVENT) else { return };
        let mut send = || -> Result<bool, RingError> {
            if !ring.pop(map, &mut socket_port.scratch)? {
                return Ok(false);
            }
            let event = EVENT_TRANSPORT_RESET.to_le_bytes();
            let wrote = socket_port.scratch.writer().write(map, &event).is_ok();
            ring.push(socket_port.scratch.head(), if wrote { 4 } else { 0 })?;
            Ok(true)
        };
        match send() {
            Ok(true) => {
                socket_port.resume.is_event_due = false;
                cx.touch(id, EVENT);
                // The guest will also drop connections that began meanwhile.
                self.end_all_of(cx, id);
                self.deliver_scheduled(cx);
            }
            Ok(false) => {}
            Err(error) => cx.fault(id, format_args!("event queue: {error}")),
        }
    }

    /// Serves the event queue: it is watched only while an event waits for a buffer.
    pub(crate) fn serve_events(&mut self, cx: &mut Context<'_>, id: PortId) -> Progress {
        self.send_transport_reset(cx, id);
        let due =
            self.socket_ports.get(id).is_some_and(|socket_port| socket_port.resume.is_event_due);
        if due { Progress::Idle } else { Progress::Parked }
    }
}
