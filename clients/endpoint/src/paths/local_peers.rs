//! Peers of this host: their numbers and doorbells.
//!
//! A peer has an even number below [`PEER_NUMBERS_MAX`] (65,536), so there are 32,768 numbers;
//! `Channels` accepts at most 4,096 peers at a time, of which the daemon grants 1,024. Odd numbers
//! belong to peers of other hosts. Numbers are reused after [`LocalPeers::remove`]. Without a free
//! number, or if a doorbell cannot be watched, the peer is not added, its channel is reported to
//! the daemon as closed, and the connect fails with `NoResources`. The doorbell is a socket: its
//! shutdown reports the end of an endpoint to the peer.
//!
//! The table moves no messages and does not talk to the daemon: callers report a removed path
//! (`Paths::drop_peer`). An address can belong to two peers for a while, an ended one and its
//! successor; [`LocalPeers::at`] returns the current one.
//!
//! `control` adds peers, `transport` removes them, `Paths::arm` clears doorbells before a sleep:
//! all in the thread that holds the lock of the endpoint.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use causeway_attach::doorbell::SocketDoorbell;
use causeway_message::library::PeerDoorbell;
use causeway_message::limits::PEER_NUMBERS_MAX;
use causeway_message::split::{Address, PeerId};
use rustix::event::epoll;

/// Doorbell between this endpoint and a peer.
#[derive(Debug, Clone)]
pub struct LocalDoorbell(Arc<SocketDoorbell>);

impl PeerDoorbell for LocalDoorbell {
    fn ring(&self) {
        self.0.ring();
    }
}

/// A peer of this host.
#[derive(Debug)]
struct LocalPeer {
    /// Address of the peer.
    address: Address,
    /// Number of the path to the peer in the daemon.
    path: u32,
    /// Socket by which both sides ring.
    doorbell: Arc<SocketDoorbell>,
    /// The daemon has closed the path.
    gone: bool,
}

/// All peers of this host, by number and by address.
#[derive(Debug)]
pub(super) struct LocalPeers {
    /// Epoll descriptor over the doorbells of all peers, edge-triggered.
    doorbells: OwnedFd,
    /// Peers that rang since the last sleep.
    rung: Vec<PeerId>,
    /// Peers by half of their number.
    peers: Vec<Option<LocalPeer>>,
    /// Peers whose path the daemon has not closed.
    by_address: BTreeMap<Address, PeerId>,
}

/// Returns the index of a peer; numbers of local peers are even.
fn place(peer: PeerId) -> usize {
    (peer.0 / 2) as usize
}

impl LocalPeers {
    /// Returns an empty table.
    ///
    /// # Errors
    /// The kernel's error if the process has too many descriptors.
    pub fn new() -> std::io::Result<Self> {
        let doorbells = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { doorbells, rung: Vec::new(), peers: Vec::new(), by_address: BTreeMap::new() })
    }

    /// Returns the descriptor that is readable when a peer rings.
    pub fn doorbells(&self) -> BorrowedFd<'_> {
        self.doorbells.as_fd()
    }

    /// Returns a free peer number, or `None` if all are in use.
    pub fn free(&self) -> Option<PeerId> {
        let free = self.peers.iter().position(Option::is_none).unwrap_or(self.peers.len());
        let peer = u32::try_from(free.checked_mul(2)?).ok()?;
        (peer < PEER_NUMBERS_MAX as u32).then_some(PeerId(peer))
    }

    /// Adds a peer under a [free](Self::free) number if `begin` accepts its doorbell. Returns
    /// whether it was added.
    pub fn add(
        &mut self,
        peer: PeerId,
        (address, path): (Address, u32),
        doorbell: OwnedFd,
        begin: impl FnOnce(LocalDoorbell) -> bool,
    ) -> bool {
        let doorbell = Arc::new(SocketDoorbell::new(doorbell));
        // Edge-triggered: a peer that rings too often only causes wake-ups.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let of = epoll::EventData::new_u64(peer.0.into());
        if epoll::add(&self.doorbells, &*doorbell, of, flags).is_err() {
            return false;
        }
        if !begin(LocalDoorbell(Arc::clone(&doorbell))) {
            let _ = epoll::delete(&self.doorbells, &*doorbell);
            doorbell.shut_down();
            return false;
        }
        let entry = Some(LocalPeer { address, path, doorbell, gone: false });
        match self.peers.get_mut(place(peer)) {
            Some(place) => *place = entry,
            None => self.peers.push(entry),
        }
        self.by_address.insert(address, peer);
        true
    }

    /// Frees the number of a peer. Returns the path to it if the daemon still knows it.
    pub fn remove(&mut self, peer: PeerId) -> Option<(Address, u32)> {
        let known = self.peers.get_mut(place(peer)).and_then(Option::take)?;
        let _ = epoll::delete(&self.doorbells, &*known.doorbell);
        known.doorbell.shut_down();
        if self.by_address.get(&known.address) == Some(&peer) {
            self.by_address.remove(&known.address);
        }
        (!known.gone).then_some((known.address, known.path))
    }

    /// Returns the peer at an address.
    pub fn at(&self, address: Address) -> Option<PeerId> {
        self.by_address.get(&address).copied()
    }

    /// Returns the peers that have an address.
    pub fn all(&self) -> Vec<PeerId> {
        self.by_address.values().copied().collect()
    }

    /// Returns whether the daemon has closed the path to a peer.
    pub fn is_gone(&self, peer: PeerId) -> bool {
        self.peers.get(place(peer)).and_then(Option::as_ref).is_some_and(|peer| peer.gone)
    }

    /// Records that the daemon closed a path. Returns its peer if the path was current.
    pub fn closed(&mut self, address: Address, path: u32) -> Option<PeerId> {
        let id = self.at(address)?;
        let peer = self.peers.get_mut(place(id))?.as_mut().filter(|peer| peer.path == path)?;
        peer.gone = true;
        self.by_address.remove(&address);
        Some(id)
    }

    /// Records that the daemon knows none of the paths.
    pub fn forget_paths(&mut self) {
        self.peers.iter_mut().flatten().for_each(|peer| peer.gone = true);
    }

    /// Records that a peer rang while the endpoint is awake: its doorbell is cleared before the
    /// endpoint sleeps.
    pub fn record_ring(&mut self, doorbell: u64) {
        let peer = u32::try_from(doorbell).map_or(PeerId::NONE, PeerId);
        if !self.rung.contains(&peer) {
            self.rung.push(peer);
        }
    }

    /// Clears the doorbells that rang. Calls `broken` with each peer that has an unusable doorbell.
    pub fn clear(&mut self, mut broken: impl FnMut(PeerId)) {
        while let Some(peer) = self.rung.pop() {
            if let Some(Some(known)) = self.peers.get(place(peer))
                && !known.doorbell.clear()
            {
                broken(peer);
            }
        }
    }

    /// Closes all doorbells, which reports the end of this endpoint to the peers.
    pub fn part(&self) {
        self.peers.iter().flatten().for_each(|peer| peer.doorbell.shut_down());
    }
}
