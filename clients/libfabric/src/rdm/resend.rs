//! Resends messages to other hosts after a daemon between the endpoints was replaced.
//!
//! A daemon holds messages that it accepted from its process and that the other host does not have
//! yet. When it is killed these are lost, and neither side knows which of them arrived. So an
//! endpoint counts the messages of each connection, keeps a copy of those that the other host has
//! not acknowledged, and connects again. On the new connection each side first sends
//! [`ControlKind::Resume`] with the number of messages that it received before; the other side
//! sends the missing ones again, in order, before any new message. So within the limits below none
//! is lost, duplicated or reordered.
//!
//! Long messages are pulled from the sender's memory; those in transit fail at both ends. In place
//! of a long reply its initiator gets `FI_EIO`.
//!
//! # Limits
//! Only eager messages to other hosts are kept, requests and replies included, and only if the
//! endpoint has rings when it opens and is not in direct mode ([`Rdm::resends_to`]). A peer of this
//! host that is reached through the rings counts as one of another host. The copies have no limit
//! of their own: acknowledgements and the limit of sends bound them. If the connect to the peer
//! fails for good ([`connect`](super::connect)), or the peer reports a count that is impossible,
//! its *flow* (the messages kept for it) is given up: if there are any, they are lost, a warning is
//! written, and the peer is broken ([`connect`](super::connect)). At most [`BODIES_LOST_MAX`]
//! (1,024) cancelled long messages are remembered; the receive of a further one ends only with the
//! connection. Both processes must survive: an endpoint that is opened anew has no messages of its
//! predecessor.
//!
//! # Place
//! [`send`](super::send) calls `postpone` before an operation is passed to the engine, and `isend`
//! to pass a message; [`connect`](super::connect) calls `attach` for a new connection, and
//! [`target`](super::target) passes the peer's count to `process_resume`. All run under the lock of
//! the domain.

use std::collections::{HashMap, HashSet, VecDeque};

use causeway_message::library::{
    Buffer, Completion, EndpointIdentity, LostPeer, Partner, RequestId, is_interrupted, is_remote,
};
use causeway_message::status::Status;

use super::buffer::{HEAD_BYTES, MessageBuffer, Payload};
use super::control::{ControlKind, ControlRequest};
use super::engine_send::{EngineSend, UNNAMED};
use super::operation::Task;
use super::wire::{BODY, CONTROL, DEFERRED, NAME_MASK, NOTICE, SPACES};
use super::{DomainEnv, Rdm};
use crate::abi::FI_EIO;
use crate::errno::of_status;
use crate::limits::BODIES_LOST_MAX;

/// The bit that distinguishes replies from the bytes of long messages.
const REPLIES: u64 = 1 << 61;

/// The state of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlowState {
    /// Connected: messages are sent as they come.
    Open,
    /// Not connected: messages are kept for the next connection.
    Gone,
    /// Connected again, and the peer's count of received messages has not arrived yet.
    Resuming,
}

/// A copy of a message that the other host has not acknowledged.
#[derive(Debug)]
struct UnackedMessage {
    /// The 64 bits that the receiver matches.
    info: u64,
    /// Head and bytes.
    bytes: Box<[u8]>,
}

impl UnackedMessage {
    /// Returns the name of the send operation if this message is the notice of a long message and
    /// its bytes are not deferred.
    fn body(&self) -> Option<u32> {
        if self.info & SPACES == BODY || self.info & SPACES == CONTROL {
            return None;
        }
        let (head, _) = self.bytes.split_first_chunk::<HEAD_BYTES>()?;
        let (_, word) = head.split_last_chunk::<8>()?;
        let word = u64::from_le_bytes(*word);
        let comes = word & NOTICE != 0 && word & DEFERRED == 0;
        comes.then(|| u32::try_from(word >> 32).unwrap_or(0) & NAME_MASK)
    }
}

