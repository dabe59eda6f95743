//! How NICs find each other: announcements to everyone, and questions for names.
//!
//! A NIC announces itself [`ANNOUNCE_BURST`] times, a second apart, and every three minutes
//! afterwards; whoever hears of a new NIC, or of one that began anew, announces itself anew. A
//! NIC that was heard of is asked for its name until it answers. NICs that the operator named
//! stay, and keep the names that they were given; others go when they do not answer, or are not
//! heard of for long. A name is that of the NIC which had it first: another one that says it gets
//! it when the first, asked again, does not answer.
//!
//! As the engine, it is without I/O: frames and time come in, frames and [`News`] go out. Who sends
//! a frame is known by the MAC that it is from, which the network vouches for.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use causeway_wire::mx::NicId;
use causeway_wire::mxoe::{
    Announcement, Header, HostQuery, HostReply, PEER_UNKNOWN, Packet, emit, parse,
};

use crate::limits::{
    ANNOUNCE_BURST, ANNOUNCE_GAP_NS, ANNOUNCE_NS, ANNOUNCE_RARELY_NS, ASK_NAME_NS,
    HOST_NAMELESS_MAX, HOST_NAMELESS_NS, HOST_STALE_NS, HOSTS_MAX, NAME_BYTES_MAX,
};

/// How a NIC is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The operator named it.
    Static,
    /// It announced itself.
    Announced,
}

/// What is known of a NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// How.
    pub how: How,
    /// What it is called, as the operator or it said.
    pub name: Option<String>,
    /// When it was heard of last.
    pub heard_at: Option<u64>,
    /// Whether it answered.
    pub answered: bool,
    since: u64,
    /// When an endpoint of it was heard last that is a peer.
    spoke_at: Option<u64>,
    /// Another one says its name, since then.
    doubted_at: Option<u64>,
    serial: Option<u32>,
    /// Our number for it.
    number: u16,
    ask_at: u64,
    /// How long after the next question the one after it is asked.
    wait: u64,
}

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// A NIC is there that was not known. To be answered by [`Discovery::number`] or
    /// [`Discovery::remove`].
    Added(NicId),
    /// A NIC is not there any more.
    Removed(NicId),
}

/// What a NIC knows of others. `send` is given frames in two parts.
#[derive(Debug)]
pub struct Discovery {
    own: [u8; 6],
    /// Another one each time that the NIC is made.
    serial: u32,
    magic: u32,
    burst: u32,
    announce_at: u64,
    announced_at: Option<u64>,
    peers: BTreeMap<[u8; 6], Peer>,
    /// The earliest `ask_at` or end of a NIC.
    due: u64,
    /// How often a NIC said a name that is another's.
    pub contested: u64,
    /// How often another NIC announced itself by our own address, as one does on a machine that
    /// is a copy of ours: neither reaches the other.
    pub twins: u64,
}

fn nic(mac: [u8; 6]) -> NicId {
    NicId::of(mac)
}

fn mac(nic: NicId) -> [u8; 6] {
    let [_, _, mac @ ..] = nic.0.to_be_bytes();
    mac
}

/// A name as it may be shown: none if it is none.
fn name_of(bytes: &[u8]) -> Option<String> {
    let fits = !bytes.is_empty() && bytes.len() <= NAME_BYTES_MAX;
    let text = fits.then(|| std::str::from_utf8(bytes).ok()).flatten()?;
    text.bytes().all(|byte| byte.is_ascii_graphic()).then(|| text.to_owned())
}

impl Peer {
    fn new(how: How, name: Option<String>, now: u64) -> Self {
        Self {
            how,
            name,
            heard_at: None,
            answered: false,
            since: now,
            spoke_at: None,
            doubted_at: None,
            serial: None,
            number: PEER_UNKNOWN,
            ask_at: now,
            wait: ASK_NAME_NS.0,
        }
    }

    /// When it is given up, unless it is heard of.
    fn ends(&self) -> u64 {
        let soon = |at: u64| at.saturating_add(HOST_NAMELESS_NS);
        match (self.how, self.answered, self.doubted_at) {
            (How::Static, ..) => u64::MAX,
            (_, false, _) => soon(self.spoke_at.unwrap_or(0).max(self.since)),
            (_, true, Some(doubted)) => soon(doubted),
            (_, true, None) => {
                let heard = self.heard_at.max(self.spoke_at).unwrap_or(self.since);
                soon(heard.saturating_add(HOST_STALE_NS))
            }
        }
    }
}

