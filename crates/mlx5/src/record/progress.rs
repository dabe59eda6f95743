//! The progress of queues as values: the words of queue pairs and Ethernet queues in a record, and
//! the object that a change belongs to.
//!
//! A word has positions and a state, and changes with the work; [`store`](super::store) writes the
//! words, and `super::restore` reads them after a restart of causewayd. A queue pair keeps its
//! progress and knows which of its words have changed. The module reads and writes no file.

use causeway_verbs::State;
use causeway_wire::mlx5::work_queue::QueueState;

use super::redo::Changes;

/// Codes of states, by their position in [`State::ALL`].
const STATE_BITS: u64 = 7;
/// The first request began and must not be executed again.
const BEGAN: u64 = 1 << 35;
/// A shared entry is held.
const HELD: u64 = 1 << 48;

/// The progress of a queue pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PairProgress {
    /// Send position behind the last work request that ended.
    pub ended: u16,
    /// Number of the last message that ended (`verbs::work::Completion::message`).
    pub sent: u16,
    /// Code of the state.
    state: u8,
    /// The request in progress must not be executed again.
    pub has_begun: bool,
    /// Receive position behind the last work request that ended.
    pub received: u16,
    /// Number of the peer's last message.
    pub message: u16,
    /// Entry of a shared receive queue in progress.
    pub held: Option<u16>,
    /// The first word has changed.
    is_send_dirty: bool,
    /// The second word has changed.
    is_receive_dirty: bool,
}

impl PairProgress {
    /// Returns the progress of two words.
    pub fn from_words([send, receive]: [u64; 2]) -> Self {
        Self {
            ended: send as u16,
            sent: (send >> 16) as u16,
            state: (send >> 32 & STATE_BITS) as u8,
            has_begun: send & BEGAN != 0,
            received: receive as u16,
            message: (receive >> 16) as u16,
            held: (receive & HELD != 0).then_some((receive >> 32) as u16),
            is_send_dirty: false,
            is_receive_dirty: false,
        }
    }

    /// Returns the two words.
    #[inline]
    fn words(&self) -> [u64; 2] {
        let began = if self.has_begun { BEGAN } else { 0 };
        let state = u64::from(self.state) << 32;
        let send = u64::from(self.ended) | u64::from(self.sent) << 16 | state | began;
        let held = self.held.map_or(0, |index| HELD | u64::from(index) << 32);
        [send, u64::from(self.received) | u64::from(self.message) << 16 | held]
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        State::ALL.get(usize::from(self.state)).copied().unwrap_or(State::Error)
    }

    /// Sets the state. Returns whether the words have to be stored.
    pub fn set_state(&mut self, state: State) -> bool {
        let code = State::ALL.iter().position(|own| *own == state).unwrap_or(0) as u8;
        self.is_send_dirty |= self.state != code;
        self.state = code;
        self.is_send_dirty
    }

    /// Returns the progress after a reset: sent messages keep their numbers, the rest is zero.
    pub fn reset(&self) -> Self {
        Self { sent: self.sent, ..Self::default() }
    }

    /// Sets the position of the send queue.
    #[inline]
    pub fn end_send(&mut self, position: u16, message: u16) {
        (self.ended, self.sent, self.has_begun) = (position, message, false);
        self.is_send_dirty = true;
    }

    /// Sets the position of the receive queue.
    #[inline]
    pub fn end_receive(&mut self, position: u16, message: u16) {
        (self.received, self.message, self.held) = (position, message, None);
        self.is_receive_dirty = true;
    }

    /// Notes that the request in progress must not be executed again.
    pub fn begin(&mut self) {
        self.has_begun = true;
        self.is_send_dirty = true;
    }

    /// Notes that an entry of a shared receive queue is in progress.
    pub fn hold(&mut self, index: u16) {
        self.held = Some(index);
        self.is_receive_dirty = true;
    }

    /// Adds the words that changed.
    #[inline]
    pub(super) fn collect(&mut self, at: usize, changes: &mut Changes) {
        let [send, receive] = self.words();
        if std::mem::take(&mut self.is_send_dirty) {
            changes.push((at, send));
        }
        if std::mem::take(&mut self.is_receive_dirty) {
            changes.push((at.wrapping_add(8), receive));
        }
    }

    /// Adds both words.
    pub(super) fn collect_all(&mut self, at: usize, changes: &mut Changes) {
        (self.is_send_dirty, self.is_receive_dirty) = (true, true);
        self.collect(at, changes);
    }
}

/// The work queue of a work request that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    QueuePair(u32),
    EthernetSend(u32),
    EthernetReceive(u32),
}

/// Returns the word of an Ethernet queue.
pub(super) fn ethernet_word(taken: u16, state: u8, is_polled: bool) -> u64 {
    u64::from(taken) | u64::from(state) << 16 | u64::from(is_polled) << 24
}

/// Returns the position, state and whether it is polled, of the word of an Ethernet queue.
pub(super) fn from_ethernet_word(word: u64) -> Option<(u16, QueueState, bool)> {
    Some((word as u16, QueueState::from_raw((word >> 16) as u8)?, word >> 24 & 1 != 0))
}

/// The object that causes an event. Its words belong to the event's commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventSource {
    Command,
    CompletionQueue(u32),
    ReceivePool(u32),
    QueuePair(u32),
}
