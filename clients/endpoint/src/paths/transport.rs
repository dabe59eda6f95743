//! Channels and rings as one [`Transport`]: the parity of a peer's number selects between them
//! (even: a channel to this host, odd: the rings). This module decides which of them has the next
//! turn.
//!
//! After an event of the rings the channels have the next turn, and the other way round. With
//! rings, at most [`SHORTS_IN_ROW_MAX`] (8) short messages are taken in a row before other events.
//! The result of a connect to a channel comes after the event that reports its peer.
//!
//! # Limits
//! Order holds per peer, not between peers. [`TransportError::Full`] means that the caller repeats
//! the call later; [`TransportError::Never`] is final. One event is taken at a time: the matching
//! engine ends it before it takes another, by `done`, or by `defer`, after which the path returns
//! it again later. Nothing is copied here except by channels and rings. The withdrawal of memory,
//! the end of a channel and a refused direct read wait, at most 2 s, while the peer writes to this
//! process; no other call blocks.
//!
//! # Place
//! The matching engine ([`causeway_message::library`]) calls the trait for each send, pull and
//! poll.

use causeway_channel::ShortEvent;
use causeway_message::library::{
    Buffer, Channels, Handover, Rings, Transport, TransportError, TransportEvent, is_remote,
};
use causeway_message::split::{Address, PeerId, Token};
use causeway_message::status::Status;
use causeway_wire::local::ClientMessage;

use super::connects::ConnectParameters;
use super::{AnyTransport, LocalDoorbell, NicDoorbell, Paths};
use crate::limits::SHORTS_IN_ROW_MAX;
use crate::staging::StagingSlabs;

type Local = Channels<LocalDoorbell>;

/// Origin of the event that the matching engine handles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum EventSource {
    /// No event is taken.
    #[default]
    Nothing,
    /// The result of a connect.
    ConnectResult,
    /// A peer of this host.
    Channels,
    /// A peer of another host.
    Rings,
}

/// Turns of channels and rings.
#[derive(Debug, Default)]
pub(super) struct PollTurn {
    /// Origin of the event that is taken and not ended.
    source: EventSource,
    /// The rings have the next turn.
    rings_first: bool,
    /// Short messages in a row without a poll of everything else.
    shorts_in_row: u32,
    /// The last short message came from the rings.
    short_from_nic: bool,
    /// The NIC side in this process was polled just before and had no work.
    direct_polled: bool,
}

impl Paths {
    /// Returns the rings if they lead to that peer.
    #[inline]
    fn rings_to(&mut self, peer: PeerId) -> Option<&mut Rings<NicDoorbell, StagingSlabs>> {
        if is_remote(peer) { self.rings.as_mut() } else { None }
    }

    /// Sends a short message without the rings, if the NIC side is in this process and has no
    /// earlier request. Returns false otherwise.
    #[inline]
    fn send_direct<B: Buffer>(&mut self, peer: PeerId, match_info: u64, data: &B) -> bool {
        let (Some(bypass), Some(rings)) = (&mut self.bypass, &self.rings) else { return false };
        match (rings.bypass_peer(peer), data.two()) {
            (Some(peer), Some(pieces)) => bypass.send_unreported((peer, match_info), pieces),
            _ => false,
        }
    }

    /// Returns the next event of the rings if it is a short message. Frames are read only while the
    /// rings are empty, since the rings have room for their events then.
    #[inline]
    fn short_from_rings(&mut self) -> Option<(PeerId, ShortEvent)> {
        let rings = self.rings.as_mut()?;
        let mut short = (rings as &mut AnyTransport).short();
        if short.is_none() && self.bypass.is_some() && !rings.may_have_event() {
            self.turn.direct_polled = !self.poll_direct();
            if !self.turn.direct_polled {
                short = (self.rings.as_mut()? as &mut AnyTransport).short();
            }
        }
        self.turn.short_from_nic = short.is_some();
        short
    }

    /// Returns the next event of this host or another if it is a short message.
    fn short_from_any(&mut self) -> Option<(PeerId, ShortEvent)> {
        (self.turn.direct_polled, self.turn.short_from_nic) = (false, false);
        // Other events have their turn, too.
        let waits = self.turn.shorts_in_row >= SHORTS_IN_ROW_MAX || self.connects.has_notes();
        if self.turn.source != EventSource::Nothing || waits {
            return None;
        }
        if !self.turn.rings_first {
            let near = (&mut self.channels as &mut AnyTransport).short();
            return near.or_else(|| self.short_from_rings());
        }
        let from_rings = self.short_from_rings();
        if from_rings.is_some() || self.rings.as_ref().is_some_and(Rings::may_have_event) {
            return from_rings;
        }
        (&mut self.channels as &mut AnyTransport).short()
    }

