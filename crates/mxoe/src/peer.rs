//! What is known of one peer, and the table of them.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};

use causeway_wire::mx::{Handle, PeerId, Status, Token, Window};

use crate::counters::PeerCounters;
use crate::jumbo_pull::JumboPull;
use crate::limits::{
    ASK_AGAIN_NS, DOUBT_NS, PARTNERS_MAX, PAST_PARTNERS_MAX, QUIET_NS, RESEND_NS, WINDOW_PACKETS,
};
use crate::request_window::RequestWindow;
use crate::sequence::Number;
use crate::sequence_conflict::SequenceConflict;
use crate::timers::{Alarm, RoundTrip};

/// A message to be sent, until it is known to be there.
#[derive(Debug)]
pub(crate) struct Message {
    /// Who hears when it is there. An offer ends otherwise.
    pub(crate) token: Option<Token>,
    pub(crate) content: Content,
    pub(crate) first_at: u64,
    pub(crate) sent_at: u64,
    pub(crate) resent: bool,
}

/// What is sent.
#[derive(Debug)]
pub(crate) enum Content {
    Eager {
        match_info: u64,
        data: Vec<u8>,
    },
    /// `window`: number and sequence, when it has one.
    Offer {
        match_info: u64,
        from: Window,
        window: Option<(u8, u8)>,
    },
    Notify {
        total_len: u32,
        window: u8,
        window_sequence: u8,
    },
}

/// The way there.
#[derive(Debug)]
pub(crate) struct Sending {
    /// The number of the first in flight.
    pub(crate) first: Number,
    /// Numbered, and not known to be there.
    pub(crate) flight: VecDeque<Message>,
    pub(crate) queue: VecDeque<Message>,
    /// Of those in flight.
    pub(crate) packets: usize,
    pub(crate) window: usize,
    pub(crate) trip: RoundTrip,
    pub(crate) resend_at: Option<u64>,
    pub(crate) tries: u32,
    /// How many in flight may have been lost; how many of them were sent again; how many more at
    /// the next sign.
    pub(crate) recovery: (usize, usize, usize),
    /// Acknowledgements that said nothing new.
    pub(crate) duplicates: u32,
    pub(crate) resent_early_at: u64,
    /// The number of the latest acknowledgement on its own.
    pub(crate) heard: u32,
    /// It says of what it has what cannot be.
    pub(crate) dispute: Option<SequenceConflict>,
    /// Whether it waits for a window.
    pub(crate) waits: bool,
    /// Windows that are open for it.
    pub(crate) windows: usize,
    /// Since when the library waits for it.
    pub(crate) watched: Option<u64>,
    /// When to ask whether it is there, while nothing is in flight to it.
    pub(crate) probe_at: Option<u64>,
    /// Until then nothing is sent: acknowledgements of what it was sent before it began anew would
    /// be taken for those of what it is sent now.
    pub(crate) quiet_until: Option<u64>,
}

/// What came, until the library has it.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// `missing`: a bit for each fragment. `strange`: packets that do not belong to it.
    Message {
        match_info: u64,
        data: Vec<u8>,
        missing: u32,
        pipeline: u8,
        strange: u8,
    },
    Offer(Offered),
    /// What it ends has ended.
    Notified,
}

/// What a rendezvous said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offered {
    pub(crate) match_info: u64,
    pub(crate) len: u32,
    pub(crate) window: u8,
    pub(crate) window_sequence: u8,
    pub(crate) offset: u16,
}

/// The way here.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) next: Number,
    /// From `next` on.
    pub(crate) early: VecDeque<Option<Incoming>>,
    /// Of the data in `early`.
    pub(crate) bytes: usize,
    pub(crate) unacked: u32,
    pub(crate) ack_at: Option<u64>,
    /// Acknowledgements sent on their own.
    pub(crate) acks: u32,
    /// Whether it stands in the endpoint's list of those that the library had no room for.
    pub(crate) ready: bool,
}

/// Large messages from it.
#[derive(Debug)]
pub(crate) struct Pulling {
    pub(crate) active: Vec<Handle>,
    pub(crate) waiting: VecDeque<Handle>,
    /// All that it offers.
    pub(crate) offers: Vec<Handle>,
    pub(crate) trip: RoundTrip,
    pub(crate) breadth: RequestWindow,
    pub(crate) wide: JumboPull,
}

/// It is said that a peer is gone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Doubt {
    pub(crate) since: u64,
    /// What it is gone with, unless it is heard of.
    pub(crate) status: Status,
    /// How long it has to be heard of.
    pub(crate) lasts: u64,
    /// Whether it was asked a second time.
    pub(crate) asked_again: bool,
    /// The question was refused, too: whoever refuses is where the peer is, or on the way there.
    pub(crate) refused: bool,
}

