//! Messages to other hosts when a daemon between the endpoints goes and the next one comes.
//!
//! A daemon has messages that it took from its process and that the other host does not have yet.
//! When it is killed these are gone, and nobody knows which of them arrived. So an endpoint counts
//! the messages of each connection, keeps a copy of those that the other host is not known to have,
//! and connects again. On the new connection each side first sends [`Kind::Resume`] with the number
//! of messages that it received before; the other side sends those again that are missing, in their
//! order, before any new ones. So none is lost, none comes twice and none overtakes another.
//!
//! Long messages are pulled out of the sender's memory. Those that were on their way fail at both
//! ends.

use std::collections::VecDeque;

use causeway_message::library::{
    Buffer, Completion, Departed, Partner, RequestId, Source, is_interrupted, is_remote,
};
use causeway_message::status::Status;

use super::control::{Kind, Question};
use super::operation::Task;
use super::parcel::{HEAD_BYTES, Parcel, Place};
use super::send::{HELD, NOTICE, UNNAMED, Waiting};
use super::{BODY, CONTROL, Env, NAME_MASK, Rdm, SPACES};
use crate::abi::FI_EIO;
use crate::errno::of_status;
use crate::limits::BODIES_LOST_MAX;

/// The bit that tells replies from the bytes of long messages.
const REPLIES: u64 = 1 << 61;

/// How a flow goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Messages are sent as they come.
    Open,
    /// There is no connection.
    Gone,
    /// There is a new one, and the other side has not said yet what it received before.
    Resuming,
}

/// A message of which it is not known that the other host has it.
#[derive(Debug)]
struct Kept {
    info: u64,
    bytes: Box<[u8]>,
}

impl Kept {
    /// The name of a long message's bytes, if this tells of them and they were to come at once.
    fn body(&self) -> Option<u32> {
        if self.info & SPACES == BODY || self.info & SPACES == CONTROL {
            return None;
        }
        let (head, _) = self.bytes.split_first_chunk::<HEAD_BYTES>()?;
        let (_, word) = head.split_last_chunk::<8>()?;
        let word = u64::from_le_bytes(*word);
        let comes = word & NOTICE != 0 && word & HELD == 0;
        comes.then(|| u32::try_from(word >> 32).unwrap_or(0) & NAME_MASK)
    }
}

/// Messages between this endpoint and one of another host, over all their connections.
#[derive(Debug)]
pub(super) struct Flow {
    state: State,
    /// The connection: the current one, or the last.
    partner: Partner,
    /// Messages of connections before, to be sent again.
    old: VecDeque<Kept>,
    /// Messages of this connection; none in place of [`Kind::Resume`], which is not counted.
    sent: VecDeque<Option<Kept>>,
    /// The number of the first of these.
    first: u64,
    /// Messages of this connection of which it was noted that the other host has them.
    acked: u64,
    /// Messages that were received on connections before.
    received: u64,
    /// Whether [`Kind::Resume`] was sent and received on this connection.
    greets: bool,
    greeted: bool,
    /// What waits until the other side said what it received.
    waiting: VecDeque<Waiting>,
}

impl Flow {
    fn new(partner: Partner) -> Self {
        Self {
            state: State::Open,
            partner,
            old: VecDeque::new(),
            sent: VecDeque::new(),
            first: 0,
            acked: 0,
            received: 0,
            greets: false,
            greeted: false,
            waiting: VecDeque::new(),
        }
    }

    /// The other host has so many messages of this connection.
    fn heed(&mut self, acked: u64) {
        while self.acked < acked {
            let Some(kept) = self.sent.pop_front() else { break };
            self.first = self.first.wrapping_add(u64::from(kept.is_some()));
            self.acked = self.acked.wrapping_add(1);
        }
    }

    /// A message is sent by the connection, or waits for the next if it is gone.
    fn keep(&mut self, kept: Kept) {
        match self.state {
            State::Gone => self.old.push_back(kept),
            State::Open | State::Resuming => self.sent.push_back(Some(kept)),
        }
    }

