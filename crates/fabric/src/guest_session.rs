//! Sessions of guests' processes: the interface between the service that carries them and the
//! service that a process uses.
//!
//! A process in a guest reaches a service of its host through a device of its guest: the service of
//! the device (`hca`) *carries* the session, another (`mx`) *serves* it. Neither names the other.
//! The controller of the serving service asks the carrying shard to [`OpenGuestSessions`] of a
//! port, with its [`ServingEnd`]; the two shards then share a [`GuestSession`] for each process.
//! Both shards may run in different threads. A session has no identity beside the port: nothing
//! that the guest says counts.
//!
//! # Messages
//! Requests wait in the session, at most [`SESSION_REQUESTS_MAX`] (32), if the carrying shard asks
//! [`GuestSession::has_room`] first; then the process waits. Doorbells are a bit for each of 256
//! numbers. Answers wait in the session too, at most [`SESSION_ANSWERS_MAX`] (1,024); a further one
//! is refused, and the serving service ends the session. Each side signals the other by a mailbox,
//! once until the other looks.
//!
//! # Memory
//! A request may grant registered memory of the process ([`GuestMemory`]), which the guest can take
//! away at any time, and use otherwise as soon as its command has completed. The serving shard
//! touches such memory only in a *turn* of its [`TurnGate`], a lock for the length of a call of the
//! service, for which only revocations compete. A revocation waits for the end of the turn, and the
//! next turn begins with the list of what was revoked. So no byte is touched after a revocation
//! returned. A revocation waits as long as a call of the serving service takes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_memory::Map;
use causeway_model::{Name, TypedRequest};

use crate::capability::Capability;
use crate::limits::{SESSION_ANSWERS_MAX, SESSION_REQUESTS_MAX};
use crate::mailbox::Sender;
use crate::shard::ShardKey;

/// Shards of the service carry sessions of guests' processes: they answer [`OpenGuestSessions`] and
/// [`CloseGuestSessions`], and their controller announces ports by [`CarrierAdded`].
pub const CARRIES_GUEST_SESSIONS: Capability = Capability("carries sessions of guests' processes");

/// Length of a request without its grant, in bytes.
pub const REQUEST_BYTES: usize = 128;
/// Length of an answer, in bytes.
pub const ANSWER_BYTES: usize = 160;

/// Makes a port carry sessions to a service. Refused if the port does not exist or carries sessions
/// already.
#[derive(Debug)]
pub struct OpenGuestSessions {
    /// Port of the guest.
    pub port: Name,
    /// The service's end.
    pub end: ServingEnd,
}

impl TypedRequest for OpenGuestSessions {
    type Answer = ();
}

/// Ends all sessions of a port, which then carries no more. No effect for a port without sessions.
#[derive(Debug)]
pub struct CloseGuestSessions(pub Name);

impl TypedRequest for CloseGuestSessions {
    type Answer = ();
}

/// Notifies other controllers of a new port that can carry sessions.
#[derive(Debug, Clone)]
pub struct CarrierAdded {
    /// Name of the port.
    pub port: Name,
    /// Shard that carries the sessions.
    pub shard: ShardKey,
}

impl TypedRequest for CarrierAdded {
    type Answer = ();
}

/// A message of the carrying shard to the serving shard.
#[derive(Debug)]
pub enum SessionNotice {
    /// A process began a session. The number is that of [`ServingEnd::tag`].
    Began(u32, GuestSession),
    /// The session with this number has requests, doorbells, or room for answers.
    Ready(u64),
    /// Memory or a session was revoked.
    Revoked,
}

/// The serving shard, as carrying shards reach it.
#[derive(Debug, Clone)]
pub struct ServingEnd {
    /// Mailbox of the shard. Each session has at most two messages in it.
    pub to: Sender<SessionNotice>,
    /// Gate of the shard's turns.
    pub gate: TurnGate,
    /// Number by which the shard knows the object that serves the sessions.
    pub tag: u32,
}

impl ServingEnd {
    /// Revokes an item between two turns of the shard, and has it begin a turn.
    fn revoke(&self, item: RevokedItem, mark: &AtomicBool) {
        if self.gate.revoke(item, mark) {
            // A mailbox without room has messages that begin a turn too.
            let _ = self.to.push_critical(SessionNotice::Revoked);
        }
    }
}

