//! A held port: its public socket, and the frontend that is connected.
//!
//! The public socket is that of the operator's configuration; causewayd listens on the inner socket
//! of the port. One frontend at a time is relayed; a second may wait for [`SUCCESSOR_WAIT`] (500
//! ms) until the first has left, and is then disconnected. Further connections wait in the kernel's
//! queue (16) meanwhile. If the relay of a frontend cannot be started, the frontend is
//! disconnected, and the error is logged. While too many descriptors of earlier frontends wait for
//! their close (`Account::is_behind`), a new frontend is disconnected; then, and after a failed
//! accept, no other is accepted for [`ACCEPT_RETRY`] (100 ms). At most [`LOG_LINES_MAX`] (10) log
//! lines per [`LOG_WINDOW`] (60 s) are written about a port.
//!
//! [`crate::holder`] calls all methods in the main thread; they do not block, except the drop,
//! which joins the relay's thread after it has shut the frontend's connection down. The module
//! reads no message: [`crate::relay`] and [`crate::vfio`] do, in threads of their own. It checks no credentials of frontends:
//! the file permissions of the socket decide.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use causeway_host::Account;
use causeway_host::fd::receive::UntrustedSocket;
use rustix::net::{Shutdown, SocketType, shutdown};

use crate::deaths::Replays;
use crate::holder::{lock, signal, until};
use crate::limits::{ACCEPT_RETRY, LOG_LINES_MAX, LOG_WINDOW, STACK_BYTES, SUCCESSOR_WAIT};
use crate::listen::UnixSocketListener;
use crate::protocol::{HeldPort, HeldProtocol};
use crate::relay::{Relay, RelayEnd};
use crate::route::{DaemonRoute, SharedRoute};
use crate::vfio::relay::VfioRelay;

/// A port, and the generation of causewayd that serves it.
#[derive(Debug)]
pub struct ServedPort {
    /// The generation of causewayd, from 1.
    pub generation: u64,
    /// The port.
    pub port: HeldPort,
}

/// The connected frontend.
#[derive(Debug)]
struct FrontendConnection {
    /// A duplicate descriptor of the connection, to shut it down.
    connection: UntrustedSocket,
    /// The relay's thread.
    thread: JoinHandle<()>,
    /// Set by the relay's thread as its last step.
    ended: Arc<AtomicBool>,
}

/// Limits log lines to [`LOG_LINES_MAX`] per [`LOG_WINDOW`].
#[derive(Debug)]
struct LogBudget {
    /// Begin of the current period.
    since: Instant,
    /// Lines in the current period.
    count: u32,
}