    /// The connection is gone.
    fn depart(&mut self, departed: &Departed) {
        self.heed(departed.acked);
        let received = departed.received.saturating_sub(u64::from(self.greeted));
        self.received = self.received.saturating_add(received);
        self.old.extend(std::mem::take(&mut self.sent).into_iter().flatten());
        self.state = State::Gone;
    }

    /// There is a new connection.
    fn begin(&mut self, partner: Partner) {
        (self.partner, self.state) = (partner, State::Resuming);
        (self.acked, self.greets, self.greeted) = (0, false, false);
    }

    /// The other side received so many: drops these. False: that cannot be.
    fn drop_received(&mut self, received: u64) -> bool {
        let count = usize::try_from(received.wrapping_sub(self.first)).unwrap_or(usize::MAX);
        if count > self.old.len() {
            return false;
        }
        self.old.drain(..count);
        self.first = received;
        true
    }
}

impl Rdm {
    /// Whether messages to a partner are kept until its host has them.
    #[inline]
    pub(super) fn keeps(&self, partner: Partner) -> bool {
        self.resends && is_remote(partner.peer)
    }

    /// Gives a message to the engine, and keeps a copy if it goes whole to another host.
    pub(super) fn isend(
        &mut self,
        partner: Partner,
        info: u64,
        context: u64,
        parcel: Parcel,
    ) -> Result<RequestId, causeway_message::library::Error> {
        let whole = self.keeps(partner) && parcel.len() <= self.eager_max(partner);
        let copy = whole.then(|| self.copy_of(partner, info, &parcel)).flatten();
        let endpoint = &mut self.endpoint;
        let made = endpoint.library.isend(&mut endpoint.way, partner, info, context, parcel);
        if made.is_ok()
            && let Some((source, kept)) = copy
            && let Some(flow) = self.flows.get_mut(&source)
        {
            flow.keep(kept);
        }
        made
    }

    /// A copy of a message, for the flow by whose connection it is sent.
    fn copy_of(&mut self, partner: Partner, info: u64, parcel: &Parcel) -> Option<(Source, Kept)> {
        self.attach(partner);
        let library = &self.endpoint.library;
        let source = library.source_of(partner)?;
        let acked = library.acked(partner);
        let flow = self.flows.get_mut(&source).filter(|flow| flow.partner == partner)?;
        flow.heed(acked);
        let mut bytes = Vec::with_capacity(parcel.len());
        causeway_message::library::pieces(parcel, 0, parcel.len(), |piece| {
            bytes.extend_from_slice(piece);
        });
        Some((source, Kept { info, bytes: bytes.into() }))
    }

    /// Whether a send that failed is sent again: then it ended well for who began it.
    #[cold]
    pub(super) fn is_kept(&self, ended: &Completion) -> bool {
        let Some(partner) = ended.partner.filter(|partner| self.keeps(*partner)) else {
            return false;
        };
        let source = self.endpoint.library.source_of(partner);
        is_interrupted(ended.status)
            && ended.match_info & SPACES != BODY
            && source.is_some_and(|source| self.flows.contains_key(&source))
    }

    /// A reply that is pulled did not arrive: who asked hears so by the next connection.
    pub(super) fn reply_lost(&mut self, ended: &Completion) {
        let Some(partner) = ended.partner.filter(|partner| self.keeps(*partner)) else { return };
        let whole = ended.msg_length as usize <= self.eager_max(partner);
        if is_interrupted(ended.status) && !whole {
            let words = (u64::from(FI_EIO.unsigned_abs()), 0);
            let _ = self.send_headed(partner, ended.match_info, words, Task::Quiet, Place::NOWHERE);
        }
    }

    /// Whether messages wait here for a new connection to an endpoint.
    pub(super) fn is_interrupted(&self, source: Source) -> bool {
        self.flows.get(&source).is_some_and(|flow| flow.state != State::Open)
    }

    /// How many messages that were reported as sent wait for a new connection.
    pub(super) fn interrupted(&self) -> usize {
        let waiting = self.flows.values().filter(|flow| flow.state != State::Open);
        waiting.map(|flow| flow.old.len()).fold(0, usize::saturating_add)
    }