/// What a guest took away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevokedItem {
    /// The memory with this number ([`GuestMemory::number`]).
    Memory(u64),
    /// The session with this number ([`GuestSession::number`]), with all its memory.
    Session(u64),
}

/// Separates the turns of a serving shard from revocations.
#[derive(Debug, Clone, Default)]
pub struct TurnGate(Arc<Gate>);

/// The shared part of a gate.
#[derive(Debug, Default)]
struct Gate {
    revoked: Mutex<Vec<RevokedItem>>,
    /// Revocations that wait for the end of the turn.
    waiting: AtomicUsize,
}

/// Most times that a turn yields the processor to revocations that wait.
const YIELDS_MAX: usize = 200;

/// A turn: no revocation returns while it lives.
#[derive(Debug)]
pub struct GateTurn<'a>(MutexGuard<'a, Vec<RevokedItem>>);

impl TurnGate {
    /// Begins a turn. The caller first drops what [`GateTurn::take_revoked`] returns. Turns that
    /// follow each other let waiting revocations go first, for at most 200 yields of the processor:
    /// the lock alone prefers its last owner.
    pub fn enter(&self) -> GateTurn<'_> {
        for _ in 0..YIELDS_MAX {
            if self.0.waiting.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        GateTurn(self.0.revoked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for the end of the turn, sets `mark`, and appends the item, unless `mark` was set
    /// before. Returns whether the item is the first since the last turn.
    fn revoke(&self, item: RevokedItem, mark: &AtomicBool) -> bool {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        let mut items = self.0.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        if mark.swap(true, Ordering::Relaxed) {
            return false;
        }
        items.push(item);
        items.len() == 1
    }
}

impl GateTurn<'_> {
    /// Takes the items that were revoked since the last turn.
    pub fn take_revoked(&mut self) -> Vec<RevokedItem> {
        std::mem::take(&mut *self.0)
    }
}

/// Returns a number that no other session or memory of this process has.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The revocable part of granted memory; the carrying shard revokes it.
#[derive(Debug)]
pub struct MemoryGrant {
    number: u64,
    end: ServingEnd,
    is_revoked: AtomicBool,
}

impl MemoryGrant {
    /// Returns a grant to the service of `end`.
    pub fn new(end: ServingEnd) -> Self {
        Self { number: next_number(), end, is_revoked: AtomicBool::new(false) }
    }

    /// Takes the memory away. After the return the service does not touch it.
    pub fn revoke(&self) {
        self.end.revoke(RevokedItem::Memory(self.number), &self.is_revoked);
    }
}

/// Registered memory of a process that a request grants: ranges of guest addresses in one epoch.
#[derive(Debug)]
pub struct GuestMemory {
    /// Guest memory in the epoch in which the ranges were looked up.
    pub map: Arc<Map>,
    /// Guest addresses and lengths, in order.
    pub spans: Vec<(u64, u64)>,
    /// Sum of the lengths, in bytes.
    pub len: u64,
    grant: Arc<MemoryGrant>,
    #[expect(dead_code, reason = "held for its drop: it ends the carrying shard's interest")]
    kept: Arc<dyn fmt::Debug + Send + Sync>,
}

impl GuestMemory {
    /// Returns memory with its grant. `kept` is dropped when the service no longer uses the memory.
    pub fn new(
        map: Arc<Map>,
        spans: Vec<(u64, u64)>,
        grant: Arc<MemoryGrant>,
        kept: Arc<dyn fmt::Debug + Send + Sync>,
    ) -> Self {
        let len = spans.iter().fold(0_u64, |sum, (_, len)| sum.saturating_add(*len));
        Self { map, spans, len, grant, kept }
    }

    /// Returns the number by which a revocation names the memory.
    pub fn number(&self) -> u64 {
        self.grant.number
    }

