//! Implementation of [`Transport`] for [`Channels`]: sends into the channels, and the order of
//! events.
//!
//! A message up to [`CHANNEL_EAGER_BYTES_MAX`] (8 KiB) is copied into the channel and complete at
//! once; no event confirms it. A longer message is offered, from [`DIRECT_BYTES_MIN`] (32 KiB) on
//! with its addresses. A pull is answered in chunks of [`CHANNEL_CHUNK_BYTES`] (4 KiB), at most
//! [`CHANNEL_FEED_BYTES_MAX`] (256 KiB) in a row, and as fast as the receiver copies them.
//!
//! [`Transport::next`] returns reports about peers first, then a due step of a direct read, events,
//! other steps of direct reads, and steps of cooperative copies. [`Transport::connect`] always
//! fails (`EndpointUnknown`): the owner of the endpoint asks the daemon for a channel.
//! [`Transport::cancel`] invalidates the addresses of all open offers, since one of them may be the
//! cancelled send; peers that read the others pull them through the channel instead.
//!
//! A channel without room takes nothing: `eager`, `offer` and `pull` return
//! [`TransportError::Full`] and the matching engine tries again later, `try_eager` returns false,
//! and `feed` returns the bytes that fitted, perhaps 0. Without a channel to the peer, all but
//! `try_eager` end with [`TransportError::Never`].
//!
//! [`Transport::disconnect`] and [`Transport::forget`] remove the channel and have no effect for an
//! unknown peer. [`Transport::cancel`] does not check its token: a token of an ended request
//! invalidates addresses, too, which costs time only. [`Transport::withdraw_memory`] concerns
//! receives, and ignores other tokens: the addresses of an offer are invalidated by
//! [`Channels::withdraw`].
//!
//! Callers: [`Library`](crate::library::Library), directly or through `causeway-endpoint`'s union
//! of transports, in the thread of the application that holds the endpoint.

use causeway_channel::{EventHead, ShortEvent};
use causeway_wire::mx::{Address, PeerId, Status, Token};

use super::direct_read::EncodedPlaces;
use super::read_schedule::TransferLoad;
use super::{ChannelCursor, Channels, PeerDoorbell, event};
use crate::library::{Buffer, Handover, Transport, TransportError, TransportEvent, pieces};
use crate::limits::{
    CHANNEL_CHUNK_BYTES, CHANNEL_EAGER_BYTES_MAX, CHANNEL_FEED_BYTES_MAX, DIRECT_BYTES_MIN,
};

impl<D: PeerDoorbell> Channels<D> {
    /// Sends a message of more than two segments.
    #[cold]
    fn send_pieces<B: Buffer>(
        &mut self,
        peer: PeerId,
        head: EventHead,
        data: &B,
    ) -> Result<(), TransportError> {
        let len = data.len();
        self.send(peer, head, len, |writing| pieces(data, 0, len, |piece| writing.put(piece)))
    }
}

impl<B: Buffer, D: PeerDoorbell> Transport<B> for Channels<D> {
    fn eager_max(&self, _peer: PeerId) -> usize {
        CHANNEL_EAGER_BYTES_MAX
    }

    #[inline(always)]
    fn try_eager(&mut self, peer: PeerId, match_info: u64, data: &B) -> bool {
        self.eager(peer, Token::UNREPORTED, match_info, data) == Ok(Handover::Done)
    }

    #[inline(always)]
    fn eager(
        &mut self,
        peer: PeerId,
        _token: Token,
        match_info: u64,
        data: &B,
    ) -> Result<Handover, TransportError> {
        let head = event::message(match_info);
        if let Some((first, second)) = data.two() {
            if let Some(short) = ShortEvent::of(match_info, first, second) {
                self.send_short(peer, &short)?;
                return Ok(Handover::Done);
            }
            let len = first.len().saturating_add(second.len());
            self.send(peer, head, len, |writing| {
                writing.put(first);
                if !second.is_empty() {
                    writing.put(second);
                }
            })?;
        } else {
            self.send_pieces(peer, head, data)?;
        }
        Ok(Handover::Done)
    }

    fn offer(
        &mut self,
        peer: PeerId,
        token: Token,
        match_info: u64,
        data: &B,
    ) -> Result<(), TransportError> {
        let (_, channel) = self.channel(peer)?;
        let sends_addresses = channel.sends_addresses && data.len() >= DIRECT_BYTES_MIN;
        let word = channel.sender.withdrawn();
        let addresses =
            if sends_addresses { EncodedPlaces::of(data, data.len(), word) } else { None };
        let bytes = addresses.as_ref().map_or(&[][..], EncodedPlaces::bytes);
        let head = event::offer(match_info, token, data.len());
        self.send(peer, head, bytes.len(), |writing| writing.put(bytes))?;
        if addresses.is_some() {
            self.load.offer();
        }
        Ok(())
    }

    fn pull(
        &mut self,
        peer: PeerId,
        offer: u64,
        token: Token,
        into: Option<&mut B>,
        len: u32,
    ) -> Result<Handover, TransportError> {
        let can_help = self.asks_help(peer, len);
        let into =
            into.filter(|_| can_help).and_then(|into| EncodedPlaces::of(into, len as usize, 0));
        if self.begin_read((peer, token), offer, into, len) {
            return Ok(Handover::Kept);
        }
        self.send(peer, event::pull(offer, token, len), 0, |_| ())?;
        self.load.pull(len);
        Ok(if len == 0 { Handover::Done } else { Handover::Kept })
    }

