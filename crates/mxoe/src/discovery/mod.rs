//! Discovery of NICs: announcements by broadcast, and name queries.
//!
//! A NIC announces itself [`ANNOUNCE_BURST`] (8) times at intervals of a second, and every three
//! minutes afterwards. A new or restarted NIC causes a new burst at all others. A known NIC is
//! queried for its name until it answers, at once and again after 0.1 s, doubled up to 5 s
//! ([`NAME_QUERY`]). NICs of the configuration stay, and keep their configured names; others are
//! removed if they do not answer for [`NIC_NAMELESS_NS`] (30 s). A NIC that answered is queried
//! again after [`NIC_STALE_NS`] (10 min), and removed after 10.5 min without an announcement or
//! answer. Packets of its endpoints ([`Discovery::record_activity`]) postpone the removal. A
//! removed NIC is added again by its next announcement. A name belongs to the first NIC that
//! reported it; if another NIC reports it, the first is queried, and removed (unless configured) if
//! it does not answer for 30 s, even if its endpoints send; the other NIC gets the name with its
//! next answer.
//!
//! This module is without I/O, like the engine: its inputs are frames and the time, its outputs
//! frames and [`NicChange`]. It opens no endpoints and routes no messages. NICs are identified by
//! the source MAC of their frames, which the network vouches for.
//!
//! Limits: [`KNOWN_NICS_MAX`] (1,024) NICs, configured NICs included; of the announced NICs at most
//! [`NIC_NAMELESS_MAX`] (256) have not answered a name query. Further NICs of both kinds are
//! ignored. Announcements keep a distance of [`ANNOUNCE_GAP_NS`] (100 ms), however many NICs
//! appear. Names are not authenticated.
//!
//! Caller: `mx::network` in the daemon, in the dispatcher's turn. It passes frames for which
//! [`Discovery::takes`] returns true, calls [`Discovery::tick`] at its deadline, and applies each
//! [`NicChange`] to the engine. Processes in direct mode run no discovery and ask the daemon.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use causeway_wire::mx::NicId;
use causeway_wire::mxoe::{
    Announcement, Header, HostQuery, HostReply, PEER_UNKNOWN, Packet, emit, parse,
};

use crate::limits::{
    ANNOUNCE_BURST, ANNOUNCE_GAP_NS, ANNOUNCE_IDLE_NS, ANNOUNCE_NS, KNOWN_NICS_MAX, NAME_BYTES_MAX,
    NAME_QUERY, NIC_NAMELESS_MAX, NIC_NAMELESS_NS, NIC_STALE_NS,
};

/// How a NIC became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NicOrigin {
    /// By the configuration.
    Static,
    /// By its announcement.
    Announced,
}

/// A known NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveredNic {
    /// How the NIC became known.
    pub origin: NicOrigin,
    /// Name of the NIC, configured or reported.
    pub name: Option<String>,
    /// Time of its latest frame in ns.
    pub heard_at: Option<u64>,
    /// The NIC answered a name query.
    pub answered: bool,
    /// When the NIC became known, in ns.
    since: u64,
    /// Time of the latest packet of an endpoint that is a peer.
    active_at: Option<u64>,
    /// Another NIC has reported the same name since then.
    contested_at: Option<u64>,
    /// Serial of its latest announcement: another serial means that the NIC restarted.
    serial: Option<u32>,
    /// The number of this NIC in the table of the engine.
    number: u16,
    /// Time of the next name query, in ns.
    ask_at: u64,
    /// Interval after the next query, in ns.
    wait: u64,
}

/// A change of the known NICs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NicChange {
    /// A new NIC. The caller must answer with [`Discovery::set_number`] or [`Discovery::remove`].
    Added(NicId),
    /// The NIC was removed: the caller removes it from the engine, which ends its peers.
    Removed(NicId),
}

/// The NICs that a NIC knows. `send` closures get frames in two parts.
#[derive(Debug)]
pub struct Discovery {
    /// MAC of this NIC.
    own: [u8; 6],
    /// Differs at each start of the NIC.
    serial: u32,
    /// Number in our name queries, which answers repeat.
    magic: u32,
    /// Announcements left in the burst.
    burst: u32,
    /// Time of the next announcement, in ns.
    announce_at: u64,
    /// Time of the latest announcement, in ns.
    announced_at: Option<u64>,
    /// Known NICs, by MAC.
    peers: BTreeMap<[u8; 6], DiscoveredNic>,
    /// The earliest query or removal of a NIC.
    due: u64,
    /// Answers with a name that belongs to another NIC.
    pub contested: u64,
    /// Announcements of another NIC with this NIC's address, for example of a copied machine.
    /// Neither reaches the other.
    pub duplicate_addresses: u64,
}

fn nic(mac: [u8; 6]) -> NicId {
    NicId::of(mac)
}

fn mac(nic: NicId) -> [u8; 6] {
    let [_, _, mac @ ..] = nic.0.to_be_bytes();
    mac
}

