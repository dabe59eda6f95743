//! Accounts received descriptors to the peer that sent them. Closing some descriptors blocks (FUSE,
//! SO_LINGER); a peer with more than [`UNCLOSED_MAX`] pending closes is refused. Other peers are not
//! affected, because an account's number is never used twice in this process.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limits::UNCLOSED_MAX;

/// A descriptor account: the frontends of a port, the processes of a user on a port, or the peers of
/// a listening socket. The default belongs to no peer and is never refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Giver {
    /// Unique in this process; 0 is the default's.
    owner: u64,
    /// 0, or one more than the number of a user.
    user: u64,
}

const NO_PEER: Giver = Giver { owner: 0, user: 0 };

/// The number of the next account. One that is taken each nanosecond lasts for centuries.
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static NOW: Cell<Giver> = const { Cell::new(NO_PEER) };
}

/// Descriptors that are not closed yet, by giver. As many entries as descriptors at most.
static UNCLOSED: Mutex<BTreeMap<Giver, usize>> = Mutex::new(BTreeMap::new());

fn unclosed() -> MutexGuard<'static, BTreeMap<Giver, usize>> {
    UNCLOSED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets back who it was before.
struct Before(Giver);

impl Drop for Before {
    fn drop(&mut self) {
        NOW.set(self.0);
    }
}

impl Giver {
    /// Opens an account that no other peer of this process has.
    pub fn unique() -> Self {
        Self { owner: NEXT.fetch_add(1, Ordering::Relaxed), user: 0 }
    }

    /// Returns the account of a user's processes among the peers of this account.
    #[must_use]
    pub const fn of_user(self, uid: u32) -> Self {
        Self { owner: self.owner, user: (uid as u64).wrapping_add(1) }
    }

    /// The number that this account shares with those of its users.
    pub(crate) fn owner(self) -> u64 {
        self.owner
    }

    /// Does something that this one asks for: descriptors that come meanwhile are its.
    pub fn serve<R>(self, run: impl FnOnce() -> R) -> R {
        let _before = Before(NOW.replace(self));
        run()
    }

    /// Whose descriptors come to this thread now.
    pub(crate) fn now() -> Self {
        NOW.get()
    }

    /// Whether so much of it waits to be closed that nothing more should be taken from it. Never of
    /// the default, which is nobody.
    pub fn is_behind(self) -> bool {
        self != Self::default() && unclosed().get(&self).is_some_and(|count| *count > UNCLOSED_MAX)
    }

    /// One more waits to be closed.
    pub(crate) fn begin(self) {
        let mut unclosed = unclosed();
        let count = unclosed.entry(self).or_insert(0);
        *count = count.saturating_add(1);
    }

    /// One is closed.
    pub(crate) fn end(self) {
        let mut unclosed = unclosed();
        if let Some(count) = unclosed.get_mut(&self) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                unclosed.remove(&self);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_accounts_are_distinct_and_end_when_all_is_closed() {
        let (port, other) = (Giver::unique(), Giver::unique());
        let (user, same) = (port.of_user(0), other.of_user(0));
        let mut all = vec![port, other, user, same, Giver::default()];
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 5, "each is another account");
        let seen = port.serve(|| (Giver::now(), user.serve(Giver::now), Giver::now()));
        assert_eq!((seen, Giver::now()), ((port, user, port), Giver::default()));
        (0..=UNCLOSED_MAX).for_each(|_| port.begin());
        assert!(port.is_behind() && !user.is_behind() && !other.is_behind());
        port.end();
        assert!(!port.is_behind());
        (0..UNCLOSED_MAX).for_each(|_| port.end());
        assert!(!unclosed().contains_key(&port));
    }
}
