//! A held port: its public socket, and the frontend that is connected.
//!
//! The public socket is that of the operator's configuration; causewayd listens on the inner socket
//! of the port. One frontend at a time is relayed, in a thread that the module starts:
//! [`crate::relay`] for vhost-user, [`crate::vfio`] for vfio-user. A second frontend waits for at
//! most [`SUCCESSOR_WAIT`] (500 ms) until the first has left, and is then disconnected. Further
//! connections wait in the kernel's queue (16) meanwhile. If the relay of a frontend cannot be
//! started, the frontend is disconnected, and the error is logged. A new frontend is also
//! disconnected while too many descriptors of earlier frontends wait for their close
//! (`Account::is_behind`); after that, and after a failed accept, no other is accepted for
//! [`ACCEPT_RETRY`] (100 ms). At most [`LOG_LINES_MAX`] (10) log lines per [`LOG_WINDOW`] (60 s)
//! are written about a port; others are dropped.
//!
//! [`crate::holder`] calls all methods in the main thread. They do not block, except the drop,
//! which shuts the frontend's connection down and waits for the relay's thread, at most
//! [`RELAYS_END_MAX`] (0.5 s); [`disconnect_all`] waits for this time for all its ports together. A
//! thread that runs longer ends by itself. The module reads no message of a frontend. Of its
//! credentials it checks the user, if the port has a list of users: a frontend of another user is
//! disconnected at once, counted and logged. Otherwise the file permissions of the socket decide.

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
use crate::limits::{
    ACCEPT_RETRY, LOG_LINES_MAX, LOG_WINDOW, RELAY_END_CHECK, RELAYS_END_MAX, STACK_BYTES,
    SUCCESSOR_WAIT,
};
use crate::listen::UnixSocketListener;
use crate::process::DaemonProcess;
use crate::protocol::{HeldPort, HeldProtocol};
use crate::relay::{Relay, RelayEnd};
use crate::route::{DaemonRoute, SharedRoute};
use crate::threads::{lock, signal, until};
use crate::vfio::relay::VfioRelay;

