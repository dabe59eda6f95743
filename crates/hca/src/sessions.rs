//! Sessions of a guest's processes with a service of the daemon, which this port carries.
//!
//! A process connects a reliable queue pair to its own adapter and the number
//! [`SERVICE_QPN`](causeway_wire::session::SERVICE_QPN); `causeway-verbs` then passes its messages
//! here. They go to the service that opened the sessions of the port by its controller
//! ([`OpenGuestSessions`](causeway_fabric::guest_session::OpenGuestSessions)): of this daemon `mx`,
//! whose NIC names the port. This module checks the length and the offer of a message, looks the
//! offered memory up with the rights and the protection domain of the queue pair, and interprets
//! nothing else.
//!
//! # Revocation
//! The memory of a session is taken away from the service before the command, work request or reset
//! ends that deregisters it, and all of it with the queue pair. A change of the guest's memory map
//! ends all sessions of the port: its old map must not stay in use. Each waits for the end of the
//! service's present call.
//!
//! # Limits
//! A port carries [`SESSIONS_MAX`] (256) sessions; the first message of a further queue pair fails
//! with a remote invalid request error, as every message that breaks a rule, and the reason is
//! shown as a fault of the port. Without a reason it fails if the serving shard is gone, or its
//! mailbox is full. A queue pair waits while 32 requests of its process wait. Answers to a process
//! without posted receive work requests wait in its session, at most 1,024; then the service ends
//! it. All of it runs in the turns and requests of the port's shard.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use causeway_fabric::Context;
use causeway_fabric::guest_session::{
    GuestMemory, GuestSession, MemoryGrant, OfferError, ServingEnd, SessionRequest,
};
use causeway_fabric::mailbox::{Mailbox, Sender};
use causeway_mlx5::Function;
use causeway_verbs::limits::SESSION_MESSAGE_BYTES;
use causeway_verbs::region::{RegionError, Rights};
use causeway_verbs::session::{Delivery, Revocation, Session, SessionMemory, SessionService};
use causeway_verbs::{AdapterId, Budget, Subnet};
use causeway_wire::session::{self, Offer};

use crate::limits::{
    ANSWERS_PER_CALL_MAX, MESSAGE_NS, OFFER_BYTES_MAX, OFFER_RANGES_MAX,
    OFFERED_RANGES_OF_PORT_MAX, SESSION_LOOK_NS, SESSIONS_MAX,
};

/// Rights that offered memory must have.
const OFFERED: Rights = Rights::LOCAL_WRITE.union(Rights::REMOTE_READ).union(Rights::REMOTE_WRITE);

/// The last rule that a process of the port broke.
type Fault = Arc<Mutex<Option<String>>>;

/// The use of a port's sessions.
#[derive(Debug, Default)]
struct SessionUse {
    /// Ranges of all offered memory.
    ranges: AtomicUsize,
    /// Offers in use, and their bytes.
    offers: AtomicU64,
    bytes: AtomicU64,
    /// Sums since the sessions were opened.
    begun: AtomicU64,
    refused: AtomicU64,
    requests: AtomicU64,
    doorbells: AtomicU64,
    answers: AtomicU64,
    offered: AtomicU64,
}

/// The sessions of a port.
#[derive(Debug)]
pub(crate) struct PortSessions {
    /// Sessions with answers, or with room again.
    notices: Mailbox<u64>,
    /// Answers wait for a process to post receive work requests, or for the next call.
    pub waits: bool,
    fault: Fault,
    usage: Arc<SessionUse>,
}

impl PortSessions {
    /// Makes an adapter carry sessions to the service of `end`. `notices` has the sender that wakes
    /// the port.
    pub(crate) fn open(
        subnet: &mut Subnet<Function>,
        adapter: AdapterId,
        end: ServingEnd,
        (wake, notices): (Sender<u64>, Mailbox<u64>),
    ) -> Self {
        let (fault, usage) = (Fault::default(), Arc::<SessionUse>::default());
        let carrier = Carrier {
            end,
            wake,
            count: Arc::new(()),
            fault: Arc::clone(&fault),
            usage: Arc::clone(&usage),
        };
        subnet.set_session_service(adapter, Some(Box::new(carrier)));
        Self { notices, waits: false, fault, usage }
    }