    /// Returns whether the memory was revoked. The answer holds for the present turn.
    pub fn is_revoked(&self) -> bool {
        self.grant.is_revoked.load(Ordering::Relaxed)
    }
}

/// Why memory that a process offered is not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// The offer breaks a rule; the text is the reason.
    #[error("the offered memory is refused: {0}")]
    Rule(&'static str),
    /// The memory lies in too many places.
    #[error("the offered memory lies in too many places: use huge pages")]
    Scattered,
}

/// A request of a process.
#[derive(Debug)]
pub struct SessionRequest {
    /// The request, in the format of the serving service.
    pub bytes: [u8; REQUEST_BYTES],
    /// The memory that it offers, if it offers some.
    pub memory: Option<Result<GuestMemory, OfferError>>,
}

/// Messages and state of a session, under its lock.
#[derive(Debug, Default)]
struct Queues {
    requests: VecDeque<SessionRequest>,
    answers: VecDeque<[u8; ANSWER_BYTES]>,
    /// A notice to the serving shard is under way.
    is_signaled: bool,
    /// A notice to the carrying shard is under way.
    is_answer_signaled: bool,
    /// The serving service waits until fewer answers wait.
    awaits_room: Option<usize>,
    /// The process waits for room for a request.
    is_full: bool,
    is_ended_by_service: bool,
}

/// The shared part of a session.
#[derive(Debug)]
struct Shared {
    number: u64,
    end: ServingEnd,
    /// Wakes the carrying shard.
    carrier: Sender<u64>,
    queues: Mutex<Queues>,
    /// Rung endpoints.
    doorbells: [AtomicU64; 4],
    is_revoked: AtomicBool,
}

/// A session of a process, shared by the carrying and the serving shard.
#[derive(Debug, Clone)]
pub struct GuestSession(Arc<Shared>);

impl GuestSession {
    /// Begins a session, and announces it to the serving shard. `carrier`: wakes the carrying
    /// shard. `None` if the serving shard is gone, or its mailbox is full.
    pub fn begin(end: ServingEnd, carrier: Sender<u64>) -> Option<Self> {
        let session = Self(Arc::new(Shared {
            number: next_number(),
            carrier,
            queues: Mutex::default(),
            doorbells: Default::default(),
            is_revoked: AtomicBool::new(false),
            end,
        }));
        let began = SessionNotice::Began(session.0.end.tag, session.clone());
        session.0.end.to.push(began).is_ok().then_some(session)
    }

    /// Returns the number, which no other session of this process has.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signals the serving shard unless a notice is under way.
    fn signal(&self, mut queues: MutexGuard<'_, Queues>) {
        if !std::mem::replace(&mut queues.is_signaled, true) {
            drop(queues);
            if self.0.end.to.push_critical(SessionNotice::Ready(self.0.number)).is_err() {
                self.queues().is_signaled = false;
            }
        }
    }

    /// Signals the carrying shard unless a notice is under way.
    fn signal_carrier(&self, mut queues: MutexGuard<'_, Queues>) {
        if !std::mem::replace(&mut queues.is_answer_signaled, true) {
            drop(queues);
            if self.0.carrier.push_critical(self.0.number).is_err() {
                self.queues().is_answer_signaled = false;
            }
        }
    }

    /// Carrying shard: returns whether a request has room now. If not, the carrying shard is woken
    /// when it has.
    pub fn has_room(&self) -> bool {
        let mut queues = self.queues();
        queues.is_full = queues.requests.len() >= SESSION_REQUESTS_MAX;
        !queues.is_full
    }

    /// Carrying shard: appends a request. The caller has found room.
    pub fn push_request(&self, request: SessionRequest) {
        let mut queues = self.queues();
        queues.requests.push_back(request);
        self.signal(queues);
    }

    /// Carrying shard: rings the doorbell of an endpoint.
    pub fn ring(&self, endpoint: u8) {
        let [first, second, third, fourth] = &self.0.doorbells;
        let word = match endpoint / 64 {
            0 => first,
            1 => second,
            2 => third,
            _ => fourth,
        };
        word.fetch_or(1_u64.wrapping_shl(u32::from(endpoint % 64)), Ordering::Relaxed);
        self.signal(self.queues());
    }

    /// Carrying shard: begins to look at the answers. A later answer makes a notice.
    pub fn begin_answers(&self) {
        self.queues().is_answer_signaled = false;
    }

    /// Carrying shard: returns the next answer, which stays.
    pub fn next_answer(&self) -> Option<[u8; ANSWER_BYTES]> {
        self.queues().answers.front().copied()
    }

    /// Carrying shard: removes the answer of [`Self::next_answer`].
    pub fn pop_answer(&self) {
        let mut queues = self.queues();
        queues.answers.pop_front();
        if queues.awaits_room.is_some_and(|most| queues.answers.len() < most) {
            queues.awaits_room = None;
            self.signal(queues);
        }
    }

    /// Carrying shard: returns whether the serving service ended the session.
    pub fn is_ended_by_service(&self) -> bool {
        self.queues().is_ended_by_service
    }