    /// Takes note of the connection to a partner; returns whether messages may be sent by it now.
    pub(super) fn attach(&mut self, partner: Partner) -> bool {
        if !self.keeps(partner) {
            return true;
        }
        let Some(source) = self.endpoint.library.source_of(partner) else { return true };
        if self.flows.get(&source).is_none_or(|flow| flow.partner != partner) {
            self.note_departed();
        }
        let flow = self.flows.entry(source).or_insert_with(|| Flow::new(partner));
        if flow.partner != partner && self.endpoint.library.is_reached(partner) {
            flow.begin(partner);
            self.greet(source);
        }
        self.flows.get(&source).is_none_or(|flow| flow.state == State::Open)
    }

    /// Says how many messages were received on connections before.
    fn greet(&mut self, source: Source) {
        let Some(flow) = self.flows.get_mut(&source) else { return };
        if std::mem::replace(&mut flow.greets, true) {
            return;
        }
        flow.sent.push_back(None);
        let question = Question { len: flow.received, ..Question::blank(Kind::Resume) };
        let partner = flow.partner;
        self.send_first(partner, &question);
    }

    /// Sends something of ours before all that waits.
    fn send_first(&mut self, partner: Partner, question: &Question) {
        let parcel = Parcel::bare(Place::Owned(question.emit(0).into()));
        let endpoint = &mut self.endpoint;
        let _ = endpoint.library.isend(&mut endpoint.way, partner, CONTROL, UNNAMED, parcel);
    }

    /// The partner as it is reached now: it may have been connected to again.
    pub(super) fn current(&self, partner: Partner) -> Partner {
        let library = &self.endpoint.library;
        if !self.keeps(partner) || library.is_reached(partner) {
            return partner;
        }
        let source = library.source_of(partner);
        source.and_then(|source| library.reached(source)).unwrap_or(partner)
    }

    /// Keeps what is sent to a partner until messages may be sent to it; of `inject` with a copy of its
    /// bytes. None: it is kept.
    pub(super) fn postpone(
        &mut self,
        partner: Partner,
        mut message: Waiting,
        inject: bool,
    ) -> Option<Waiting> {
        if !self.keeps(partner) || self.attach(partner) {
            return Some(message);
        }
        let source = self.endpoint.library.source_of(partner)?;
        let Some(flow) = self.flows.get_mut(&source) else { return Some(message) };
        if inject {
            message.own();
        }
        flow.waiting.push_back(message);
        None
    }

    /// The other side says how many messages it received on connections before.
    pub(super) fn resumed(&mut self, env: Env<'_>, partner: Partner, received: u64) {
        if !self.keeps(partner) {
            return;
        }
        self.attach(partner);
        let Some(source) = self.endpoint.library.source_of(partner) else { return };
        let Some(flow) = self.flows.get_mut(&source).filter(|flow| flow.partner == partner) else {
            return;
        };
        if std::mem::replace(&mut flow.greeted, true) {
            return;
        }
        match flow.state {
            State::Open => return self.greet(source),
            // It came by a connection that is gone again, after that was counted.
            State::Gone => {
                flow.received = flow.received.saturating_sub(1);
                return;
            }
            State::Resuming => {}
        }
        if !flow.drop_received(received) {
            return self.give_up(source, Status::BadSession, false);
        }
        flow.state = State::Open;
        let (old, waiting) = (std::mem::take(&mut flow.old), std::mem::take(&mut flow.waiting));
        for kept in old {
            let body = kept.body();
            let parcel = Parcel::bare(Place::Owned(kept.bytes));
            let _ = self.isend(partner, kept.info, UNNAMED, parcel);
            if let Some(name) = body {
                // Its sender was told that they did not arrive.
                let question = Question { name, ..Question::blank(Kind::NoBody) };
                let parcel = Parcel::bare(Place::Owned(question.emit(0).into()));
                let _ = self.isend(partner, CONTROL, UNNAMED, parcel);
            }
        }
        for message in waiting {
            self.hand_over_late(env, partner, message);
        }
        self.flush(env, source, partner);
    }

