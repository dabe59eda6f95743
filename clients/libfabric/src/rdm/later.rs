//! Long messages to other hosts that are offered only when they are asked for.
//!
//! What is offered to another host has places that are few until it was pulled: memory that the
//! daemon reaches, and windows of the network. An application may begin any number of sends, and
//! their receiver may want the last of them first. So some are offered at once, and the notices of
//! the others say that they are held: who has a receive for one asks for it. Then it is wanted, and
//! its place is free again soon, whatever the applications do.
//!
//! A receiver that dies does not ask, and a sender that dies does not send: those of other hosts who
//! are waited for are watched.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use causeway_message::library::{Partner, Source, is_remote};
use causeway_message::status::Status;

use super::connect::Reach;
use super::control::{Kind, Question};
use super::operation::Task;
use super::parcel::{Parcel, Place};
use super::send::Waiting;
use super::{CONTROL, Env, Errno, Rdm};
use crate::abi::FI_EINVAL;
use crate::errno::of_status;
use crate::limits::{AHEAD_BYTES_MAX, AHEAD_MAX};

/// How often it is looked at who is to be watched.
pub const LOOK_EVERY: Duration = Duration::from_millis(250);

/// See above.
#[derive(Debug, Default)]
pub struct Later {
    /// What was offered without having been asked for, by operation: how long it is.
    ahead: HashMap<u32, usize>,
    /// All of that, in bytes.
    bytes: usize,
    /// What is held, by who is to ask for it.
    held: HashMap<Source, BTreeMap<u32, Waiting>>,
    /// Those of other hosts who are watched.
    watched: HashMap<Source, Partner>,
    looked_at: Option<Instant>,
    /// How many operations had begun by then.
    begun: u64,
    /// When the endpoint last looked at what it rarely looks at.
    pub seen: u64,
}

impl Later {
    /// An operation is over.
    #[inline]
    pub fn ended(&mut self, operation: u32) {
        if !self.ahead.is_empty()
            && let Some(len) = self.ahead.remove(&operation)
        {
            self.bytes = self.bytes.saturating_sub(len);
        }
    }

    /// Whether so many bytes more are offered at once.
    fn has_room(&self, len: usize) -> bool {
        self.ahead.len() < AHEAD_MAX && self.bytes.saturating_add(len) <= AHEAD_BYTES_MAX
    }

    fn offers(&mut self, operation: u32, len: usize) {
        self.ahead.insert(operation, len);
        self.bytes = self.bytes.saturating_add(len);
    }

    fn take(&mut self, source: Source, operation: u32) -> Option<Waiting> {
        let of = self.held.get_mut(&source)?;
        let message = of.remove(&operation)?;
        if of.is_empty() {
            self.held.remove(&source);
        }
        Some(message)
    }
}

impl Rdm {
    /// Whether a long message is held: else it is offered at once, and counted.
    pub(super) fn holds(&mut self, partner: Option<Partner>, operation: u32, len: usize) -> bool {
        // Nobody knows yet how far it is to who is not connected.
        let far = |partner: Partner| partner != Partner::SELF && is_remote(partner.peer);
        if len == 0 || !partner.is_none_or(far) {
            return false;
        }
        let held = !self.later.has_room(len);
        if !held {
            self.later.offers(operation, len);
        }
        held
    }

    /// Keeps a message until its receiver asks for it.
    pub(super) fn hold(
        &mut self,
        env: Env<'_>,
        to: u64,
        mut message: Waiting,
        inject: bool,
    ) -> Result<(), Errno> {
        if inject {
            message.own();
        }
        let source = env.book.get(to).ok_or(Errno(FI_EINVAL))?;
        self.later.held.entry(source).or_default().insert(message.operation(), message);
        Ok(())
    }

    /// A partner has a receive for what is held for it. What is not, it may ask for as it likes.
    pub(super) fn asked(&mut self, env: Env<'_>, partner: Partner, name: u32) {
        let Some(source) = self.endpoint.library.source_of(partner) else { return };
        let Some(operation) = self.operations.named(name) else { return };
        let Some(message) = self.later.take(source, operation) else { return };
        self.hand_over_late(env, partner, message);
    }

    /// Asks who told of a message, and holds it, for it.
    pub(super) fn ask_for(&mut self, partner: Partner, name: u32) -> Result<(), Errno> {
        let question = Question { name, ..Question::blank(Kind::Want) };
        let parcel = Parcel::bare(Place::Owned(question.emit(0).into()));
        self.send_near(partner, CONTROL, Task::Quiet, parcel)
    }

    /// What waits for somebody is over when that one is gone, so those who are waited for are watched.
    #[cold]
    pub fn look_after_partners(&mut self) {
        self.later.seen = self.endpoint.looked();
        let due = self.later.looked_at.is_none_or(|at| at.elapsed() >= LOOK_EVERY);
        if due {
            self.later.looked_at = Some(Instant::now());
            self.watch_partners();
        }
        self.look_at_lost();
        if !self.later.held.is_empty() {
            let sources: Vec<Source> = self.later.held.keys().copied().collect();
            let sources = sources.into_iter().filter(|source| !self.is_interrupted(*source));
            let gone = sources.filter(|source| match self.reach_of(*source) {
                Reach::Connecting | Reach::Resuming => false,
                Reach::Known(partner) => !self.endpoint.library.is_reached(partner),
                Reach::Unknown => true,
            });
            for source in gone.collect::<Vec<_>>() {
                let status = Status::EndpointUnreachable;
                self.fail_held(source, of_status(status), status);
            }
        }
    }

    /// Says that messages were lost that are told as sent: a few bytes are when they are on their way
    /// to another host.
    pub(super) fn look_at_lost(&mut self) {
        let Some(status) = self.endpoint.library.take_lost() else { return };
        self.tally.lose(status as u32);
    }

    /// Watches those of whom receives wait, or for whom something is held, and nobody else. Who is
    /// connected to anew is another partner, to be watched again.
    fn watch_partners(&mut self) {
        self.later.begun = self.operations.begun();
        let mut wanted = self.operations.waited_for();
        wanted.extend(self.later.held.keys());
        // Who is not connected yet is watched then.
        let known = |source| match self.reach_of(source) {
            Reach::Known(partner) => Some((source, partner)),
            _ => None,
        };
        let wanted: HashMap<Source, Partner> = wanted.into_iter().filter_map(known).collect();
        let before = std::mem::replace(&mut self.later.watched, wanted.clone());
        for (source, partner) in &wanted {
            if before.get(source) != Some(partner) {
                self.watch(*partner, true);
            }
        }
        for (source, partner) in before {
            if wanted.get(&source) != Some(&partner) {
                self.watch(partner, false);
            }
        }
    }

    /// Whether it is to be looked at again who is watched, before anybody sleeps for long.
    pub fn looks_again(&self) -> bool {
        let lately = self.later.looked_at.is_some_and(|at| at.elapsed() < LOOK_EVERY);
        lately && self.operations.begun() != self.later.begun
    }

    fn watch(&mut self, partner: Partner, on: bool) {
        let endpoint = &mut self.endpoint;
        endpoint.library.watch(&mut endpoint.way, partner, on);
    }

    /// What is held for somebody is not asked for any more.
    pub(super) fn fail_held(&mut self, source: Source, err: i32, status: Status) {
        for (operation, _) in self.later.held.remove(&source).unwrap_or_default() {
            self.fail(operation, err, status);
        }
    }
}
