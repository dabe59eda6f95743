//! A connection before it carries frames: TCP connect, then the TLS handshake.
//!
//! Connect and handshake together have [`CONNECT_NS_MAX`] (5 s). A TLS client then waits up to
//! [`FIRST_WORD_NS_MAX`] (1 s) for a ticket, for data or for a refusal, because the peer checks the
//! client's certificate after the client's handshake has ended; without any of them the attempt
//! then counts as accepted. Without TLS a connected socket is complete at once: nothing
//! authenticates the peer but its address.
//!
//! [`super::link`], in the shard of links, creates attempts, on sockets that it connects or that
//! [`super::listener`] accepted, and calls [`ConnectionAttempt::advance`] at each readiness event
//! and deadline. The module does not retry and never blocks.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;

use causeway_fabric::{Context, ServiceWatch};
use causeway_host::net::tcp_info;
use rustix::io::Errno;
use rustix::net::sockopt;

use super::super::inbox::LinkInbox;
use super::super::limits::{
    CONNECT_NS_MAX, FIRST_WORD_NS_MAX, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_TRIES,
    UNSENT_BYTES_MAX, UNTAKEN_MS_MAX,
};
use super::super::tls::{Security, is_accepted};
use super::connection::{ConnectionEnd, Layer, StreamConnection};

/// A connection in preparation.
#[derive(Debug)]
pub(super) struct ConnectionAttempt {
    /// The connection, which carries no frames yet.
    pub connection: StreamConnection,
    /// The peer's address and port.
    pub from: SocketAddr,
    /// Whether TCP has connected it.
    pub connected: bool,
    /// When the TLS handshake ended.
    handshake_ended_ns: Option<u64>,
    /// When connect and handshake time out.
    deadline_ns: u64,
    /// Registration of its socket.
    pub watch: ServiceWatch,
}

/// Begins a non-blocking connect.
pub(super) fn begin(remote: SocketAddr) -> io::Result<TcpStream> {
    let domain = socket2::Domain::for_address(remote);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM.nonblocking(), None)?;
    match socket.connect(&remote.into()) {
        Err(error) if Errno::from_io_error(&error) != Some(Errno::INPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// Sets socket options. Failures are tolerable: they cost latency or delay the detection of dead
/// peers.
fn prepare(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE);
    let _ = sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(socket, KEEPALIVE_TRIES);
    let _ = sockopt::set_tcp_user_timeout(socket, UNTAKEN_MS_MAX);
    let _ = tcp_info::bound_unsent(socket.as_fd(), UNSENT_BYTES_MAX);
}

/// Returns the likely cause of a failed connect.
pub(super) fn explain(error: &io::Error, remote: SocketAddr) -> String {
    let hint = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused: does the peer have this link?",
        io::ErrorKind::TimedOut => "no answer: check address and firewall",
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "no route to the host"
        }
        _ => return format!("{remote}: {error}"),
    };
    format!("{remote}: {hint}")
}

impl ConnectionAttempt {
    /// Returns an attempt on a socket that is accepted, connected or connecting.
    ///
    /// # Errors
    /// TLS rejects its configuration, or the descriptor cannot be watched.
    pub fn new(
        cx: &Context<'_>,
        source: u32,
        security: Option<&Security>,
        (socket, from, connected): (TcpStream, SocketAddr, bool),
    ) -> Result<Self, ConnectionEnd> {
        prepare(&socket);
        let tls = security.map(Security::begin).transpose()?;
        let layer = tls.map_or(Layer::Plain, |tls| Layer::Tls(Box::new(tls)));
        let watch = cx.watch(socket.as_fd(), source)?;
        let deadline_ns = cx.now_ns.saturating_add(CONNECT_NS_MAX);
        let connection = StreamConnection::new(socket, layer);
        Ok(Self { connection, from, connected, handshake_ended_ns: None, deadline_ns, watch })
    }

    /// Returns the time of the current step's timeout.
    pub fn deadline(&self) -> u64 {
        self.handshake_ended_ns.map_or(self.deadline_ns, |at| at.saturating_add(FIRST_WORD_NS_MAX))
    }

    /// Continues the attempt. Returns whether the connection may carry frames.
    ///
    /// # Errors
    /// [`ConnectionEnd`]: the attempt failed or timed out.
    pub fn advance(&mut self, now_ns: u64, inbox: &LinkInbox) -> Result<bool, ConnectionEnd> {
        let socket = self.connection.socket.clone();
        if !self.connected {
            if let Some(error) = socket.take_error()? {
                return Err(error.into());
            }
            self.connected = socket.peer_addr().is_ok();
        }
        if self.connected {
            self.connection.writable(&inbox.stats);
            let spoken = self.connection.advance(&inbox.stats)?;
            let Layer::Tls(tls) = &self.connection.layer else { return Ok(true) };
            if self.handshake_ended_ns.is_none() && !tls.is_handshaking() {
                self.handshake_ended_ns = Some(now_ns);
            }
            let late = self.handshake_ended_ns.is_some() && self.deadline() <= now_ns;
            if is_accepted(tls, spoken || late) {
                return Ok(true);
            }
        }
        if self.deadline() <= now_ns {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        Ok(false)
    }
}
