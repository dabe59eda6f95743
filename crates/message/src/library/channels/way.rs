//! [`Transport`] of channels.

use causeway_channel::{Head, Short};
use causeway_wire::mx::{Address, PeerId, Status, Token};

use super::direct::Told;
use super::read::Load;
use super::{Bell, Channels, Current, event};
use crate::library::{Arrival, Buffer, Handed, Refused, Transport, pieces};
use crate::limits::{
    CHANNEL_CHUNK_BYTES, CHANNEL_EAGER_BYTES_MAX, CHANNEL_FEED_BYTES_MAX, DIRECT_BYTES_MIN,
};

impl<D: Bell> Channels<D> {
    /// Sends a message of more than two segments.
    #[cold]
    fn send_pieces<B: Buffer>(
        &mut self,
        peer: PeerId,
        head: Head,
        data: &B,
    ) -> Result<(), Refused> {
        let len = data.len();
        self.send(peer, head, len, |writing| pieces(data, 0, len, |piece| writing.put(piece)))
    }
}

impl<B: Buffer, D: Bell> Transport<B> for Channels<D> {
    fn eager_max(&self, _peer: PeerId) -> usize {
        CHANNEL_EAGER_BYTES_MAX
    }

    #[inline(always)]
    fn at_once(&mut self, peer: PeerId, match_info: u64, data: &B) -> bool {
        self.eager(peer, Token::UNREPORTED, match_info, data) == Ok(Handed::Done)
    }

    #[inline(always)]
    fn eager(
        &mut self,
        peer: PeerId,
        _token: Token,
        match_info: u64,
        data: &B,
    ) -> Result<Handed, Refused> {
        let head = event::message(match_info);
        if let Some((first, second)) = data.two() {
            if let Some(short) = Short::of(match_info, first, second) {
                self.send_short(peer, &short)?;
                return Ok(Handed::Done);
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
        Ok(Handed::Done)
    }

    fn offer(
        &mut self,
        peer: PeerId,
        token: Token,
        match_info: u64,
        data: &B,
    ) -> Result<(), Refused> {
        let (_, link) = self.link(peer)?;
        let tells = link.tells && data.len() >= DIRECT_BYTES_MIN;
        let word = link.sender.withdrawn();
        let told = if tells { Told::of(data, data.len(), word) } else { None };
        let bytes = told.as_ref().map_or(&[][..], Told::bytes);
        let head = event::offer(match_info, token, data.len());
        self.send(peer, head, bytes.len(), |writing| writing.put(bytes))?;
        if told.is_some() {
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
    ) -> Result<Handed, Refused> {
        let asks = self.asks_help(peer, len);
        let into = into.filter(|_| asks).and_then(|into| Told::of(into, len as usize, 0));
        if self.begin_read((peer, token), offer, into, len) {
            return Ok(Handed::Kept);
        }
        self.send(peer, event::pull(offer, token, len), 0, |_| ())?;
        self.load.pull(len);
        Ok(if len == 0 { Handed::Done } else { Handed::Kept })
    }

    fn feed(
        &mut self,
        peer: PeerId,
        to: u64,
        data: &B,
        at: usize,
        end: usize,
    ) -> Result<usize, Refused> {
        let (_, link) = self.link(peer)?;
        let chunk = CHANNEL_CHUNK_BYTES.min(link.sender.event_bytes_max());
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
                Err(Refused::Full) => break,
                Err(never) => return Err(never),
            }
        }
        let (_, link) = self.link(peer)?;
        link.left = from == end && end < whole;
        let fed = from.saturating_sub(at);
        self.load.feed(fed);
        Ok(fed)
    }

    fn push(&mut self, data: &B) {
        self.push_some(data);
    }

    fn fail(&mut self, peer: PeerId, to: u64) {
        self.load = Load::default();
        self.tell_failed(peer, to);
    }

    /// Channels cannot connect; the owner of the endpoint asks the daemon.
    fn connect(
        &mut self,
        _token: Token,
        _to: Address,
        _key: u32,
        _timeout_ns: Option<u64>,
    ) -> Result<(), Refused> {
        Err(Refused::Never(Status::EndpointUnknown))
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

    fn lose(&mut self, token: Token) {
        self.lose_share(token);
    }

    fn broken(&mut self, peer: PeerId) {
        if let Some(at) = self.of(peer) {
            self.bury(at, Status::EndpointUnreachable);
        }
    }

    #[inline]
    fn next(&mut self) -> Option<Arrival> {
        if self.current != Current::Nothing {
            return Some(self.arrival);
        }
        if let Some(&note) = self.notes.front() {
            self.arrival = note;
            self.current = Current::Note;
            return Some(note);
        }
        if self.rested {
            self.offer_again();
        }
        self.breathes = false;
        if self.read_is_due() && self.look_at_read() {
            return Some(self.arrival);
        }
        if self.look_round() {
            self.before_read = self.before_read.saturating_sub(1);
            return Some(self.arrival);
        }
        if self.look_at_read() || self.look_at_push() {
            return Some(self.arrival);
        }
        self.idle();
        None
    }

    #[inline(always)]
    fn short(&mut self) -> Option<(PeerId, Short)> {
        if self.current != Current::Nothing
            || !self.notes.is_empty()
            || self.rested
            || self.read_is_due()
        {
            return None;
        }
        let link = self.links.get(self.at)?.as_ref()?;
        if link.dead || link.deferred || self.turn == 0 {
            return None;
        }
        Some((link.peer, link.receiver.poll_short(event::MESSAGE)?))
    }

    #[inline]
    fn short_done(&mut self) -> bool {
        self.turn = self.turn.saturating_sub(1);
        self.before_read = self.before_read.saturating_sub(1);
        let Some(Some(link)) = self.links.get_mut(self.at) else { return false };
        (link.told, link.heard) = (0, link.heard.saturating_add(1));
        if link.receiver.advance_short() {
            link.bell.ring();
        }
        link.receiver.ready()
    }

    #[inline]
    fn more(&self) -> bool {
        self.comes() || self.pieces_come()
    }

    #[inline]
    fn copy(&self, at: usize, into: &mut [u8]) -> usize {
        match self.current {
            Current::Event(link) => {
                let Some(Some(link)) = self.links.get(link) else { return 0 };
                link.receiver.copy(&self.event, at, into)
            }
            Current::Read => self.read(at, into),
            Current::Nothing | Current::Note | Current::Push => 0,
        }
    }

    #[inline]
    fn done(&mut self) {
        match std::mem::replace(&mut self.current, Current::Nothing) {
            Current::Note => drop(self.notes.pop_front()),
            Current::Event(at) => {
                let offered = self.offered.take();
                if let Some(Some(link)) = self.links.get_mut(at) {
                    if let Some(offered) = offered {
                        link.offers.insert(offered.name, offered);
                    }
                    if link.receiver.advance(&self.event) {
                        link.bell.ring();
                    }
                }
                if let (Some(_), Arrival::Chunk { peer, token, len }) = (self.timed, self.arrival) {
                    self.time(peer, token, len);
                }
            }
            Current::Read => self.read_on(),
            Current::Push => self.push_on(),
            Current::Nothing => {}
        }
    }

    fn defer(&mut self) {
        if let Current::Event(at) = std::mem::replace(&mut self.current, Current::Nothing)
            && let Some(Some(link)) = self.links.get_mut(at)
        {
            link.deferred = true;
            self.deferring = true;
        }
    }
}
