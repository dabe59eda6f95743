//! The way to partners of this host: channels, which the daemon sets up when it is asked.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use causeway_memory::{Mapping, View};
use causeway_message::library::{Arrival, Bell, Channel, Channels, Handed, Refused, Transport};
use causeway_message::limits::PEER_NUMBERS_MAX;
use causeway_message::split::{Address, NicId, PeerId, Token};
use causeway_message::status::Status;
use causeway_ring::channel::{Receiver, Sender, Side, open};
use causeway_wire::local::{Ask, Tell};
use rustix::fs::SealFlags;

use crate::board::Conversation;
use crate::limits::CHANNEL_BYTES_MAX;
use crate::memory::Segments;

/// A doorbell.
#[derive(Debug)]
pub struct Doorbell(pub OwnedFd);

impl Bell for Doorbell {
    fn ring(&self) {
        // It can only fail when it is full, and then it is readable all the same.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// A partner's number in use.
#[derive(Debug, Clone, Copy)]
struct Peer {
    address: Address,
    session: u32,
    /// The daemon knows that there is no way to it any more.
    gone: bool,
}

/// All channels of an endpoint, and the conversation that brings more.
#[derive(Debug)]
pub struct Way {
    own: u8,
    pub channels: Channels<Doorbell>,
    pub conversation: Conversation,
    /// The daemon is gone: channels go on, nothing new comes.
    pub parted: bool,
    connects: BTreeMap<u64, Address>,
    notes: VecDeque<Arrival>,
    /// What was given last is one of the notes.
    noting: bool,
    peers: Vec<Option<Peer>>,
    by_address: BTreeMap<Address, PeerId>,
}

/// The memory of a channel, as it came. It is sealed: nobody can shrink it under us.
fn map(file: &OwnedFd, side: u8) -> Option<(Sender, Receiver)> {
    let sealed = rustix::fs::fcntl_get_seals(file).ok()?;
    if !sealed.contains(SealFlags::SHRINK) {
        return None;
    }
    let len = u64::try_from(rustix::fs::fstat(file).ok()?.st_size).ok()?;
    if len > CHANNEL_BYTES_MAX {
        return None;
    }
    let mapping = Arc::new(Mapping::new(file.as_fd(), 0, len).ok()?);
    let view = View::new(mapping, 0, usize::try_from(len).ok()?).ok()?;
    open(&view, if side == 0 { Side::First } else { Side::Second }).ok()
}

impl Way {
    pub fn new(own: u8, conversation: Conversation) -> Self {
        Self {
            own,
            channels: Channels::default(),
            conversation,
            parted: false,
            connects: BTreeMap::new(),
            notes: VecDeque::new(),
            noting: false,
            peers: Vec::new(),
            by_address: BTreeMap::new(),
        }
    }

    /// Whether an answer of the daemon is waited for.
    #[inline]
    pub fn connecting(&self) -> bool {
        !self.connects.is_empty()
    }

    /// Takes what the daemon told. True: it told something.
    #[cold]
    pub fn hear(&mut self) -> bool {
        let mut heard = false;
        while !self.parted {
            match self.conversation.hear() {
                Ok(Some((tell, fds))) => self.told(tell, fds),
                Ok(None) => return heard,
                Err(_) => self.part(),
            }
            heard = true;
        }
        heard
    }

    fn part(&mut self) {
        self.parted = true;
        for (token, _) in std::mem::take(&mut self.connects) {
            self.note(token, Status::EndpointUnreachable, PeerId::NONE);
        }
    }

    fn note(&mut self, token: u64, status: Status, peer: PeerId) {
        self.notes.push_back(Arrival::Connected { token: Token(token), status, peer });
    }

    fn told(&mut self, tell: Tell, fds: Vec<OwnedFd>) {
        match tell {
            Tell::Channel { of, side, session, token, nic, .. } => {
                let address = Address { nic: NicId(nic), endpoint: of };
                let peer = self.add(address, session, side, fds);
                if self.connects.remove(&token).is_some() {
                    match peer {
                        Some(peer) => self.note(token, Status::Success, peer),
                        None => self.note(token, Status::NoResources, PeerId::NONE),
                    }
                }
            }
            Tell::Refused { status, token, .. } => {
                let Some(to) = self.connects.remove(&token) else { return };
                let known = self.by_address.get(&to).copied();
                match (status_of(status), known) {
                    (Status::Success, Some(peer)) => self.note(token, Status::Success, peer),
                    (Status::Success, None) => {
                        self.note(token, Status::EndpointUnreachable, PeerId::NONE);
                    }
                    (status, _) => self.note(token, status, PeerId::NONE),
                }
            }
            Tell::Gone { of, session, nic, .. } => {
                let address = Address { nic: NicId(nic), endpoint: of };
                let Some(&id) = self.by_address.get(&address) else { return };
                if let Some(Some(peer)) = self.peers.get_mut(id.0 as usize)
                    && peer.session == session
                {
                    peer.gone = true;
                    self.by_address.remove(&address);
                    self.channels.lost(id, Status::EndpointClosed);
                }
            }
            Tell::Welcome { .. } | Tell::Opened { .. } | Tell::Host { .. } => {}
        }
    }

    /// A new partner.
    fn add(
        &mut self,
        address: Address,
        session: u32,
        side: u8,
        mut fds: Vec<OwnedFd>,
    ) -> Option<PeerId> {
        let (bell, file) = (fds.pop()?, fds.pop()?);
        let (sender, receiver) = map(&file, side)?;
        let free = self.peers.iter().position(Option::is_none).unwrap_or(self.peers.len());
        if free >= PEER_NUMBERS_MAX {
            return None;
        }
        let peer = PeerId(u32::try_from(free).ok()?);
        let bell = Doorbell(bell);
        if !self.channels.add(Channel { peer, address, session, sender, receiver, bell }) {
            return None;
        }
        let entry = Some(Peer { address, session, gone: false });
        match self.peers.get_mut(free) {
            Some(place) => *place = entry,
            None => self.peers.push(entry),
        }
        self.by_address.insert(address, peer);
        Some(peer)
    }

    /// The number of a partner is free again.
    fn drop_peer(&mut self, peer: PeerId) {
        let Some(known) = self.peers.get_mut(peer.0 as usize).and_then(Option::take) else {
            return;
        };
        if self.by_address.get(&known.address) == Some(&peer) {
            self.by_address.remove(&known.address);
        }
        if !known.gone && !self.parted {
            let Address { nic, endpoint: to } = known.address;
            let ask = Ask::Disconnect { endpoint: self.own, to, nic: nic.0 };
            if self.conversation.ask(ask).is_err() {
                self.part();
            }
        }
    }

    /// The endpoint is closed: partners hear of it by their channels.
    pub fn end(&mut self) {
        let all: Vec<PeerId> = self.by_address.values().copied().collect();
        for peer in all {
            let channels: &mut Ways = &mut self.channels;
            channels.disconnect(peer);
        }
        if !self.parted {
            let _ = self.conversation.ask(Ask::Close { endpoint: self.own });
        }
    }

    /// Before sleeping; see [`Channels::arm`].
    pub fn arm(&mut self) -> bool {
        self.notes.is_empty() & self.channels.arm()
    }
}

/// The status of that number.
fn status_of(number: u8) -> Status {
    const ALL: [Status; 8] = [
        Status::Success,
        Status::Timeout,
        Status::EndpointUnknown,
        Status::EndpointClosed,
        Status::BadSession,
        Status::BadKey,
        Status::BadEndpoint,
        Status::NoResources,
    ];
    let found = ALL.into_iter().find(|status| *status as u32 == u32::from(number));
    found.unwrap_or(Status::EndpointUnreachable)
}

type Ways = dyn Transport<Segments>;

impl Transport<Segments> for Way {
    #[inline]
    fn eager_max(&self, peer: PeerId) -> usize {
        <Channels<Doorbell> as Transport<Segments>>::eager_max(&self.channels, peer)
    }

    #[inline]
    fn eager(
        &mut self,
        peer: PeerId,
        token: Token,
        match_info: u64,
        data: &Segments,
    ) -> Result<Handed, Refused> {
        self.channels.eager(peer, token, match_info, data)
    }

    #[inline]
    fn offer(
        &mut self,
        peer: PeerId,
        token: Token,
        match_info: u64,
        data: &Segments,
    ) -> Result<(), Refused> {
        self.channels.offer(peer, token, match_info, data)
    }

    fn pull(
        &mut self,
        peer: PeerId,
        offer: u64,
        token: Token,
        into: Option<&mut Segments>,
        len: u32,
    ) -> Result<Handed, Refused> {
        self.channels.pull(peer, offer, token, into, len)
    }

    fn feed(
        &mut self,
        peer: PeerId,
        to: u64,
        data: &Segments,
        at: usize,
        end: usize,
    ) -> Result<usize, Refused> {
        self.channels.feed(peer, to, data, at, end)
    }

    fn fail(&mut self, peer: PeerId, to: u64) {
        let channels: &mut Ways = &mut self.channels;
        channels.fail(peer, to);
    }

    fn connect(
        &mut self,
        token: Token,
        to: Address,
        key: u32,
        _timeout_ns: Option<u64>,
    ) -> Result<(), Refused> {
        if self.parted {
            return Err(Refused::Never(Status::EndpointUnreachable));
        }
        let Address { nic, endpoint } = to;
        let ask =
            Ask::Connect { endpoint: self.own, to: endpoint, key, token: token.0, nic: nic.0 };
        if self.conversation.ask(ask).is_err() {
            self.part();
            return Err(Refused::Never(Status::EndpointUnreachable));
        }
        self.connects.insert(token.0, to);
        Ok(())
    }

    fn disconnect(&mut self, peer: PeerId) {
        let channels: &mut Ways = &mut self.channels;
        channels.disconnect(peer);
        self.drop_peer(peer);
    }

    fn forget(&mut self, peer: PeerId) {
        let channels: &mut Ways = &mut self.channels;
        channels.forget(peer);
        self.drop_peer(peer);
    }

    fn cancel(&mut self, token: Token) {
        self.connects.remove(&token.0);
    }

    fn broken(&mut self, peer: PeerId) {
        let channels: &mut Ways = &mut self.channels;
        channels.broken(peer);
    }

    #[inline]
    fn next(&mut self) -> Option<Arrival> {
        let next = <Channels<Doorbell> as Transport<Segments>>::next(&mut self.channels);
        if self.notes.is_empty() {
            return next;
        }
        // A partner is seen before it is said that the connect to it ended.
        if let Some(Arrival::PeerSeen { .. } | Arrival::PeerGone { .. }) = next {
            return next;
        }
        self.noting = true;
        self.notes.front().copied()
    }

    #[inline]
    fn copy(&self, at: usize, into: &mut [u8]) -> usize {
        <Channels<Doorbell> as Transport<Segments>>::copy(&self.channels, at, into)
    }

    #[inline]
    fn done(&mut self) {
        if std::mem::take(&mut self.noting) {
            self.notes.pop_front();
        } else {
            <Channels<Doorbell> as Transport<Segments>>::done(&mut self.channels);
        }
    }

    #[inline]
    fn defer(&mut self) {
        if !std::mem::take(&mut self.noting) {
            <Channels<Doorbell> as Transport<Segments>>::defer(&mut self.channels);
        }
    }
}

#[cfg(test)]
mod tests {
    use causeway_ring::channel::{Layout, format};
    use rustix::fs::MemfdFlags;

    use super::*;

    #[test]
    fn memory_that_could_shrink_is_no_channel() {
        let layout = Layout::new(16, 16_384).unwrap();
        let file = rustix::fs::memfd_create("t", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, layout.bytes() as u64).unwrap();
        let mapping = Mapping::new(file.as_fd(), 0, layout.bytes() as u64).unwrap();
        format(&View::new(Arc::new(mapping), 0, layout.bytes()).unwrap(), layout).unwrap();
        assert!(map(&file, 0).is_none());
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert!(map(&file, 0).is_some());
    }
}