impl Discovery {
    /// Of a NIC; `serial` and `magic` are random.
    pub fn new(own: NicId, serial: u32, magic: u32, now: u64) -> Self {
        Self {
            own: mac(own),
            serial,
            magic,
            burst: ANNOUNCE_BURST,
            announce_at: now,
            announced_at: None,
            peers: BTreeMap::new(),
            due: u64::MAX,
            contested: 0,
            twins: 0,
        }
    }

    /// A NIC that the operator named.
    pub fn name_static(&mut self, board: NicId, name: Option<String>, now: u64) -> Option<News> {
        let mac = mac(board);
        if mac == self.own || self.peers.contains_key(&mac) || self.peers.len() >= HOSTS_MAX {
            return None;
        }
        self.peers.insert(mac, Peer::new(How::Static, name, now));
        self.due = self.due.min(now);
        Some(News::Added(board))
    }

    /// Our number for a NIC.
    pub fn number(&mut self, board: NicId, number: u16) {
        if let Some(peer) = self.peers.get_mut(&mac(board)) {
            peer.number = number;
        }
    }

    /// A NIC is not to be known.
    pub fn remove(&mut self, board: NicId) {
        self.peers.remove(&mac(board));
    }

    /// All NICs that are known.
    pub fn peers(&self) -> impl Iterator<Item = (NicId, &Peer)> {
        self.peers.iter().map(|(mac, peer)| (nic(*mac), peer))
    }

    /// What is known of a NIC.
    pub fn peer(&self, board: NicId) -> Option<&Peer> {
        self.peers.get(&mac(board))
    }

    /// The NIC of that name; the one that was known first, if two have it.
    pub fn find(&self, name: &str) -> Option<NicId> {
        let named = self.peers.iter().filter(|(_, peer)| peer.name.as_deref() == Some(name));
        named
            .min_by_key(|(_, peer)| (peer.how != How::Static, peer.since))
            .map(|(mac, _)| nic(*mac))
    }

    /// Whether a frame is for [`Self::hear`]; all others are for the engine.
    pub fn takes(frame: &[u8]) -> bool {
        const RAW: u8 = 1;
        const REPLY: u8 = 4;
        matches!(frame.get(16), Some(&(RAW | REPLY)))
    }

    /// Takes an announcement or the answer to a question.
    pub fn hear(&mut self, now: u64, frame: &[u8]) -> Option<News> {
        let (header, packet) = parse(frame).ok()?;
        if header.source.first().is_none_or(|byte| byte & 1 != 0) {
            return None;
        }
        if header.source == self.own {
            self.twins = self.twins.wrapping_add(u64::from(self.is_of_twin(&packet)));
            return None;
        }
        match packet {
            Packet::Raw(data) => self.announced(now, &header, &Announcement::parse(data).ok()?),
            Packet::HostReply(reply) if header.destination == self.own => {
                self.answered(now, &header, &reply);
                None
            }
            _ => None,
        }
    }

    /// Whether what came from our address is another's. Our own comes back where a network has a
    /// loop.
    fn is_of_twin(&self, packet: &Packet<'_>) -> bool {
        let Packet::Raw(data) = packet else { return false };
        Announcement::parse(data)
            .is_ok_and(|said| NicId(said.nic) == nic(self.own) && said.serial != self.serial)
    }

    fn announced(&mut self, now: u64, header: &Header, said: &Announcement) -> Option<News> {
        if nic(header.source) != NicId(said.nic) {
            return None;
        }
        if let Some(peer) = self.peers.get_mut(&header.source) {
            peer.heard_at = Some(now);
            if peer.serial.replace(said.serial) != Some(said.serial) {
                (peer.ask_at, peer.wait) = (now, ASK_NAME_NS.0);
                self.due = self.due.min(now);
                self.announce_anew(now);
            }
            return None;
        }
        let nameless = self.peers.values().filter(|p| p.how == How::Announced && !p.answered);
        if self.peers.len() >= HOSTS_MAX || nameless.count() >= HOST_NAMELESS_MAX {
            return None;
        }
        let mut peer = Peer::new(How::Announced, None, now);
        (peer.heard_at, peer.serial) = (Some(now), Some(said.serial));
        self.peers.insert(header.source, peer);
        self.due = self.due.min(now);
        self.announce_anew(now);
        Some(News::Added(nic(header.source)))
    }