/// A port, and the generation of causewayd that serves it.
#[derive(Debug)]
pub struct ServedPort {
    /// The generation of causewayd, from 1.
    pub generation: u64,
    /// causewayd's process.
    pub process: DaemonProcess,
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

/// Limits log lines to [`LOG_LINES_MAX`] (10) per [`LOG_WINDOW`] (60 s).
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
    /// End of the drop's wait for the relay, if the frontend is being disconnected.
    end_by: Option<Instant>,
    /// Frontends that were refused for their user, and the last user.
    refused_users: (u64, Option<u32>),
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
            process: by.process,
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
            end_by: None,
            refused_users: (0, None),
        })
    }

    /// Returns whether a frontend of this port can continue as a frontend of `new`: public socket,
    /// device, protocol, queues and ring size are the same, and the socket file was not replaced.
    pub fn is_compatible(&self, new: &HeldPort) -> bool {
        let same =
            |a: &HeldPort| (a.public.clone(), a.device.clone(), a.protocol, a.queues, a.ring_size);
        same(&self.held) == same(new) && self.listener.is_reachable()
    }

    /// Routes frontends to a causewayd, or to none: the frontend then waits for the next causewayd.
    pub fn set_route(&mut self, by: Option<ServedPort>) {
        let mut route = lock(&self.route);
        route.generation = by.as_ref().map(|by| by.generation);
        if let Some(ServedPort { port, process, .. }) = by {
            route.inner.clone_from(&port.inner);
            route.process = process;
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

    /// Accepts a frontend and starts its relay, or lets it wait for its predecessor to leave.
    /// `wakeup` wakes the main thread when the relay ends.
    pub fn accept(&mut self, wakeup: &Arc<OwnedFd>) {
        let now = Instant::now();
        let accepted = self.listener.accept();
        let given = |stream: OwnedFd| UntrustedSocket::from(stream).charged_to(self.account);
        match accepted.map(|stream| stream.map(given)) {
            Ok(None) => {}
            Ok(Some(stream)) if self.refuses_user(&stream) => {}
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

    /// Returns whether the list of users lacks the user of a frontend, which is then counted.
    fn refuses_user(&mut self, stream: &UntrustedSocket) -> bool {
        let Some(users) = &self.held.users else { return false };
        let peer = rustix::net::sockopt::socket_peercred(stream);
        let user = peer.map_or(u32::MAX, |peer| peer.uid.as_raw());
        if users.contains(&user) {
            return false;
        }
        self.refused_users = (self.refused_users.0.saturating_add(1), Some(user));
        if lock(&self.log_budget).admit() {
            log::warn!(port = self.name(), user; "a frontend was refused: allowed_users lacks its user");
        }
        true
    }

    /// Returns the number of frontends that were refused for their user, and the last user.
    pub fn refused_users(&self) -> (u64, Option<u32>) {
        self.refused_users
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
        let thread = thread::Builder::new()
            .name(format!("relay-{name}").replace('\0', ""))
            .stack_size(STACK_BYTES);
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

    /// Reaps a relay that ended, and runs the timers. The main thread calls it in each round.
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

impl HeldPortState {
    /// Shuts the frontend's connection down, which ends its relay. A drop waits for the relay until
    /// `end_by`.
    fn disconnect(&mut self, end_by: Option<Instant>) {
        self.end_by = end_by;
        if let Some(frontend) = &self.frontend {
            let _ = shutdown(&frontend.connection, Shutdown::Both);
        }
    }
}

impl Drop for HeldPortState {
    fn drop(&mut self) {
        if self.end_by.is_none() {
            self.disconnect(Instant::now().checked_add(RELAYS_END_MAX));
        }
        let Some(frontend) = self.frontend.take() else { return };
        while !frontend.thread.is_finished() {
            if self.end_by.is_none_or(|end| Instant::now() >= end) {
                // The thread ends by itself, and uses nothing of the port.
                return;
            }
            thread::sleep(RELAY_END_CHECK);
        }
        let _ = frontend.thread.join();
    }
}

/// Drops ports, whose frontends are disconnected, within [`RELAYS_END_MAX`] (0.5 s) in all.
pub fn disconnect_all(ports: impl IntoIterator<Item = HeldPortState>) {
    let end_by = Instant::now().checked_add(RELAYS_END_MAX);
    let mut ports: Vec<HeldPortState> = ports.into_iter().collect();
    for port in &mut ports {
        port.disconnect(end_by);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Returns a port with a frontend whose relay does not end for `time`.
    fn stuck_port(dir: &std::path::Path, number: usize, time: Duration) -> HeldPortState {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let port = HeldPort {
            name: number.to_string(),
            public: dir.join(number.to_string()),
            inner: dir.join("inner"),
            protocol: HeldProtocol::VfioUser,
            users: None,
            queues: 1,
            ring_size: 1,
            device: String::new(),
        };
        let control = Arc::new(theirs.try_clone().unwrap().into());
        let process = DaemonProcess::of_peer(&control).unwrap();
        let served = ServedPort { generation: 1, process, port };
        let mut state = HeldPortState::new(served, Arc::default()).unwrap();
        let thread = thread::spawn(move || {
            thread::sleep(time);
            drop(theirs);
        });
        let connection = OwnedFd::from(ours).into();
        state.frontend = Some(FrontendConnection { connection, thread, ended: Arc::default() });
        state
    }

    #[test]
    fn port_disconnects_many_frontends_within_one_time_limit() {
        let dir = std::env::temp_dir().join(format!("causeway-ports-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let time = RELAYS_END_MAX * 4;
        let ports: Vec<_> = (0..8).map(|number| stuck_port(&dir, number, time)).collect();
        let since = Instant::now();
        disconnect_all(ports);
        let took = since.elapsed();
        assert!(took >= RELAYS_END_MAX && took < 2 * RELAYS_END_MAX, "{took:?}");
        assert!(!dir.join("0").exists(), "the socket is gone");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
