//! Peers of an endpoint: the state of each remote endpoint, and the table of them.
//!
//! The modules [`transmit`](crate::transmit), [`receive_order`](crate::receive_order),
//! [`pull`](crate::pull) and [`connect`](crate::connect) act on this state. This module sends
//! nothing and reports no events.
//!
//! The table has at most [`PARTNERS_MAX`] (2,048) peers, removed peers that the host side has not
//! forgotten included. While it is full, connect requests of further endpoints are dropped, and own
//! connects to further endpoints wait until a number is free or they time out. The table keeps the
//! sequence generation of [`PAST_PEERS_MAX`] (1,024) addresses of removed peers, so that late
//! packets of a previous connection are recognised; the oldest is forgotten first, and a peer at a
//! forgotten address starts with generation 0. An *address* is a pair: number of the NIC in the
//! [`NicTable`](crate::nic_table::NicTable), and endpoint. An *incarnation* is one session of a
//! remote endpoint, from its opening to its close. A call with the number of a removed peer is
//! `None`; a second removal, and a second forget, have no effect. The table belongs to one endpoint
//! and its thread, that of the NIC; it has no lock.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};

use causeway_wire::mx::{Handle, PeerId, Token, Window};

use crate::counters::PeerCounters;
use crate::impossible_acks::SequenceConflict;
use crate::jumbo_pull::JumboPull;
use crate::limits::{PARTNERS_MAX, PAST_PEERS_MAX, QUIET_NS, REREQUEST, RESEND, WINDOW_PACKETS};
use crate::liveness::LivenessQuery;
use crate::offers::OfferHeader;
use crate::request_window::RequestWindow;
use crate::sequence::SequenceNumber;
use crate::timers::{RoundTrip, Timer};

/// A message to a peer, until the peer acknowledges it.
#[derive(Debug)]
pub(crate) struct QueuedMessage {
    /// Named by the event at the end. An offer ends with its window instead.
    pub(crate) token: Option<Token>,
    /// Message, offer or notification.
    pub(crate) content: MessageContent,
    /// Time of the first transmission, in ns.
    pub(crate) first_at: u64,
    /// Time of the latest transmission, in ns.
    pub(crate) sent_at: u64,
    /// The message was retransmitted, so that its acknowledgement does not measure a round trip.
    pub(crate) resent: bool,
}

/// The content of a message.
#[derive(Debug)]
pub(crate) enum MessageContent {
    /// A message whole, in one packet or in fragments.
    Eager { match_info: u64, data: Vec<u8> },
    /// An offer of a large message in the region `from`. `window`: number and sequence, once the
    /// offer has a send window.
    Offer { match_info: u64, from: Window, window: Option<(u8, u8)> },
    /// The end of a pull, for the sender of the message: the pulled bytes, and the window of the
    /// sender.
    Notify { total_len: u32, window: u8, window_sequence: u8 },
}

/// State of the messages to a peer.
#[derive(Debug)]
pub(crate) struct SendState {
    /// The number of the first message in flight.
    pub(crate) first: SequenceNumber,
    /// Sent and not acknowledged.
    pub(crate) flight: VecDeque<QueuedMessage>,
    /// Not sent yet.
    pub(crate) queue: VecDeque<QueuedMessage>,
    /// Packets of the messages in flight.
    pub(crate) packets: usize,
    /// Congestion window, in packets.
    pub(crate) window: usize,
    /// Round trip of messages.
    pub(crate) trip: RoundTrip,
    /// Time at which the first message in flight is retransmitted, in ns.
    pub(crate) resend_at: Option<u64>,
    /// Timeouts in a row.
    pub(crate) tries: u32,
    /// Recovery after a timeout: messages in flight that may be lost, how many of them were
    /// retransmitted, and how many more to retransmit with the next acknowledgement.
    pub(crate) recovery: (usize, usize, usize),
    /// Duplicate acknowledgements.
    pub(crate) duplicates: u32,
    /// Time of the latest retransmission because of duplicate acknowledgements, in ns.
    pub(crate) resent_early_at: u64,
    /// The count of the latest separate acknowledgement.
    pub(crate) heard: u32,
    /// The peer acknowledges impossible numbers.
    pub(crate) conflict: Option<SequenceConflict>,
    /// The first queued message waits for a free window.
    pub(crate) awaits_window: bool,
    /// The peer is local, and the work of passing its messages is queued.
    pub(crate) is_pumped: bool,
    /// Open windows of this peer.
    pub(crate) windows: usize,
    /// Start of the time during which the host side waits for the peer.
    pub(crate) watched: Option<u64>,
    /// Time of the next liveness query while nothing is in flight.
    pub(crate) probe_at: Option<u64>,
    /// Nothing is sent until then: the peer would take late acknowledgements of its previous
    /// instance for acknowledgements of new messages.
    pub(crate) quiet_until: Option<u64>,
}

