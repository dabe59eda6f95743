//! Connects: one for each pair of endpoints, however often the address vector has the other, and
//! what waits for them.
//!
//! A connect is asked of the daemon, which answers within some ten microseconds where the other
//! endpoint is on this host: the first operation waits for that. A connect that takes longer goes
//! on by a thread ([`Helps`]), so that the messages that wait for it are sent although the
//! application makes no more calls.

use std::collections::VecDeque;
use std::time::Duration;

use causeway_message::library::{Completion, Partner, RequestId, Source};
use causeway_message::status::Status;

use super::control::{Kind, Question};
use super::operation::Task;
use super::parcel::{Parcel, Place};
use super::send::Waiting;
use super::service::key_of;
use super::{Book, CONTROL, Env, Errno, Name, Rdm};
use crate::abi::{FI_EAGAIN, FI_ECONNREFUSED, FI_ECONNRESET, FI_EINVAL};
use crate::errno::of_status;
use crate::limits::{CONNECT_AT_ONCE, CONNECT_NS, CONNECT_PAST_NS, CONNECT_TRIES};

/// A connect failed. Where messages waited for it that is said to everybody: some applications end,
/// or fall over, without a word of what is wrong.
fn say_why_not(to: Name, status: Status, ours: bool, in_vain: bool) {
    let why = crate::errno::describe(status as i32).to_string_lossy();
    let text = format!("not connected to {to}: {why}");
    let remedy = if ours {
        "if it is on another host, its board has the address of ours: give each its own `mac`"
    } else {
        "on both hosts `causeway peer list` must show the other's board as answering"
    };
    if in_vain {
        crate::say::warn(&format!("{text}; {remedy}"), true);
    } else {
        crate::say::inform(&text);
    }
}

/// Makes connects progress while the application makes no calls.
pub trait Helps: std::fmt::Debug + Send + Sync {
    /// A connect of this endpoint goes on: messages wait for it, or will.
    fn help(&self);
}

/// How far it is to somebody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Reach {
    #[default]
    Unknown,
    Connecting,
    /// Connected to again, and not said yet what was received before.
    Resuming,
    Known(Partner),
}

/// Somebody whom the book names.
#[derive(Debug, Default)]
pub struct Peer {
    /// Who that was when it was connected to.
    source: Option<Source>,
    reach: Reach,
    /// The first number of the same endpoint: what waits for its connect waits there.
    first: usize,
    /// How often in a row the connect failed because the daemon went.
    tries: u8,
    /// What waits until it is.
    waiting: VecDeque<Waiting>,
    /// Reads, writes and atomic operations that it was asked for and that have not ended.
    pub(super) calls: u32,
}

impl Peer {
    /// Whether something waits for the connect.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How many of these the application was told are sent.
    pub fn unsent(&self) -> usize {
        self.waiting.iter().filter(|message| message.is_own()).count()
    }
}

impl Rdm {
    /// The partner of a number, if it is one yet; else it is connected to.
    ///
    /// # Errors
    /// Nobody has the number.
    #[inline]
    pub(super) fn reach(&mut self, book: &Book, to: u64) -> Result<Option<Partner>, Errno> {
        if let Some(partner) = self.known(book, to) {
            return Ok(Some(partner));
        }
        let at = usize::try_from(to).map_err(|_| Errno(FI_EINVAL))?;
        self.connect(book, to, at)
    }

    /// Who has that number, if it is connected to.
    #[inline]
    pub(super) fn known(&self, book: &Book, to: u64) -> Option<Partner> {
        let peer = self.peers.get(usize::try_from(to).ok()?)?;
        let Reach::Known(partner) = peer.reach else { return None };
        let same = peer.source == book.get(to) && self.endpoint.library.is_reached(partner);
        same.then_some(partner)
    }

