//! CIDs: own guests are announced to peers while they are attached, and peers' claims are followed.
//!
//! A guest claims its CID when both its queues run, with the time of day as epoch, and withdraws it
//! when its device stops. The list goes over the reliable channel of addresses, whole when a session
//! begins, and as changes later; so it needs no digest and no repetition. Claims of a peer end with
//! its session. A running port of this daemon is preferred to any claim of a peer; among peers the
//! newest epoch is followed ([`causeway_directory`]). An epoch of the future counts as the time of its
//! arrival. A peer can therefore take over the CID of another peer's guest: new connects to the CID go
//! to the peer with the newest claim.

use std::time::{SystemTime, UNIX_EPOCH};

use causeway_directory::{Place, Report};
use causeway_fabric::carrier::LinkId;
use causeway_fabric::{Context, PortId};
use causeway_model::CID_HOST;
use causeway_wire::multiplex::{ADDRESSES, Address};

use super::{Peers, place};
use crate::counters::bump;
use crate::limits::PEER_CIDS_MAX;
use crate::multiplex::DISOWNED;
use crate::service::{RX, Socket, TX};

/// Returns the time of day, in ns since 1970.
fn wall_ns() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX)
}

impl Peers {
    /// Sends an address to all peers with a session.
    fn announce(&mut self, address: Address) {
        let now_ns = self.now_ns;
        for peer in self.peers.values_mut() {
            if !peer.session.is_up() {
                if address.is_here && peer.is_dormant {
                    peer.session.hasten(now_ns);
                }
                continue;
            }
            peer.session.send(ADDRESSES, DISOWNED, [&address.emit(), &[]]);
            self.has_work = true;
        }
    }

    /// Claims the CID of a guest that runs.
    fn claim(&mut self, cid: u32) {
        let is_new = self.directory.local().all(|((_, known), _)| known != cid);
        let epoch = self.directory.claim_local((0, cid), wall_ns());
        if is_new {
            self.announce(Address { is_here: true, cid, epoch });
        }
    }

    /// Withdraws the CID of a guest.
    pub(crate) fn withdraw(&mut self, cid: u32) {
        let epoch = self.directory.local().find(|((_, known), _)| *known == cid);
        if let Some((_, epoch)) = epoch {
            self.directory.withdraw(Place::Here, (0, cid));
            self.announce(Address { is_here: false, cid, epoch });
        }
    }

    /// Sends all addresses to a peer: its session began.
    pub(super) fn announce_all(&mut self, link: LinkId) {
        let Some(peer) = self.peers.get_mut(&link) else { return };
        for ((_, cid), epoch) in self.directory.local() {
            let address = Address { is_here: true, cid, epoch };
            peer.session.send(ADDRESSES, DISOWNED, [&address.emit(), &[]]);
        }
        self.has_work = true;
    }

    /// Applies an address that a peer announced or withdrew. A message that is cut off, and a CID
    /// that no guest may have, are ignored.
    pub(super) fn take_address(&mut self, link: LinkId, message: &[u8]) {
        let Ok(Address { is_here, cid, epoch }) = Address::parse(message) else { return };
        let Some(peer) = self.peers.get_mut(&link) else { return };
        let (key, place) = ((0, cid), place(link));
        if !is_here {
            let known = self.directory.epoch_of(key, place);
            if known.is_some_and(|known| known <= epoch) {
                self.directory.withdraw(place, key);
                peer.cids = peer.cids.saturating_sub(1);
            }
            return;
        }
        let is_known = self.directory.epoch_of(key, place).is_some();
        let is_valid = cid > CID_HOST && cid != u32::MAX;
        if !is_valid || (!is_known && peer.cids >= PEER_CIDS_MAX) {
            bump(&mut peer.counters.refused_cids);
            return;
        }
        // A claim of the future would precede all that other peers make until then.
        let wall = wall_ns();
        let epoch = epoch.min(wall);
        self.directory.apply(Report::Claimed { place, key, epoch }, wall);
        if !is_known && self.directory.epoch_of(key, place).is_some() {
            peer.cids = peer.cids.saturating_add(1);
        }
    }

    /// Returns whether a peer may use a CID as the source of a connection: no other place has it.
    pub(super) fn may_use(&self, link: LinkId, cid: u32) -> bool {
        self.directory.find((0, cid)).is_none_or(|owner| owner == place(link))
    }
}

impl Socket {
    /// Claims the CID of a port if its guest runs both queues.
    pub(crate) fn claim_cid(&mut self, cx: &Context<'_>, port: PortId) {
        let runs = cx.ports.get(port).is_some_and(|p| p.is_running(RX) && p.is_running(TX));
        if let Some(socket_port) = self.socket_ports.get(port).filter(|_| runs) {
            self.peers.claim(socket_port.cid);
        }
    }

    /// Withdraws the CID of a port.
    pub(crate) fn withdraw_cid(&mut self, port: PortId) {
        if let Some(socket_port) = self.socket_ports.get(port) {
            self.peers.withdraw(socket_port.cid);
        }
    }
}