    /// The first soon, whoever is heard of, and however many are.
    fn announce_anew(&mut self, now: u64) {
        self.burst = ANNOUNCE_BURST;
        let soon = self.announced_at.map_or(now, |at| at.saturating_add(ANNOUNCE_GAP_NS));
        self.announce_at = self.announce_at.min(soon.max(now));
    }

    fn answered(&mut self, now: u64, header: &Header, reply: &HostReply<'_>) {
        if reply.magic != self.magic || !self.peers.contains_key(&header.source) {
            return;
        }
        let Some(name) = name_of(reply.name) else { return };
        let has = |peer: &Peer| peer.name.as_deref() == Some(&name);
        let mut others = self.peers.iter().filter(|(mac, _)| **mac != header.source);
        let holder = others.find(|(_, peer)| has(peer)).map(|(mac, _)| *mac);
        let Some(peer) = self.peers.get_mut(&header.source) else { return };
        (peer.heard_at, peer.answered, peer.doubted_at) = (Some(now), true, None);
        peer.ask_at = now.saturating_add(HOST_STALE_NS);
        let named = peer.how == How::Static && peer.name.is_some();
        let contested = holder.filter(|_| !named && !has(peer));
        match contested {
            // By then it is known whether the other one is there.
            Some(_) => {
                peer.name = None;
                peer.ask_at = now.saturating_add(HOST_NAMELESS_NS);
            }
            None if named => {}
            None => peer.name = Some(name),
        }
        self.due = self.due.min(peer.ask_at);
        if let Some(other) = contested.and_then(|mac| self.peers.get_mut(&mac)) {
            self.contested = self.contested.wrapping_add(1);
            if other.doubted_at.is_none() {
                other.doubted_at = Some(now);
                (other.ask_at, other.wait) = (now, ASK_NAME_NS.0);
                self.due = self.due.min(now);
            }
        }
    }

    /// Whether a NIC would be given up by now, if none of its endpoints was heard.
    pub fn would_end(&self, now: u64) -> bool {
        self.peers.values().any(|peer| peer.ends() <= now)
    }

    /// An endpoint of a NIC was heard.
    pub fn spoke(&mut self, board: NicId, at: u64) {
        if let Some(peer) = self.peers.get_mut(&mac(board)) {
            peer.spoke_at = peer.spoke_at.max(Some(at));
        }
    }

    /// When [`Self::tick`] is to be called at the latest.
    pub fn deadline(&self) -> u64 {
        self.announce_at.min(self.due)
    }

    /// Says what is due; gives the NICs that are given up.
    pub fn tick(&mut self, now: u64, send: &mut dyn FnMut(&[u8], &[u8])) -> Vec<News> {
        if self.announce_at <= now {
            self.announce(send);
            self.announced_at = Some(now);
            self.burst = self.burst.saturating_sub(1);
            let wait = if self.burst > 0 { ANNOUNCE_NS } else { ANNOUNCE_RARELY_NS };
            self.announce_at = now.saturating_add(wait);
        }
        if self.due > now {
            return Vec::new();
        }
        let over = |(_, peer): &(&[u8; 6], &Peer)| peer.ends() <= now;
        let gone: Vec<[u8; 6]> = self.peers.iter().filter(over).map(|(mac, _)| *mac).collect();
        for mac in &gone {
            self.peers.remove(mac);
        }
        let mut due = u64::MAX;
        let (own, magic) = (self.own, self.magic);
        for (mac, peer) in &mut self.peers {
            if peer.ask_at <= now {
                let query = HostQuery { index_of_destination: peer.number, magic };
                let header = Header { destination: *mac, source: own, peer_index: PEER_UNKNOWN };
                let (head, data) = emit(&header, &Packet::HostQuery(query));
                send(head.bytes(), data);
                peer.ask_at = now.saturating_add(peer.wait);
                peer.wait = peer.wait.saturating_mul(2).min(ASK_NAME_NS.1);
            }
            due = due.min(peer.ask_at).min(peer.ends());
        }
        self.due = due;
        gone.into_iter().map(|mac| News::Removed(nic(mac))).collect()
    }

    fn announce(&self, send: &mut dyn FnMut(&[u8], &[u8])) {
        let announcement = Announcement { nic: nic(self.own).0, serial: self.serial };
        let header = Header { destination: [0xff; 6], source: self.own, peer_index: 0 };
        let data = announcement.emit();
        let (head, rest) = emit(&header, &Packet::Raw(&data));
        send(head.bytes(), rest);
    }
}