impl LogBudget {
    /// Counts a line and returns whether to write it.
    fn admit(&mut self) -> bool {
        if self.since.elapsed() >= LOG_WINDOW {
            *self = Self { since: Instant::now(), count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= LOG_LINES_MAX
    }
}

/// A held port. Disconnects its frontend on drop.
#[derive(Debug)]
pub struct HeldPortState {
    /// The port, as causewayd described it last.
    held: HeldPort,
    /// The public socket.
    listener: UnixSocketListener,
    /// The causewayd to which the relay forwards, shared with its thread.
    route: SharedRoute,
    /// The replays of all ports.
    replays: Arc<Replays>,
    /// The connected frontend.
    frontend: Option<FrontendConnection>,
    /// A frontend that connected before its predecessor left, and the end of its wait.
    successor: Option<(UntrustedSocket, Instant)>,
    /// Before this time no connection is accepted.
    accept_after: Option<Instant>,
    /// Account of descriptors that its frontends send.
    account: Account,
    /// Limits log lines; shared with the relay.
    log_budget: Arc<Mutex<LogBudget>>,
}

impl HeldPortState {
    /// Listens for frontends. `replays` are those of the holder.
    ///
    /// # Errors
    /// The public socket cannot be bound.
    pub fn new(by: ServedPort, replays: Arc<Replays>) -> io::Result<Self> {
        let listener = UnixSocketListener::bind(&by.port.public, SocketType::STREAM)?;
        let route = DaemonRoute {
            generation: Some(by.generation),
            inner: by.port.inner.clone(),
            queues: by.port.queues,
            ring_size: by.port.ring_size,
        };
        Ok(Self {
            listener,
            route: Arc::new(Mutex::new(route)),
            replays,
            held: by.port,
            frontend: None,
            successor: None,
            accept_after: None,
            account: Account::unique(),
            log_budget: Arc::new(Mutex::new(LogBudget { since: Instant::now(), count: 0 })),
        })
    }

    /// Returns whether a frontend of this port can continue as a frontend of `new`: public socket,
    /// device, queues and ring size are the same, and the socket file was not replaced.
    pub fn is_compatible(&self, new: &HeldPort) -> bool {
        let same =
            |a: &HeldPort| (a.public.clone(), a.device.clone(), a.protocol, a.queues, a.ring_size);
        same(&self.held) == same(new) && self.listener.is_reachable()
    }

    /// Routes frontends to a causewayd, or to none.
    pub fn set_route(&mut self, by: Option<ServedPort>) {
        let mut route = lock(&self.route);
        route.generation = by.as_ref().map(|by| by.generation);
        if let Some(ServedPort { port, .. }) = by {
            route.inner.clone_from(&port.inner);
            self.held = port;
        }
    }

    /// Returns the generation of causewayd that serves the port.
    pub fn generation(&self) -> Option<u64> {
        lock(&self.route).generation
    }

    /// Returns whether a frontend is connected.
    pub fn is_busy(&self) -> bool {
        self.frontend.is_some()
    }

    /// Returns the listening socket, while connections may be accepted.
    pub fn listening(&self) -> Option<BorrowedFd<'_>> {
        (self.successor.is_none() && self.accept_after.is_none()).then(|| self.listener.as_fd())
    }

    /// Returns the time until the next timer.
    pub fn due(&self) -> Option<Duration> {
        let next = self.successor.as_ref().map(|(_, at)| *at);
        next.into_iter().chain(self.accept_after).map(until).min()
    }

    fn name(&self) -> &str {
        &self.held.name
    }

    /// Accepts a frontend, or lets it wait for its predecessor to leave.
    pub fn accept(&mut self, wakeup: &Arc<OwnedFd>) {
        let now = Instant::now();
        let accepted = self.listener.accept();
        let given = |stream: OwnedFd| UntrustedSocket::from(stream).charged_to(self.account);
        match accepted.map(|stream| stream.map(given)) {
            Ok(None) => {}
            Ok(Some(_)) if self.account.is_behind() => {
                self.accept_after = now.checked_add(ACCEPT_RETRY);
                if lock(&self.log_budget).admit() {
                    let why = "descriptors of earlier frontends are still being closed";
                    log::warn!(port = self.name(), reason = why; "a frontend was refused");
                }
            }
            Ok(Some(stream)) if self.frontend.is_some() => {
                let next = now.checked_add(SUCCESSOR_WAIT).map(|at| (stream, at));
                if std::mem::replace(&mut self.successor, next).is_some() {
                    self.log_turned_away();
                }
            }
            Ok(Some(stream)) => self.start_relay(stream, wakeup),
            Err(error) => {
                self.accept_after = now.checked_add(ACCEPT_RETRY);
                if lock(&self.log_budget).admit() {
                    log::warn!(port = self.name(), error:% = error; "cannot accept a frontend");
                }
            }
        }
    }

    /// Starts the relay of a frontend; logs if that fails.
    fn start_relay(&mut self, stream: UntrustedSocket, wakeup: &Arc<OwnedFd>) {
        match self.start(stream, wakeup.clone()) {
            Ok(frontend) => self.frontend = Some(frontend),
            Err(error) => {
                if lock(&self.log_budget).admit() {
                    log::warn!(port = self.name(), error:% = error; "cannot serve a frontend");
                }
            }
        }
    }

    /// Starts the relay of a frontend in a thread of its own.
    fn start(
        &self,
        stream: UntrustedSocket,
        wakeup: Arc<OwnedFd>,
    ) -> io::Result<FrontendConnection> {
        let connection =
            UntrustedSocket::from(stream.as_fd().try_clone_to_owned()?).charged_to(self.account);
        let ended = Arc::new(AtomicBool::new(false));
        let (route, protocol) = (self.route.clone(), self.held.protocol);
        let replays = Arc::clone(&self.replays);
        let (name, log_budget, done) =
            (self.held.name.clone(), self.log_budget.clone(), ended.clone());
        let thread = thread::Builder::new().name("relay".into()).stack_size(STACK_BYTES);
        let thread = thread.spawn(move || {
            let end = match protocol {
                HeldProtocol::VhostUser => Relay::new(stream, route, replays).run(),
                HeldProtocol::VfioUser => VfioRelay::new(stream, route, replays).run(),
            };
            if lock(&log_budget).admit() {
                match end {
                    RelayEnd::FrontendLeft => log::info!(port = name.as_str(); "frontend left"),
                    end => log::warn!(port = name.as_str(), reason:% = end; "frontend was disconnected"),
                }
            }
            done.store(true, Ordering::Release);
            signal(&wakeup);
        })?;
        if lock(&self.log_budget).admit() {
            log::info!(port = self.name(); "frontend connected");
        }
        Ok(FrontendConnection { connection, thread, ended })
    }

    /// Reaps a relay that ended, and runs the timers.
    pub fn poll_frontends(&mut self, wakeup: &Arc<OwnedFd>) {
        let now = Instant::now();
        self.accept_after = self.accept_after.filter(|at| *at > now);
        let ended = |frontend: &mut FrontendConnection| {
            frontend.ended.load(Ordering::Acquire) || frontend.thread.is_finished()
        };
        if let Some(frontend) = self.frontend.take_if(ended) {
            let _ = frontend.thread.join();
        }
        match self.successor.take() {
            Some((stream, _)) if self.frontend.is_none() => self.start_relay(stream, wakeup),
            Some((stream, at)) if at > now => self.successor = Some((stream, at)),
            Some(_) => self.log_turned_away(),
            None => {}
        }
    }

    /// Logs that a second frontend was disconnected.
    fn log_turned_away(&self) {
        if lock(&self.log_budget).admit() {
            log::warn!(port = self.name(); "a second frontend was refused: the port has a frontend");
        }
    }
}

impl Drop for HeldPortState {
    fn drop(&mut self) {
        if let Some(frontend) = self.frontend.take() {
            let _ = shutdown(&frontend.connection, Shutdown::Both);
            let _ = frontend.thread.join();
        }
    }
}