    /// Returns the next event of the rings.
    #[inline]
    fn next_from_rings(&mut self) -> Option<TransportEvent> {
        self.granted = false;
        let mut next = (self.rings.as_mut()? as &mut AnyTransport).next();
        let looked = std::mem::take(&mut self.turn.direct_polled);
        if next.is_none() && !looked && self.poll_direct() {
            next = (self.rings.as_mut()? as &mut AnyTransport).next();
        }
        if next.is_some() {
            (self.turn.source, self.is_through_daemon) =
                (EventSource::Rings, self.bypass.is_none());
        } else {
            // Waiting messages may have requested staging.
            self.send_commands();
        }
        next
    }

    /// Returns the next event of the channels or the daemon.
    #[inline]
    fn next_from_channels(&mut self) -> Option<TransportEvent> {
        let channels: &mut AnyTransport = &mut self.channels;
        let next = channels.next();
        // The new peer is reported before the result of its connect.
        let first =
            matches!(next, Some(TransportEvent::PeerSeen { .. } | TransportEvent::PeerGone { .. }));
        if self.connects.has_notes() && !first {
            self.turn.source = EventSource::ConnectResult;
            return self.connects.first_note();
        }
        if next.is_some() {
            (self.turn.source, self.is_through_daemon) = (EventSource::Channels, false);
        }
        next
    }

    /// Returns the next event of rings, channels or the daemon, by turns.
    fn next_from_any(&mut self) -> Option<TransportEvent> {
        self.turn.shorts_in_row = 0;
        if self.connects.has_remote() {
            self.connect_remote();
        }
        let next = if self.turn.rings_first {
            self.next_from_rings().or_else(|| self.next_from_channels())
        } else {
            self.next_from_channels().or_else(|| self.next_from_rings())
        };
        self.turn.rings_first = self.turn.source != EventSource::Rings;
        next
    }
}

impl<B: Buffer> Transport<B> for Paths {
    #[inline]
    fn eager_max(&self, peer: PeerId) -> usize {
        match &self.rings {
            Some(rings) if is_remote(peer) => {
                let rings: &AnyTransport = rings;
                rings.eager_max(peer)
            }
            _ => <Local as Transport<B>>::eager_max(&self.channels, peer),
        }
    }

    #[inline(always)]
    fn try_eager(&mut self, peer: PeerId, match_info: u64, data: &B) -> bool {
        if is_remote(peer) {
            return self.send_direct(peer, match_info, data);
        }
        self.channels.try_eager(peer, match_info, data)
    }

    #[inline]
    fn eager(
        &mut self,
        peer: PeerId,
        token: Token,
        match_info: u64,
        data: &B,
    ) -> Result<Handover, TransportError> {
        if is_remote(peer) && self.send_direct(peer, match_info, data) {
            return Ok(Handover::Done);
        }
        let Some(rings) = self.rings_to(peer) else {
            return self.channels.eager(peer, token, match_info, data);
        };
        let handed = rings.eager(peer, token, match_info, data);
        self.serve_direct();
        handed
    }

    #[inline]
    fn offer(
        &mut self,
        peer: PeerId,
        token: Token,
        match_info: u64,
        data: &B,
    ) -> Result<(), TransportError> {
        let Some(rings) = self.rings_to(peer) else {
            return self.channels.offer(peer, token, match_info, data);
        };
        let offered = rings.offer(peer, token, match_info, data);
        self.send_commands();
        self.serve_direct();
        offered
    }

    fn pull(
        &mut self,
        peer: PeerId,
        offer: u64,
        token: Token,
        into: Option<&mut B>,
        len: u32,
    ) -> Result<Handover, TransportError> {
        let Some(rings) = self.rings_to(peer) else {
            return self.channels.pull(peer, offer, token, into, len);
        };
        let pulled = rings.pull(peer, offer, token, into, len);
        self.send_commands();
        self.serve_direct();
        pulled
    }

    fn feed(
        &mut self,
        peer: PeerId,
        to: u64,
        data: &B,
        at: usize,
        end: usize,
    ) -> Result<usize, TransportError> {
        self.channels.feed(peer, to, data, at, end)
    }

    fn push(&mut self, data: &B) {
        self.channels.push(data);
    }

    fn fail(&mut self, peer: PeerId, to: u64) {
        if !is_remote(peer) {
            let channels: &mut AnyTransport = &mut self.channels;
            channels.fail(peer, to);
        }
    }

    fn connect(
        &mut self,
        token: Token,
        to: Address,
        key: u32,
        timeout_ns: Option<u64>,
    ) -> Result<(), TransportError> {
        let parameters = ConnectParameters { to, key, timeout_ns };
        if self.has_no_daemon && !self.awaits_daemon() {
            return Err(TransportError::Never(Status::EndpointUnreachable));
        }
        if self.connects.is_full() {
            return Err(TransportError::Full);
        }
        if self.has_no_daemon {
            self.connects.begin(token.0, parameters);
            return Ok(());
        }
        // This daemon does not know a channel of an earlier daemon.
        if let Some(peer) = self.survivor(to) {
            self.connects.note(token.0, Status::Success, peer);
            return Ok(());
        }
        let Address { nic, endpoint } = to;
        let ask = ClientMessage::Connect {
            endpoint: self.own,
            to: endpoint,
            key,
            token: token.0,
            nic: nic.0,
        };
        if self.conversation.ask(ask).is_err() {
            self.part();
            if !self.awaits_daemon() {
                return Err(TransportError::Never(Status::EndpointUnreachable));
            }
        }
        self.connects.begin(token.0, parameters);
        Ok(())
    }

