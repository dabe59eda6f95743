//! CIDs: own guests are announced to peers while they run, and peers' claims are followed.
//!
//! The CID of a guest is claimed when both its queues run, with the time of day as epoch, or a
//! later one if another claim is newer, and withdrawn when its device stops or its port is deleted.
//! The list goes over the reliable channel of addresses, whole when a session begins, and as
//! changes later; so it needs no digest and no repetition. Claims of a peer end with its session. A
//! running port of this daemon is preferred to any claim of a peer; among peers the newest epoch is
//! followed ([`causeway_directory`]). An epoch of the future counts as the time of its arrival.
//!
//! Hosts of a cluster sign claims on CIDs too. The link service verifies them, and assigns the CIDs
//! to links ([`AssignCids`]): a connect finds its link by the claim, no announcement of another peer
//! is followed, and no other peer may connect as that CID. Without such a claim a peer can take over
//! the CID of another peer's guest: new connects go to the peer with the newest announcement.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use causeway_directory::{Place, Report};
use causeway_fabric::carrier::{AssignCids, LinkId};
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

/// Returns whether a guest may have a CID.
const fn is_guest(cid: u32) -> bool {
    cid > CID_HOST && cid != u32::MAX
}

impl Peers {
    /// Returns the CIDs of attached guests, with the times of day of their attachment, and counts each
    /// later change.
    pub(crate) fn local_cids(&mut self, changes: Arc<AtomicU64>) -> Vec<(u32, u64)> {
        self.cid_changes = Some(changes);
        self.directory.local().map(|((_, cid), epoch)| (cid, epoch)).collect()
    }

    /// Applies verified claims on CIDs.
    pub(crate) fn assign(&mut self, request: &AssignCids) {
        let AssignCids { link, others, claimed, withdrawn } = request;
        if !self.peers.contains_key(link) {
            return;
        }
        let (at, wall) = (place(*link), wall_ns());
        let others: Vec<Place> = others.iter().copied().map(place).collect();
        for (cid, epoch) in withdrawn {
            self.directory.unassign((0, *cid), at, *epoch);
        }
        for (cid, epoch) in claimed.iter().filter(|(cid, _)| is_guest(*cid)) {
            self.directory.assign((0, *cid), (at, &others), *epoch, wall);
        }
    }

    /// Sends a changed address to all peers with a session.
    fn announce(&mut self, address: Address) {
        if let Some(changes) = &self.cid_changes {
            changes.fetch_add(1, Ordering::Release);
        }
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

    /// Applies an address that a peer announced or withdrew. A message that is cut off, and the
    /// withdrawal of a newer or unknown claim, are ignored. The claim of a CID that no guest may
    /// have, or of more than [`PEER_CIDS_MAX`] (4,096), is dropped and counted.
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
        if !is_guest(cid) || (!is_known && peer.cids >= PEER_CIDS_MAX) {
            bump(&mut peer.counters.refused_cids);
            return;
        }
        if self.directory.is_assigned_elsewhere(key, place) {
            // It is kept: the owner may withdraw the CID before the claim ends.
            bump(&mut peer.counters.foreign_cids);
        }
        // A claim of the future would precede all that other peers make until then.
        let wall = wall_ns();
        let epoch = epoch.min(wall);
        self.directory.apply(Report::Claimed { place, key, epoch }, wall);
        if !is_known && self.directory.epoch_of(key, place).is_some() {
            peer.cids = peer.cids.saturating_add(1);
        }
    }

    /// Returns whether a peer may use a CID as the source of a connection: a verified claim gives it
    /// to the peer, or none exists and no other place has the claim that is followed. The caller
    /// checks the ports of this daemon.
    pub(super) fn may_use(&self, link: LinkId, cid: u32) -> bool {
        self.directory.may_use((0, cid), place(link))
    }

    /// Notes that the session with the peer of a link began, or that it ended: its announcements
    /// are void, and assigned CIDs stay.
    pub(super) fn set_reachable(&mut self, link: LinkId, up: bool) {
        if !up {
            self.directory.forget_claims(place(link));
        }
        self.directory.apply(Report::Reachable { place: place(link), up }, wall_ns());
    }

    /// Forgets the place of a link that left.
    pub(super) fn remove_place(&mut self, link: LinkId) {
        self.directory.remove_place(place(link));
    }
}

impl Socket {
    /// Claims the CID of a port if its guest runs both queues, or processes have it.
    pub(crate) fn claim_cid(&mut self, cx: &Context<'_>, port: PortId) {
        let runs = cx.ports.get(port).is_some_and(|p| p.is_running(RX) && p.is_running(TX));
        let socket_port = self.socket_ports.get(port);
        if let Some(socket_port) = socket_port.filter(|s| runs || s.is_for_processes) {
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
