//! Who may use the control socket.

use std::os::unix::net::UnixStream;

use crate::accounts::process_has_group;
use crate::http::Reply;

/// The process at the other end of a control connection, as the kernel names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Process id when it connected.
    pub pid: i32,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
}

/// Who is let in, beyond what the socket's permissions already keep out.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// The daemon's own user.
    pub uid: u32,
    /// The configured group's number.
    pub group: Option<u32>,
}

/// Why a connection was refused.
#[derive(Debug)]
pub enum NotAdmitted {
    /// The kernel does not name the peer.
    Unknown(std::io::Error),
    /// The peer may not control the daemon.
    Forbidden(Peer),
}

impl Access {
    /// Returns the peer of a connection, if it may control the daemon.
    ///
    /// # Errors
    /// The peer may not, or is unknown.
    pub fn admit(&self, stream: &UnixStream) -> Result<Peer, NotAdmitted> {
        let c = rustix::net::sockopt::socket_peercred(stream)
            .map_err(|error| NotAdmitted::Unknown(error.into()))?;
        let peer =
            Peer { pid: c.pid.as_raw_nonzero().get(), uid: c.uid.as_raw(), gid: c.gid.as_raw() };
        if self.allows(&peer) { Ok(peer) } else { Err(NotAdmitted::Forbidden(peer)) }
    }

    /// Returns the reply to a connection that was refused.
    pub fn reply(&self, refused: &NotAdmitted) -> Reply {
        let text = match refused {
            NotAdmitted::Unknown(_) => "peer credentials are not available".to_owned(),
            NotAdmitted::Forbidden(peer) => format!(
                "user {} may not control this daemon: expected root, user {}, or a member of \
                 control_group",
                peer.uid, self.uid
            ),
        };
        Reply::error(403, "forbidden", text)
    }

    fn allows(&self, peer: &Peer) -> bool {
        let member = |gid| peer.gid == gid || process_has_group(peer.pid, peer.uid, gid);
        peer.uid == 0 || peer.uid == self.uid || self.group.is_some_and(member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_the_own_user_and_the_group_are_let_in_and_no_one_else() {
        let access = Access { uid: 10, group: Some(20) };
        // Process 0 has no /proc entry: no supplementary groups.
        let peer = |uid, gid| Peer { pid: 0, uid, gid };
        assert!(access.allows(&peer(0, 0)));
        assert!(access.allows(&peer(10, 1)));
        assert!(access.allows(&peer(11, 20)));
        assert!(!access.allows(&peer(11, 21)));
        assert!(!Access { uid: 10, group: None }.allows(&peer(11, 0)));
    }
}