/// A message or offer that has arrived and has not been given to the host side.
#[derive(Debug)]
pub(crate) enum PendingMessage {
    /// An eager message, complete if `missing` is 0. `missing`: a bit for each fragment that has
    /// not arrived. `strange`: number of packets inconsistent with the first fragment.
    Message { match_info: u64, data: Vec<u8>, missing: u32, pipeline: u8, strange: u8 },
    /// An offer, which waits for an earlier message or for room.
    Offer(OfferHeader),
    /// A notification. It was processed, and only occupies its number.
    Notified,
}

/// State of the messages from a peer.
#[derive(Debug)]
pub(crate) struct ReceiveState {
    /// Number of the next message to deliver.
    pub(crate) next: SequenceNumber,
    /// Arrived messages, starting with number `next`.
    pub(crate) early: VecDeque<Option<PendingMessage>>,
    /// Bytes of the messages in `early`.
    pub(crate) bytes: usize,
    /// Messages received since the last acknowledgement.
    pub(crate) unacked: u32,
    /// Time at which an acknowledgement is due, in ns.
    pub(crate) ack_at: Option<u64>,
    /// Count of separate acknowledgements sent.
    pub(crate) acks: u32,
    /// The peer is in the endpoint's list of peers whose next message found no room.
    pub(crate) ready: bool,
}

/// State of the large messages that a peer offers.
#[derive(Debug)]
pub(crate) struct PullState {
    /// Offers that are being pulled.
    pub(crate) active: Vec<Handle>,
    /// Offers that the host side wants and that wait for an active pull to end.
    pub(crate) waiting: VecDeque<Handle>,
    /// All offers of the peer.
    pub(crate) offers: Vec<Handle>,
    /// Round trip of blocks.
    pub(crate) trip: RoundTrip,
    /// Limit of the requested blocks.
    pub(crate) request_window: RequestWindow,
    /// Whether jumbo frames are requested.
    pub(crate) jumbo: JumboPull,
}

/// A peer that sent a connect request and seems not to know that this endpoint restarted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnawarePeer {
    /// Session in the request.
    pub(crate) session: u32,
    /// Time of the request, in ns.
    pub(crate) since: u64,
}

/// Relation of a connecting endpoint to the known peer of its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Incarnation {
    /// The known peer.
    Same,
    /// The peer restarted.
    New,
    /// The request may be late. A live peer repeats it.
    Unknown,
    /// As [`Self::Unknown`], but the peer was silent for so long that it may have restarted often
    /// enough for its generations to wrap around to the known one.
    Wrapped,
    /// As [`Self::Wrapped`], in another generation.
    OtherGeneration,
}

/// The state of one remote endpoint.
#[derive(Debug)]
pub(crate) struct RemoteEndpoint {
    /// Number of its NIC in the [`NicTable`](crate::nic_table::NicTable).
    pub(crate) host: u16,
    /// Number of the endpoint in its NIC.
    pub(crate) endpoint: u8,
    /// Session of the peer, once received.
    pub(crate) session: Option<u32>,
    /// Set while the peer seems not to know that this endpoint restarted.
    pub(crate) unaware: Option<UnawarePeer>,
    /// Time of the first connect request that indicates a restart.
    asked_at: Option<u64>,
    /// The host side knows the peer.
    pub(crate) is_reported: bool,
    /// The number of the latest connect request.
    pub(crate) connect_seen: Option<u8>,
    /// Time of the latest packet, in ns.
    pub(crate) heard_at: u64,
    /// The query that runs after a report that the peer is gone.
    pub(crate) doubt: Option<LivenessQuery>,
    /// Timer of the peer: retransmission, acknowledgement, queries and pulls.
    pub(crate) timer: Timer,
    /// Messages to the peer.
    pub(crate) send: SendState,
    /// Messages of the peer.
    pub(crate) receive: ReceiveState,
    /// Pulls from the peer.
    pub(crate) pulling: PullState,
    /// Counters of the peer, since it is in the table.
    pub(crate) counters: PeerCounters,
}