    fn disconnect(&mut self, peer: PeerId) {
        match self.rings_to(peer) {
            Some(rings) => (rings as &mut AnyTransport).disconnect(peer),
            None => {
                let channels: &mut AnyTransport = &mut self.channels;
                channels.disconnect(peer);
                self.drop_peer(peer);
            }
        }
    }

    fn forget(&mut self, peer: PeerId) {
        match self.rings_to(peer) {
            Some(rings) => (rings as &mut AnyTransport).forget(peer),
            None => {
                let channels: &mut AnyTransport = &mut self.channels;
                channels.forget(peer);
                self.drop_peer(peer);
            }
        }
    }

    fn cancel(&mut self, token: Token) {
        if self.connects.end(token.0).is_some() {
            return;
        }
        let channels: &mut AnyTransport = &mut self.channels;
        channels.cancel(token);
        if let Some(rings) = &mut self.rings {
            let rings: &mut AnyTransport = rings;
            rings.cancel(token);
        }
    }

    fn withdraw_memory(&mut self, token: Token) {
        let channels: &mut AnyTransport = &mut self.channels;
        channels.withdraw_memory(token);
        if let Some(rings) = &mut self.rings {
            let rings: &mut AnyTransport = rings;
            rings.withdraw_memory(token);
        }
    }

    fn watch(&mut self, peer: PeerId, on: bool) {
        // The end of a local peer is detected anyway.
        if let Some(rings) = self.rings_to(peer) {
            let rings: &mut AnyTransport = rings;
            rings.watch(peer, on);
        }
    }

    fn received(&self, peer: PeerId) -> u64 {
        match &self.rings {
            Some(rings) if is_remote(peer) => {
                let rings: &AnyTransport = rings;
                rings.received(peer)
            }
            _ => 0,
        }
    }

    fn fail_peer(&mut self, peer: PeerId) {
        match self.rings_to(peer) {
            Some(rings) => (rings as &mut AnyTransport).fail_peer(peer),
            None => {
                let channels: &mut AnyTransport = &mut self.channels;
                channels.fail_peer(peer);
            }
        }
    }

    #[inline]
    fn next(&mut self) -> Option<TransportEvent> {
        match self.turn.source {
            EventSource::Rings => return self.next_from_rings(),
            EventSource::Nothing if self.rings.is_some() => return self.next_from_any(),
            _ => {}
        }
        self.next_from_channels()
    }

    #[inline(always)]
    fn short(&mut self) -> Option<(PeerId, ShortEvent)> {
        if self.rings.is_some() {
            return self.short_from_any();
        }
        if self.turn.source != EventSource::Nothing || self.connects.has_notes() {
            return None;
        }
        <Local as Transport<B>>::short(&mut self.channels)
    }

    #[inline]
    fn short_done(&mut self) -> bool {
        let Some(rings) = &mut self.rings else {
            return <Local as Transport<B>>::short_done(&mut self.channels);
        };
        self.turn.shorts_in_row = self.turn.shorts_in_row.saturating_add(1);
        self.turn.rings_first = !self.turn.short_from_nic;
        self.is_through_daemon = self.turn.short_from_nic && self.bypass.is_none();
        if self.turn.short_from_nic {
            return (rings as &mut AnyTransport).short_done();
        }
        <Local as Transport<B>>::short_done(&mut self.channels)
    }

    #[inline]
    fn more(&self) -> bool {
        self.rings_have_event()
            || self.connects.has_notes()
            || <Local as Transport<B>>::more(&self.channels)
    }

    #[inline]
    fn copy(&self, at: usize, into: &mut [u8]) -> usize {
        match (self.turn.source, &self.rings) {
            (EventSource::Rings, Some(rings)) => {
                let rings: &AnyTransport = rings;
                rings.copy(at, into)
            }
            _ => <Local as Transport<B>>::copy(&self.channels, at, into),
        }
    }

    #[inline]
    fn done(&mut self) {
        match std::mem::replace(&mut self.turn.source, EventSource::Nothing) {
            EventSource::ConnectResult => self.connects.drop_note(),
            EventSource::Rings => {
                if let Some(rings) = &mut self.rings {
                    let rings: &mut AnyTransport = rings;
                    rings.done();
                }
                self.send_commands();
            }
            EventSource::Channels => <Local as Transport<B>>::done(&mut self.channels),
            EventSource::Nothing => {}
        }
    }

    #[inline]
    fn defer(&mut self) {
        match std::mem::replace(&mut self.turn.source, EventSource::Nothing) {
            EventSource::Rings => {
                if let Some(rings) = &mut self.rings {
                    let rings: &mut AnyTransport = rings;
                    rings.defer();
                }
            }
            EventSource::Channels => <Local as Transport<B>>::defer(&mut self.channels),
            EventSource::ConnectResult | EventSource::Nothing => {}
        }
    }
}
