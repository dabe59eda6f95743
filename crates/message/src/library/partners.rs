//! Partners: the endpoints that this one talks to.

use causeway_wire::mx::{Address, PeerId};

use super::from::Source;
use super::slab::List;
use super::unexpected::Kept;
use crate::limits::PEER_NUMBERS_MAX;

/// An endpoint as the application names it: `mx_endpoint_addr_t`. Of no use once the partner is
/// gone, also when its number is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Partner {
    /// Its number.
    pub peer: PeerId,
    /// How often the number was used before.
    pub epoch: u32,
}

impl Partner {
    /// This endpoint itself.
    pub const SELF: Self = Self { peer: PeerId(u32::MAX), epoch: 0 };
}

/// What is known of a partner.
#[derive(Debug)]
pub(super) struct Known {
    pub address: Address,
    pub session: u32,
    pub epoch: u32,
    pub alive: bool,
    /// The application's own word.
    pub context: u64,
    /// Messages that were sent whole to it, behind rings, and that its host has.
    pub acked: u64,
    /// Sends that were not handed over.
    pub waiting: List,
    /// Sends that the partner pulls.
    pub streams: List,
    /// Sends that were handed over since such a one had its turn.
    pub turns: u32,
    /// What is kept of its unexpected messages, and of whom this counts: of those before it with
    /// the same address too.
    pub kept: Kept,
    pub kept_since: u32,
    /// Whether it stands in the list of those with something to do.
    pub listed: bool,
}

/// All partners, by number.
#[derive(Debug, Default)]
pub(super) struct Partners {
    all: Vec<Option<Known>>,
}

impl Partners {
    /// Takes note of a new one; none if its number is too high.
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
        let (waiting, streams) = (List::default(), List::default());
        let listed = place.as_ref().is_some_and(|known| known.listed);
        let same = place.as_ref().filter(|known| known.address == address);
        let (kept, kept_since) =
            same.map_or((Kept::default(), epoch), |known| (known.kept, known.kept_since));
        *place = Some(Known {
            address,
            session,
            epoch,
            alive: true,
            context: 0,
            acked: 0,
            waiting,
            streams,
            turns: 0,
            kept,
            kept_since,
            listed,
        });
        Some(Partner { peer, epoch })
    }

    /// Returns the partner that is reached at an address with a session. Linear in the partners:
    /// for connects.
    pub(super) fn reached(&self, source: Source) -> Option<Partner> {
        let is_it = |known: &Option<Known>| {
            known.as_ref().is_some_and(|known| {
                known.alive && known.address == source.address && known.session == source.session
            })
        };
        let at = self.all.iter().position(is_it)?;
        self.current(PeerId(u32::try_from(at).ok()?))
    }

    /// The partner's host has one more of the messages that were sent whole.
    pub(super) fn acked(&mut self, partner: Partner) {
        if let Some(known) = self.of_mut(partner) {
            known.acked = known.acked.wrapping_add(1);
        }
    }

    #[inline]
    pub(super) fn get(&self, peer: PeerId) -> Option<&Known> {
        self.all.get(peer.0 as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, peer: PeerId) -> Option<&mut Known> {
        self.all.get_mut(peer.0 as usize)?.as_mut()
    }

    /// Who has this number now.
    #[inline]
    pub(super) fn source(&self, peer: PeerId) -> Option<Source> {
        self.get(peer).map(|known| Source { address: known.address, session: known.session })
    }

    /// The partner that has this number now.
    #[inline]
    pub(super) fn current(&self, peer: PeerId) -> Option<Partner> {
        self.get(peer).map(|known| Partner { peer, epoch: known.epoch })
    }

    /// What is known of a partner that is still the one it was.
    #[inline]
    pub(super) fn of(&self, partner: Partner) -> Option<&Known> {
        self.get(partner.peer).filter(|known| known.epoch == partner.epoch)
    }

    /// The same, to be changed.
    #[inline]
    pub(super) fn of_mut(&mut self, partner: Partner) -> Option<&mut Known> {
        self.get_mut(partner.peer).filter(|known| known.epoch == partner.epoch)
    }
}