    fn feed(
        &mut self,
        peer: PeerId,
        to: u64,
        data: &B,
        at: usize,
        end: usize,
    ) -> Result<usize, TransportError> {
        let (_, channel) = self.channel(peer)?;
        let chunk = CHANNEL_CHUNK_BYTES.min(channel.sender.event_bytes_max());
        // A long message pauses here, so that other work has a turn.
        let (whole, end) = (end, end.min(at.saturating_add(CHANNEL_FEED_BYTES_MAX)));
        let mut from = at;
        while from < end && self.keeps_up(peer, chunk)? {
            let len = chunk.min(end.saturating_sub(from));
            let until = from.saturating_add(len);
            let sent = self.send(peer, event::chunk(to), len, |writing| {
                pieces(data, from, until, |piece| writing.put(piece));
            });
            match sent {
                Ok(()) => from = until,
                Err(TransportError::Full) => break,
                Err(never) => return Err(never),
            }
        }
        let (_, channel) = self.channel(peer)?;
        channel.has_more = from == end && end < whole;
        let fed = from.saturating_sub(at);
        self.load.feed(fed);
        Ok(fed)
    }

    fn push(&mut self, data: &B) {
        self.push_step(data);
    }

    fn fail(&mut self, peer: PeerId, to: u64) {
        self.load = TransferLoad::default();
        self.report_failed(peer, to);
    }

    /// Channels cannot connect; the owner of the endpoint asks the daemon.
    fn connect(
        &mut self,
        _token: Token,
        _to: Address,
        _key: u32,
        _timeout_ns: Option<u64>,
    ) -> Result<(), TransportError> {
        Err(TransportError::Never(Status::EndpointUnknown))
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.remove(peer);
    }

    fn forget(&mut self, peer: PeerId) {
        self.remove(peer);
    }

    fn cancel(&mut self, _token: Token) {
        // The request may be an offer, and its memory changes from now on.
        self.withdraw();
    }

    fn withdraw_memory(&mut self, token: Token) {
        self.withdraw_share(token);
    }

    fn fail_peer(&mut self, peer: PeerId) {
        if let Some(at) = self.of(peer) {
            self.close_channel(at, Status::EndpointUnreachable);
        }
    }

    #[inline]
    fn next(&mut self) -> Option<TransportEvent> {
        if self.current != ChannelCursor::Nothing {
            return Some(self.arrival);
        }
        if let Some(&note) = self.notes.front() {
            self.arrival = note;
            self.current = ChannelCursor::Note;
            return Some(note);
        }
        if self.retry_due {
            self.retry_deferred();
        }
        self.yields = false;
        if self.read_is_due() && self.select_read() {
            return Some(self.arrival);
        }
        if self.poll_channels() {
            self.before_read = self.before_read.saturating_sub(1);
            return Some(self.arrival);
        }
        if self.select_read() || self.select_push() {
            return Some(self.arrival);
        }
        self.idle();
        None
    }

    #[inline(always)]
    fn short(&mut self) -> Option<(PeerId, ShortEvent)> {
        if self.current != ChannelCursor::Nothing
            || !self.notes.is_empty()
            || self.retry_due
            || self.read_is_due()
        {
            return None;
        }
        let channel = self.channels.get(self.at)?.as_ref()?;
        if channel.is_closed || channel.deferred || self.turn == 0 {
            return None;
        }
        Some((channel.peer, channel.receiver.poll_short(event::MESSAGE)?))
    }

    #[inline]
    fn short_done(&mut self) -> bool {
        self.turn = self.turn.saturating_sub(1);
        self.before_read = self.before_read.saturating_sub(1);
        let Some(Some(channel)) = self.channels.get_mut(self.at) else { return false };
        (channel.sent_in_row, channel.received_in_row) =
            (0, channel.received_in_row.saturating_add(1));
        if channel.receiver.advance_short() {
            channel.doorbell.ring();
        }
        channel.receiver.ready()
    }

    #[inline]
    fn more(&self) -> bool {
        self.may_have_event() || self.chunk_comes()
    }

    #[inline]
    fn copy(&self, at: usize, into: &mut [u8]) -> usize {
        match self.current {
            ChannelCursor::Event(channel) => {
                let Some(Some(channel)) = self.channels.get(channel) else { return 0 };
                channel.receiver.copy(&self.event, at, into)
            }
            ChannelCursor::Read => self.read(at, into),
            ChannelCursor::Nothing | ChannelCursor::Note | ChannelCursor::Push => 0,
        }
    }

    #[inline]
    fn done(&mut self) {
        match std::mem::replace(&mut self.current, ChannelCursor::Nothing) {
            ChannelCursor::Note => drop(self.notes.pop_front()),
            ChannelCursor::Event(at) => {
                let offered = self.offered.take();
                if let Some(Some(channel)) = self.channels.get_mut(at) {
                    if let Some(offered) = offered {
                        channel.offers.insert(offered.name, offered);
                    }
                    if channel.receiver.advance(&self.event) {
                        channel.doorbell.ring();
                    }
                }
                if let (Some(_), TransportEvent::Chunk { peer, token, len }) =
                    (self.timed, self.arrival)
                {
                    self.count_timed(peer, token, len);
                }
            }
            ChannelCursor::Read => self.end_read_step(),
            ChannelCursor::Push => self.end_push_step(),
            ChannelCursor::Nothing => {}
        }
    }

    fn defer(&mut self) {
        if let ChannelCursor::Event(at) =
            std::mem::replace(&mut self.current, ChannelCursor::Nothing)
            && let Some(Some(channel)) = self.channels.get_mut(at)
        {
            channel.deferred = true;
            self.has_deferred = true;
        }
    }
}
