//! Access control of the control socket: which processes may use it.
//!
//! A process is admitted if its user is root or the daemon's user, or if it is a member of
//! `control_group`. [`ControlAccess::admit`] reads its user and groups from the kernel (SO_PEERCRED
//! and SO_PEERGROUPS), as they were at the time of the connect. Without SO_PEERCRED it refuses
//! every process; without SO_PEERGROUPS the primary group alone counts.
//!
//! The check follows the permissions of the socket file, which connect(2) checks first, and does
//! not replace them. An admitted process may execute every command: there are no roles, and no
//! check per request. VNET clients over TCP have no such credentials: [`crate::vnet::password`]
//! admits them.
//!
//! The acceptor thread of [`crate::http::server`] calls it once per connection, before the
//! connection gets a slot; a refused connection gets [`ControlAccess::reply`] (403) and is counted.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use crate::http::HttpReply;

/// The process at the other end of a control connection, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlPeer {
    /// Process id at the time of the connect.
    pub pid: i32,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
}

/// The user and group that may use the control socket, in addition to its file permissions.
#[derive(Debug, Clone, Copy)]
pub struct ControlAccess {
    /// The daemon's own user.
    pub uid: u32,
    /// The configured group's number.
    pub group: Option<u32>,
}

/// The reason why a connection was refused.
#[derive(Debug)]
pub enum AdmissionError {
    /// The kernel does not report the peer.
    Unknown(std::io::Error),
    /// The peer may not control the daemon.
    Forbidden(ControlPeer),
}

impl ControlAccess {
    /// Returns the peer of a connection if it may control the daemon.
    ///
    /// User and groups are those at the time of the connect: the kernel keeps them with the socket.
    /// Neither /proc (which `hidepid=2` hides) nor a reused pid can affect the result. Kernels
    /// before 4.13 keep the primary group only.
    ///
    /// # Errors
    /// The peer may not control the daemon, or is unknown.
    pub fn admit(&self, stream: &UnixStream) -> Result<ControlPeer, AdmissionError> {
        let c = rustix::net::sockopt::socket_peercred(stream)
            .map_err(|error| AdmissionError::Unknown(error.into()))?;
        let peer = ControlPeer {
            pid: c.pid.as_raw_nonzero().get(),
            uid: c.uid.as_raw(),
            gid: c.gid.as_raw(),
        };
        let groups = || causeway_host::fd::peer_pidfd::groups(stream.as_fd()).unwrap_or_default();
        if self.allows(&peer, groups) { Ok(peer) } else { Err(AdmissionError::Forbidden(peer)) }
    }

    /// Returns the reply to a refused connection.
    pub fn reply(&self, refused: &AdmissionError) -> HttpReply {
        let text = match refused {
            AdmissionError::Unknown(_) => "peer credentials are not available".to_owned(),
            AdmissionError::Forbidden(peer) => format!(
                "user {} may not control this daemon: expected root, user {}, or a member of \
                 control_group",
                peer.uid, self.uid
            ),
        };
        HttpReply::error(403, "forbidden", text)
    }

    /// Returns whether a peer is admitted. `groups` returns its supplementary groups.
    fn allows(&self, peer: &ControlPeer, groups: impl FnOnce() -> Vec<u32>) -> bool {
        let member = |gid| peer.gid == gid || groups().contains(&gid);
        peer.uid == 0 || peer.uid == self.uid || self.group.is_some_and(member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_admits_root_the_own_user_and_the_group_only() {
        let access = ControlAccess { uid: 10, group: Some(20) };
        let peer = |uid, gid| ControlPeer { pid: 0, uid, gid };
        let allows =
            |access: &ControlAccess, peer: &ControlPeer| access.allows(peer, || vec![30, 31]);
        assert!(allows(&access, &peer(0, 0)));
        assert!(allows(&access, &peer(10, 1)));
        assert!(allows(&access, &peer(11, 20)));
        assert!(!allows(&access, &peer(11, 21)));
        assert!(allows(&ControlAccess { uid: 10, group: Some(31) }, &peer(11, 21)));
        assert!(!allows(&ControlAccess { uid: 10, group: None }, &peer(11, 0)));
    }
}
