//! The service's state of a port: queued deliveries, held chains, quotas and limits.
//!
//! The service makes a [`SocketPort`] when a vsock port is added, and drops it with the port;
//! transmit, delivery and the host code read and change it, all in the thread of the shard. The
//! fabric's own state of the port (rings, doorbells) is [`causeway_fabric::Port`].
//!
//! *Held* chains wait in the sender's transmit ring, *staged* data in a copy. The module counts and
//! stores, and enforces no limit: `crate::stall` decides on held and staged data, `crate::transmit`
//! on connections and resets. Data itself waits in connections ([`crate::conn::Side::pending`]),
//! not here. Counters of a port start at 0 when the port is added.

use std::collections::VecDeque;

use causeway_fabric::{GroupId, PortId};
use causeway_model::VsockSpec;
use causeway_ring::Chain;
use causeway_wire::vsock::Header;

use crate::capture::PortCaptures;
use crate::conn::Role;
use crate::counters::{Counters, add, bump};
use crate::guest_cid::GuestCid;
use crate::host::HostListeners;
use crate::ledger::{Ledger, LedgerSlot};
use crate::limits::RESETS_WAITING_MAX;
use crate::resume::ResumeState;
use crate::stall_tracker::{ReceiverProgress, StallTracker};
use crate::table::ConnId;

/// A receive buffer that is being filled. Small packets of one stream share it.
#[derive(Debug, Default)]
pub struct Filling {
    /// Chain of the buffer.
    pub chain: Chain,
    /// Connection and side of its data; `None`: no buffer is open.
    pub of: Option<(ConnId, Role)>,
    /// Data bytes in it, after the header.
    pub written: u32,
}

/// A reset that waits for a receive buffer of a guest.
#[derive(Debug, Clone, Copy)]
pub struct Reset {
    /// The packet.
    pub header: Header,
    /// Ledger entry of the connection that it ends.
    pub slot: Option<LedgerSlot>,
}

/// State of a vsock port.
#[derive(Debug)]
pub struct SocketPort {
    /// Identifier of the port.
    pub id: PortId,
    /// Group of the port.
    pub group: GroupId,
    /// CID of the port in its group.
    pub cid: u32,
    /// The same, and the CID that the guest has.
    pub guest_cid: GuestCid,
    /// Host processes have the CID, and no guest.
    pub is_for_processes: bool,
    /// Connections with deliveries for this port; some may have ended since.
    pub ready: VecDeque<(ConnId, Role)>,
    /// Upper bound of ended connections in `ready`.
    ended: usize,
    /// Resets for packets without a connection, and for connections that have ended. At
    /// [`RESETS_WAITING_MAX`] (256) the transmit ring stops.
    pub resets: VecDeque<Reset>,
    /// Ledger entries of resets in the unpublished receive ring: if this process dies before
    /// publishing, the next process must send them again.
    unpublished: Vec<LedgerSlot>,
    /// Receive buffer that is being filled.
    pub filling: Filling,
    /// Chain being processed; keeps its capacity.
    pub scratch: Chain,
    /// Chains of this port's transmit ring that wait for receivers.
    pub held: u16,
    /// Held chains by receiver, with their number; few at a time.
    held_for: Vec<(PortId, u16)>,
    /// Bytes staged for this port's data, of its quota
    /// [`STAGED_BYTES_MAX`](crate::limits::STAGED_BYTES_MAX).
    pub staged: usize,
    /// Progress as a receiver; its `indices` stay 0 and are filled in by `crate::stall`.
    pub progress: ReceiverProgress,
    /// Stops of its transmit ring for slow receivers.
    pub stalls: StallTracker<PortId>,
    /// Its receive buffers ran out while deliveries waited.
    pub is_starved: bool,
    /// Its transmit ring is stopped until it has received its resets.
    pub is_stopped_by_resets: bool,
    /// Its transmit ring is stopped until peers have acknowledged its data.
    pub is_stopped_by_peer: bool,
    /// Connections of this port.
    pub connections: usize,
    /// Connections of host processes at the host socket of this port.
    pub host_connections: usize,
    /// Listeners for host processes; `None` without `host_socket`.
    pub host_listeners: Option<HostListeners>,
    /// Record of open connections for the next process; `None` if the port is not held.
    pub ledger: Option<Ledger>,
    /// Resume state of its device.
    pub resume: ResumeState,
    /// Counters.
    pub counters: Counters,
    /// Captures of its packets.
    pub captures: PortCaptures,
}

