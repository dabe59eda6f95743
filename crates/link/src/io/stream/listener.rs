//! Listening sockets of streams, and the peers whose connections they accept.
//!
//! A connection from an unknown address is closed at once, and so are a connection above
//! [`ACCEPTS_PER_SECOND_MAX`] (20 per second) of one peer, and a connection for which the process
//! has no descriptor; each is counted. If not even the spare descriptor is left, connections wait
//! in the kernel's queue. Peers are identified by address here, so a listener has one link per peer
//! address; TLS authenticates them later.
//!
//! The shard of links calls [`StreamListener::accept`] when the socket is readable, and passes each
//! connection to its [`super::StreamLink`]. One call accepts at most [`ACCEPTS_PER_TURN_MAX`] (16);
//! the rest waits in the kernel's queue. The listener reads no bytes of a connection.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use causeway_fabric::rate::Bucket;
use causeway_fabric::udp::canonical;

use super::super::limits::{ACCEPTS_PER_SECOND_MAX, ACCEPTS_PER_TURN_MAX};

/// A listening socket, shared by the links whose peers connect there.
#[derive(Debug)]
pub struct StreamListener {
    socket: TcpListener,
    /// Peers whose connections are accepted.
    peers: BTreeMap<IpAddr, ListenerPeer>,
    /// Connections from unknown addresses; closed.
    pub unknown_peer: u64,
    /// Connections above a peer's rate limit; closed.
    pub too_often: u64,
    /// Connections for which the process had no descriptor; closed.
    pub no_descriptor: u64,
    /// A descriptor in reserve, to accept and close a connection when none is left.
    spare: Option<OwnedFd>,
}

/// A peer that connects.
#[derive(Debug, Clone, Copy)]
struct ListenerPeer {
    /// The source of its link.
    source: u32,
    /// Its rate limit.
    accepts: Bucket,
}

/// Returns a descriptor to keep in reserve: a duplicate of the socket's.
fn spare(socket: &TcpListener) -> Option<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(socket, 0).ok()
}

impl StreamListener {
    /// Returns a socket that listens at `local`.
    ///
    /// # Errors
    /// The address is in use, or not this host's.
    pub fn bind(local: SocketAddr) -> io::Result<Self> {
        let domain = socket2::Domain::for_address(local);
        let kind = socket2::Type::STREAM.nonblocking();
        let socket = socket2::Socket::new(domain, kind, None)?;
        if local.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        socket.bind(&local.into())?;
        socket.listen(128)?;
        let socket = TcpListener::from(socket);
        let spare = spare(&socket);
        let peers = BTreeMap::new();
        Ok(Self { socket, peers, unknown_peer: 0, too_often: 0, no_descriptor: 0, spare })
    }

    /// Accepts connections of a peer for a source.
    ///
    /// # Errors
    /// The source that accepts them already.
    pub fn add(&mut self, peer: IpAddr, source: u32) -> Result<(), u32> {
        let peer = peer.to_canonical();
        if let Some(other) = self.peers.get(&peer) {
            return Err(other.source);
        }
        self.peers.insert(peer, ListenerPeer { source, accepts: Bucket::default() });
        Ok(())
    }

    /// Keeps only the peers of used sources. Returns whether any is left.
    pub fn keep(&mut self, used: impl Fn(u32) -> bool) -> bool {
        self.peers.retain(|_, peer| used(peer.source));
        !self.peers.is_empty()
    }

    /// Returns whether it accepts connections for a source.
    pub fn serves(&self, source: u32) -> bool {
        self.peers.values().any(|peer| peer.source == source)
    }

    /// Accepts up to [`ACCEPTS_PER_TURN_MAX`] (16) waiting connections and returns each with its
    /// source. A peer above its rate limit affects its own link only.
    pub fn accept(&mut self, now_ns: u64) -> Vec<(u32, TcpStream, SocketAddr)> {
        let mut all = Vec::new();
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            match self.socket.accept() {
                Ok((socket, from)) => {
                    let from = canonical(from);
                    let Some(peer) = self.peers.get_mut(&from.ip()) else {
                        self.unknown_peer = self.unknown_peer.saturating_add(1);
                        continue;
                    };
                    if !peer.accepts.take(now_ns, ACCEPTS_PER_SECOND_MAX) {
                        self.too_often = self.too_often.saturating_add(1);
                    } else if socket.set_nonblocking(true).is_ok() {
                        all.push((peer.source, socket, from));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    if !self.refuse() {
                        break;
                    }
                }
            }
        }
        all
    }

    /// When no descriptor is left: accepts one connection with the spare descriptor and closes it,
    /// so that the peer is refused at once. Returns whether that worked.
    fn refuse(&mut self) -> bool {
        if self.spare.take().is_none() {
            self.spare = spare(&self.socket);
            return false;
        }
        let refused = self.socket.accept().is_ok();
        self.spare = spare(&self.socket);
        self.no_descriptor = self.no_descriptor.saturating_add(u64::from(refused));
        refused
    }
}

impl AsFd for StreamListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