/// Returns a printable name, or `None` if it is empty, too long, or not ASCII.
fn printable_name(bytes: &[u8]) -> Option<String> {
    let fits = !bytes.is_empty() && bytes.len() <= NAME_BYTES_MAX;
    let text = fits.then(|| std::str::from_utf8(bytes).ok()).flatten()?;
    text.bytes().all(|byte| byte.is_ascii_graphic()).then(|| text.to_owned())
}

impl DiscoveredNic {
    fn new(origin: NicOrigin, name: Option<String>, now: u64) -> Self {
        Self {
            origin,
            name,
            heard_at: None,
            answered: false,
            since: now,
            active_at: None,
            contested_at: None,
            serial: None,
            number: PEER_UNKNOWN,
            ask_at: now,
            wait: NAME_QUERY.least_ns,
        }
    }

    /// Returns the time at which the NIC is removed unless it sends a frame, in ns.
    fn ends(&self) -> u64 {
        let soon = |at: u64| at.saturating_add(NIC_NAMELESS_NS);
        match (self.origin, self.answered, self.contested_at) {
            (NicOrigin::Static, ..) => u64::MAX,
            (_, false, _) => soon(self.active_at.unwrap_or(0).max(self.since)),
            (_, true, Some(doubted)) => soon(doubted),
            (_, true, None) => {
                let heard = self.heard_at.max(self.active_at).unwrap_or(self.since);
                soon(heard.saturating_add(NIC_STALE_NS))
            }
        }
    }
}