    /// Carrying shard: ends the session. After the return the service does not touch its memory.
    pub fn revoke(&self) {
        self.0.end.revoke(RevokedItem::Session(self.0.number), &self.0.is_revoked);
    }

    /// Serving shard: returns whether the session was revoked. The answer holds for the present
    /// turn.
    pub fn is_revoked(&self) -> bool {
        self.0.is_revoked.load(Ordering::Relaxed)
    }

    /// Serving shard: begins to look at requests and doorbells. A later one makes a notice. Called
    /// once for each notice, when the shard takes it: so a session has one at most.
    pub fn begin_requests(&self) {
        self.queues().is_signaled = false;
    }

    /// Serving shard: takes the next request.
    pub fn take_request(&self) -> Option<SessionRequest> {
        let mut queues = self.queues();
        let request = queues.requests.pop_front();
        if std::mem::take(&mut queues.is_full) {
            self.signal_carrier(queues);
        }
        request
    }

    /// Serving shard: takes the numbers of the rung endpoints, in ascending order.
    pub fn take_doorbells(&self) -> impl Iterator<Item = u8> + use<> {
        let words = self.0.doorbells.each_ref().map(|word| word.swap(0, Ordering::Relaxed));
        (0..=u8::MAX).filter(move |endpoint| {
            let word = words.get(usize::from(endpoint / 64)).copied().unwrap_or(0);
            word.wrapping_shr(u32::from(endpoint % 64)) & 1 == 1
        })
    }

    /// Serving shard: appends an answer. Returns false, without an effect, if
    /// [`SESSION_ANSWERS_MAX`] wait.
    pub fn answer(&self, bytes: [u8; ANSWER_BYTES]) -> bool {
        let mut queues = self.queues();
        if queues.answers.len() >= SESSION_ANSWERS_MAX {
            return false;
        }
        queues.answers.push_back(bytes);
        self.signal_carrier(queues);
        true
    }

    /// Serving shard: returns the number of answers that the process has not received.
    pub fn backlog(&self) -> usize {
        self.queues().answers.len()
    }

    /// Serving shard: asks for a notice when fewer than `most` answers wait. Returns false if so
    /// few wait already.
    pub fn await_room(&self, most: usize) -> bool {
        let mut queues = self.queues();
        let must_wait = queues.answers.len() >= most;
        queues.awaits_room = must_wait.then_some(most);
        must_wait
    }

