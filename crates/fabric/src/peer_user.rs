//! The users of processes at the other end of Unix sockets, against the list of a port.
//!
//! `crate::shard` checks frontends and processes that attach to a port by its socket; the socket
//! service checks those of host sockets (`HostStream::refused_user`).
//! The kernel reports the user with which the peer connected or, if this process connected, with
//! which the peer listened (SO_PEERCRED, unix(7)). Root has no exception: a list names all users
//! that may attach. A port without a list asks the kernel nothing. Users of another user namespace
//! appear as the kernel translates them.

use std::os::fd::AsFd;

/// Returns the user of the peer, if `users` lacks it; a user that the kernel does not report is
/// [`u32::MAX`].
pub(crate) fn refused_user(socket: impl AsFd, users: Option<&[u32]>) -> Option<u32> {
    let users = users?;
    let peer = rustix::net::sockopt::socket_peercred(socket);
    let user = peer.map_or(u32::MAX, |peer| peer.uid.as_raw());
    (!users.contains(&user)).then_some(user)
}

/// Processes that were refused for their user.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RefusedUsers {
    total: u64,
    last: Option<u32>,
}

impl RefusedUsers {
    /// Counts a refused process of `user`.
    pub(crate) fn count(&mut self, user: u32) {
        self.total = self.total.saturating_add(1);
        self.last = Some(user);
    }

    /// Returns the number of refused processes.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the user of the last refused process.
    pub(crate) fn last(&self) -> Option<u32> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_user_is_compared_with_the_list() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = rustix::process::getuid().as_raw();
        assert_eq!(refused_user(&ours, None), None);
        assert_eq!(refused_user(&ours, Some(&[own ^ 1, own])), None);
        assert_eq!(refused_user(&ours, Some(&[own ^ 1])), Some(own));
        assert_eq!(refused_user(&ours, Some(&[])), Some(own));
        let other = std::io::stdin();
        let fails = refused_user(&other, Some(&[own]));
        assert!(fails.is_none_or(|user| user == u32::MAX), "no socket reports no user");
        let mut refused = RefusedUsers::default();
        [3, 4].into_iter().for_each(|user| refused.count(user));
        assert_eq!((refused.total(), refused.last()), (2, Some(4)));
    }
}