impl SendState {
    /// Returns whether an operation or the host side waits for an action of the peer.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.windows > 0 || self.watched.is_some()
    }
}

impl ReceiveState {
    /// Returns the generation of the numbers of the next peer at this address. The generation stays
    /// if the session of this peer is unknown (not `heard`) and no message of it was accepted: such
    /// a peer may not know the generation, and repeated attempts would wrap around to the
    /// generation that it knows.
    fn next_generation(&self, heard: bool) -> u8 {
        let own = self.next.generation();
        if heard || self.next != SequenceNumber::first(own) { own.wrapping_add(1) } else { own }
    }
}

impl RemoteEndpoint {
    fn new((host, endpoint): (u16, u8), generation: u8, now: u64) -> Self {
        Self {
            host,
            endpoint,
            session: None,
            unaware: None,
            asked_at: None,
            is_reported: false,
            connect_seen: None,
            heard_at: now,
            doubt: None,
            timer: Timer::default(),
            send: SendState {
                first: SequenceNumber::first(0),
                flight: VecDeque::new(),
                queue: VecDeque::new(),
                packets: 0,
                window: WINDOW_PACKETS.initial,
                trip: RoundTrip::new(RESEND),
                resend_at: None,
                tries: 0,
                recovery: (0, 0, 0),
                duplicates: 0,
                resent_early_at: 0,
                heard: 0,
                conflict: None,
                awaits_window: false,
                is_pumped: false,
                windows: 0,
                watched: None,
                probe_at: None,
                quiet_until: None,
            },
            receive: ReceiveState {
                next: SequenceNumber::first(generation),
                early: VecDeque::new(),
                bytes: 0,
                unacked: 0,
                ack_at: None,
                acks: 0,
                ready: false,
            },
            pulling: PullState {
                active: Vec::new(),
                waiting: VecDeque::new(),
                offers: Vec::new(),
                trip: RoundTrip::new(REREQUEST),
                request_window: RequestWindow::new(),
                jumbo: JumboPull::default(),
            },
            counters: PeerCounters::default(),
        }
    }

    /// Returns the known round trip in ns, or 0.
    pub(crate) fn trip(&self) -> u64 {
        self.send.trip.smoothed().max(self.pulling.trip.smoothed())
    }

    /// Returns whether a connect request is newer than all previous ones.
    pub(crate) fn is_newer(&self, number: u8) -> bool {
        self.connect_seen.is_none_or(|seen| matches!(number.wrapping_sub(seen), 1..=127))
    }

    /// Classifies a connecting endpoint with the known session that expects the number `expected`.
    /// `newer`: the request is newer than all its previous ones.
    pub(crate) fn incarnation(
        &self,
        expected: SequenceNumber,
        newer: bool,
        now: u64,
    ) -> Incarnation {
        let first = self.send.first;
        let ahead = expected.ahead_of(first).map(usize::from);
        match ahead {
            Some(ahead) if ahead <= self.send.flight.len() => Incarnation::Same,
            // The peer has received the first message, so its generations wrapped around; or this
            // is late.
            Some(_) if expected != SequenceNumber::first(first.generation()) => Incarnation::Same,
            None if newer => Incarnation::New,
            Some(_) if self.is_quiet(now) => Incarnation::Wrapped,
            None if self.is_quiet(now) => Incarnation::OtherGeneration,
            _ => Incarnation::Unknown,
        }
    }

    /// Records a connect request that indicates a restart. Returns whether an earlier request did
    /// so more than [`QUIET_NS`] (60 ms) ago without any packet since. A single request may be
    /// late.
    pub(crate) fn confirms_restart(&mut self, now: u64) -> bool {
        let before = self.asked_at.filter(|at| *at > self.heard_at);
        if before.is_none() {
            self.asked_at = Some(now);
        }
        before.is_some_and(|at| now.saturating_sub(at) > QUIET_NS)
    }

    /// Returns whether the peer was silent for longer than the lifetime of late packets.
    pub(crate) fn is_quiet(&self, now: u64) -> bool {
        now.saturating_sub(self.heard_at) > QUIET_NS
    }

    /// Records that the peer seems not to know that this endpoint restarted.
    pub(crate) fn mark_unaware(&mut self, session: u32, now: u64) {
        if self.unaware.is_none_or(|unaware| unaware.session != session) {
            self.unaware = Some(UnawarePeer { session, since: now });
        }
    }