impl Discovery {
    /// Creates the discovery of a NIC. `serial` and `magic` must be random.
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
            duplicate_addresses: 0,
        }
    }

    /// Adds a NIC of the configuration. Returns `None` if it is known, or the table is full.
    pub fn add_static(
        &mut self,
        nic_id: NicId,
        name: Option<String>,
        now: u64,
    ) -> Option<NicChange> {
        let mac = mac(nic_id);
        if mac == self.own || self.peers.contains_key(&mac) || self.peers.len() >= KNOWN_NICS_MAX {
            return None;
        }
        self.peers.insert(mac, DiscoveredNic::new(NicOrigin::Static, name, now));
        self.due = self.due.min(now);
        Some(NicChange::Added(nic_id))
    }

    /// Sets the number of a NIC in the table of the engine. An unknown NIC is ignored.
    pub fn set_number(&mut self, nic_id: NicId, number: u16) {
        if let Some(peer) = self.peers.get_mut(&mac(nic_id)) {
            peer.number = number;
        }
    }

    /// Removes a NIC, if it is known; its next announcement adds it again.
    pub fn remove(&mut self, nic_id: NicId) {
        self.peers.remove(&mac(nic_id));
    }

    /// Returns the known NICs.
    pub fn peers(&self) -> impl Iterator<Item = (NicId, &DiscoveredNic)> {
        self.peers.iter().map(|(mac, peer)| (nic(*mac), peer))
    }

    /// Returns a known NIC.
    pub fn peer(&self, nic_id: NicId) -> Option<&DiscoveredNic> {
        self.peers.get(&mac(nic_id))
    }

    /// Returns the NIC with a name. Configured NICs have precedence, then those known for longer.
    pub fn find(&self, name: &str) -> Option<NicId> {
        let named = self.peers.iter().filter(|(_, peer)| peer.name.as_deref() == Some(name));
        named
            .min_by_key(|(_, peer)| (peer.origin != NicOrigin::Static, peer.since))
            .map(|(mac, _)| nic(*mac))
    }

    /// Returns whether a frame is for [`Self::receive`]. All others are for the engine.
    pub fn takes(frame: &[u8]) -> bool {
        const RAW: u8 = 1;
        const REPLY: u8 = 4;
        matches!(frame.get(16), Some(&(RAW | REPLY)))
    }

    /// Processes an announcement, or the answer to a name query. Returns a new NIC. A malformed
    /// frame, an answer without our query, and a new NIC beyond the limits are ignored.
    pub fn receive(&mut self, now: u64, frame: &[u8]) -> Option<NicChange> {
        let (header, packet) = parse(frame).ok()?;
        if header.source.first().is_none_or(|byte| byte & 1 != 0) {
            return None;
        }
        if header.source == self.own {
            self.duplicate_addresses =
                self.duplicate_addresses.wrapping_add(u64::from(self.is_duplicate(&packet)));
            return None;
        }
        match packet {
            Packet::Raw(data) => {
                self.on_announcement(now, &header, &Announcement::parse(data).ok()?)
            }
            Packet::HostReply(reply) if header.destination == self.own => {
                self.on_answer(now, &header, &reply);
                None
            }
            _ => None,
        }
    }

    /// Returns whether a frame from this NIC's address was sent by another NIC. Own frames return
    /// in a network with a loop.
    fn is_duplicate(&self, packet: &Packet<'_>) -> bool {
        let Packet::Raw(data) = packet else { return false };
        Announcement::parse(data)
            .is_ok_and(|said| NicId(said.nic) == nic(self.own) && said.serial != self.serial)
    }

    /// Records an announcement. Returns the NIC if it is new.
    fn on_announcement(
        &mut self,
        now: u64,
        header: &Header,
        said: &Announcement,
    ) -> Option<NicChange> {
        if nic(header.source) != NicId(said.nic) {
            return None;
        }
        if let Some(peer) = self.peers.get_mut(&header.source) {
            peer.heard_at = Some(now);
            if peer.serial.replace(said.serial) != Some(said.serial) {
                (peer.ask_at, peer.wait) = (now, NAME_QUERY.least_ns);
                self.due = self.due.min(now);
                self.restart_announcements(now);
            }
            return None;
        }
        let nameless =
            self.peers.values().filter(|p| p.origin == NicOrigin::Announced && !p.answered);
        if self.peers.len() >= KNOWN_NICS_MAX || nameless.count() >= NIC_NAMELESS_MAX {
            return None;
        }
        let mut peer = DiscoveredNic::new(NicOrigin::Announced, None, now);
        (peer.heard_at, peer.serial) = (Some(now), Some(said.serial));
        self.peers.insert(header.source, peer);
        self.due = self.due.min(now);
        self.restart_announcements(now);
        Some(NicChange::Added(nic(header.source)))
    }

    /// Starts a burst of announcements, at least [`ANNOUNCE_GAP_NS`] (100 ms) after the previous
    /// one.
    fn restart_announcements(&mut self, now: u64) {
        self.burst = ANNOUNCE_BURST;
        let soon = self.announced_at.map_or(now, |at| at.saturating_add(ANNOUNCE_GAP_NS));
        self.announce_at = self.announce_at.min(soon.max(now));
    }

    /// Records the name in an answer, unless another NIC has it.
    fn on_answer(&mut self, now: u64, header: &Header, reply: &HostReply<'_>) {
        if reply.magic != self.magic || !self.peers.contains_key(&header.source) {
            return;
        }
        let Some(name) = printable_name(reply.name) else { return };
        let has = |peer: &DiscoveredNic| peer.name.as_deref() == Some(&name);
        let mut others = self.peers.iter().filter(|(mac, _)| **mac != header.source);
        let holder = others.find(|(_, peer)| has(peer)).map(|(mac, _)| *mac);
        let Some(peer) = self.peers.get_mut(&header.source) else { return };
        (peer.heard_at, peer.answered, peer.contested_at) = (Some(now), true, None);
        peer.ask_at = now.saturating_add(NIC_STALE_NS);
        let named = peer.origin == NicOrigin::Static && peer.name.is_some();
        let contested = holder.filter(|_| !named && !has(peer));
        match contested {
            // Until then the other NIC has answered or is removed.
            Some(_) => {
                peer.name = None;
                peer.ask_at = now.saturating_add(NIC_NAMELESS_NS);
            }
            None if named => {}
            None => peer.name = Some(name),
        }
        self.due = self.due.min(peer.ask_at);
        if let Some(other) = contested.and_then(|mac| self.peers.get_mut(&mac)) {
            self.contested = self.contested.wrapping_add(1);
            if other.contested_at.is_none() {
                other.contested_at = Some(now);
                (other.ask_at, other.wait) = (now, NAME_QUERY.least_ns);
                self.due = self.due.min(now);
            }
        }
    }

    /// Returns whether a NIC would be removed at `now` if no packet of its endpoints arrived.
    pub fn would_end(&self, now: u64) -> bool {
        self.peers.values().any(|peer| peer.ends() <= now)
    }

    /// Records the time of a packet of an endpoint of a NIC.
    pub fn record_activity(&mut self, nic_id: NicId, at: u64) {
        if let Some(peer) = self.peers.get_mut(&mac(nic_id)) {
            peer.active_at = peer.active_at.max(Some(at));
        }
    }

    /// Returns the latest time of the next call of [`Self::tick`] in ns.
    pub fn deadline(&self) -> u64 {
        self.announce_at.min(self.due)
    }

    /// Sends due announcements and queries. Returns the removed NICs.
    pub fn tick(&mut self, now: u64, send: &mut dyn FnMut(&[u8], &[u8])) -> Vec<NicChange> {
        if self.announce_at <= now {
            self.announce(send);
            self.announced_at = Some(now);
            self.burst = self.burst.saturating_sub(1);
            let wait = if self.burst > 0 { ANNOUNCE_NS } else { ANNOUNCE_IDLE_NS };
            self.announce_at = now.saturating_add(wait);
        }
        if self.due > now {
            return Vec::new();
        }
        let over = |(_, peer): &(&[u8; 6], &DiscoveredNic)| peer.ends() <= now;
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
                peer.wait = peer.wait.saturating_mul(2).min(NAME_QUERY.most_ns);
            }
            due = due.min(peer.ask_at).min(peer.ends());
        }
        self.due = due;
        gone.into_iter().map(|mac| NicChange::Removed(nic(mac))).collect()
    }

    /// Broadcasts an announcement.
    fn announce(&self, send: &mut dyn FnMut(&[u8], &[u8])) {
        let announcement = Announcement { nic: nic(self.own).0, serial: self.serial };
        let header = Header { destination: [0xff; 6], source: self.own, peer_index: 0 };
        let data = announcement.emit();
        let (head, rest) = emit(&header, &Packet::Raw(&data));
        send(head.bytes(), rest);
    }
}
