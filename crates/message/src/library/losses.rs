//! Losses that the application or its API library must hear of: sends that failed after their early
//! completion, and remote peers that became unreachable.
//!
//! `library::connect` and `library::progress` report the ends of connections and sends; the API
//! library takes the losses. An early completed send counts against [`EARLY_SENDS_MAX`] (512) until
//! its real end. Of failed sends without a request only the last status is kept.
//!
//! With [`PeerLosses::keep_directed`], `departed` grows with each lost remote peer until it is
//! taken, and `broken` has each endpoint once; without, both stay empty. With
//! [`PeerLosses::set_resends`], early completed sends that a restart of a daemon may have
//! interrupted do not count as failed. Neither setting can be revoked. All calls run under the lock
//! of the endpoint.

use causeway_wire::mx::Status;

use super::connect::{LostPeer, is_interrupted};
use super::directed::EndpointIdentity;
use crate::limits::EARLY_SENDS_MAX;

/// Losses of an endpoint that were not taken yet.
#[derive(Debug, Default)]
pub(super) struct PeerLosses {
    /// Sends that were completed early and are not confirmed.
    early: usize,
    /// Status of the last early completed or unreported send that failed.
    lost: Option<Status>,
    /// Lost remote peers, where directed receives stay posted for them.
    departed: Option<Vec<LostPeer>>,
    /// Peers to which an early completed message was lost; recorded where `departed` is.
    broken: Vec<EndpointIdentity>,
    /// The caller keeps copies of messages and resends them after a daemon restart.
    resends: bool,
}

impl PeerLosses {
    /// Records lost remote peers and broken peers from now on.
    pub(super) fn keep_directed(&mut self) {
        self.departed.get_or_insert_default();
    }

    /// Messages to unreachable endpoints do not count as lost from now on, if a restart of a daemon
    /// may be the cause.
    pub(super) fn set_resends(&mut self) {
        self.resends = true;
    }

    /// Returns the number of early completed sends that are not confirmed.
    #[inline]
    pub(super) fn early(&self) -> usize {
        self.early
    }

    /// Returns whether another send may be completed early, and counts it then.
    #[inline]
    pub(super) fn begin_early(&mut self) -> bool {
        let may = self.early < EARLY_SENDS_MAX;
        self.early = self.early.saturating_add(usize::from(may));
        may
    }

    /// Records that an early completed send has ended.
    #[inline]
    pub(super) fn end_early(&mut self) {
        self.early = self.early.saturating_sub(1);
    }

    /// Records the failure of an early completed send; `source` is its receiver, if the peer is
    /// known.
    pub(super) fn fail_early(&mut self, status: Status, source: Option<EndpointIdentity>) {
        if self.resends && is_interrupted(status) {
            return;
        }
        self.lost = Some(status);
        if self.departed.is_some()
            && let Some(source) = source
            && !self.broken.contains(&source)
        {
            self.broken.push(source);
        }
    }

    /// Records the end of a send without a request.
    pub(super) fn end_unreported(&mut self, status: Status) {
        self.lost = Some(status).filter(|status| *status != Status::Success).or(self.lost);
    }

    /// Returns whether lost remote peers are recorded.
    #[inline]
    pub(super) fn keeps_directed(&self) -> bool {
        self.departed.is_some()
    }

    /// Records a lost remote peer.
    pub(super) fn depart(&mut self, peer: LostPeer) {
        if let Some(departed) = &mut self.departed {
            departed.push(peer);
        }
    }

    /// Returns whether a send failed after its early completion or without a request.
    #[inline]
    pub(super) fn has_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Returns the status of the last such send, and removes it.
    #[inline]
    pub(super) fn take_lost(&mut self) -> Option<Status> {
        self.lost.take()
    }

    /// Returns the lost remote peers, and removes them; empty without [`Self::keep_directed`].
    pub(super) fn take_departed(&mut self) -> Vec<LostPeer> {
        self.departed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the peers to which an early completed message was lost, and removes them; empty
    /// without [`Self::keep_directed`].
    pub(super) fn take_broken(&mut self) -> Vec<EndpointIdentity> {
        std::mem::take(&mut self.broken)
    }
}
