//! The way to partners: of this host by channels, which the daemon sets up when it is asked; of
//! other hosts by the rings to the daemon, where the board has a network.

mod resume;
mod transport;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use causeway_attach::doorbell::Doorbell;
use causeway_channel::mx_rings::Holds;
use causeway_channel::{Receiver, Sender, Side, allow_fences, open};
use causeway_memory::{Mapping, View};
use causeway_message::library::{
    Arrival, Bell, Channel, Channels, Direct, Refused, Rings, Transport,
};
use causeway_message::limits::PEER_NUMBERS_MAX;
use causeway_message::split::{Address, NicId, PeerId, RegionId, Token};
use causeway_message::status::Status;
use causeway_wire::local::{Ask, Tell};
use rustix::event::epoll;
use rustix::fs::SealFlags;

use crate::board::Conversation;
use crate::bypass::Bypass;
use crate::direct::Memory;
use crate::ears::Awaited;
use crate::limits::CHANNEL_BYTES_MAX;
use crate::staging::{Slabs, Staged};
use resume::Resume;

/// The doorbell between us and a partner.
#[derive(Debug, Clone)]
pub struct Between(Arc<Doorbell>);

impl Bell for Between {
    fn ring(&self) {
        self.0.ring();
    }
}

/// The daemon's doorbell: nobody else has it. None: the backend half is here.
#[derive(Debug)]
pub struct OfDaemon(Option<OwnedFd>);

impl Bell for OfDaemon {
    fn ring(&self) {
        if let Some(bell) = &self.0 {
            // It can only fail when it is full, and then it is readable all the same.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }
}

/// A partner's number in use.
#[derive(Debug)]
struct Peer {
    address: Address,
    /// The number of the way there.
    way: u32,
    bell: Arc<Doorbell>,
    /// The daemon knows that there is no way to it any more.
    gone: bool,
}

/// A connect that has not ended.
#[derive(Debug, Clone, Copy)]
struct Wish {
    to: Address,
    key: u32,
    timeout_ns: Option<u64>,
}

/// What was given last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Note,
    Channels,
    Rings,
}

/// All channels of an endpoint, its rings, and the conversation that brings more.
#[derive(Debug)]
pub struct Way {
    own: u8,
    /// To partners of this host.
    pub channels: Channels<Between>,
    rings: Option<Rings<OfDaemon, Slabs>>,
    /// What is at the other end of the rings, where that is not the daemon.
    bypass: Option<Box<Bypass>>,
    /// It took memory since the library looked: what waited for that goes on.
    granted: bool,
    /// With the daemon.
    pub conversation: Conversation,
    /// What partners ring for us, all together.
    bells: OwnedFd,
    /// Who rang since we slept last.
    rung: Vec<PeerId>,
    /// The daemon is gone: channels go on, nothing new comes.
    pub parted: bool,
    resume: Resume,
    /// Held as long as the endpoint is open: the next daemon finds that it is.
    lock: Option<OwnedFd>,
    connects: BTreeMap<u64, Wish>,
    /// Of them, those that the rings had no room for.
    remote: VecDeque<u64>,
    notes: VecDeque<Arrival>,
    shown: Shown,
    /// It is the rings' turn.
    rings_first: bool,
    /// Short messages that were given in a row, with no look at all else.
    shorts: u32,
    /// The one that was given last is of the rings.
    short_is_far: bool,
    /// It was just looked whether the backend half here has anything to do: it has not.
    looked_past: bool,
    /// What came last came from the daemon: it, too, needs a processor.
    pub far: bool,
    peers: Vec<Option<Peer>>,
    by_address: BTreeMap<Address, PeerId>,
}

/// The memory of a channel, as it came. It is sealed: nobody can shrink it under us.
fn map(file: &OwnedFd, side: u8) -> Option<(Sender, Receiver, View)> {
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
    let side = if side == 0 { Side::First } else { Side::Second };
    let (sender, receiver) = open(&view, side).ok()?;
    Some((sender, receiver, view))
}

/// The library half's end of the rings of an endpoint.
fn rings(own: u8, file: &OwnedFd, bell: Option<OwnedFd>) -> Option<Rings<OfDaemon, Slabs>> {
    let (sender, receiver, memory) = map(file, 0)?;
    let holds = Holds::new(memory);
    Some(Rings::new(sender, receiver, holds, OfDaemon(bell), Slabs::new(own)))
}

/// A way of its own past the daemon to other hosts, or by the daemon.
type Far = (Option<Rings<OfDaemon, Slabs>>, Option<Box<Bypass>>);

/// The way to other hosts, by what came with an endpoint: nothing, the daemon's rings and doorbell;
/// or, for one that goes past the daemon with its key and session, a socket and a lock.
fn far(of: (NicId, u8), past: Option<(u32, u32)>, fds: Vec<OwnedFd>) -> std::io::Result<Far> {
    let mut fds = fds.into_iter();
    let (Some(first), second) = (fds.next(), fds.next()) else { return Ok((None, None)) };
    let (mut bypass, file, bell) = match (past, second) {
        (Some(secrets), Some(lock)) => {
            let (bypass, file) = Bypass::new(of, secrets, (first, lock))?;
            (Some(Box::new(bypass)), file, None)
        }
        (_, bell) => (None, first, bell),
    };
    let mut rings = rings(of.1, &file, bell).ok_or(std::io::ErrorKind::OutOfMemory)?;
    if let Some(own) = bypass.as_mut().and_then(|bypass| bypass.lend_own()) {
        rings.staging.set_own(own);
    }
    Ok((Some(rings), bypass))
}

impl Way {
    /// Of an endpoint. `past`: its key and session, if it goes past the daemon to other hosts.
    /// `fds`: what came with it.
    pub fn new(
        own: u8,
        past: Option<(u32, u32)>,
        conversation: Conversation,
        fds: Vec<OwnedFd>,
    ) -> std::io::Result<Self> {
        let bells = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let board = NicId(conversation.board.nic);
        let mut fds = fds;
        let lock = if past.is_none() { fds.drain(2.min(fds.len())..).next() } else { None };
        let (rings, bypass) = far((board, own), past, fds)?;
        Ok(Self {
            own,
            channels: Channels::default(),
            rings,
            bypass,
            granted: false,
            conversation,
            bells,
            rung: Vec::new(),
            parted: false,
            resume: Resume::new(),
            lock,
            connects: BTreeMap::new(),
            remote: VecDeque::new(),
            notes: VecDeque::new(),
            shown: Shown::Nothing,
            rings_first: false,
            shorts: 0,
            short_is_far: false,
            looked_past: false,
            far: false,
            peers: Vec::new(),
            by_address: BTreeMap::new(),
        })
    }