impl SocketPort {
    /// Makes the state of a port without traffic.
    pub fn new(id: PortId, group: GroupId, spec: &VsockSpec) -> Self {
        Self {
            id,
            group,
            cid: spec.cid,
            guest_cid: GuestCid::of(spec),
            is_for_processes: spec.processes,
            ready: VecDeque::new(),
            ended: 0,
            resets: VecDeque::new(),
            unpublished: Vec::new(),
            filling: Filling::default(),
            scratch: Chain::new(),
            held: 0,
            held_for: Vec::new(),
            staged: 0,
            progress: ReceiverProgress::default(),
            stalls: StallTracker::default(),
            is_starved: false,
            is_stopped_by_resets: false,
            is_stopped_by_peer: false,
            connections: 0,
            host_connections: 0,
            host_listeners: None,
            ledger: None,
            resume: ResumeState::default(),
            counters: Counters::default(),
            captures: PortCaptures::default(),
        }
    }

    /// Counts data of a process.
    pub fn count_sent(&mut self, bytes: u32) {
        bump(&mut self.counters.transmit_packets);
        add(&mut self.counters.transmit_bytes, u64::from(bytes));
    }

    /// Counts a data packet of `bytes` in a receive buffer.
    pub fn count_data(&mut self, bytes: u32) {
        let bytes = u64::from(bytes);
        bump(&mut self.counters.receive_packets);
        add(&mut self.counters.receive_bytes, bytes);
        self.progress.packets = self.progress.packets.wrapping_add(1);
        self.progress.bytes = self.progress.bytes.wrapping_add(bytes);
    }

    /// Returns whether deliveries wait for this port's receive buffers.
    pub fn has_pending(&self) -> bool {
        !self.ready.is_empty() || !self.resets.is_empty()
    }

    /// Removes the first reset, which is in the receive ring. Returns whether its ledger entry
    /// waits for [`Self::clear_published_resets`].
    pub fn pop_pushed_reset(&mut self) -> bool {
        let slot = self.resets.pop_front().and_then(|reset| reset.slot);
        self.unpublished.extend(slot);
        slot.is_some()
    }

    /// Drops a queued reset with the addresses of `request`, by which the guest connects: it
    /// belongs to a connection that the guest has forgotten, and must not end the new connection.
    pub fn drop_stale_reset(&mut self, request: &Header) {
        let stale = |reset: &Reset| {
            let ends = (reset.header.src_cid, reset.header.src_port, reset.header.dst_port);
            ends == (request.dst_cid, request.dst_port, request.src_port)
        };
        // The queue is short, unless the guest receives no resets.
        let Some(at) = self.resets.iter().take(RESETS_WAITING_MAX).position(stale) else { return };
        let slot = self.resets.remove(at).and_then(|reset| reset.slot);
        if let (Some(slot), Some(ledger)) = (slot, &mut self.ledger) {
            ledger.clear(slot);
        }
    }

    /// Clears the ledger entries of resets that the published receive ring holds.
    pub fn clear_published_resets(&mut self) {
        if let Some(ledger) = &mut self.ledger {
            self.unpublished.drain(..).for_each(|slot| ledger.clear(slot));
        }
    }

    /// Drops all resets and ledger entries: the guest is gone.
    pub fn drop_resets(&mut self) {
        let waiting = self.resets.drain(..).filter_map(|reset| reset.slot);
        self.unpublished.extend(waiting);
        self.clear_published_resets();
        if let Some(ledger) = &mut self.ledger {
            ledger.clear_survivors();
        }
    }

    /// Counts a connection in `ready` that has ended. Ended entries are removed in bulk, so that
    /// the cost per connection is constant; `lives` returns whether a connection exists.
    pub fn forget_ready(&mut self, lives: impl Fn(ConnId) -> bool) {
        self.ended = self.ended.saturating_add(1);
        if self.ended > self.ready.len() / 2 {
            self.ready.retain(|(id, _)| lives(*id));
            self.ended = 0;
        }
    }

    /// Drops all deliveries: the guest is gone.
    pub fn clear_ready(&mut self) {
        self.ready.clear();
        self.ended = 0;
    }

    /// Returns the number of chains held for `to`.
    pub fn held_for(&self, to: PortId) -> u16 {
        self.held_for.iter().find(|(id, _)| *id == to).map_or(0, |(_, count)| *count)
    }

    /// Counts another chain held for `to`.
    pub fn hold(&mut self, to: PortId) {
        self.held = self.held.saturating_add(1);
        match self.held_for.iter_mut().find(|(id, _)| *id == to) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => self.held_for.push((to, 1)),
        }
    }

    /// Counts a chain that is no longer held for `to`.
    pub fn unhold(&mut self, to: PortId) {
        self.held = self.held.saturating_sub(1);
        if let Some((_, count)) = self.held_for.iter_mut().find(|(id, _)| *id == to) {
            *count = count.saturating_sub(1);
        }
        self.held_for.retain(|(_, count)| *count > 0);
    }

    /// Forgets all held chains: their ring is gone.
    pub fn forget_holds(&mut self) {
        self.held = 0;
        self.held_for.clear();
    }
}