/// The messages between this endpoint and all endpoints of other hosts.
#[derive(Debug, Default)]
pub(super) struct Flows {
    /// Whether messages are sent again after a daemon restarted: false without a network and in
    /// direct mode.
    resends: bool,
    /// By the other endpoint.
    all: HashMap<EndpointIdentity, Flow>,
    /// Endpoints that are not connected any more, to be checked.
    departed: Vec<EndpointIdentity>,
    /// Long messages that were cancelled before a receive took their notice: the sender, and the
    /// name of its operation.
    bodies_lost: HashSet<(EndpointIdentity, u32)>,
}

impl Flows {
    /// Returns no flows.
    pub(super) fn new(resends: bool) -> Self {
        Self { resends, ..Self::default() }
    }

    /// Removes the endpoints that were lost since the last call.
    pub(super) fn take_departed(&mut self) -> Vec<EndpointIdentity> {
        std::mem::take(&mut self.departed)
    }
}

/// The messages between this endpoint and an endpoint of another host, across connections.
#[derive(Debug)]
struct Flow {
    /// Whether messages can be sent.
    state: FlowState,
    /// The current or the last connection.
    partner: Partner,
    /// Messages of earlier connections that must be sent again.
    old: VecDeque<UnackedMessage>,
    /// Messages of this connection; `None` in place of [`ControlKind::Resume`], which is not
    /// counted.
    sent: VecDeque<Option<UnackedMessage>>,
    /// The number of the oldest kept message, counted from 0 over all connections.
    first: u64,
    /// Messages of this connection that are known as acknowledged.
    acked: u64,
    /// Messages that were received on earlier connections.
    received: u64,
    /// Whether [`ControlKind::Resume`] was sent on this connection.
    has_sent_resume: bool,
    /// Whether the peer's [`ControlKind::Resume`] was received on this connection.
    has_received_resume: bool,
    /// Messages that wait for the peer's count.
    waiting: VecDeque<EngineSend>,
}

impl Flow {
    /// Returns the flow of a first connection.
    fn new(partner: Partner) -> Self {
        Self {
            state: FlowState::Open,
            partner,
            old: VecDeque::new(),
            sent: VecDeque::new(),
            first: 0,
            acked: 0,
            received: 0,
            has_sent_resume: false,
            has_received_resume: false,
            waiting: VecDeque::new(),
        }
    }

    /// Drops the copies of acknowledged messages.
    fn drop_acked(&mut self, acked: u64) {
        while self.acked < acked {
            let Some(kept) = self.sent.pop_front() else { break };
            self.first = self.first.wrapping_add(u64::from(kept.is_some()));
            self.acked = self.acked.wrapping_add(1);
        }
    }

    /// Keeps the copy of a message that is sent on this connection, or on the next if it is gone.
    fn keep(&mut self, kept: UnackedMessage) {
        match self.state {
            FlowState::Gone => self.old.push_back(kept),
            FlowState::Open | FlowState::Resuming => self.sent.push_back(Some(kept)),
        }
    }

    /// Records the loss of the connection.
    fn depart(&mut self, departed: &LostPeer) {
        self.drop_acked(departed.acked);
        let received = departed.received.saturating_sub(u64::from(self.has_received_resume));
        self.received = self.received.saturating_add(received);
        self.old.extend(std::mem::take(&mut self.sent).into_iter().flatten());
        self.state = FlowState::Gone;
    }

    /// Starts a new connection.
    fn begin(&mut self, partner: Partner) {
        (self.partner, self.state) = (partner, FlowState::Resuming);
        (self.acked, self.has_sent_resume, self.has_received_resume) = (0, false, false);
    }

    /// Drops the messages that the peer received. Returns `false` if the peer's count is
    /// impossible.
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
    /// Returns whether messages to a peer are kept until its host has them.
    #[inline]
    pub(super) fn resends_to(&self, partner: Partner) -> bool {
        self.flows.resends && is_remote(partner.peer)
    }