    /// Connects to whom a number names, unless a connect to the same endpoint is under way or it is
    /// connected to by another number: then its messages go the same way, in their order.
    #[cold]
    fn connect(&mut self, book: &Book, to: u64, at: usize) -> Result<Option<Partner>, Errno> {
        let Name { source, service } = book.name(to).ok_or(Errno(FI_EINVAL))?;
        self.note_broken();
        let number = book.first(to);
        let first = usize::try_from(number).map_err(|_| Errno(FI_EINVAL))?;
        let end = at.max(first).saturating_add(1);
        if self.peers.len() < end {
            self.peers.resize_with(end, Peer::default);
        }
        if self.broken.contains(&source) {
            if let Some(peer) = self.peers.get_mut(at) {
                (peer.source, peer.first) = (Some(source), at);
            }
            return Ok(None);
        }
        // Messages that wait for a connect are sent before those that come later.
        let waits = self.peers.get(first).is_some_and(Peer::waits);
        if (!waits || self.is_interrupted(source))
            && let Some(partner) = self.endpoint.library.reached(source)
        {
            if let Some(peer) = self.peers.get_mut(at) {
                peer.first = first;
            }
            return Ok(self.resume(at, first, source, partner).then_some(partner));
        }
        if let Some(peer) = self.peers.get_mut(at) {
            peer.first = first;
        }
        let others = self.endpoint.way.connecting();
        let Some(made) = self.dial(Name { source, service }, number, first)? else {
            return Ok(None);
        };
        // Of many connects at a time the daemon answers the last after all others.
        let at_once = if others { Duration::ZERO } else { CONNECT_AT_ONCE };
        if self.endpoint.await_end(made, at_once)
            && let Some(partner) = self.endpoint.library.reached(source)
        {
            return Ok(self.resume(at, first, source, partner).then_some(partner));
        }
        if let Some(helper) = &self.helper {
            helper.help();
        }
        Ok(None)
    }

    /// Connects again to endpoints of other hosts from which receives wait, and which are not
    /// reached any more: if they are gone, the receives fail with the connect.
    pub(super) fn find_departed(&mut self, env: Env<'_>) {
        self.note_broken();
        if !self.untold.is_empty() {
            self.tell_broken(env);
        }
        self.note_departed();
        for source in std::mem::take(&mut self.departed) {
            if let Some(partner) = self.endpoint.library.reached(source) {
                self.attach(partner);
                continue;
            }
            let waited_for = !self.operations.waiting_for(source).is_empty();
            if !waited_for && !self.is_interrupted(source) {
                continue;
            }
            let number = env.book.find(source);
            if self.reach(env.book, number).is_err() {
                let status = Status::EndpointUnreachable;
                self.fail_receives(source, of_status(status), status);
            }
        }
    }

    /// A number is that of a partner; returns whether messages may be sent now. Else they wait until
    /// the partner said what it received before.
    fn resume(&mut self, at: usize, first: usize, source: Source, partner: Partner) -> bool {
        if self.attach(partner) {
            self.know(at, source, partner);
            return true;
        }
        for at in [at, first] {
            if let Some(peer) = self.peers.get_mut(at) {
                (peer.reach, peer.source) = (Reach::Resuming, Some(source));
            }
        }
        false
    }

    /// Messages may be sent to a partner again: those that waited are.
    pub(super) fn flush(&mut self, env: Env<'_>, source: Source, partner: Partner) {
        for at in 0..self.peers.len() {
            let Some(peer) = self.peers.get_mut(at) else { return };
            if peer.source != Some(source) {
                continue;
            }
            peer.reach = Reach::Known(partner);
            for message in std::mem::take(&mut peer.waiting) {
                self.hand_over_late(env, partner, message);
            }
        }
    }

    /// Takes note of endpoints to which messages were lost.
    fn note_broken(&mut self) {
        for source in self.endpoint.library.take_broken() {
            self.break_with(source);
        }
    }