    /// Readable when a partner rings.
    pub fn bells(&self) -> BorrowedFd<'_> {
        self.bells.as_fd()
    }

    /// Whether an answer of the daemon is waited for.
    #[inline]
    pub fn connecting(&self) -> bool {
        !self.connects.is_empty() || self.rings.as_ref().is_some_and(|rings| rings.staging.asks())
    }

    /// Takes what the daemon told. True: it told something.
    #[cold]
    pub fn hear(&mut self) -> bool {
        if self.parted {
            return self.look_for_daemon();
        }
        if self.resume.count > 0 {
            self.renew_rings();
            self.ask_again();
        }
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

    /// As [`Self::hear`], one thing that is known to be there: who sleeps is woken by the next.
    pub fn hear_one(&mut self) {
        if self.parted {
            self.look_for_daemon();
            return;
        }
        match self.conversation.hear() {
            Ok(Some((tell, fds))) => self.told(tell, fds),
            Ok(None) => {}
            Err(_) => self.part(),
        }
    }

    /// What is waited for of the daemon.
    pub fn awaited(&self) -> Awaited {
        match self.parted {
            true => Awaited::Nothing,
            // Nothing tells when it is time for them.
            false if self.has_later() => Awaited::Descriptors,
            false => self.conversation.awaited(),
        }
    }

    fn note(&mut self, token: u64, status: Status, peer: PeerId) {
        self.notes.push_back(Arrival::Connected { token: Token(token), status, peer });
    }

    fn told(&mut self, tell: Tell, fds: Vec<OwnedFd>) {
        match tell {
            Tell::Channel { of, side, session, way, token, nic, .. } => {
                let address = Address { nic: NicId(nic), endpoint: of };
                let peer = self.add(address, session, (way, side), fds);
                if peer.is_none() {
                    // Nothing that the other side sends would be heard.
                    self.disconnect_from(address, way);
                }
                if self.connects.remove(&token).is_some() {
                    match peer {
                        Some(peer) => self.note(token, Status::Success, peer),
                        None => self.note(token, Status::NoResources, PeerId::NONE),
                    }
                }
            }
            Tell::Refused { status, token, .. } if self.asks_later(token, status) => {}
            Tell::Refused { status, token, .. } => {
                let Some(wish) = self.connects.remove(&token) else { return };
                let known = self.by_address.get(&wish.to).copied();
                match (Status::of(status.into()), known) {
                    (Some(Status::Success), Some(peer)) => {
                        self.note(token, Status::Success, peer);
                    }
                    (None | Some(Status::Success), _) => {
                        self.note(token, Status::EndpointUnreachable, PeerId::NONE);
                    }
                    (Some(status), _) => self.note(token, status, PeerId::NONE),
                }
            }
            Tell::Gone { of, way, nic, .. } => {
                let address = Address { nic: NicId(nic), endpoint: of };
                let Some(&id) = self.by_address.get(&address) else { return };
                if let Some(Some(peer)) = self.peers.get_mut(place(id))
                    && peer.way == way
                {
                    peer.gone = true;
                    self.by_address.remove(&address);
                    self.channels.lost(id, Status::EndpointClosed);
                }
            }
            Tell::Remote { token, known, .. } => {
                if let Some(wish) = self.connects.get(&token) {
                    if let Some(bypass) = self.bypass.as_mut().filter(|_| known == 1) {
                        bypass.know(wish.to.nic);
                    }
                    self.remote.push_back(token);
                    self.connect_remote();
                }
            }
            Tell::Region { tag, code, region, .. } => {
                if let Some(rings) = &mut self.rings {
                    let region = (code == 0).then_some(RegionId(region));
                    rings.staging.answered(tag, region);
                }
            }
            Tell::Host { known: 1, nic, .. } => {
                if let Some(bypass) = &mut self.bypass {
                    bypass.know(NicId(nic));
                }
            }
            Tell::Welcome { .. } | Tell::Opened { .. } | Tell::Host { .. } | Tell::Wake { .. } => {}
        }
    }

    /// Hands connects to other hosts over.
    fn connect_remote(&mut self) {
        // The rings of the next daemon are not used yet.
        if self.rings.as_ref().is_some_and(Rings::has_ended) && self.bypass.is_none() {
            self.renew_rings();
            if self.rings.as_ref().is_some_and(Rings::has_ended) && self.awaits_rings() {
                return;
            }
        }
        while let Some(token) = self.remote.front().copied() {
            let gone = Err(Refused::Never(Status::EndpointUnreachable));
            let handed = match (self.connects.get(&token), &mut self.rings) {
                // It was given up.
                (None, _) => Ok(()),
                (Some(wish), Some(rings)) => {
                    let rings: &mut Ways = rings;
                    rings.connect(Token(token), wish.to, wish.key, wish.timeout_ns)
                }
                (Some(_), None) => gone,
            };
            if handed == Err(Refused::Full) {
                return;
            }
            self.remote.pop_front();
            self.connects.remove(&token);
            if let Err(Refused::Never(status)) = handed {
                self.note(token, status, PeerId::NONE);
            }
        }
    }

    /// Sends the daemon what the staging wants of it.
    #[inline]
    fn send_orders(&mut self) {
        if self.rings.as_ref().is_some_and(|rings| !rings.staging.orders.is_empty()) {
            self.send_all_orders();
        }
    }

    #[cold]
    fn send_all_orders(&mut self) {
        let Some(rings) = &mut self.rings else { return };
        for (ask, files) in std::mem::take(&mut rings.staging.orders) {
            if let Some(bypass) = &mut self.bypass {
                match (ask, files.first()) {
                    (Ask::Region { tag, len, .. }, Some(file)) => {
                        rings.staging.answered(tag, bypass.lend(file, len));
                        self.granted = true;
                    }
                    (Ask::Unregion { region, .. }, _) => bypass.give_back(RegionId(region)),
                    _ => {}
                }
                continue;
            }
            if !self.parted && self.conversation.ask_with(ask, files).is_err() {
                return self.part();
            }
        }
    }

    /// Where the backend half is here: goes on with it. Says whether there was anything.
    #[inline]
    fn go_past(&mut self) -> bool {
        let Some(bypass) = &mut self.bypass else { return false };
        let worked = bypass.turn();
        if bypass.broken
            && let Some(rings) = &mut self.rings
        {
            rings.end();
        }
        if let Some(board) = bypass.stranger() {
            self.ask_of(board);
        }
        self.granted = false;
        worked
    }

    /// A board that we do not know sent something. Strangers are not to fill what the daemon is yet
    /// to read: while it has not read all, they are left out, and try again.
    #[cold]
    fn ask_of(&mut self, board: NicId) {
        if !self.parted && self.conversation.awaited() == Awaited::Words {
            let _ = self.conversation.ask(Ask::Name { tag: 0, nic: board.0 });
        }
    }

    /// Where the backend half is here: what was asked of it is done.
    #[inline]
    fn push_past(&mut self) {
        if let Some(bypass) = &mut self.bypass {
            bypass.send();
        }
    }

    /// A new partner.
    fn add(
        &mut self,
        address: Address,
        session: u32,
        (way, side): (u32, u8),
        fds: Vec<OwnedFd>,
    ) -> Option<PeerId> {
        let mut fds = fds.into_iter();
        let (file, bell, process) = (fds.next()?, fds.next()?, fds.next());
        let (mut sender, receiver, _) = map(&file, side)?;
        static ALLOWED: OnceLock<bool> = OnceLock::new();
        if *ALLOWED.get_or_init(allow_fences) {
            sender.spare();
        }
        let free = self.peers.iter().position(Option::is_none).unwrap_or(self.peers.len());
        let peer = PeerId(u32::try_from(free.checked_mul(2)?).ok()?);
        if peer.0 as usize >= PEER_NUMBERS_MAX {
            return None;
        }
        let bell = Arc::new(Doorbell::new(bell));
        // By its edges: who rings too much wakes us too often, and no more.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let of = epoll::EventData::new_u64(peer.0.into());
        epoll::add(&self.bells, &*bell, of, flags).ok()?;
        let between = Between(Arc::clone(&bell));
        let direct = process.and_then(Memory::of).map(|memory| Box::new(memory) as Box<dyn Direct>);
        let channel = Channel { peer, address, session, sender, receiver, bell: between, direct };
        if !self.channels.add(channel) {
            let _ = epoll::delete(&self.bells, &*bell);
            bell.part();
            return None;
        }
        let entry = Some(Peer { address, way, bell, gone: false });
        match self.peers.get_mut(free) {
            Some(place) => *place = entry,
            None => self.peers.push(entry),
        }
        self.by_address.insert(address, peer);
        Some(peer)
    }

    /// The number of a partner is free again.
    fn drop_peer(&mut self, peer: PeerId) {
        let Some(known) = self.peers.get_mut(place(peer)).and_then(Option::take) else {
            return;
        };
        let _ = epoll::delete(&self.bells, &*known.bell);
        known.bell.part();
        if self.by_address.get(&known.address) == Some(&peer) {
            self.by_address.remove(&known.address);
        }
        if !known.gone {
            self.disconnect_from(known.address, known.way);
        }
    }

    /// A partner rang, and we are awake: its bell is quiet again before we sleep, when there is
    /// time for it.
    pub fn heard(&mut self, bell: u64) {
        let peer = u32::try_from(bell).map_or(PeerId::NONE, PeerId);
        if !self.rung.contains(&peer) {
            self.rung.push(peer);
        }
    }

    fn hush(&mut self) {
        while let Some(peer) = self.rung.pop() {
            if let Some(Some(known)) = self.peers.get(place(peer))
                && !known.bell.hush()
            {
                let channels: &mut Ways = &mut self.channels;
                channels.broken(peer);
            }
        }
    }

    /// Memory that was offered to partners of this host is not what it was any more.
    pub fn withdraw(&mut self) {
        self.channels.withdraw();
    }

    /// Tells the daemon that a way is closed.
    fn disconnect_from(&mut self, address: Address, way: u32) {
        let Address { nic, endpoint: to } = address;
        let ask = Ask::Disconnect { endpoint: self.own, to, way, nic: nic.0 };
        if !self.parted && self.conversation.ask(ask).is_err() {
            self.part();
        }
    }

    /// The endpoint is closed: partners hear of it by their channels.
    pub fn end(&mut self) {
        let all: Vec<PeerId> = self.by_address.values().copied().collect();
        for peer in all {
            let channels: &mut Ways = &mut self.channels;
            channels.disconnect(peer);
        }
        self.lock = None;
        // Also those that the daemon parted from.
        self.channels.settle();
        self.peers.iter().flatten().for_each(|peer| peer.bell.part());
        // First: the daemon is to find that we left.
        if let Some(mut bypass) = self.bypass.take() {
            bypass.close();
        }
        if !self.parted {
            let _ = self.conversation.ask(Ask::Close { endpoint: self.own });
        }
    }

    /// A receive was posted: what could not be taken before may be taken now, and nobody is to
    /// sleep before that is known. Says whether there is anything of that.
    #[inline]
    pub fn stir(&mut self) -> bool {
        let near = self.channels.stir();
        self.rings.as_mut().is_some_and(|rings| rings.stir()) || near
    }

    /// Whether other hosts are reached, too.
    #[inline]
    pub fn is_networked(&self) -> bool {
        self.rings.is_some()
    }

    /// Whether that is past the daemon.
    pub fn goes_past(&self) -> bool {
        self.bypass.is_some()
    }

    /// Whether there may be something to take.
    #[inline]
    pub fn comes(&self) -> bool {
        self.rings_come() || !self.notes.is_empty() || self.channels.comes()
    }

    /// The same of other hosts.
    #[inline]
    fn rings_come(&self) -> bool {
        let Some(rings) = &self.rings else { return false };
        rings.comes()
            || self.bypass.as_ref().is_some_and(|bypass| bypass.comes())
            || self.granted
            || !self.remote.is_empty()
            || !rings.staging.orders.is_empty()
    }

    /// Whether messages that ended are not known to be there, past what the library half knows.
    pub fn is_sending(&self) -> bool {
        self.bypass.as_ref().is_some_and(|bypass| !bypass.broken && bypass.is_sending())
    }

    /// How often memory was lent to the daemon.
    pub fn lent(&self) -> u64 {
        self.rings.as_ref().map_or(0, |rings| rings.staging.lent)
    }

    /// The same, and how often it was used.
    pub fn staged(&self) -> Staged {
        let Some(rings) = &self.rings else { return Staged::default() };
        Staged { lent: rings.staging.lent, taken: rings.staging.taken }
    }

    /// Before sleeping; see [`Channels::arm`].
    pub fn arm(&mut self) -> bool {
        // First: what is rung for from now on is seen below, or rings again.
        self.hush();
        let mut idle = self.notes.is_empty() & self.channels.arm();
        if let Some(bypass) = &mut self.bypass {
            idle &= !self.granted & bypass.arm(self.bells.as_fd());
        }
        if let Some(rings) = &mut self.rings {
            idle &= rings.arm();
        }
        idle
    }

    /// After sleeping; see [`Channels::disarm`].
    pub fn disarm(&mut self) {
        self.channels.disarm();
        if let Some(bypass) = &mut self.bypass {
            bypass.disarm(self.bells.as_fd());
        }
        if let Some(rings) = &mut self.rings {
            rings.disarm();
        }
    }
}

/// Where a partner of this host stands: such have even numbers.
fn place(peer: PeerId) -> usize {
    (peer.0 / 2) as usize
}

/// For what knows no buffer.
type Ways = dyn Transport<Vec<u8>>;

#[cfg(test)]
mod tests {
    use causeway_channel::{Layout, format};
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
