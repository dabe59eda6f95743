//! What every step of a NIC has at hand: the time, the outside, and what endpoints share.

use causeway_wire::mx::RegionId;
use causeway_wire::mxoe::{FRAGMENT_LEN, Header, Packet, PullReply, WIDE_LEN, emit};

use crate::buffer_pool::Pool;
use crate::counters::NicCounters;
use crate::nic_table::NicTable;
use crate::timers::Alarms;
use crate::{Outside, RegionFault};

/// See above.
pub(crate) struct Env<'a> {
    pub(crate) now: u64,
    pub(crate) out: &'a mut dyn Outside,
    pub(crate) hosts: &'a mut NicTable,
    pub(crate) pool: &'a mut Pool,
    pub(crate) alarms: &'a mut Alarms,
    pub(crate) counters: &'a mut NicCounters,
    pub(crate) own: [u8; 6],
    pub(crate) give_up_ns: u64,
    pub(crate) silent: bool,
    pub(crate) wide: bool,
}

impl Env<'_> {
    /// Sends a packet to a NIC.
    pub(crate) fn send(&mut self, host: u16, packet: &Packet<'_>) {
        let Some((destination, peer_index)) = self.hosts.get(host) else { return };
        let header = Header { destination, source: self.own, peer_index };
        let (head, data) = emit(&header, packet);
        count(&mut self.counters.frames_sent);
        self.out.frame(head.bytes(), data);
    }

    /// Sends a frame of a block, or two in one, whose `len` bytes are those of a region; what
    /// `reply` has is of no meaning.
    pub(crate) fn send_region(
        &mut self,
        host: u16,
        reply: PullReply<'_>,
        (endpoint, region): (u8, RegionId),
        (offset, len): (u64, usize),
    ) -> Result<(), RegionFault> {
        /// In place of bytes that are put behind the head elsewhere.
        const BLANK: [u8; WIDE_LEN] = [0; WIDE_LEN];
        let Some((destination, peer_index)) = self.hosts.get(host) else { return Ok(()) };
        let header = Header { destination, source: self.own, peer_index };
        let blank = BLANK.get(..len).ok_or(RegionFault)?;
        let (head, rest) = emit(&header, &Packet::PullReply(PullReply { data: blank, ..reply }));
        if !rest.is_empty() {
            self.out.frame_of(head.bytes(), endpoint, region, (offset, len))?;
            count(&mut self.counters.frames_sent);
            return Ok(());
        }
        // So few that they stand in the head.
        let mut bytes = [0; FRAGMENT_LEN];
        let data = bytes.get_mut(..len).ok_or(RegionFault)?;
        self.out.read(endpoint, region, offset, data)?;
        self.send(host, &Packet::PullReply(PullReply { data, ..reply }));
        Ok(())
    }
}

/// One more.
pub(crate) fn count(counter: &mut u64) {
    add(counter, 1);
}

/// So many more.
pub(crate) fn add(counter: &mut u64, more: usize) {
    *counter = counter.wrapping_add(more as u64);
}