    /// Passes a message to the engine, and keeps a copy of an eager message to another host.
    pub(super) fn isend(
        &mut self,
        partner: Partner,
        info: u64,
        context: u64,
        buffer: MessageBuffer,
    ) -> Result<RequestId, causeway_message::library::Error> {
        let whole = self.resends_to(partner) && buffer.len() <= self.eager_max(partner);
        let copy = whole.then(|| self.copy_of(partner, info, &buffer)).flatten();
        let endpoint = &mut self.endpoint;
        let made = endpoint.library.isend(&mut endpoint.paths, partner, info, context, buffer);
        if made.is_ok()
            && let Some((source, kept)) = copy
            && let Some(flow) = self.flows.all.get_mut(&source)
        {
            flow.keep(kept);
        }
        made
    }

    /// Copies a message for the flow of its connection.
    fn copy_of(
        &mut self,
        partner: Partner,
        info: u64,
        buffer: &MessageBuffer,
    ) -> Option<(EndpointIdentity, UnackedMessage)> {
        self.attach(partner);
        let library = &self.endpoint.library;
        let source = library.source_of(partner)?;
        let acked = library.acked(partner);
        let flow = self.flows.all.get_mut(&source).filter(|flow| flow.partner == partner)?;
        flow.drop_acked(acked);
        let mut bytes = Vec::with_capacity(buffer.len());
        causeway_message::library::pieces(buffer, 0, buffer.len(), |piece| {
            bytes.extend_from_slice(piece);
        });
        Some((source, UnackedMessage { info, bytes: bytes.into() }))
    }

    /// Returns whether a failed send will be sent again; it then counts as successful.
    #[cold]
    pub(super) fn will_resend(&self, ended: &Completion) -> bool {
        let Some(partner) = ended.partner.filter(|partner| self.resends_to(*partner)) else {
            return false;
        };
        let source = self.endpoint.library.source_of(partner);
        is_interrupted(ended.status)
            && ended.match_info & SPACES != BODY
            && source.is_some_and(|source| self.flows.all.contains_key(&source))
    }

    /// Sends an error in place of a long reply that did not arrive.
    pub(super) fn reply_lost(&mut self, ended: &Completion) {
        let Some(partner) = ended.partner.filter(|partner| self.resends_to(*partner)) else {
            return;
        };
        let whole = ended.msg_length as usize <= self.eager_max(partner);
        if is_interrupted(ended.status) && !whole {
            let words = (u64::from(FI_EIO.unsigned_abs()), 0);
            let _ =
                self.send_headed(partner, ended.match_info, words, Task::Internal, Payload::EMPTY);
        }
    }

    /// Returns whether messages to an endpoint wait for a new connection.
    pub(super) fn is_interrupted(&self, source: EndpointIdentity) -> bool {
        self.flows.all.get(&source).is_some_and(|flow| flow.state != FlowState::Open)
    }

    /// Returns the number of messages that were reported as sent and wait for a new connection.
    pub(super) fn interrupted_count(&self) -> usize {
        let waiting = self.flows.all.values().filter(|flow| flow.state != FlowState::Open);
        waiting.map(|flow| flow.old.len()).fold(0, usize::saturating_add)
    }

    /// Records the connection to a peer; returns whether messages may be sent on it now.
    pub(super) fn attach(&mut self, partner: Partner) -> bool {
        if !self.resends_to(partner) {
            return true;
        }
        let Some(source) = self.endpoint.library.source_of(partner) else { return true };
        if self.flows.all.get(&source).is_none_or(|flow| flow.partner != partner) {
            self.note_departed();
        }
        let flow = self.flows.all.entry(source).or_insert_with(|| Flow::new(partner));
        if flow.partner != partner && self.endpoint.library.is_reached(partner) {
            flow.begin(partner);
            self.send_resume(source);
        }
        self.flows.all.get(&source).is_none_or(|flow| flow.state == FlowState::Open)
    }