    /// Passes answers to the processes, as far as they have posted receive work requests. Returns
    /// their number.
    pub(crate) fn answer(
        &mut self,
        cx: &mut Context<'_>,
        subnet: &mut Subnet<Function>,
        adapter: AdapterId,
    ) -> u32 {
        if !self.waits && self.notices.is_empty() {
            return 0;
        }
        // Each session has one notice at most.
        while self.notices.next().is_some() {}
        let mut budget = Budget::new(ANSWERS_PER_CALL_MAX, u64::MAX);
        self.waits = subnet.answer_sessions(adapter, &mut budget);
        let sent = ANSWERS_PER_CALL_MAX.saturating_sub(budget.messages());
        self.usage.answers.fetch_add(sent.into(), Ordering::Relaxed);
        let looks = subnet.adapter(adapter).map_or(0, |adapter| adapter.session_count() as u64);
        cx.charge(u64::from(sent).saturating_mul(MESSAGE_NS));
        cx.charge(looks.saturating_mul(SESSION_LOOK_NS));
        sent
    }

    /// Appends the counters of the sessions.
    pub(crate) fn extend_counters(&self, counters: &mut BTreeMap<String, u64>) {
        let usage = &self.usage;
        let sums = [
            ("sessions_begun_total", &usage.begun),
            ("sessions_refused_total", &usage.refused),
            ("session_requests_total", &usage.requests),
            ("session_doorbells_total", &usage.doorbells),
            ("session_answers_total", &usage.answers),
            ("session_offers_made_total", &usage.offered),
            ("session_offers", &usage.offers),
            ("session_offered_bytes", &usage.bytes),
        ];
        let read =
            |(name, value): (&str, &AtomicU64)| (name.to_owned(), value.load(Ordering::Relaxed));
        counters.extend(sums.map(read));
        counters.insert("session_offered_ranges".to_owned(), self.offered_ranges() as u64);
    }

    /// Returns the ranges of all offered memory in use.
    pub(crate) fn offered_ranges(&self) -> usize {
        self.usage.ranges.load(Ordering::Relaxed)
    }

    /// Returns the last rule that a process broke, once.
    pub(crate) fn take_fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Requests a call of the port for the next answer. Returns false if one waits already.
    pub(crate) fn arm(&self) -> bool {
        self.notices.arm()
    }
}

/// Begins the sessions of an adapter.
#[derive(Debug)]
struct Carrier {
    end: ServingEnd,
    wake: Sender<u64>,
    /// Each session has a clone.
    count: Arc<()>,
    fault: Fault,
    usage: Arc<SessionUse>,
}

impl SessionService for Carrier {
    fn begin(&mut self, queue_pair: u32) -> Option<Box<dyn Session>> {
        if Arc::strong_count(&self.count) > SESSIONS_MAX {
            self.usage.refused.fetch_add(1, Ordering::Relaxed);
            report(&self.fault, || {
                format!(
                    "queue pair {queue_pair}: the port has {SESSIONS_MAX} sessions, the maximum"
                )
            });
            return None;
        }
        let session = GuestSession::begin(self.end.clone(), self.wake.clone())?;
        self.usage.begun.fetch_add(1, Ordering::Relaxed);
        Some(Box::new(CarriedSession {
            session,
            queue_pair,
            end: self.end.clone(),
            fault: Arc::clone(&self.fault),
            usage: Arc::clone(&self.usage),
            _count: Arc::clone(&self.count),
        }))
    }
}

/// Stores a rule that a process broke.
fn report(fault: &Fault, reason: impl FnOnce() -> String) {
    *fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason());
}

/// A session of a queue pair.
#[derive(Debug)]
struct CarriedSession {
    session: GuestSession,
    queue_pair: u32,
    end: ServingEnd,
    fault: Fault,
    usage: Arc<SessionUse>,
    _count: Arc<()>,
}

