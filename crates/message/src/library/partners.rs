//! Table of the endpoints with which this endpoint communicates.
//!
//! The table has a place per peer number, below [`PEER_NUMBERS_MAX`] (65,536); a peer with a higher
//! number gets no place, and `library::progress` disconnects it. The transport assigns the numbers
//! and reuses them, so a [`Partner`] also has the *epoch*: how often its number was used before. A
//! [`Partner`] of an earlier epoch finds no state.
//!
//! The state of a lost peer stays, with `is_alive` false, until its number is reused. A peer that
//! reconnects from the same address and gets the same number keeps the count of its unexpected
//! messages, so that a reconnect gives no new quota.
//!
//! The table sends nothing and ends no requests: `library::connect` does. `library::progress` adds
//! a peer at [`TransportEvent::PeerSeen`](super::TransportEvent). All calls run under the lock of
//! the endpoint. A [`Partner`] without state is `None` or false, never an error of its own; the
//! callers turn it into [`Error::BadRequest`](super::Error) or `EndpointUnreachable`.

use causeway_wire::mx::{Address, PeerId};

use super::directed::EndpointIdentity;
use super::slab::SlabList;
use super::unexpected::UnexpectedUsage;
use crate::limits::PEER_NUMBERS_MAX;

/// A peer as the application names it: `mx_endpoint_addr_t`. Sends to it fail once the peer is
/// lost; once the number is reused, it names no peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Partner {
    /// Number of the peer.
    pub peer: PeerId,
    /// Number of earlier uses of `peer`.
    pub epoch: u32,
}

impl Partner {
    /// This endpoint itself.
    pub const SELF: Self = Self { peer: PeerId(u32::MAX), epoch: 0 };
}

/// State of a peer.
#[derive(Debug)]
pub(super) struct PartnerState {
    /// Address of the peer.
    pub address: Address,
    /// Session of the peer.
    pub session: u32,
    /// Number of earlier uses of the peer's number.
    pub epoch: u32,
    /// Whether the peer is not lost.
    pub is_alive: bool,
    /// Value of the application.
    pub context: u64,
    /// Eager messages to it, through rings, that its host has acknowledged.
    pub acked: u64,
    /// Sends that the transport had no room for.
    pub waiting: SlabList,
    /// Sends that the peer pulls.
    pub streams: SlabList,
    /// Sends that were handed over since the last turn of a pull.
    pub turns: u32,
    /// Unexpected messages of this peer, and the epoch since which they are counted: earlier peers
    /// with the same address share the quota.
    pub kept: UnexpectedUsage,
    pub kept_since: u32,
    /// Whether the peer is in the list of busy peers.
    pub is_busy: bool,
}

/// All peers, by number.
#[derive(Debug, Default)]
pub(super) struct PartnerTable {
    all: Vec<Option<PartnerState>>,
    /// Value of the application for [`Partner::SELF`].
    own_context: u64,
}

impl PartnerTable {
    /// Adds a peer, or returns `None` if its number is too high.
    pub(super) fn seen(&mut self, peer: PeerId, address: Address, session: u32) -> Option<Partner> {
        let at = peer.0 as usize;
        if at >= PEER_NUMBERS_MAX {
            return None;
        }
        if self.all.len() <= at {
            self.all.resize_with(at.saturating_add(1), || None);
        }
        let place = self.all.get_mut(at)?;
        let epoch = place.as_ref().map_or(0, |known| known.epoch.wrapping_add(1));
        let (waiting, streams) = (SlabList::default(), SlabList::default());
        let is_busy = place.as_ref().is_some_and(|known| known.is_busy);
        let same = place.as_ref().filter(|known| known.address == address);
        let (kept, kept_since) = same
            .map_or((UnexpectedUsage::default(), epoch), |known| (known.kept, known.kept_since));
        *place = Some(PartnerState {
            address,
            session,
            epoch,
            is_alive: true,
            context: 0,
            acked: 0,
            waiting,
            streams,
            turns: 0,
            kept,
            kept_since,
            is_busy,
        });
        Some(Partner { peer, epoch })
    }

    /// Returns the application's value for a peer; 0 until it is set.
    #[inline]
    pub(super) fn context(&self, partner: Partner) -> Option<u64> {
        if partner == Partner::SELF {
            return Some(self.own_context);
        }
        self.of(partner).map(|known| known.context)
    }

    /// Sets the application's value for a peer. Returns false if there is no such peer.
    pub(super) fn set_context(&mut self, partner: Partner, context: u64) -> bool {
        if partner == Partner::SELF {
            self.own_context = context;
            return true;
        }
        let known = self.of_mut(partner);
        known.map(|known| known.context = context).is_some()
    }

    /// Returns the connected peer with this identity. Linear in the number of peers; only for
    /// connects.
    pub(super) fn reached(&self, source: EndpointIdentity) -> Option<Partner> {
        let is_it = |known: &Option<PartnerState>| {
            known.as_ref().is_some_and(|known| {
                known.is_alive && known.address == source.address && known.session == source.session
            })
        };
        let at = self.all.iter().position(is_it)?;
        self.current(PeerId(u32::try_from(at).ok()?))
    }

    /// Counts an acknowledged eager message.
    pub(super) fn acked(&mut self, partner: Partner) {
        if let Some(known) = self.of_mut(partner) {
            known.acked = known.acked.wrapping_add(1);
        }
    }

    #[inline]
    /// Returns the state of the peer that has this number now.
    pub(super) fn get(&self, peer: PeerId) -> Option<&PartnerState> {
        self.all.get(peer.0 as usize)?.as_ref()
    }

    #[inline]
    /// Returns the state of the peer that has this number now, for changes.
    pub(super) fn get_mut(&mut self, peer: PeerId) -> Option<&mut PartnerState> {
        self.all.get_mut(peer.0 as usize)?.as_mut()
    }

    /// Returns the identity of the peer that has this number now.
    #[inline]
    pub(super) fn source(&self, peer: PeerId) -> Option<EndpointIdentity> {
        self.get(peer)
            .map(|known| EndpointIdentity { address: known.address, session: known.session })
    }

    /// Returns the peer that has this number now.
    #[inline]
    pub(super) fn current(&self, peer: PeerId) -> Option<Partner> {
        self.get(peer).map(|known| Partner { peer, epoch: known.epoch })
    }

    /// Returns the state of a peer, unless its number was reused.
    #[inline]
    pub(super) fn of(&self, partner: Partner) -> Option<&PartnerState> {
        self.get(partner.peer).filter(|known| known.epoch == partner.epoch)
    }

    /// Returns the state of a peer for changes, unless its number was reused.
    #[inline]
    pub(super) fn of_mut(&mut self, partner: Partner) -> Option<&mut PartnerState> {
        self.get_mut(partner.peer).filter(|known| known.epoch == partner.epoch)
    }
}