    /// A message to an endpoint was lost that was reported as sent. Later ones would be received in its
    /// place: nothing is sent there any more, and what is to come from there fails.
    #[cold]
    pub(super) fn break_with(&mut self, source: Source) {
        if !self.broken.insert(source) {
            return;
        }
        for peer in self.peers.iter_mut().filter(|peer| peer.source == Some(source)) {
            if peer.reach != Reach::Connecting {
                peer.reach = Reach::Unknown;
            }
        }
        self.untold.push(source);
        self.fail_receives(source, FI_ECONNRESET, Status::EndpointUnreachable);
    }

    /// Tells endpoints to which a message was lost that none of what they wait for from here comes.
    fn tell_broken(&mut self, env: Env<'_>) {
        for source in std::mem::take(&mut self.untold) {
            let number = env.book.find(source);
            let Some(first) = usize::try_from(number).ok().filter(|at| *at < self.peers.len())
            else {
                continue;
            };
            let question = Question::blank(Kind::Lost);
            let parcel = Parcel::bare(Place::Owned(question.emit(0).into()));
            if let Some(partner) = self.endpoint.library.reached(source) {
                let _ = self.send_near(partner, CONTROL, Task::Quiet, parcel);
                continue;
            }
            let Some(name) = env.book.name(number) else { continue };
            if self.dial(name, number, first).is_ok()
                && let Ok(operation) = self.begin(Task::Quiet)
                && let Some(peer) = self.peers.get_mut(first)
            {
                peer.waiting.push_back(Waiting::of(operation, CONTROL, parcel));
            }
        }
    }

    /// Whether a connect that failed is tried again: the daemon went in the middle of it.
    fn tries_again(&mut self, at: usize, status: Status) -> bool {
        let way = &self.endpoint.way;
        let renewed = way.awaits_daemon() || way.resumed() > 0;
        let Some(peer) = self.peers.get_mut(at) else { return false };
        if peer.source.is_some_and(|source| self.broken.contains(&source)) {
            return false;
        }
        peer.tries = peer.tries.saturating_add(1);
        renewed && status == Status::EndpointUnreachable && peer.tries < CONNECT_TRIES
    }

    /// To an endpoint to which a message was lost nothing is sent but that it was.
    fn part_again(&mut self, at: usize) {
        if let Some(peer) = self.peers.get_mut(at)
            && peer.source.is_some_and(|source| self.broken.contains(&source))
        {
            peer.reach = Reach::Unknown;
        }
    }

    /// Begins the connect to an endpoint. None: one is under way.
    fn dial(
        &mut self,
        Name { source, service }: Name,
        number: u64,
        first: usize,
    ) -> Result<Option<RequestId>, Errno> {
        let Some(peer) = self.peers.get_mut(first) else { return Err(Errno(FI_EINVAL)) };
        if peer.reach == Reach::Connecting {
            return Ok(None);
        }
        let operation = self.operations.add(Task::Connect(number)).ok_or(Errno(FI_EAGAIN))?;
        (peer.reach, peer.source, peer.first) = (Reach::Connecting, Some(source), first);
        self.endpoint.tell_time();
        let (library, way) = (&mut self.endpoint.library, &mut self.endpoint.way);
        let (address, context) = (source.address, u64::from(operation));
        // Past the daemons nobody answers for a partner that computes and does not call.
        let patience = if way.goes_past() { CONNECT_PAST_NS } else { CONNECT_NS };
        let made = library.iconnect(way, address, key_of(service), 0, context, Some(patience));
        made.map(Some).map_err(|_| {
            self.operations.end(operation);
            if let Some(peer) = self.peers.get_mut(first) {
                peer.reach = Reach::Unknown;
            }
            Errno(FI_EAGAIN)
        })
    }

    /// A number is that of a partner.
    fn know(&mut self, at: usize, source: Source, partner: Partner) {
        if let Some(peer) = self.peers.get_mut(at) {
            (peer.reach, peer.source) = (Reach::Known(partner), Some(source));
        }
    }