    /// Sends the count of messages that were received on earlier connections.
    fn send_resume(&mut self, source: EndpointIdentity) {
        let Some(flow) = self.flows.all.get_mut(&source) else { return };
        if std::mem::replace(&mut flow.has_sent_resume, true) {
            return;
        }
        flow.sent.push_back(None);
        let control =
            ControlRequest { len: flow.received, ..ControlRequest::blank(ControlKind::Resume) };
        let partner = flow.partner;
        self.send_first(partner, &control);
    }

    /// Sends a control request before all waiting messages.
    fn send_first(&mut self, partner: Partner, control: &ControlRequest) {
        let buffer = MessageBuffer::bare(Payload::Owned(control.emit(0).into()));
        let endpoint = &mut self.endpoint;
        let _ = endpoint.library.isend(&mut endpoint.paths, partner, CONTROL, UNNAMED, buffer);
    }

    /// Returns the current connection of a peer, which may have connected again.
    pub(super) fn current(&self, partner: Partner) -> Partner {
        let library = &self.endpoint.library;
        if !self.resends_to(partner) || library.is_reached(partner) {
            return partner;
        }
        let source = library.source_of(partner);
        source.and_then(|source| library.reached(source)).unwrap_or(partner)
    }

    /// Queues a message until messages may be sent to the peer, with a copy of its bytes for
    /// `inject`. Returns `None` if it was queued.
    pub(super) fn postpone(
        &mut self,
        partner: Partner,
        mut message: EngineSend,
        inject: bool,
    ) -> Option<EngineSend> {
        if !self.resends_to(partner) || self.attach(partner) {
            return Some(message);
        }
        let source = self.endpoint.library.source_of(partner)?;
        let Some(flow) = self.flows.all.get_mut(&source) else { return Some(message) };
        if inject {
            message.copy_payload();
        }
        flow.waiting.push_back(message);
        None
    }

    /// Processes the peer's count of messages that it received on earlier connections.
    pub(super) fn process_resume(&mut self, env: DomainEnv<'_>, partner: Partner, received: u64) {
        if !self.resends_to(partner) {
            return;
        }
        self.attach(partner);
        let Some(source) = self.endpoint.library.source_of(partner) else { return };
        let Some(flow) = self.flows.all.get_mut(&source).filter(|flow| flow.partner == partner)
        else {
            return;
        };
        if std::mem::replace(&mut flow.has_received_resume, true) {
            return;
        }
        match flow.state {
            FlowState::Open => return self.send_resume(source),
            // It arrived on a connection that is lost by now, and was included in its count.
            FlowState::Gone => {
                flow.received = flow.received.saturating_sub(1);
                return;
            }
            FlowState::Resuming => {}
        }
        if !flow.drop_received(received) {
            return self.give_up(source, Status::BadSession, false);
        }
        flow.state = FlowState::Open;
        let (old, waiting) = (std::mem::take(&mut flow.old), std::mem::take(&mut flow.waiting));
        for kept in old {
            let body = kept.body();
            let buffer = MessageBuffer::bare(Payload::Owned(kept.bytes));
            let _ = self.isend(partner, kept.info, UNNAMED, buffer);
            if let Some(name) = body {
                // The sender got an error for these bytes.
                let control = ControlRequest { name, ..ControlRequest::blank(ControlKind::NoBody) };
                let buffer = MessageBuffer::bare(Payload::Owned(control.emit(0).into()));
                let _ = self.isend(partner, CONTROL, UNNAMED, buffer);
            }
        }
        for message in waiting {
            self.submit_late(env, partner, message);
        }
        self.flush(env, source, partner);
    }