impl Doubt {
    /// Since now; `trip` is what is known of the way there and back.
    pub(crate) fn new(now: u64, status: Status, trip: u64) -> Self {
        let (_, most) = RESEND_NS;
        let lasts = trip.saturating_mul(3).clamp(DOUBT_NS, most);
        Self { since: now, status, lasts, asked_again: false, refused: false }
    }

    /// When it is known.
    pub(crate) const fn ends(self) -> u64 {
        self.since.saturating_add(self.lasts)
    }

    /// When it is asked again: the first question, or its answer, may be lost.
    pub(crate) const fn again(self) -> u64 {
        self.since.saturating_add(self.lasts / 2)
    }

    /// It is asked again, perhaps late: then it has as long to answer as if it were not.
    pub(crate) fn ask_again(&mut self, now: u64) {
        let late = now.saturating_sub(self.again());
        self.lasts = self.lasts.saturating_add(late);
        self.asked_again = true;
    }

    /// When something is to be done.
    pub(crate) const fn due(self) -> u64 {
        if self.asked_again { self.ends() } else { self.again() }
    }
}

/// A peer that asked to connect and seemed not to know that we began anew.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unaware {
    pub(crate) session: u32,
    pub(crate) since: u64,
}

/// Whether one that connects is still the peer that we know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Same,
    /// It began anew.
    Anew,
    /// What it says may be late: who is there says it again.
    Unknown,
    /// As [`Self::Unknown`], but it was quiet for so long that it may well have begun anew, and
    /// its generations have come round to the one that we know.
    Round,
    /// As [`Self::Round`], in another generation.
    Other,
}

/// One peer.
#[derive(Debug)]
pub(crate) struct Partner {
    pub(crate) host: u16,
    pub(crate) endpoint: u8,
    /// Its session, when it said so.
    pub(crate) session: Option<u32>,
    /// Its session, while it seems not to know yet that we began anew.
    pub(crate) unaware: Option<Unaware>,
    /// When it first asked to connect as if it had begun anew.
    asked_at: Option<u64>,
    /// Whether the library heard of it.
    pub(crate) told: bool,
    /// The latest of its requests to connect.
    pub(crate) connect_seen: Option<u8>,
    pub(crate) heard_at: u64,
    pub(crate) doubt: Option<Doubt>,
    pub(crate) alarm: Alarm,
    pub(crate) send: Sending,
    pub(crate) receive: Receiving,
    pub(crate) pulling: Pulling,
    pub(crate) counters: PeerCounters,
}

impl Sending {
    /// Whether anything waits for what the peer does.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.windows > 0 || self.watched.is_some()
    }
}

impl Receiving {
    /// The generation of what the next peer there sends. Of one that was not heard of nothing
    /// was taken, and it may not know of this one: else, tried often enough, generations come round
    /// to the one that it knows.
    fn next_generation(&self, heard: bool) -> u8 {
        let own = self.next.generation();
        if heard || self.next != Number::first(own) { own.wrapping_add(1) } else { own }
    }
}

impl Partner {
    fn new((host, endpoint): (u16, u8), generation: u8, now: u64) -> Self {
        let (window, ..) = WINDOW_PACKETS;
        Self {
            host,
            endpoint,
            session: None,
            unaware: None,
            asked_at: None,
            told: false,
            connect_seen: None,
            heard_at: now,
            doubt: None,
            alarm: Alarm::default(),
            send: Sending {
                first: Number::first(0),
                flight: VecDeque::new(),
                queue: VecDeque::new(),
                packets: 0,
                window,
                trip: RoundTrip::new(RESEND_NS),
                resend_at: None,
                tries: 0,
                recovery: (0, 0, 0),
                duplicates: 0,
                resent_early_at: 0,
                heard: 0,
                dispute: None,
                waits: false,
                windows: 0,
                watched: None,
                probe_at: None,
                quiet_until: None,
            },
            receive: Receiving {
                next: Number::first(generation),
                early: VecDeque::new(),
                bytes: 0,
                unacked: 0,
                ack_at: None,
                acks: 0,
                ready: false,
            },
            pulling: Pulling {
                active: Vec::new(),
                waiting: VecDeque::new(),
                offers: Vec::new(),
                trip: RoundTrip::new(ASK_AGAIN_NS),
                breadth: RequestWindow::new(),
                wide: JumboPull::default(),
            },
            counters: PeerCounters::default(),
        }
    }

    /// The way there and back, as far as it is known, in ns.
    pub(crate) fn trip(&self) -> u64 {
        self.send.trip.smoothed().max(self.pulling.trip.smoothed())
    }