    /// Adopts an unaware peer that sends current numbers. It knows of the restart, or never knew
    /// the previous instance. Returns whether the peer was adopted.
    ///
    /// `acknowledged` is the number that it expects. The number is reliable after twice
    /// [`QUIET_NS`]: no packet of the previous instance can reach the peer any more.
    pub(crate) fn adopt_unaware(&mut self, acknowledged: u16, now: u64) -> bool {
        let Some(UnawarePeer { session, since }) = self.unaware.filter(|_| self.session.is_none())
        else {
            return false;
        };
        let sure = now.saturating_sub(since) > QUIET_NS.saturating_mul(2);
        if sure {
            self.adopt(session, acknowledged, now, None);
        }
        sure
    }

    /// Records the session of the peer and the number that it expects. `past`: the generation of
    /// the numbers that were sent to the previous peer at this address.
    pub(crate) fn adopt(&mut self, session: u32, expected: u16, now: u64, past: Option<u8>) {
        (self.session, self.unaware) = (Some(session), None);
        self.send.first = SequenceNumber(expected);
        if past == Some(self.send.first.generation()) {
            self.send.quiet_until = Some(now.saturating_add(QUIET_NS));
        }
    }
}

/// A slot of the peer table.
#[derive(Debug)]
enum PeerSlot {
    /// No peer has the number.
    Free,
    /// A peer.
    Live(Box<RemoteEndpoint>),
    /// The host side has not forgotten the removed peer.
    Gone,
}

/// State of an address that outlives its peers.
#[derive(Debug, Clone, Copy, Default)]
struct AddressHistory {
    /// The live peer at the address.
    current: Option<PeerId>,
    /// Generation of the numbers of the next peer.
    generation: u8,
    /// Session of the previous peer, and the generation of the numbers that were sent to it.
    past: Option<(u32, u8)>,
}

/// The peer table of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct PeerTable {
    slots: Vec<PeerSlot>,
    free: Vec<u32>,
    /// By NIC number and endpoint.
    known: HashMap<(u16, u8), AddressHistory>,
    /// Addresses without a live peer whose history is kept, oldest first.
    past: VecDeque<(u16, u8)>,
    /// Result of the latest lookup: consecutive packets often belong to the same peer.
    last: Cell<u32>,
}

impl PeerTable {
    /// Returns a live peer.
    pub(crate) fn get(&self, peer: PeerId) -> Option<&RemoteEndpoint> {
        match self.slots.get(peer.0 as usize) {
            Some(PeerSlot::Live(remote)) => Some(remote),
            _ => None,
        }
    }

    /// Returns a live peer.
    pub(crate) fn get_mut(&mut self, peer: PeerId) -> Option<&mut RemoteEndpoint> {
        match self.slots.get_mut(peer.0 as usize) {
            Some(PeerSlot::Live(remote)) => Some(remote),
            _ => None,
        }
    }

    /// Returns the peer at an address.
    pub(crate) fn at(&self, address: (u16, u8)) -> Option<PeerId> {
        let last = PeerId(self.last.get());
        if self.get(last).is_some_and(|remote| (remote.host, remote.endpoint) == address) {
            return Some(last);
        }
        let found = self.known.get(&address)?.current?;
        self.last.set(found.0);
        Some(found)
    }

    /// Returns the generation of the numbers that were sent to the previous peer, if it had this
    /// session.
    pub(crate) fn past(&self, address: (u16, u8), session: u32) -> Option<u8> {
        let (past, generation) = self.known.get(&address)?.past?;
        (past == session).then_some(generation)
    }

    /// Returns the generation of the numbers that were sent to the previous peer.
    pub(crate) fn past_generation(&self, address: (u16, u8)) -> Option<u8> {
        self.known.get(&address)?.past.map(|(_, generation)| generation)
    }

    /// Returns the peer at an address, which is created if necessary, or `None` if the table is
    /// full.
    pub(crate) fn at_or_new(&mut self, address: (u16, u8), now: u64) -> Option<PeerId> {
        if let Some(peer) = self.at(address) {
            return Some(peer);
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.slots.len() < PARTNERS_MAX => {
                self.slots.push(PeerSlot::Free);
                u32::try_from(self.slots.len().saturating_sub(1)).ok()?
            }
            None => return None,
        };
        let known = self.known.entry(address).or_default();
        known.current = Some(PeerId(number));
        let remote = RemoteEndpoint::new(address, known.generation, now);
        *self.slots.get_mut(number as usize)? = PeerSlot::Live(Box::new(remote));
        Some(PeerId(number))
    }

