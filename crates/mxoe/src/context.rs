//! The context of each step of a NIC: time, outside, and the state that its endpoints share.
//!
//! [`EngineContext`] builds the header of each outgoing packet. It makes no protocol decisions.
//! Each step of an endpoint gets it as an argument.
//!
//! A context lives for one call of [`Nic`](crate::Nic), on its thread, and holds no state itself.
//! Frames to a NIC that was removed are dropped without an error; a frame with bytes of a region
//! that cannot be read is not sent, and the caller gets a [`RegionFault`]. Counters wrap at 2^64.

use causeway_wire::mx::RegionId;
use causeway_wire::mxoe::{FRAGMENT_LEN, Header, JUMBO_LEN, Packet, PullReply, emit};

use crate::buffer_pool::BufferPool;
use crate::counters::NicCounters;
use crate::local::LocalQueue;
use crate::nic_table::NicTable;
use crate::timers::Timers;
use crate::{Outside, RegionFault};

/// The context of a step: borrowed parts of the [`Nic`](crate::Nic), and the time in ns.
pub(crate) struct EngineContext<'a> {
    /// Time of the call, in ns.
    pub(crate) now: u64,
    /// Network, host sides, regions and random numbers.
    pub(crate) out: &'a mut dyn Outside,
    /// Known NICs; "host" in this crate is the number of a NIC in the table.
    pub(crate) hosts: &'a mut NicTable,
    /// Buffers for waiting messages, of all endpoints.
    pub(crate) pool: &'a mut BufferPool,
    /// Timers of all endpoints.
    pub(crate) timers: &'a mut Timers,
    /// Counters of the NIC.
    pub(crate) counters: &'a mut NicCounters,
    /// Work for NICs of the same daemon.
    pub(crate) local: &'a mut LocalQueue,
    /// MAC of this NIC.
    pub(crate) own: [u8; 6],
    /// The following are fields of [`NicConfig`](crate::NicConfig).
    pub(crate) give_up_ns: u64,
    pub(crate) silent: bool,
    pub(crate) wide: bool,
    pub(crate) discovery_ends_ns: u64,
}

impl EngineContext<'_> {
    /// Sends a packet to a NIC; for a local NIC the packet is queued as work. Does nothing if the
    /// NIC is not known.
    pub(crate) fn send(&mut self, host: u16, packet: &Packet<'_>) {
        let Some((destination, peer_index)) = self.hosts.get(host) else { return };
        let header = Header { destination, source: self.own, peer_index };
        let (head, data) = emit(&header, packet);
        if self.hosts.is_local(host) {
            return self.local.push_frame(destination, head.bytes(), data);
        }
        count(&mut self.counters.frames_sent);
        self.out.frame(head.bytes(), data);
    }

    /// Sends `len` bytes of a region as a frame of a block, or as a jumbo frame. The data of
    /// `reply` is ignored.
    ///
    /// # Errors
    /// [`RegionFault`]: the frame is not sent; the caller ends the offered message.
    pub(crate) fn send_region(
        &mut self,
        host: u16,
        reply: PullReply<'_>,
        (endpoint, region): (u8, RegionId),
        (offset, len): (u64, usize),
    ) -> Result<(), RegionFault> {
        /// Placeholder for the data, which the implementation of [`Outside`] appends to the head.
        const BLANK: [u8; JUMBO_LEN] = [0; JUMBO_LEN];
        let Some((destination, peer_index)) = self.hosts.get(host) else { return Ok(()) };
        let header = Header { destination, source: self.own, peer_index };
        let blank = BLANK.get(..len).ok_or(RegionFault)?;
        let (head, rest) = emit(&header, &Packet::PullReply(PullReply { data: blank, ..reply }));
        if !rest.is_empty() {
            self.out.frame_of(head.bytes(), endpoint, region, (offset, len))?;
            count(&mut self.counters.frames_sent);
            return Ok(());
        }
        // So few bytes are part of the head.
        let mut bytes = [0; FRAGMENT_LEN];
        let data = bytes.get_mut(..len).ok_or(RegionFault)?;
        self.out.read(endpoint, region, offset, data)?;
        self.send(host, &Packet::PullReply(PullReply { data, ..reply }));
        Ok(())
    }
}

/// Increments a counter.
pub(crate) fn count(counter: &mut u64) {
    add(counter, 1);
}

/// Adds to a counter.
pub(crate) fn add(counter: &mut u64, more: usize) {
    *counter = counter.wrapping_add(more as u64);
}