    /// Serving shard: ends the session after the process received its answers.
    pub fn end(&self) {
        let mut queues = self.queues();
        queues.is_ended_by_service = true;
        queues.requests.clear();
        self.signal_carrier(queues);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::mailbox::{Mailbox, mailbox};

    fn ends() -> (ServingEnd, Mailbox<SessionNotice>, Sender<u64>, Mailbox<u64>) {
        let (to, notices) = mailbox(64).unwrap();
        let (carrier, answers) = mailbox(64).unwrap();
        (ServingEnd { to, gate: TurnGate::default(), tag: 7 }, notices, carrier, answers)
    }

    fn request(byte: u8) -> SessionRequest {
        SessionRequest { bytes: [byte; REQUEST_BYTES], memory: None }
    }

    #[test]
    fn guest_session_signals_once_until_the_other_side_looks() {
        let (end, notices, carrier, answers) = ends();
        let session = GuestSession::begin(end, carrier).unwrap();
        let Some(SessionNotice::Began(7, served)) = notices.next() else { panic!() };
        session.push_request(request(1));
        session.push_request(request(2));
        session.ring(3);
        session.ring(200);
        assert!(matches!(notices.next(), Some(SessionNotice::Ready(n)) if n == session.number()));
        assert!(notices.is_empty());
        served.begin_requests();
        assert_eq!(served.take_request().unwrap().bytes[0], 1);
        assert_eq!(served.take_request().unwrap().bytes[0], 2);
        assert!(served.take_request().is_none());
        assert_eq!(served.take_doorbells().collect::<Vec<_>>(), [3, 200]);
        session.ring(3);
        assert!(matches!(notices.next(), Some(SessionNotice::Ready(_))));
        for byte in [5, 6] {
            assert!(served.answer([byte; ANSWER_BYTES]));
        }
        assert_eq!((answers.next(), answers.next()), (Some(session.number()), None));
        session.begin_answers();
        assert_eq!(session.next_answer().unwrap()[0], 5);
        session.pop_answer();
        assert_eq!((session.next_answer().unwrap()[0], served.backlog()), (6, 1));
    }

    #[test]
    fn guest_session_bounds_both_directions() {
        let (end, notices, carrier, answers) = ends();
        let session = GuestSession::begin(end, carrier).unwrap();
        while session.has_room() {
            session.push_request(request(0));
        }
        let count = std::iter::from_fn(|| {
            let taken = session.take_request();
            taken.map(drop)
        })
        .count();
        assert_eq!(count, SESSION_REQUESTS_MAX);
        assert_eq!(answers.next(), Some(session.number()), "the carrier learns of the room");
        let count = (0..).take_while(|_| session.answer([0; ANSWER_BYTES])).count();
        assert_eq!((count, session.backlog()), (SESSION_ANSWERS_MAX, SESSION_ANSWERS_MAX));
        while notices.next().is_some() {}
        session.begin_requests();
        assert!(session.await_room(SESSION_ANSWERS_MAX - 1));
        session.pop_answer();
        assert!(notices.is_empty());
        session.pop_answer();
        assert!(matches!(notices.next(), Some(SessionNotice::Ready(_))));
        assert!(!session.await_room(SESSION_ANSWERS_MAX - 1));
        session.end();
        assert!(session.is_ended_by_service());
    }

    #[test]
    fn guest_session_signals_again_after_a_notice_found_no_room() {
        let (to, notices) = mailbox(1).unwrap();
        let (carrier, answers) = mailbox(1).unwrap();
        let end = ServingEnd { to: to.clone(), gate: TurnGate::default(), tag: 7 };
        let session = GuestSession::begin(end, carrier.clone()).unwrap();
        // Other sessions fill the mailbox.
        while to.push_critical(SessionNotice::Revoked).is_ok() {}
        session.push_request(request(1));
        while notices.next().is_some() {}
        session.ring(3);
        assert!(
            matches!(notices.next(), Some(SessionNotice::Ready(_))),
            "its request waits for ever"
        );
        while carrier.push_critical(0).is_ok() {}
        assert!(session.answer([1; ANSWER_BYTES]));
        while answers.next().is_some() {}
        assert!(session.answer([2; ANSWER_BYTES]));
        assert_eq!(answers.next(), Some(session.number()), "its answers wait for ever");
    }

    #[test]
    fn guest_revocation_goes_before_the_next_of_many_turns() {
        let (end, _notices, _carrier, _answers) = ends();
        let gate = end.gate.clone();
        let mut count = 0;
        for _ in 0..50 {
            let turn = gate.enter();
            let grant = MemoryGrant::new(end.clone());
            let revoking = std::thread::spawn(move || grant.revoke());
            while gate.0.waiting.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            // It sleeps at the lock, which its owner could take again before it wakes.
            std::thread::sleep(Duration::from_millis(1));
            drop(turn);
            let mut next = gate.enter();
            count += usize::from(!next.take_revoked().is_empty());
            drop(next);
            revoking.join().unwrap();
        }
        assert!(count >= 25, "{count} of 50 revocations came before the next turn");
    }

    #[test]
    fn guest_memory_is_revoked_between_turns_only() {
        let (end, notices, carrier, _answers) = ends();
        let gate = end.gate.clone();
        let grant = Arc::new(MemoryGrant::new(end.clone()));
        let kept = Arc::new(());
        let memory = GuestMemory::new(Arc::default(), vec![(0, 5), (9, 3)], grant.clone(), kept);
        let session = GuestSession::begin(end, carrier).unwrap();
        drop(notices.next());
        let mut turn = gate.enter();
        assert_eq!((turn.take_revoked(), memory.len), (vec![], 8));
        let (done, is_done) = mpsc::channel();
        let revoking = std::thread::spawn(move || {
            grant.revoke();
            grant.revoke();
            session.revoke();
            done.send(session.number()).unwrap();
        });
        assert!(is_done.recv_timeout(Duration::from_millis(100)).is_err(), "the turn goes on");
        assert!(!memory.is_revoked());
        drop(turn);
        let session = is_done.recv().unwrap();
        revoking.join().unwrap();
        assert!(memory.is_revoked());
        assert!(matches!(notices.next(), Some(SessionNotice::Revoked)));
        assert!(notices.next().is_none(), "one notice");
        let revoked = gate.enter().take_revoked();
        assert_eq!(revoked, [RevokedItem::Memory(memory.number()), RevokedItem::Session(session)]);
    }
}