/// Takes the memory of a grant away when its region changes.
#[derive(Debug)]
struct GrantRevocation {
    grant: Arc<MemoryGrant>,
    /// Counted ranges of the grant.
    ranges: AtomicUsize,
    /// Bytes of the grant.
    len: u64,
    of_port: Arc<SessionUse>,
}

impl GrantRevocation {
    /// Counts the ranges of the grant. Returns false if the port would have too many.
    fn count(&self, ranges: usize) -> bool {
        self.ranges.store(ranges, Ordering::Relaxed);
        let before = self.of_port.ranges.fetch_add(ranges, Ordering::Relaxed);
        before.saturating_add(ranges) <= OFFERED_RANGES_OF_PORT_MAX
    }
}

impl Drop for GrantRevocation {
    fn drop(&mut self) {
        let ranges = self.ranges.load(Ordering::Relaxed);
        self.of_port.ranges.fetch_sub(ranges, Ordering::Relaxed);
        self.of_port.offers.fetch_sub(1, Ordering::Relaxed);
        self.of_port.bytes.fetch_sub(self.len, Ordering::Relaxed);
    }
}

impl Revocation for GrantRevocation {
    fn revoke(&self) {
        self.grant.revoke();
    }
}

impl CarriedSession {
    /// Refuses a message.
    fn refuse(&self, reason: impl std::fmt::Display) -> Delivery {
        let queue_pair = self.queue_pair;
        report(&self.fault, || format!("queue pair {queue_pair}: its session ended: {reason}"));
        Delivery::Refused
    }

    /// Grants offered memory.
    fn grant(
        &self,
        offer: Offer,
        memory: &mut SessionMemory<'_>,
    ) -> Result<GuestMemory, OfferError> {
        if offer.len > OFFER_BYTES_MAX {
            return Err(OfferError::Rule("more than 256 MiB"));
        }
        // A page of 4 KiB is the shortest range.
        memory.looked_up = memory.looked_up.saturating_add(offer.len.wrapping_shr(12));
        let grant = Arc::new(MemoryGrant::new(self.end.clone()));
        let revocation = Arc::new(GrantRevocation {
            grant: Arc::clone(&grant),
            ranges: AtomicUsize::new(0),
            len: offer.len,
            of_port: Arc::clone(&self.usage),
        });
        self.usage.offered.fetch_add(1, Ordering::Relaxed);
        self.usage.offers.fetch_add(1, Ordering::Relaxed);
        self.usage.bytes.fetch_add(offer.len, Ordering::Relaxed);
        let user: Weak<GrantRevocation> = Arc::downgrade(&revocation);
        let mut spans = Vec::new();
        let (range, out) = ((offer.address, offer.len), (OFFER_RANGES_MAX, &mut spans));
        let lent = memory.regions.lend(offer.key, memory.domain, range, OFFERED, out, user);
        lent.map_err(offer_error)?;
        if !revocation.count(spans.len()) {
            return Err(OfferError::Scattered);
        }
        let spans = spans.iter().map(|span| (span.addr, u64::from(span.len))).collect();
        Ok(GuestMemory::new(Arc::clone(&memory.map), spans, grant, revocation))
    }
}

/// Returns the reason for which offered memory is refused.
fn offer_error(error: RegionError) -> OfferError {
    OfferError::Rule(match error {
        RegionError::Limit(_) => return OfferError::Scattered,
        RegionError::NoKey => "no region has its key",
        RegionError::State => "its region is free",
        RegionError::Domain => "its region is of another protection domain",
        RegionError::Rights => "its region lacks local write, remote read or remote write",
        RegionError::Outside => "it lies outside of its region",
        RegionError::Malformed(reason) => reason,
    })
}

