//! Mailboxes: bounded message queues between shards, which may run in different threads.
//!
//! Links and stations send received frames and changes of state to the shards of groups, and groups
//! send notices to links ([`crate::carrier`]); sessions of guests signal the other side
//! ([`crate::guest_session`]). A shard opens a mailbox by
//! [`Context::mailbox`](crate::Context::mailbox); its dispatcher is then woken by
//! `crate::source_doorbell`, and the service takes the messages in
//! [`Service::serve_source`](crate::Service::serve_source).
//!
//! A mailbox has any number of senders and one reader, and keeps the order of messages. It is full
//! for [`Sender::push_bulk`] at half of `room` messages, for [`Sender::push`] at `room`, for
//! [`Sender::push_urgent`] at twice and for [`Sender::push_critical`] at four times as many. A new
//! mailbox is armed. Pushing never blocks: a full mailbox, or a mailbox without a reader, returns
//! the message, and the sender drops it or tries again later. The reader is not notified when the
//! last sender is gone, and a sender is not notified when room returns. Dropping the mailbox drops
//! its messages.
//!
//! # Budget
//! A message costs an uncontended lock on either side, and a system call only if its reader sleeps
//! in another thread: a polling reader is never woken. Senders therefore put many frames into one
//! message.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::source_doorbell::SourceDoorbell;
use crate::watch::ServiceWatch;

/// State under the lock.
#[derive(Debug)]
struct State<T> {
    messages: VecDeque<T>,
    /// The reader asks to be woken.
    is_asleep: bool,
    /// The reader is gone.
    is_closed: bool,
}

/// The part that senders and the reader share.
#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    /// Number of messages, stored under the lock.
    len: AtomicUsize,
    doorbell: Arc<SourceDoorbell>,
    /// Messages that fit, for [`Sender::push`].
    room: usize,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending side; may be cloned, and used from any thread.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

/// The receiving side.
#[derive(Debug)]
pub struct Mailbox<T> {
    shared: Arc<Shared<T>>,
    #[expect(dead_code, reason = "held for its drop")]
    watch: Option<ServiceWatch>,
}

/// Returns a mailbox for `room` messages, at least 1, that no shard watches: its reader polls.
/// Shards use [`Context::mailbox`](crate::Context::mailbox).
///
/// # Errors
/// The host has no descriptor.
pub fn mailbox<T>(room: usize) -> io::Result<(Sender<T>, Mailbox<T>)> {
    Ok(with_doorbell(room, Arc::new(SourceDoorbell::new(0)?), None))
}

/// Returns a mailbox that rings `doorbell`, and keeps the watch of the doorbell.
pub(crate) fn with_doorbell<T>(
    room: usize,
    doorbell: Arc<SourceDoorbell>,
    watch: Option<ServiceWatch>,
) -> (Sender<T>, Mailbox<T>) {
    let state = State { messages: VecDeque::new(), is_asleep: true, is_closed: false };
    let (state, len) = (Mutex::new(state), AtomicUsize::new(0));
    let shared = Arc::new(Shared { state, len, doorbell, room: room.max(1) });
    (Sender(shared.clone()), Mailbox { shared, watch })
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Sender<T> {
    /// Appends a message.
    ///
    /// # Errors
    /// Returns the message if the mailbox is full or has no reader.
    pub fn push(&self, message: T) -> Result<(), T> {
        self.put(message, self.0.room)
    }

    /// As [`Self::push`], for frequent messages of a sender that can wait: the limit is half the
    /// room, so that the other half is left to senders that cannot.
    ///
    /// # Errors
    /// As for [`Self::push`].
    pub fn push_bulk(&self, message: T) -> Result<(), T> {
        self.put(message, self.0.room.div_ceil(2))
    }

    /// Returns the number of messages that wait. Takes no lock: the number may be out of date.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.0.len.load(Ordering::Relaxed)
    }

    /// As [`Self::push`], for rare messages that must not be lost among frequent ones: the limit is
    /// twice the room.
    ///
    /// # Errors
    /// As for [`Self::push`].
    pub fn push_urgent(&self, message: T) -> Result<(), T> {
        self.put(message, self.0.room.saturating_mul(2))
    }

    /// As [`Self::push_urgent`], for even rarer messages whose content is not repeated: the limit
    /// is four times the room.
    ///
    /// # Errors
    /// As for [`Self::push`].
    pub fn push_critical(&self, message: T) -> Result<(), T> {
        self.put(message, self.0.room.saturating_mul(4))
    }

    /// Appends a message if fewer than `room` messages wait, and wakes the reader if it sleeps.
    fn put(&self, message: T, room: usize) -> Result<(), T> {
        let mut state = self.0.state();
        if state.is_closed || state.messages.len() >= room {
            return Err(message);
        }
        state.messages.push_back(message);
        self.0.len.store(state.messages.len(), Ordering::Relaxed);
        let ring = std::mem::take(&mut state.is_asleep);
        drop(state);
        if ring {
            self.0.doorbell.ring();
        }
        Ok(())
    }
}