    /// Whether a request to connect is not one of before.
    pub(crate) fn is_newer(&self, number: u8) -> bool {
        self.connect_seen.is_none_or(|seen| matches!(number.wrapping_sub(seen), 1..=127))
    }

    /// What one with this session is that expects this number. `newer`: it says so later than all
    /// that it said before.
    pub(crate) fn life(&self, expected: Number, newer: bool, now: u64) -> Life {
        let first = self.send.first;
        let ahead = expected.ahead_of(first).map(usize::from);
        match ahead {
            Some(ahead) if ahead <= self.send.flight.len() => Life::Same,
            // It had the first already, so its generations came round; or this is late.
            Some(_) if expected != Number::first(first.generation()) => Life::Same,
            None if newer => Life::Anew,
            Some(_) if self.is_quiet(now) => Life::Round,
            None if self.is_quiet(now) => Life::Other,
            _ => Life::Unknown,
        }
    }

    /// It asks to connect as if it had begun anew. Not by one request, which may be late: whether
    /// it did so before, longer ago than a packet may be late, and nothing was heard since.
    pub(crate) fn insists(&mut self, now: u64) -> bool {
        let before = self.asked_at.filter(|at| *at > self.heard_at);
        if before.is_none() {
            self.asked_at = Some(now);
        }
        before.is_some_and(|at| now.saturating_sub(at) > QUIET_NS)
    }

    /// Whether it was not heard of for longer than packets of those before it may be late.
    pub(crate) fn is_quiet(&self, now: u64) -> bool {
        now.saturating_sub(self.heard_at) > QUIET_NS
    }

    /// It seems not to know that we began anew.
    pub(crate) fn is_unaware(&mut self, session: u32, now: u64) {
        if self.unaware.is_none_or(|unaware| unaware.session != session) {
            self.unaware = Some(Unaware { session, since: now });
        }
    }

    /// It sends us numbers of now, so it knows after all; or it never knew of the one that we were
    /// before. `acknowledged` is what it expects, and stays so: what we sent before we began anew
    /// does not come to it any more, nor came after it said this. Whether it is adopted.
    pub(crate) fn adopt_unaware(&mut self, acknowledged: u16, now: u64) -> bool {
        let Some(Unaware { session, since }) = self.unaware.filter(|_| self.session.is_none())
        else {
            return false;
        };
        let sure = now.saturating_sub(since) > QUIET_NS.saturating_mul(2);
        if sure {
            self.adopt(session, acknowledged, now, None);
        }
        sure
    }

    /// It said which session it has, and which number it expects. `before`: the generation of the
    /// numbers that the peer before it was sent.
    pub(crate) fn adopt(&mut self, session: u32, expected: u16, now: u64, before: Option<u8>) {
        (self.session, self.unaware) = (Some(session), None);
        self.send.first = Number(expected);
        if before == Some(self.send.first.generation()) {
            self.send.quiet_until = Some(now.saturating_add(QUIET_NS));
        }
    }
}

/// A peer's place.
#[derive(Debug)]
enum Slot {
    Free,
    Live(Box<Partner>),
    /// The library has not forgotten it.
    Gone,
}

/// What stays known of an address.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    current: Option<PeerId>,
    /// For the numbers of the next peer there.
    generation: u8,
    /// The session of the peer before, and the generation of the numbers that it was sent.
    past: Option<(u32, u8)>,
}

/// All peers of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// By NIC and endpoint.
    known: HashMap<(u16, u8), Known>,
    past: VecDeque<(u16, u8)>,
    /// Who was looked for last: of many packets in a row, one is looked for among all.
    last: Cell<u32>,
}

impl Peers {
    /// A peer that is there.
    pub(crate) fn get(&self, peer: PeerId) -> Option<&Partner> {
        match self.slots.get(peer.0 as usize) {
            Some(Slot::Live(partner)) => Some(partner),
            _ => None,
        }
    }

    /// A peer that is there.
    pub(crate) fn get_mut(&mut self, peer: PeerId) -> Option<&mut Partner> {
        match self.slots.get_mut(peer.0 as usize) {
            Some(Slot::Live(partner)) => Some(partner),
            _ => None,
        }
    }

    /// The peer at an address.
    pub(crate) fn at(&self, address: (u16, u8)) -> Option<PeerId> {
        let last = PeerId(self.last.get());
        if self.get(last).is_some_and(|partner| (partner.host, partner.endpoint) == address) {
            return Some(last);
        }
        let found = self.known.get(&address)?.current?;
        self.last.set(found.0);
        Some(found)
    }

    /// If the peer before had this session: the generation of the numbers that it was sent.
    pub(crate) fn past(&self, address: (u16, u8), session: u32) -> Option<u8> {
        let (past, generation) = self.known.get(&address)?.past?;
        (past == session).then_some(generation)
    }