    /// Records connections that the engine lost.
    #[cold]
    pub(super) fn note_departed(&mut self) {
        for departed in self.endpoint.library.take_departed() {
            let LostPeer { source, partner, status, .. } = departed;
            self.flows.departed.push(source);
            if !self.flows.resends {
                continue;
            }
            let flow = self.flows.all.entry(source).or_insert_with(|| Flow::new(partner));
            if flow.partner == partner {
                flow.depart(&departed);
            }
            // Pulls in progress and those to come fail, as they do at the sender.
            let bodies = (BODY, SPACES | REPLIES);
            self.endpoint.library.end_receives(source, status, bodies);
            if !is_interrupted(status) {
                self.give_up(source, status, true);
            }
        }
    }

    /// Gives up a flow: messages that were reported as sent are lost. `known` is true if the engine
    /// reported the loss.
    pub(super) fn give_up(&mut self, source: EndpointIdentity, status: Status, known: bool) {
        let Some(flow) = self.flows.all.remove(&source) else { return };
        self.endpoint.library.end_receives(source, status, (BODY, SPACES));
        let lost = flow.old.len().saturating_add(flow.sent.iter().flatten().count());
        for message in flow.waiting {
            self.fail(message.operation(), of_status(status), status);
        }
        if lost > 0 {
            if !known {
                self.stats.count_loss(status as u32);
            }
            self.mark_broken(source);
        }
    }

    /// Cancels the long message with this operation name of the sender, which got an error for it.
    pub(super) fn cancel_body(&mut self, partner: Partner, name: u32) {
        let Some(source) = self.endpoint.library.source_of(partner) else { return };
        let matching = (BODY | u64::from(name & NAME_MASK), u64::MAX);
        let status = Status::EndpointUnreachable;
        let none = self.endpoint.library.end_receives(source, status, matching) == 0;
        if none && self.flows.bodies_lost.len() < BODIES_LOST_MAX {
            self.flows.bodies_lost.insert((source, name & NAME_MASK));
        }
    }

    /// Returns whether the long message with this operation name of the sender was cancelled, and
    /// forgets it.
    pub(super) fn is_body_lost(&mut self, partner: Partner, name: u64) -> bool {
        if self.flows.bodies_lost.is_empty() {
            return false;
        }
        let source = self.endpoint.library.source_of(partner);
        let name = u32::try_from(name).ok();
        source.zip(name).is_some_and(|lost| self.flows.bodies_lost.remove(&lost))
    }
}

#[cfg(test)]
mod tests {
    use causeway_message::split::PeerId;

    use super::*;

    #[test]
    fn flow_resends_missing_messages_and_rejects_impossible_counts() {
        let partner = |epoch| Partner { peer: PeerId(3), epoch };
        let kept = |info| UnackedMessage { info, bytes: Box::default() };
        let mut flow = Flow::new(partner(0));
        (0..6).for_each(|info| flow.keep(kept(info)));
        flow.drop_acked(2);
        let address = causeway_message::split::Address {
            nic: causeway_message::split::NicId(7),
            endpoint: 1,
        };
        let departed = LostPeer {
            source: EndpointIdentity { address, session: 9 },
            partner: partner(0),
            status: Status::EndpointUnreachable,
            received: 4,
            acked: 3,
        };
        flow.depart(&departed);
        flow.keep(kept(6));
        flow.begin(partner(1));
        // The first message of a connection is the count, which is not counted itself.
        flow.sent.push_back(None);
        flow.keep(kept(7));
        assert_eq!((flow.received, flow.first, flow.old.len()), (4, 3, 4));
        assert!(!flow.drop_received(2) && !flow.drop_received(8), "that cannot be");
        assert!(flow.drop_received(5));
        assert_eq!(flow.old.iter().map(|kept| kept.info).collect::<Vec<_>>(), [5, 6]);
        flow.old.clear();
        flow.first = 7;
        flow.drop_acked(1);
        assert_eq!((flow.first, flow.sent.len()), (7, 1));
        flow.drop_acked(2);
        assert_eq!((flow.first, flow.sent.len()), (8, 0));
    }
}
