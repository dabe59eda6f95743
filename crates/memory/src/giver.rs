//! On whose behalf descriptors come, so that who hands over what takes long to close is known by it,
//! and others are not taken for it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limits::UNCLOSED_MAX;

/// Somebody at the other end of sockets: a port's frontends, or a user's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Giver(u64);

thread_local! {
    static NOW: Cell<Giver> = const { Cell::new(Giver(0)) };
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
    /// The frontends of a port, by any number that is the port's own.
    pub const fn port(number: u64) -> Self {
        // Odd: never another's number.
        Self(number << 1 | 1)
    }

    /// The processes of a user.
    pub const fn user(uid: u32) -> Self {
        Self((uid as u64).wrapping_add(1) << 1)
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
    fn givers_are_told_apart_and_forgotten_when_nothing_waits() {
        let (port, user) = (Giver::port(0), Giver::user(0));
        assert!(port != user && user != Giver::default() && port != Giver::default());
        let seen = port.serve(|| (Giver::now(), user.serve(Giver::now), Giver::now()));
        assert_eq!((seen, Giver::now()), ((port, user, port), Giver::default()));
        let one = Giver::port(u64::MAX >> 1);
        (0..=UNCLOSED_MAX).for_each(|_| one.begin());
        assert!(one.is_behind() && !port.is_behind());
        one.end();
        assert!(!one.is_behind());
        (0..UNCLOSED_MAX).for_each(|_| one.end());
        assert!(!unclosed().contains_key(&one));
    }
}