    /// It waits for its connect.
    #[cold]
    pub(super) fn queue(
        &mut self,
        to: u64,
        mut message: Waiting,
        inject: bool,
    ) -> Result<(), Errno> {
        if inject {
            message.own();
        }
        let at = usize::try_from(to).map_err(|_| Errno(FI_EINVAL))?;
        let (first, source) =
            self.peers.get(at).map(|peer| (peer.first, peer.source)).ok_or(Errno(FI_EINVAL))?;
        if source.is_some_and(|source| self.broken.contains(&source)) {
            // The application hears of an inject by its call alone.
            if self.operations.is_injected(message.operation()) {
                self.drop_operation(message.operation());
                return Err(Errno(FI_ECONNRESET));
            }
            self.fail(message.operation(), FI_ECONNRESET, Status::EndpointUnreachable);
            return Ok(());
        }
        let peer = self.peers.get_mut(first).ok_or(Errno(FI_EINVAL))?;
        peer.waiting.push_back(message);
        Ok(())
    }

    /// A connect ended: what waited for it goes on its way.
    #[cold]
    pub(super) fn connected(&mut self, env: Env<'_>, to: u64, ended: &Completion) {
        let Some(at) = usize::try_from(to).ok().filter(|at| *at < self.peers.len()) else { return };
        let source = ended.partner.and_then(|partner| self.endpoint.library.source_of(partner));
        if self.tries_again(at, ended.status) {
            if let Some(peer) = self.peers.get_mut(at) {
                peer.reach = Reach::Unknown;
            }
            if self.connect(env.book, to, at).is_ok() {
                return;
            }
        }
        let Some(peer) = self.peers.get_mut(at) else { return };
        peer.tries = 0;
        let waiting = std::mem::take(&mut peer.waiting);
        let right = ended.partner.filter(|_| ended.status == Status::Success);
        let right = right.filter(|_| source == peer.source);
        if let (Some(partner), Some(source)) = (right, source)
            && !self.resume(at, at, source, partner)
        {
            if let Some(peer) = self.peers.get_mut(at) {
                peer.waiting = waiting;
            }
            return;
        }
        let Some(peer) = self.peers.get_mut(at) else { return };
        if let Some(partner) = right {
            peer.reach = Reach::Known(partner);
            for message in waiting {
                self.hand_over_late(env, partner, message);
            }
            self.part_again(at);
            return;
        }
        peer.reach = Reach::Unknown;
        let (err, status) = match ended.status {
            // Somebody else is there by now.
            Status::Success => (FI_ECONNREFUSED, Status::BadSession),
            Status::EndpointClosed => (FI_ECONNREFUSED, ended.status),
            status => (of_status(status), status),
        };
        let in_vain = !waiting.is_empty();
        let lost = waiting.iter().any(|message| self.operations.is_injected(message.operation()));
        for message in waiting {
            self.fail(message.operation(), err, status);
        }
        if let Some(source) = self.peers.get(at).and_then(|peer| peer.source) {
            let ours = source.address.nic == self.endpoint.library.address().nic;
            if lost {
                self.break_with(source);
            }
            say_why_not(Name { source, service: 0 }, status, ours, in_vain);
            self.fail_receives(source, err, status);
            self.fail_held(source, err, status);
            self.give_up(source, status, false);
        }
    }

    /// How far it is to somebody.
    pub(super) fn reach_of(&self, source: Source) -> Reach {
        let found = self.peers.iter().find(|peer| peer.source == Some(source));
        found.map_or(Reach::Unknown, |peer| peer.reach)
    }

    /// Receives that wait for somebody who is not there.
    fn fail_receives(&mut self, source: Source, err: i32, status: Status) {
        for operation in self.operations.waiting_for(source) {
            if self.takes_back(operation) {
                self.fail_receive(operation, err, status);
            }
        }
    }
}
