//! What the service keeps for one port: what waits for it, what it waits for.

use std::collections::VecDeque;

use causeway_fabric::{GroupId, PortId};
use causeway_ring::Chain;
use causeway_wire::vsock::Header;

use crate::conn::Which;
use crate::counters::{Counters, add, bump};
use crate::host::HostDoor;
use crate::ledger::{Entry, Ledger};
use crate::limits::RESETS_WAITING_MAX;
use crate::revive::Revival;
use crate::table::ConnId;
use crate::wait::{Pace, Waits};

/// A receive buffer that is being filled. Small packets of one stream share it.
#[derive(Debug, Default)]
pub struct Filling {
    /// The buffer's chain.
    pub chain: Chain,
    /// Whose data is in it; `None`: no buffer is taken.
    pub of: Option<(ConnId, Which)>,
    /// Data bytes in it, behind the header's place.
    pub written: u32,
}

/// A reset that a guest is to get.
#[derive(Debug, Clone, Copy)]
pub struct Reset {
    /// The packet.
    pub header: Header,
    /// Where the connection that it ends is noted, if it is.
    pub entry: Option<Entry>,
}

/// One port as the service sees it.
#[derive(Debug)]
pub struct Seat {
    /// The port.
    pub id: PortId,
    /// Its group.
    pub group: GroupId,
    /// Its CID.
    pub cid: u32,
    /// Connections with something for this port; some may have ended since.
    pub ready: VecDeque<(ConnId, Which)>,
    /// How many of them at most.
    ended: usize,
    /// Resets for packets that belong to no connection, and for connections that have ended.
    pub resets: VecDeque<Reset>,
    /// What the ledger still names although the reset is in the receive ring: should this
    /// process die before the ring is published, the next one has to tell again.
    told: Vec<Entry>,
    /// The receive buffer being filled.
    pub filling: Filling,
    /// The chain being looked at; keeps its room.
    pub scratch: Chain,
    /// Chains of this port's transmit ring that wait for receivers.
    pub held: u16,
    /// The same for each receiver; few at a time.
    held_for: Vec<(PortId, u16)>,
    /// Bytes of this port copied aside.
    pub staged: usize,
    /// Its progress as a receiver, without its indices.
    pub pace: Pace,
    /// Its waits for slow receivers.
    pub waits: Waits<PortId>,
    /// Its receive buffers ran out while something waited for them.
    pub starved: bool,
    /// Its transmit ring waits until its own resets are received.
    pub choked: bool,
    /// Connections that this port is a side of.
    pub connections: usize,
    /// How many of them are with host processes.
    pub host_connections: usize,
    /// Where host processes knock.
    pub door: Option<HostDoor>,
    /// Its connections, for the next process to find.
    pub ledger: Option<Ledger>,
    /// Whether its device ran before this process did.
    pub revival: Revival,
    /// What is counted.
    pub counters: Counters,
}

impl Seat {
    /// A seat with nothing waiting.
    pub fn new(id: PortId, group: GroupId, cid: u32) -> Self {
        Self {
            id,
            group,
            cid,
            ready: VecDeque::new(),
            ended: 0,
            resets: VecDeque::new(),
            told: Vec::new(),
            filling: Filling::default(),
            scratch: Chain::new(),
            held: 0,
            held_for: Vec::new(),
            staged: 0,
            pace: Pace::default(),
            waits: Waits::default(),
            starved: false,
            choked: false,
            connections: 0,
            host_connections: 0,
            door: None,
            ledger: None,
            revival: Revival::default(),
            counters: Counters::default(),
        }
    }

    /// Counts a data packet of `bytes` put in a receive buffer.
    pub fn got_data(&mut self, bytes: u32) {
        let bytes = u64::from(bytes);
        bump(&mut self.counters.receive_packets);
        add(&mut self.counters.receive_bytes, bytes);
        self.pace.packets = self.pace.packets.wrapping_add(1);
        self.pace.bytes = self.pace.bytes.wrapping_add(bytes);
    }

    /// Whether something waits for this port's receive buffers.
    pub fn has_backlog(&self) -> bool {
        !self.ready.is_empty() || !self.resets.is_empty()
    }

    /// The first of the resets is in the receive ring; says whether its entry waits for
    /// [`Self::resets_known`].
    pub fn reset_given(&mut self) -> bool {
        let entry = self.resets.pop_front().and_then(|reset| reset.entry);
        self.told.extend(entry);
        entry.is_some()
    }

    /// A guest connects by `request`. A reset that waits for it and names the same ends is for a
    /// connection that the guest has forgotten: it must not meet the new one.
    pub fn drop_stale_reset(&mut self, request: &Header) {
        let stale = |reset: &Reset| {
            let ends = (reset.header.src_cid, reset.header.src_port, reset.header.dst_port);
            ends == (request.dst_cid, request.dst_port, request.src_port)
        };
        // Few wait, unless the guest takes none.
        let Some(at) = self.resets.iter().take(RESETS_WAITING_MAX).position(stale) else { return };
        let entry = self.resets.remove(at).and_then(|reset| reset.entry);
        if let (Some(entry), Some(ledger)) = (entry, &mut self.ledger) {
            ledger.settle(entry);
        }
    }

    /// The receive ring is published: the guest has what is in it.
    pub fn resets_known(&mut self) {
        if let Some(ledger) = &mut self.ledger {
            self.told.drain(..).for_each(|entry| ledger.settle(entry));
        }
    }

    /// Nobody is left to be told.
    pub fn drop_resets(&mut self) {
        let waiting = self.resets.drain(..).filter_map(|reset| reset.entry);
        self.told.extend(waiting);
        self.resets_known();
        if let Some(ledger) = &mut self.ledger {
            ledger.drop_left();
        }
    }

    /// A connection in `ready` has ended. Its place is swept together with others, so that a
    /// guest that ends many pays for each but once; `lives` tells which have not ended.
    pub fn forget_ready(&mut self, lives: impl Fn(ConnId) -> bool) {
        self.ended = self.ended.saturating_add(1);
        if self.ended > self.ready.len() / 2 {
            self.ready.retain(|(id, _)| lives(*id));
            self.ended = 0;
        }
    }

    /// Nobody is left to deliver to.
    pub fn clear_ready(&mut self) {
        self.ready.clear();
        self.ended = 0;
    }

    /// Chains that wait for `to`.
    pub fn held_for(&self, to: PortId) -> u16 {
        self.held_for.iter().find(|(id, _)| *id == to).map_or(0, |(_, count)| *count)
    }

    /// One more chain waits for `to`.
    pub fn hold(&mut self, to: PortId) {
        self.held = self.held.saturating_add(1);
        match self.held_for.iter_mut().find(|(id, _)| *id == to) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => self.held_for.push((to, 1)),
        }
    }

    /// One chain less waits for `to`.
    pub fn unhold(&mut self, to: PortId) {
        self.held = self.held.saturating_sub(1);
        if let Some((_, count)) = self.held_for.iter_mut().find(|(id, _)| *id == to) {
            *count = count.saturating_sub(1);
        }
        self.held_for.retain(|(_, count)| *count > 0);
    }

    /// The ring that held chains is gone.
    pub fn forget_holds(&mut self) {
        self.held = 0;
        self.held_for.clear();
    }
}
