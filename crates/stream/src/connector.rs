//! Attempts of a port to connect to the listener of its peer.
//!
//! The pause between two attempts grows from 100 ms to 1 s ([`CONNECT_PAUSE_NS`]), and is short
//! again after a connection that lasted for the longest pause. A Unix socket connects at once or
//! not at all; a TCP connection has [`CONNECT_NS_MAX`] (5 s). There is no last attempt: the port
//! tries as long as it exists. The last error is kept for the operator. The owner,
//! [`crate::stream_end`], calls the module by its deadlines and the readiness of the socket, in the
//! dispatcher's thread; no call waits, and one that comes early has no effect. An attempt that
//! fails, also for a listener of a user that `allowed_users` lacks, is no error of the port.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use causeway_fabric::{Context, ServiceWatch};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::os::fd::AsFd as _;

use crate::limits::{CONNECT_NS_MAX, CONNECT_PAUSE_NS, CONNECT_PAUSE_NS_MAX};
use crate::socket::StreamSocket;

/// Where the peer listens.
#[derive(Debug, Clone)]
pub(crate) enum Remote {
    /// A Unix socket, and the users who may listen there; `None` admits all.
    Unix(PathBuf, Option<Vec<u32>>),
    /// A TCP address.
    Tcp(SocketAddr),
}

impl std::fmt::Display for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path, _) => write!(f, "{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// An attempt that is not decided.
#[derive(Debug)]
struct Attempt {
    socket: Arc<StreamSocket>,
    watch: ServiceWatch,
    deadline_ns: u64,
}

/// A socket that is connected, with its watch.
pub(crate) type Connected = (Arc<StreamSocket>, ServiceWatch);

/// Connects a port again and again.
#[derive(Debug)]
pub(crate) struct Connector {
    pub remote: Remote,
    pause_ns: u64,
    /// Time of the next attempt.
    due_ns: Option<u64>,
    attempt: Option<Attempt>,
    /// Why the last attempt failed, or the last connection ended.
    pub error: Option<String>,
}

impl Connector {
    /// Returns a connector whose first attempt is due at once.
    pub fn new(remote: Remote) -> Self {
        let pause_ns = CONNECT_PAUSE_NS;
        Self { remote, pause_ns, due_ns: Some(0), attempt: None, error: None }
    }

    /// Returns the time at which [`Self::advance`] must be called.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.due_ns.or(self.attempt.as_ref().map(|attempt| attempt.deadline_ns))
    }

    /// Begins or continues an attempt, of which the socket is watched as `value`. Returns the
    /// socket when it is connected; the owner calls [`Self::ended`] after the connection.
    pub fn advance(&mut self, cx: &Context<'_>, value: u32) -> Option<Connected> {
        if self.due_ns.is_some_and(|due| due <= cx.now_ns) {
            self.due_ns = None;
            match self.begin(cx, value) {
                Ok(attempt) => self.attempt = Some(attempt),
                Err(error) => self.fail(cx.now_ns, &error),
            }
        }
        let attempt = self.attempt.take()?;
        match attempt.socket.is_connected() {
            Ok(true) => {
                self.error = None;
                return Some((attempt.socket, attempt.watch));
            }
            Ok(false) if cx.now_ns < attempt.deadline_ns => self.attempt = Some(attempt),
            Ok(false) => self.fail(cx.now_ns, &io::ErrorKind::TimedOut.into()),
            Err(error) => self.fail(cx.now_ns, &error),
        }
        None
    }

    fn begin(&self, cx: &Context<'_>, value: u32) -> io::Result<Attempt> {
        let socket = match &self.remote {
            Remote::Unix(path, users) => {
                let socket = StreamSocket::connect_unix(path)?;
                let user = sockopt::socket_peercred(&socket).map(|peer| peer.uid.as_raw());
                if users.as_ref().is_some_and(|all| !user.is_ok_and(|user| all.contains(&user))) {
                    return Err(io::Error::other(
                        "the process that listens there has a user that allowed_users lacks",
                    ));
                }
                socket
            }
            Remote::Tcp(address) => StreamSocket::begin_tcp(*address)?,
        };
        let watch = cx.watch(socket.as_fd(), value)?;
        let deadline_ns = cx.now_ns.saturating_add(CONNECT_NS_MAX);
        Ok(Attempt { socket: Arc::new(socket), watch, deadline_ns })
    }

    /// Plans the next attempt after a failed one.
    fn fail(&mut self, now_ns: u64, error: &io::Error) {
        let reason = match Errno::from_io_error(error) {
            Some(Errno::CONNREFUSED | Errno::NOENT) => String::from("no process listens there"),
            _ => error.to_string(),
        };
        self.plan(now_ns, format!("cannot connect to {}: {reason}", self.remote));
    }

    fn plan(&mut self, now_ns: u64, reason: String) {
        self.error = Some(reason);
        self.due_ns = Some(now_ns.saturating_add(self.pause_ns));
        self.pause_ns = self.pause_ns.saturating_mul(2).min(CONNECT_PAUSE_NS_MAX);
    }

    /// Plans the next attempt after a connection that lasted for `lasted_ns`.
    pub fn ended(&mut self, now_ns: u64, lasted_ns: u64, reason: String) {
        if lasted_ns >= CONNECT_PAUSE_NS_MAX {
            self.pause_ns = CONNECT_PAUSE_NS;
        }
        self.plan(now_ns, reason);
    }
}
