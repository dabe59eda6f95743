//! The way as a [`Transport`]: by the number of a partner it is known which of both leads there.

use causeway_channel::Short;
use causeway_message::library::{
    TransportEvent, Buffer, Channels, Handover, Refused, Rings, Transport, is_remote,
};
use causeway_message::split::{Address, PeerId, Token};
use causeway_message::status::Status;
use causeway_wire::local::Ask;

use super::connects::Wish;
use super::{Between, OfDaemon, Way, Ways};
use crate::limits::SHORTS_IN_A_ROW_MAX;
use crate::staging::Slabs;

type Local = Channels<Between>;

/// Where the arrival is that was given to the library last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Shown {
    #[default]
    Nothing,
    Note,
    Channels,
    Rings,
}

/// Which of both the library is given from next.
#[derive(Debug, Default)]
pub(super) struct Turn {
    shown: Shown,
    /// It is the rings' turn.
    rings_first: bool,
    /// Short messages that were given in a row, without a look at all else.
    shorts: u32,
    /// The short message that was given last is of the rings.
    short_is_far: bool,
    /// The engine in this process was polled just before, and found no work.
    looked_past: bool,
}

impl Way {
    /// The rings, if they lead to that partner.
    #[inline]
    fn rings_to(&mut self, peer: PeerId) -> Option<&mut Rings<OfDaemon, Slabs>> {
        if is_remote(peer) { self.rings.as_mut() } else { None }
    }

    /// Past the rings, where the backend half is here and has nothing to do before: false if not.
    #[inline]
    fn send_straight<B: Buffer>(&mut self, peer: PeerId, match_info: u64, data: &B) -> bool {
        let (Some(bypass), Some(rings)) = (&mut self.bypass, &self.rings) else { return false };
        match (rings.past(peer), data.two()) {
            (Some(peer), Some(pieces)) => bypass.send_untold((peer, match_info), pieces),
            _ => false,
        }
    }

    /// What the rings have, if it is short. No more is taken from the network while there is
    /// anything in them: it would have no room there.
    #[inline]
    fn short_of_rings(&mut self) -> Option<(PeerId, Short)> {
        let rings = self.rings.as_mut()?;
        let mut short = (rings as &mut Ways).short();
        if short.is_none() && self.bypass.is_some() && !rings.comes() {
            self.turn.looked_past = !self.go_past();
            if !self.turn.looked_past {
                short = (self.rings.as_mut()? as &mut Ways).short();
            }
        }
        self.turn.short_is_far = short.is_some();
        short
    }

    /// What is short, of this host or another.
    fn short_of_both(&mut self) -> Option<(PeerId, Short)> {
        (self.turn.looked_past, self.turn.short_is_far) = (false, false);
        // All else has its turn, too.
        let waits = self.turn.shorts >= SHORTS_IN_A_ROW_MAX || self.connects.has_notes();
        if self.turn.shown != Shown::Nothing || waits {
            return None;
        }
        if !self.turn.rings_first {
            let near = (&mut self.channels as &mut Ways).short();
            return near.or_else(|| self.short_of_rings());
        }
        let far = self.short_of_rings();
        if far.is_some() || self.rings.as_ref().is_some_and(Rings::comes) {
            return far;
        }
        (&mut self.channels as &mut Ways).short()
    }

    /// What the rings have.
    #[inline]
    fn next_of_rings(&mut self) -> Option<TransportEvent> {
        let mut next = (self.rings.as_mut()? as &mut Ways).next();
        let looked = std::mem::take(&mut self.turn.looked_past);
        if next.is_none() && !looked && self.go_past() {
            next = (self.rings.as_mut()? as &mut Ways).next();
        }
        if next.is_some() {
            (self.turn.shown, self.far) = (Shown::Rings, self.bypass.is_none());
        } else {
            // What waited for a place may have asked for more memory.
            self.send_orders();
        }
        next
    }

    /// What channels and the daemon have.
    #[inline]
    fn next_of_host(&mut self) -> Option<TransportEvent> {
        let channels: &mut Ways = &mut self.channels;
        let next = channels.next();
        // A partner is seen before it is said that the connect to it ended.
        let first = matches!(next, Some(TransportEvent::PeerSeen { .. } | TransportEvent::PeerGone { .. }));
        if self.connects.has_notes() && !first {
            self.turn.shown = Shown::Note;
            return self.connects.first_note();
        }
        if next.is_some() {
            (self.turn.shown, self.far) = (Shown::Channels, false);
        }
        next
    }