    /// The generation of the numbers that the peer before was sent.
    pub(crate) fn past_generation(&self, address: (u16, u8)) -> Option<u8> {
        self.known.get(&address)?.past.map(|(_, generation)| generation)
    }

    /// The peer at an address, a new one if there is none; none if there is no room.
    pub(crate) fn at_or_new(&mut self, address: (u16, u8), now: u64) -> Option<PeerId> {
        if let Some(peer) = self.at(address) {
            return Some(peer);
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.slots.len() < PARTNERS_MAX => {
                self.slots.push(Slot::Free);
                u32::try_from(self.slots.len().saturating_sub(1)).ok()?
            }
            None => return None,
        };
        let known = self.known.entry(address).or_default();
        known.current = Some(PeerId(number));
        let partner = Partner::new(address, known.generation, now);
        *self.slots.get_mut(number as usize)? = Slot::Live(Box::new(partner));
        Some(PeerId(number))
    }

    /// Takes a peer out. If the library heard of it, its number is not used before it is
    /// [forgotten](Self::forget).
    pub(crate) fn remove(&mut self, peer: PeerId) -> Option<Box<Partner>> {
        let slot = self.slots.get_mut(peer.0 as usize)?;
        let partner = match std::mem::replace(slot, Slot::Gone) {
            Slot::Live(partner) => partner,
            other => {
                *slot = other;
                return None;
            }
        };
        if !partner.told {
            *slot = Slot::Free;
            self.free.push(peer.0);
        }
        let address = (partner.host, partner.endpoint);
        if let Some(known) = self.known.get_mut(&address) {
            known.current = None;
            known.generation = partner.receive.next_generation(partner.session.is_some());
            if let Some(session) = partner.session {
                known.past = Some((session, partner.send.first.generation()));
            }
        }
        self.past.push_back(address);
        if self.past.len() > PAST_PARTNERS_MAX
            && let Some(oldest) = self.past.pop_front()
            && self.at(oldest).is_none()
        {
            self.known.remove(&oldest);
        }
        Some(partner)
    }

    /// The library knows that a peer is gone: whether it was.
    pub(crate) fn forget(&mut self, peer: PeerId) -> bool {
        match self.slots.get_mut(peer.0 as usize) {
            Some(slot @ Slot::Gone) => {
                *slot = Slot::Free;
                self.free.push(peer.0);
                true
            }
            _ => false,
        }
    }

    /// The network is another one: what was learnt of it is not so any more.
    pub(crate) fn forget_wide(&mut self) {
        for slot in &mut self.slots {
            if let Slot::Live(partner) = slot {
                partner.pulling.wide = JumboPull::default();
            }
        }
    }

    /// All that are there.
    pub(crate) fn all(&self) -> impl Iterator<Item = (PeerId, &Partner)> {
        (0..).zip(&self.slots).filter_map(|(number, slot)| match slot {
            Slot::Live(partner) => Some((PeerId(number), &**partner)),
            _ => None,
        })
    }

    /// The number of the first peer at or after `from`; for walks that change peers.
    pub(crate) fn first_from(&self, from: u32) -> Option<PeerId> {
        let rest = self.slots.get(from as usize..)?;
        let at = rest.iter().position(|slot| matches!(slot, Slot::Live(_)))?;
        Some(PeerId(from.saturating_add(u32::try_from(at).ok()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_partners_are_used_again_when_forgotten() {
        let mut peers = Peers::default();
        let a = peers.at_or_new((1, 2), 0).unwrap();
        assert_eq!(peers.at_or_new((1, 2), 0), Some(a));
        peers.get_mut(a).unwrap().told = true;
        peers.get_mut(a).unwrap().adopt(77, 1, 0, None);
        peers.remove(a).unwrap();
        assert!(peers.remove(a).is_none() && peers.past((1, 2), 77) == Some(0));
        assert_eq!(peers.at((1, 2)), None, "although it was the last");
        let b = peers.at_or_new((1, 2), 0).unwrap();
        assert_ne!(a, b, "not forgotten");
        assert_eq!(peers.get(b).unwrap().receive.next, Number::first(1), "numbers begin anew");
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
    fn hostile_partners_are_bounded() {
        let mut peers = Peers::default();
        for host in 0..9 {
            for endpoint in 0..=255 {
                let peer = peers.at_or_new((host, endpoint), 0);
                assert_eq!(peer.is_some(), usize::from(host) * 256 + usize::from(endpoint) < 2048);
            }
        }
        for number in 0..2048 {
            peers.remove(PeerId(number)).unwrap();
        }
        assert!(peers.past.len() == PAST_PARTNERS_MAX && peers.known.len() <= PAST_PARTNERS_MAX);
    }
}