impl<T> Mailbox<T> {
    /// Moves at most `most` messages, the oldest first, to the end of `into`. Returns how many.
    pub fn take(&self, most: usize, into: &mut Vec<T>) -> usize {
        let mut state = self.shared.state();
        let count = state.messages.len().min(most);
        into.extend(state.messages.drain(..count));
        self.shared.len.store(state.messages.len(), Ordering::Relaxed);
        count
    }

    /// Removes and returns the next message; `None` if the mailbox is empty.
    pub fn next(&self) -> Option<T> {
        let mut state = self.shared.state();
        let message = state.messages.pop_front();
        self.shared.len.store(state.messages.len(), Ordering::Relaxed);
        message
    }

    /// Returns whether the mailbox was empty just now. Takes no lock: [`Self::arm`] alone misses no
    /// message.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.shared.len.load(Ordering::Relaxed) == 0
    }

    /// Asks to be woken for the next message: its push rings the doorbell, once. Returns false, and
    /// arms nothing, if a message waits already.
    pub fn arm(&self) -> bool {
        let mut state = self.shared.state();
        state.is_asleep = state.messages.is_empty();
        state.is_asleep
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_closed = true;
        state.messages.clear();
        self.shared.len.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_rung<T>(mailbox: &Mailbox<T>) -> bool {
        let mut count = [0; 8];
        rustix::io::read(&mailbox.shared.doorbell, &mut count).is_ok()
    }

    #[test]
    fn mailbox_rings_a_sleeping_reader_once() {
        let (sender, mailbox) = mailbox(8).unwrap();
        let mut got = Vec::new();
        assert!(!is_rung(&mailbox), "nothing came");
        sender.push(1).unwrap();
        assert!(is_rung(&mailbox));
        sender.push(2).unwrap();
        assert!(!is_rung(&mailbox), "it was rung already");
        assert!(!mailbox.arm(), "two wait");
        assert_eq!(mailbox.take(9, &mut got), 2);
        sender.push(3).unwrap();
        assert!(!is_rung(&mailbox), "it is awake");
        assert_eq!(mailbox.take(9, &mut got), 1);
        assert!(mailbox.arm());
        sender.push(4).unwrap();
        assert!(is_rung(&mailbox));
        assert_eq!(got, [1, 2, 3]);
        assert_eq!(
            (mailbox.is_empty(), mailbox.next(), mailbox.is_empty()),
            (false, Some(4), true)
        );
    }

    #[test]
    fn mailbox_full_or_without_reader_returns_messages() {
        let (sender, mailbox) = mailbox(2).unwrap();
        assert_eq!((sender.push_bulk(1), sender.push_bulk(2)), (Ok(()), Err(2)));
        assert_eq!((sender.push(2), sender.push(3), sender.waiting()), (Ok(()), Err(3), 2));
        assert_eq!((sender.push_urgent(4), sender.push_urgent(5)), (Ok(()), Ok(())));
        assert_eq!(sender.push_urgent(6), Err(6), "even that has an end");
        assert_eq!((6..10).map(|n| sender.push_critical(n)).filter(Result::is_ok).count(), 4);
        assert_eq!(sender.push_critical(10), Err(10));
        drop(mailbox);
        assert_eq!(sender.push(4), Err(4));
    }

    #[test]
    fn mailbox_misses_no_message_between_threads() {
        let (sender, mailbox) = mailbox(4).unwrap();
        let reader = std::thread::spawn(move || {
            let (mut got, mut sum) = (Vec::new(), 0_u64);
            loop {
                while mailbox.take(3, &mut got) > 0 {
                    for value in got.drain(..) {
                        if value == 0 {
                            return sum;
                        }
                        sum += value;
                    }
                }
                if mailbox.arm() {
                    let doorbell = &mailbox.shared.doorbell;
                    let mut fds =
                        [rustix::event::PollFd::new(doorbell, rustix::event::PollFlags::IN)];
                    rustix::event::poll(&mut fds, None).unwrap();
                    is_rung(&mailbox);
                }
            }
        });
        let mut expected = 0;
        for value in (1..20_000_u64).chain([0]) {
            expected += value;
            let mut left = sender.push(value);
            while let Err(value) = left {
                std::thread::yield_now();
                left = sender.push(value);
            }
        }
        assert_eq!(reader.join().unwrap(), expected);
    }
}