    fn next_of_both(&mut self) -> Option<TransportEvent> {
        self.turn.shorts = 0;
        if self.connects.has_remote() {
            self.connect_remote();
        }
        let next = if self.turn.rings_first {
            self.next_of_rings().or_else(|| self.next_of_host())
        } else {
            self.next_of_host().or_else(|| self.next_of_rings())
        };
        self.turn.rings_first = self.turn.shown != Shown::Rings;
        next
    }
}

impl<B: Buffer> Transport<B> for Way {
    #[inline]
    fn eager_max(&self, peer: PeerId) -> usize {
        match &self.rings {
            Some(rings) if is_remote(peer) => {
                let rings: &Ways = rings;
                rings.eager_max(peer)
            }
            _ => <Local as Transport<B>>::eager_max(&self.channels, peer),
        }
    }

    #[inline(always)]
    fn try_eager(&mut self, peer: PeerId, match_info: u64, data: &B) -> bool {
        if is_remote(peer) {
            return self.send_straight(peer, match_info, data);
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
    ) -> Result<Handover, Refused> {
        if is_remote(peer) && self.send_straight(peer, match_info, data) {
            return Ok(Handover::Done);
        }
        let Some(rings) = self.rings_to(peer) else {
            return self.channels.eager(peer, token, match_info, data);
        };
        let handed = rings.eager(peer, token, match_info, data);
        self.push_past();
        handed
    }

    #[inline]
    fn offer(
        &mut self,
        peer: PeerId,
        token: Token,
        match_info: u64,
        data: &B,
    ) -> Result<(), Refused> {
        let Some(rings) = self.rings_to(peer) else {
            return self.channels.offer(peer, token, match_info, data);
        };
        let offered = rings.offer(peer, token, match_info, data);
        self.send_orders();
        self.push_past();
        offered
    }

    fn pull(
        &mut self,
        peer: PeerId,
        offer: u64,
        token: Token,
        into: Option<&mut B>,
        len: u32,
    ) -> Result<Handover, Refused> {
        let Some(rings) = self.rings_to(peer) else {
            return self.channels.pull(peer, offer, token, into, len);
        };
        let pulled = rings.pull(peer, offer, token, into, len);
        self.send_orders();
        self.push_past();
        pulled
    }

    fn feed(
        &mut self,
        peer: PeerId,
        to: u64,
        data: &B,
        at: usize,
        end: usize,
    ) -> Result<usize, Refused> {
        self.channels.feed(peer, to, data, at, end)
    }

    fn push(&mut self, data: &B) {
        self.channels.push(data);
    }

    fn fail(&mut self, peer: PeerId, to: u64) {
        if !is_remote(peer) {
            let channels: &mut Ways = &mut self.channels;
            channels.fail(peer, to);
        }
    }

    fn connect(
        &mut self,
        token: Token,
        to: Address,
        key: u32,
        timeout_ns: Option<u64>,
    ) -> Result<(), Refused> {
        let wish = Wish { to, key, timeout_ns };
        if self.parted && !self.awaits_daemon() {
            return Err(Refused::Never(Status::EndpointUnreachable));
        }
        if self.connects.is_full() {
            return Err(Refused::Full);
        }
        if self.parted {
            self.connects.begin(token.0, wish);
            return Ok(());
        }
        // A channel that the daemon before made is one that this daemon does not know.
        if let Some(peer) = self.survivor(to) {
            self.connects.note(token.0, Status::Success, peer);
            return Ok(());
        }
        let Address { nic, endpoint } = to;
        let ask =
            Ask::Connect { endpoint: self.own, to: endpoint, key, token: token.0, nic: nic.0 };
        if self.conversation.ask(ask).is_err() {
            self.part();
            if !self.awaits_daemon() {
                return Err(Refused::Never(Status::EndpointUnreachable));
            }
        }
        self.connects.begin(token.0, wish);
        Ok(())
    }

    fn disconnect(&mut self, peer: PeerId) {
        match self.rings_to(peer) {
            Some(rings) => (rings as &mut Ways).disconnect(peer),
            None => {
                let channels: &mut Ways = &mut self.channels;
                channels.disconnect(peer);
                self.drop_peer(peer);
            }
        }
    }

    fn forget(&mut self, peer: PeerId) {
        match self.rings_to(peer) {
            Some(rings) => (rings as &mut Ways).forget(peer),
            None => {
                let channels: &mut Ways = &mut self.channels;
                channels.forget(peer);
                self.drop_peer(peer);
            }
        }
    }

    fn cancel(&mut self, token: Token) {
        if self.connects.end(token.0).is_some() {
            return;
        }
        let channels: &mut Ways = &mut self.channels;
        channels.cancel(token);
        if let Some(rings) = &mut self.rings {
            let rings: &mut Ways = rings;
            rings.cancel(token);
        }
    }

    fn withdraw_memory(&mut self, token: Token) {
        let channels: &mut Ways = &mut self.channels;
        channels.withdraw_memory(token);
        if let Some(rings) = &mut self.rings {
            let rings: &mut Ways = rings;
            rings.withdraw_memory(token);
        }
    }

    fn watch(&mut self, peer: PeerId, on: bool) {
        // That somebody of this host is gone is seen.
        if let Some(rings) = self.rings_to(peer) {
            let rings: &mut Ways = rings;
            rings.watch(peer, on);
        }
    }

    fn received(&self, peer: PeerId) -> u64 {
        match &self.rings {
            Some(rings) if is_remote(peer) => {
                let rings: &Ways = rings;
                rings.received(peer)
            }
            _ => 0,
        }
    }

    fn fail_peer(&mut self, peer: PeerId) {
        match self.rings_to(peer) {
            Some(rings) => (rings as &mut Ways).fail_peer(peer),
            None => {
                let channels: &mut Ways = &mut self.channels;
                channels.fail_peer(peer);
            }
        }
    }

    #[inline]
    fn next(&mut self) -> Option<TransportEvent> {
        match self.turn.shown {
            Shown::Rings => return self.next_of_rings(),
            Shown::Nothing if self.rings.is_some() => return self.next_of_both(),
            _ => {}
        }
        self.next_of_host()
    }

    #[inline(always)]
    fn short(&mut self) -> Option<(PeerId, Short)> {
        if self.rings.is_some() {
            return self.short_of_both();
        }
        if self.turn.shown != Shown::Nothing || self.connects.has_notes() {
            return None;
        }
        <Local as Transport<B>>::short(&mut self.channels)
    }

    #[inline]
    fn short_done(&mut self) -> bool {
        let Some(rings) = &mut self.rings else {
            return <Local as Transport<B>>::short_done(&mut self.channels);
        };
        self.turn.shorts = self.turn.shorts.saturating_add(1);
        self.turn.rings_first = !self.turn.short_is_far;
        self.far = self.turn.short_is_far && self.bypass.is_none();
        if self.turn.short_is_far {
            return (rings as &mut Ways).short_done();
        }
        <Local as Transport<B>>::short_done(&mut self.channels)
    }

    #[inline]
    fn more(&self) -> bool {
        self.rings_come()
            || self.connects.has_notes()
            || <Local as Transport<B>>::more(&self.channels)
    }

    #[inline]
    fn copy(&self, at: usize, into: &mut [u8]) -> usize {
        match (self.turn.shown, &self.rings) {
            (Shown::Rings, Some(rings)) => {
                let rings: &Ways = rings;
                rings.copy(at, into)
            }
            _ => <Local as Transport<B>>::copy(&self.channels, at, into),
        }
    }

    #[inline]
    fn done(&mut self) {
        match std::mem::replace(&mut self.turn.shown, Shown::Nothing) {
            Shown::Note => self.connects.drop_note(),
            Shown::Rings => {
                if let Some(rings) = &mut self.rings {
                    let rings: &mut Ways = rings;
                    rings.done();
                }
                self.send_orders();
            }
            Shown::Channels => <Local as Transport<B>>::done(&mut self.channels),
            Shown::Nothing => {}
        }
    }

    #[inline]
    fn defer(&mut self) {
        match std::mem::replace(&mut self.turn.shown, Shown::Nothing) {
            Shown::Rings => {
                if let Some(rings) = &mut self.rings {
                    let rings: &mut Ways = rings;
                    rings.defer();
                }
            }
            Shown::Channels => <Local as Transport<B>>::defer(&mut self.channels),
            Shown::Note | Shown::Nothing => {}
        }
    }
}