impl Session for CarriedSession {
    fn receive(
        &mut self,
        message: &[u8],
        immediate: Option<u32>,
        memory: &mut SessionMemory<'_>,
    ) -> Delivery {
        if self.session.is_ended_by_service() {
            return Delivery::Refused;
        }
        if let Some(value) = immediate {
            return match u8::try_from(value) {
                Ok(endpoint) if message.is_empty() => {
                    self.session.ring(endpoint);
                    self.usage.doorbells.fetch_add(1, Ordering::Relaxed);
                    Delivery::Taken
                }
                _ => self.refuse("a doorbell has bytes, or names no endpoint"),
            };
        }
        if message.len() != SESSION_MESSAGE_BYTES {
            return self.refuse(format_args!("a message has {} bytes", message.len()));
        }
        if !self.session.has_room() {
            return Delivery::Full;
        }
        let (bytes, offer) = match session::open(message) {
            Ok(opened) => opened,
            Err(error) => return self.refuse(error),
        };
        self.usage.requests.fetch_add(1, Ordering::Relaxed);
        let memory = offer.map(|offer| self.grant(offer, memory));
        self.session.push_request(SessionRequest { bytes, memory });
        Delivery::Taken
    }

    fn next(&mut self) -> Option<[u8; SESSION_MESSAGE_BYTES]> {
        self.session.next_answer().or_else(|| {
            self.session.begin_answers();
            self.session.next_answer()
        })
    }

    fn sent(&mut self) {
        self.session.pop_answer();
    }

    fn has_ended(&self) -> bool {
        self.session.is_ended_by_service()
    }
}

impl Drop for CarriedSession {
    fn drop(&mut self) {
        self.session.revoke();
    }
}

const _: () = assert!(causeway_verbs::limits::SERVICE_QPN == session::SERVICE_QPN);
const _: () = assert!(SESSION_MESSAGE_BYTES == session::MESSAGE_BYTES);

#[cfg(test)]
mod tests {
    use causeway_fabric::guest_session::TurnGate;
    use causeway_fabric::mailbox::mailbox;
    use causeway_verbs::region::{RegionLimits, Regions};

    use super::*;

    #[test]
    fn session_that_the_service_ended_takes_nothing_more() {
        let ((to, _notices), (wake, _answers)) = (mailbox(8).unwrap(), mailbox(8).unwrap());
        let end = ServingEnd { to, gate: TurnGate::default(), tag: 1 };
        let session = GuestSession::begin(end.clone(), wake).unwrap();
        let mut carried = CarriedSession {
            session: session.clone(),
            queue_pair: 3,
            end,
            fault: Fault::default(),
            usage: Arc::default(),
            _count: Arc::default(),
        };
        let mut regions = Regions::new(RegionLimits::default());
        let (map, domain) = (Arc::default(), 1);
        let mut memory = SessionMemory { regions: &mut regions, map, domain, looked_up: 0 };
        assert_eq!(carried.receive(&[], Some(5), &mut memory), Delivery::Taken);
        assert_eq!(session.take_doorbells().collect::<Vec<_>>(), [5]);
        session.end();
        assert_eq!(carried.receive(&[], Some(6), &mut memory), Delivery::Refused);
        let message = [0; SESSION_MESSAGE_BYTES];
        assert_eq!(carried.receive(&message, None, &mut memory), Delivery::Refused);
        assert_eq!(session.take_doorbells().count(), 0);
        assert!(session.take_request().is_none() && carried.has_ended());
    }

    #[test]
    fn ranges_of_all_offers_of_a_port_are_bounded() {
        let ((to, _notices), of_port) = (mailbox::<_>(8).unwrap(), Arc::<SessionUse>::default());
        let end = ServingEnd { to, gate: TurnGate::default(), tag: 1 };
        let grant = || GrantRevocation {
            grant: Arc::new(MemoryGrant::new(end.clone())),
            ranges: AtomicUsize::new(0),
            len: 4096,
            of_port: Arc::clone(&of_port),
        };
        let most = OFFERED_RANGES_OF_PORT_MAX / OFFER_RANGES_MAX;
        let mut grants: Vec<GrantRevocation> = (0..most).map(|_| grant()).collect();
        assert!(grants.iter().all(|grant| grant.count(OFFER_RANGES_MAX)));
        assert!(!grant().count(1), "the ranges take memory of the daemon");
        // A refused offer counts no longer, and neither does released memory.
        grants.pop();
        let next = grant();
        assert!(next.count(OFFER_RANGES_MAX));
        assert!(!grant().count(1));
        drop((next, grants));
        assert_eq!(of_port.ranges.load(Ordering::Relaxed), 0);
    }
}