    /// Takes note of connections that are gone.
    #[cold]
    pub(super) fn note_departed(&mut self) {
        for departed in self.endpoint.library.take_departed() {
            let Departed { source, partner, status, .. } = departed;
            self.departed.push(source);
            if !self.resends {
                continue;
            }
            let flow = self.flows.entry(source).or_insert_with(|| Flow::new(partner));
            if flow.partner == partner {
                flow.depart(&departed);
            }
            // What is pulled fails, and what was to be: its sender is told the same.
            let bodies = (BODY, SPACES | REPLIES);
            self.endpoint.library.end_receives(source, status, bodies);
            if !is_interrupted(status) {
                self.give_up(source, status, true);
            }
        }
    }

    /// An endpoint is not there any more: messages that were reported as sent are lost. `known`: the
    /// engine says so, too.
    pub(super) fn give_up(&mut self, source: Source, status: Status, known: bool) {
        let Some(flow) = self.flows.remove(&source) else { return };
        self.endpoint.library.end_receives(source, status, (BODY, SPACES));
        let lost = flow.old.len().saturating_add(flow.sent.iter().flatten().count());
        for message in flow.waiting {
            self.fail(message.operation(), of_status(status), status);
        }
        if lost > 0 {
            if !known {
                self.tally.lose(status as u32);
            }
            self.break_with(source);
        }
    }

    /// The bytes of that name do not come: their sender was told so.
    pub(super) fn no_body(&mut self, partner: Partner, name: u32) {
        let Some(source) = self.endpoint.library.source_of(partner) else { return };
        let matching = (BODY | u64::from(name & NAME_MASK), u64::MAX);
        let status = Status::EndpointUnreachable;
        let none = self.endpoint.library.end_receives(source, status, matching) == 0;
        if none && self.bodies_lost.len() < BODIES_LOST_MAX {
            self.bodies_lost.insert((source, name & NAME_MASK));
        }
    }

    /// Whether the bytes of that name were said not to come.
    pub(super) fn is_body_lost(&mut self, partner: Partner, name: u64) -> bool {
        if self.bodies_lost.is_empty() {
            return false;
        }
        let source = self.endpoint.library.source_of(partner);
        let name = u32::try_from(name).ok();
        source.zip(name).is_some_and(|lost| self.bodies_lost.remove(&lost))
    }
}

#[cfg(test)]
mod tests {
    use causeway_message::split::PeerId;

    use super::*;

    #[test]
    fn flow_sends_again_what_the_other_side_lacks_and_believes_no_other_number() {
        let partner = |epoch| Partner { peer: PeerId(3), epoch };
        let kept = |info| Kept { info, bytes: Box::default() };
        let mut flow = Flow::new(partner(0));
        (0..6).for_each(|info| flow.keep(kept(info)));
        flow.heed(2);
        let address = causeway_message::split::Address {
            nic: causeway_message::split::NicId(7),
            endpoint: 1,
        };
        let departed = Departed {
            source: Source { address, session: 9 },
            partner: partner(0),
            status: Status::EndpointUnreachable,
            received: 4,
            acked: 3,
        };
        flow.depart(&departed);
        flow.keep(kept(6));
        flow.begin(partner(1));
        // The first of a connection says what came before; it is not counted.
        flow.sent.push_back(None);
        flow.keep(kept(7));
        assert_eq!((flow.received, flow.first, flow.old.len()), (4, 3, 4));
        assert!(!flow.drop_received(2) && !flow.drop_received(8), "that cannot be");
        assert!(flow.drop_received(5));
        assert_eq!(flow.old.iter().map(|kept| kept.info).collect::<Vec<_>>(), [5, 6]);
        flow.old.clear();
        flow.first = 7;
        flow.heed(1);
        assert_eq!((flow.first, flow.sent.len()), (7, 1));
        flow.heed(2);
        assert_eq!((flow.first, flow.sent.len()), (8, 0));
    }
}