    /// Removes a peer. If the host side knows it, its number is reused only after [`Self::forget`].
    pub(crate) fn remove(&mut self, peer: PeerId) -> Option<Box<RemoteEndpoint>> {
        let slot = self.slots.get_mut(peer.0 as usize)?;
        let remote = match std::mem::replace(slot, PeerSlot::Gone) {
            PeerSlot::Live(remote) => remote,
            other => {
                *slot = other;
                return None;
            }
        };
        if !remote.is_reported {
            *slot = PeerSlot::Free;
            self.free.push(peer.0);
        }
        let address = (remote.host, remote.endpoint);
        if let Some(known) = self.known.get_mut(&address) {
            known.current = None;
            known.generation = remote.receive.next_generation(remote.session.is_some());
            if let Some(session) = remote.session {
                known.past = Some((session, remote.send.first.generation()));
            }
        }
        self.past.push_back(address);
        if self.past.len() > PAST_PEERS_MAX
            && let Some(oldest) = self.past.pop_front()
            && self.at(oldest).is_none()
        {
            self.known.remove(&oldest);
        }
        Some(remote)
    }

    /// Frees the number of a removed peer. Returns whether there was one.
    pub(crate) fn forget(&mut self, peer: PeerId) -> bool {
        match self.slots.get_mut(peer.0 as usize) {
            Some(slot @ PeerSlot::Gone) => {
                *slot = PeerSlot::Free;
                self.free.push(peer.0);
                true
            }
            _ => false,
        }
    }

    /// Resets the knowledge of the path MTU, because the network changed.
    pub(crate) fn forget_jumbo(&mut self) {
        for slot in &mut self.slots {
            if let PeerSlot::Live(remote) = slot {
                remote.pulling.jumbo = JumboPull::default();
            }
        }
    }

    /// Returns all live peers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (PeerId, &RemoteEndpoint)> {
        (0..).zip(&self.slots).filter_map(|(number, slot)| match slot {
            PeerSlot::Live(remote) => Some((PeerId(number), &**remote)),
            _ => None,
        })
    }

    /// Returns the first peer with a number of at least `from`. For loops that change peers.
    pub(crate) fn first_from(&self, from: u32) -> Option<PeerId> {
        let rest = self.slots.get(from as usize..)?;
        let at = rest.iter().position(|slot| matches!(slot, PeerSlot::Live(_)))?;
        Some(PeerId(from.saturating_add(u32::try_from(at).ok()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_numbers_are_reused_when_forgotten() {
        let mut peers = PeerTable::default();
        let a = peers.at_or_new((1, 2), 0).unwrap();
        assert_eq!(peers.at_or_new((1, 2), 0), Some(a));
        peers.get_mut(a).unwrap().is_reported = true;
        peers.get_mut(a).unwrap().adopt(77, 1, 0, None);
        peers.remove(a).unwrap();
        assert!(peers.remove(a).is_none() && peers.past((1, 2), 77) == Some(0));
        assert_eq!(peers.at((1, 2)), None, "despite the lookup cache");
        let b = peers.at_or_new((1, 2), 0).unwrap();
        assert_ne!(a, b, "the number is not forgotten");
        assert_eq!(
            peers.get(b).unwrap().receive.next,
            SequenceNumber::first(1),
            "numbers begin anew"
        );
        assert!(peers.forget(a) && !peers.forget(a) && !peers.forget(b));
        assert_eq!(peers.at_or_new((1, 3), 0), Some(a));
        assert_eq!(
            (peers.at((1, 2)), peers.at((1, 3)), peers.at((1, 2))),
            (Some(b), Some(a), Some(b))
        );
        assert_eq!(peers.all().count(), 2);
        assert_eq!(peers.first_from(1), Some(b));
    }

    #[test]
    fn hostile_peers_are_bounded() {
        let mut peers = PeerTable::default();
        for host in 0..9 {
            for endpoint in 0..=255 {
                let peer = peers.at_or_new((host, endpoint), 0);
                assert_eq!(peer.is_some(), usize::from(host) * 256 + usize::from(endpoint) < 2048);
            }
        }
        for number in 0..2048 {
            peers.remove(PeerId(number)).unwrap();
        }
        assert!(peers.past.len() == PAST_PEERS_MAX && peers.known.len() <= PAST_PEERS_MAX);
    }
}
