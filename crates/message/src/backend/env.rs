//! What every step of a board has at hand: the time, the outside, and what endpoints share.

use causeway_wire::mxoe::{Header, Packet, emit};

use super::Outside;
use super::counters::BoardCounters;
use super::hosts::Hosts;
use super::pool::Pool;
use super::time::Alarms;

/// See above.
pub(super) struct Env<'a> {
    pub(super) now: u64,
    pub(super) out: &'a mut dyn Outside,
    pub(super) hosts: &'a mut Hosts,
    pub(super) pool: &'a mut Pool,
    pub(super) alarms: &'a mut Alarms,
    pub(super) counters: &'a mut BoardCounters,
    pub(super) own: [u8; 6],
    pub(super) give_up_ns: u64,
}

impl Env<'_> {
    /// Sends a packet to a board.
    pub(super) fn send(&mut self, host: u16, packet: &Packet<'_>) {
        let Some((destination, peer_index)) = self.hosts.get(host) else { return };
        let header = Header { destination, source: self.own, peer_index };
        let (head, data) = emit(&header, packet);
        count(&mut self.counters.frames_sent);
        self.out.frame(head.bytes(), data);
    }
}

/// One more.
pub(super) fn count(counter: &mut u64) {
    add(counter, 1);
}

/// So many more.
pub(super) fn add(counter: &mut u64, more: usize) {
    *counter = counter.wrapping_add(more as u64);
}
