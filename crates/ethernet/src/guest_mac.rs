//! Ports with a guest address (`guest_mac`): the clones of one snapshot, which all have the same
//! address, while the group sees the port's own address (`mac`).
//!
//! Everything in the switch uses the group's addresses: sources, the address table, routes, the
//! traffic matrix, captures, links and pending frames. `crate::classify` exchanges the two addresses
//! in a frame that such a guest sends, before its source is checked, so that the rule about sources
//! applies to the exchanged address: a frame from the group's address is a frame from a foreign
//! source. `deliver_to_queue` in `crate::forward` exchanges them in the frames for such a guest, and
//! exchanges them back after the delivery, because other receivers may follow. All of it runs in
//! the thread of the group's dispatcher. The rules of the exchange and its limits are those of
//! [`causeway_wire::exchange`].
//!
//! # Budget
//! The exchange writes to the private headers, which the delivery writes into the receive buffer in
//! any case: no byte is copied in addition, and payload is not touched. A frame that may be IPv6
//! neighbour discovery or DHCP has up to 192 bytes of headers copied instead of 64. Ports without
//! the option pay one comparison for each frame that begins a flow or has none, and two for each
//! batch that they receive; frames that continue a flow, the fast path, pay nothing. Frames of a
//! port with the option are classified one by one, and their batches are delivered together as
//! before.

use causeway_model::NetSpec;
use causeway_wire::exchange::{MacExchange, needs_headers};

use crate::frame_store::FrameStore;
use crate::headers::RxFrame;

/// Returns the exchange of a port's address and its guest's address; `None` if they are equal.
pub(crate) fn of(spec: &NetSpec) -> Option<MacExchange> {
    let shown = spec.guest_mac.filter(|shown| *shown != spec.mac)?;
    Some(MacExchange::new(spec.mac.0, shown.0))
}

impl RxFrame {
    /// Exchanges the addresses in the private headers. `source` is the memory with the rest of the
    /// frame, from which more headers are copied if they may hold addresses; headers that cannot be
    /// read keep their content, and the delivery reports the reason.
    pub fn exchange(&mut self, exchange: &MacExchange, source: FrameStore<'_>) {
        let Self { chain, at, headers, .. } = self;
        if needs_headers(headers.head()) {
            let rest = source.rest(chain, *at, headers);
            let _ = headers.read_all_headers(rest);
        }
        headers.exchange(exchange);
    }
}

/// Exchanges the addresses in the private headers of each frame.
#[inline(never)]
pub(crate) fn exchange_all(exchange: &MacExchange, source: FrameStore<'_>, frames: &mut [RxFrame]) {
    frames.iter_mut().for_each(|rx| rx.exchange(exchange, source));
}
