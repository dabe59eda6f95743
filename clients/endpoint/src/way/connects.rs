//! Connects of an endpoint: those that have not ended, and how the others did.

use std::collections::{BTreeMap, VecDeque};

use causeway_message::library::TransportEvent;
use causeway_message::split::{Address, PeerId, Token};
use causeway_message::status::Status;

use crate::limits::CONNECTS_ASKED_MAX;

/// What a connect asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    pub to: Address,
    pub key: u32,
    pub timeout_ns: Option<u64>,
}

/// All connects of an endpoint, by their tokens.
#[derive(Debug, Default)]
pub(super) struct Connects {
    asked: BTreeMap<u64, Wish>,
    /// Those to other hosts for which the rings have no room yet, in order.
    remote: VecDeque<u64>,
    /// How connects ended, to be given to the library.
    ended: VecDeque<TransportEvent>,
}

impl Connects {
    /// Returns whether none is under way.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Returns whether as many are under way as may be.
    pub fn is_full(&self) -> bool {
        self.asked.len() >= CONNECTS_ASKED_MAX
    }

    /// Adds a connect.
    pub fn begin(&mut self, token: u64, wish: Wish) {
        self.asked.insert(token, wish);
    }

    /// Returns what a connect asks for, if it is under way.
    pub fn wish(&self, token: u64) -> Option<Wish> {
        self.asked.get(&token).copied()
    }

    /// Ends a connect, without a word to the library. Returns what it asked for, if it was under way.
    pub fn end(&mut self, token: u64) -> Option<Wish> {
        self.asked.remove(&token)
    }

    /// Returns all that are under way.
    pub fn all(&self) -> Vec<(u64, Wish)> {
        self.asked.iter().map(|(token, wish)| (*token, *wish)).collect()
    }

    /// Adds a connect to those that the rings are to have.
    pub fn push_remote(&mut self, token: u64) {
        self.remote.push_back(token);
    }

    /// Returns the next connect that the rings are to have.
    pub fn next_remote(&self) -> Option<u64> {
        self.remote.front().copied()
    }

    /// Returns whether the rings are to have any.
    #[inline]
    pub fn has_remote(&self) -> bool {
        !self.remote.is_empty()
    }

    /// Ends the connect that [`Self::next_remote`] returned: the rings have it, or refused it.
    pub fn end_remote(&mut self) {
        if let Some(token) = self.remote.pop_front() {
            self.asked.remove(&token);
        }
    }

    /// Forgets which connects the rings are to have.
    pub fn clear_remote(&mut self) {
        self.remote.clear();
    }

    /// Notes how a connect ended.
    pub fn note(&mut self, token: u64, status: Status, peer: PeerId) {
        self.ended.push_back(TransportEvent::Connected { token: Token(token), status, peer });
    }

    /// Fails all that are under way.
    pub fn fail_all(&mut self) {
        self.remote.clear();
        for (token, _) in std::mem::take(&mut self.asked) {
            self.note(token, Status::EndpointUnreachable, PeerId::NONE);
        }
    }

    /// Returns whether the library is to hear of the end of one.
    #[inline]
    pub fn has_notes(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Returns how the first ended of which the library did not hear.
    #[inline]
    pub fn first_note(&self) -> Option<TransportEvent> {
        self.ended.front().copied()
    }

    /// Drops the note that [`Self::first_note`] returned.
    pub fn drop_note(&mut self) {
        self.ended.pop_front();
    }
}
