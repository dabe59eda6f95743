//! Accounts received descriptors to the peer that sent them. Closing some descriptors blocks (FUSE,
//! SO_LINGER), so each account counts its pending closes and is *behind* while more than
//! [`UNCLOSED_MAX`] (128) of them are not done. *Peer* is the process at the other end of a Unix
//! socket here: a frontend or a client. An account's number is never used twice in this process.
//!
//! The module refuses nothing; its callers read [`Account::is_behind`]. While an account is behind,
//! `fabric` and the holder close each new frontend's connection at once, the MX service refuses new
//! processes of the user, and `attach` ends a connection that sends another descriptor; messages
//! without descriptors are still read. Counted are descriptors that are handed over for their close
//! and not closed yet: neither those that this process still uses nor memory files, eventfds and
//! pidfds, whose close waits for no peer. The thread that receives determines the account
//! ([`Account::serve`]); the counts are shared by all threads under a short lock.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use causeway_memory::Owner;

use crate::limits::UNCLOSED_MAX;

/// A descriptor account: the frontends of a port, the processes of a user on a port, or the peers
/// of a listening socket. The default belongs to no peer and is never behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Account(Owner);

/// Descriptors that are not closed yet, by account. At most one entry per descriptor.
static UNCLOSED: Mutex<BTreeMap<Account, usize>> = Mutex::new(BTreeMap::new());

/// Locks the counts of descriptors that are not closed yet.
fn unclosed() -> MutexGuard<'static, BTreeMap<Account, usize>> {
    UNCLOSED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Account {
    /// Opens an account that no other peer of this process has.
    pub fn unique() -> Self {
        Self(Owner::unique())
    }

    /// Returns the account of a user's processes among the peers of this account.
    #[must_use]
    pub const fn of_user(self, uid: u32) -> Self {
        Self(self.0.of_user(uid))
    }

    /// Returns the owner of the memory that the account's peer grants.
    pub const fn owner(self) -> Owner {
        self.0
    }

    /// Calls `run` on behalf of the account's peer: descriptors that are received and memory that
    /// is mapped meanwhile are charged to it.
    pub fn serve<R>(self, run: impl FnOnce() -> R) -> R {
        self.0.serve(run)
    }

    /// Returns the account that this thread serves.
    pub(crate) fn now() -> Self {
        Self(Owner::now())
    }

    /// Returns whether more than [`UNCLOSED_MAX`] (128) descriptors of the account wait for their
    /// close. No further descriptors should be accepted from its peer then. `false` for the
    /// default.
    pub fn is_behind(self) -> bool {
        self != Self::default() && unclosed().get(&self).is_some_and(|count| *count > UNCLOSED_MAX)
    }

    /// Counts a descriptor that begins to wait for its close.
    pub(crate) fn begin(self) {
        let mut unclosed = unclosed();
        let count = unclosed.entry(self).or_insert(0);
        *count = count.saturating_add(1);
    }

    /// Counts a descriptor that is closed.
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
    fn descriptor_accounts_are_behind_until_their_descriptors_are_closed() {
        let (port, other) = (Account::unique(), Account::unique());
        let user = port.of_user(0);
        (0..=UNCLOSED_MAX).for_each(|_| port.begin());
        assert!(port.is_behind() && !user.is_behind() && !other.is_behind());
        port.end();
        assert!(!port.is_behind());
        (0..UNCLOSED_MAX).for_each(|_| port.end());
        assert!(!unclosed().contains_key(&port));
        (0..=UNCLOSED_MAX).for_each(|_| Account::default().begin());
        assert!(!Account::default().is_behind());
        (0..=UNCLOSED_MAX).for_each(|_| Account::default().end());
    }
}
