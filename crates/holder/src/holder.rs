//! The holder's main thread: held ports, connecting frontends, and causewayd's control connection.
//!
//! The program `causeway-holder` runs one [`Holder`] on its main thread. The main thread accepts
//! connections; each frontend has a thread of its own ([`crate::relay`], [`crate::vfio`]). While
//! causewayd's control connection is open, frontends are routed to that causewayd. When the
//! connection closes without a request to release the ports, frontends wait for the next causewayd,
//! without a time limit. A *generation* is the number of a causewayd among those that sent hello to
//! this holder, from 1.
//!
//! | event | result |
//! |---|---|
//! | a port beyond [`PORTS_MAX`] (1,024), or with a socket that cannot be bound | refused; a port of the same name that it should replace is gone |
//! | a port is added again as the same device ([`HeldPortState::is_compatible`]) | its frontend stays connected |
//! | a port is deleted, or added as another device | its frontend is disconnected |
//! | a second causewayd, one of another user than the holder's or root, or one whose process the holder cannot watch ([`crate::process`]) | gets [`Answer::Refused`] with a reason; its connection is closed |
//! | a request is refused | causewayd stays connected |
//! | a packet that is no request | the control connection is closed, as at the end of causewayd |
//!
//! The holder exits after [`IDLE_LEAVE`] (60 s) without causewayd and frontends, after
//! [`Request::LetGo`] (neither with [`HolderOptions::stay`]), when the control socket was removed
//! and nothing is connected, and at [`StopHandle::stop`]. Ports are not saved: frontends do not
//! survive the end of the holder. The main thread blocks in two cases only: up to [`REFUSAL_WAIT`]
//! (100 ms) for a connection that it refuses, and up to
//! [`RELAYS_END_MAX`](crate::limits::RELAYS_END_MAX) (0.5 s) for the threads of all frontends that
//! a request, or the stop of the holder, disconnects.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketType};

use crate::deaths::Replays;
use crate::directory::{CONTROL, LOCK};
use crate::limits::{CHECK_INTERVAL, IDLE_LEAVE, PORTS_MAX, REFUSAL_WAIT};
use crate::listen::UnixSocketListener;
use crate::port::{HeldPortState, ServedPort, disconnect_all};
use crate::process::DaemonProcess;
use crate::protocol::{Answer, ProtocolError, Request, VERSION, receive, send};
use crate::threads::signal;

/// Configuration of a holder.
#[derive(Debug, Clone)]
pub struct HolderOptions {
    /// Directory of the control socket and the ports' inner sockets, accessible to this user only.
    pub dir: PathBuf,
    /// Do not exit when idle or after [`Request::LetGo`]: the parent process ends this process.
    pub stay: bool,
}

/// Stops a holder from another thread: the signal thread of `causeway-holder`, or a test.
#[derive(Debug, Clone)]
pub struct StopHandle {
    flag: Arc<AtomicBool>,
    wakeup: Arc<OwnedFd>,
}

impl StopHandle {
    /// Makes the holder disconnect all frontends and return from [`Holder::run`]. Further calls
    /// have no effect.
    pub fn stop(&self) {
        self.flag.store(true, Ordering::Release);
        signal(&self.wakeup);
    }
}

/// causewayd's control connection.
#[derive(Debug)]
struct DaemonConnection {
    /// The only strong handle: the connection closes with it.
    socket: Arc<OwnedFd>,
    /// causewayd's process.
    process: DaemonProcess,
    /// causewayd's generation, once it has sent hello: frontends are routed to it.
    generation: Option<u64>,
}

/// The holder.
#[derive(Debug)]
pub struct Holder {
    options: HolderOptions,
    /// The listening control socket.
    control: UnixSocketListener,
    /// Lock of the directory, held until the drop.
    _lock: OwnedFd,
    /// The connected causewayd; `None` while it is away.
    daemon: Option<DaemonConnection>,
    /// Held ports, by name.
    ports: BTreeMap<String, HeldPortState>,
    /// Number of causewayds that sent hello so far.
    generations: u64,
    /// Replays of the ports' frontends.
    replays: Arc<Replays>,
    /// Eventfd by which relays and [`StopHandle`] wake the main thread.
    wakeup: Arc<OwnedFd>,
    /// Set by [`StopHandle::stop`].
    flag: Arc<AtomicBool>,
    /// Since when neither causewayd nor a frontend is connected.
    idle_since: Instant,
    /// Whether the holder exits after this round.
    leaving: bool,
}

/// A readable file descriptor of the main thread.
enum Ready {
    /// The listening control socket: a causewayd connects.
    Control,
    /// The control connection: a request, or its end.
    Daemon,
    /// The public socket of the port with this name: a frontend connects.
    Port(String),
}

impl Holder {
    /// Locks the directory, which must exist, and listens for causewayd there.
    ///
    /// # Errors
    /// `AddrInUse` if another holder has the directory; a system call failed.
    pub fn new(options: HolderOptions) -> io::Result<Self> {
        let lock = crate::directory::lock(&options.dir.join(LOCK))?;
        let control = UnixSocketListener::bind(&options.dir.join(CONTROL), SocketType::SEQPACKET)?;
        let wakeup = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Self {
            options,
            control,
            _lock: lock,
            daemon: None,
            ports: BTreeMap::new(),
            generations: 0,
            replays: Arc::default(),
            wakeup,
            flag: Arc::default(),
            idle_since: Instant::now(),
            leaving: false,
        })
    }

    /// Returns a handle that stops the holder from another thread.
    pub fn stopper(&self) -> StopHandle {
        StopHandle { flag: self.flag.clone(), wakeup: self.wakeup.clone() }
    }

    /// Runs until stopped, released by causewayd, or idle for [`IDLE_LEAVE`] (60 s).
    ///
    /// # Errors
    /// Waiting for descriptors failed.
    pub fn run(mut self) -> io::Result<()> {
        while !self.flag.load(Ordering::Acquire) && !self.leaving {
            // causewayd's end first: its successor may be connecting already.
            let ready = self.wait()?;
            for what in ready {
                match what {
                    Ready::Daemon => self.serve_daemon(),
                    Ready::Control => self.accept_daemon(),
                    Ready::Port(name) => {
                        if let Some(port) = self.ports.get_mut(&name) {
                            port.accept(&self.wakeup);
                        }
                    }
                }
            }
            for port in self.ports.values_mut() {
                port.poll_frontends(&self.wakeup);
            }
            self.check_idle();
        }
        log::info!(ports = self.ports.len(); "holder stops: all frontends are disconnected");
        disconnect_all(self.ports.into_values());
        Ok(())
    }

    /// Waits for readable descriptors, until the next timer at the latest.
    fn wait(&self) -> io::Result<Vec<Ready>> {
        let mut what = Vec::new();
        let mut fds = vec![PollFd::new(&*self.wakeup, PollFlags::IN)];
        if let Some(daemon) = &self.daemon {
            what.push(Ready::Daemon);
            fds.push(PollFd::new(&daemon.socket, PollFlags::IN));
        }
        what.push(Ready::Control);
        fds.push(PollFd::new(&self.control, PollFlags::IN));
        let mut timeout = CHECK_INTERVAL;
        for (name, port) in &self.ports {
            timeout = timeout.min(port.due().unwrap_or(CHECK_INTERVAL));
            if let Some(listener) = port.listening() {
                what.push(Ready::Port(name.clone()));
                fds.push(PollFd::from_borrowed_fd(listener, PollFlags::IN));
            }
        }
        let timeout = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        if fds.first().is_some_and(is_ready) {
            let mut count = [0; 8];
            let _ = rustix::io::read(&*self.wakeup, &mut count[..]);
        }
        let ready = what.into_iter().zip(fds.iter().skip(1)).filter(|(_, fd)| is_ready(fd));
        Ok(ready.map(|(what, _)| what).collect())
    }

    /// Accepts a control connection: one causewayd at a time, of the same user or root.
    fn accept_daemon(&mut self) {
        let Ok(Some(socket)) = self.control.accept() else { return };
        let socket = Arc::new(socket);
        let refuse = |text: &str| {
            log::warn!("{text}");
            // Reads the hello first: closing a socket with unread data would discard the answer.
            let mut hello = [PollFd::new(&socket, PollFlags::IN)];
            let pause = Timespec::try_from(REFUSAL_WAIT).ok();
            let _ = poll(&mut hello, pause.as_ref());
            let _ = receive::<Request>(&socket, RecvFlags::DONTWAIT);
            let _ = send(&socket, &Answer::Refused(text.into()));
        };
        let ours = rustix::process::geteuid();
        match rustix::net::sockopt::socket_peercred(&socket) {
            Ok(peer) if peer.uid == ours || peer.uid.is_root() => {}
            _ => {
                return refuse(
                    "control connection refused: it comes from another user than the holder's",
                );
            }
        }
        if self.daemon.is_some() {
            return refuse(
                "control connection refused: another causewayd uses this holder; stop it first",
            );
        }
        match DaemonProcess::of_peer(&socket) {
            Ok(process) => {
                self.daemon = Some(DaemonConnection { socket, process, generation: None });
            }
            Err(error) => refuse(&format!(
                "control connection refused: the holder cannot watch the process of causewayd ({error}); run both in the same PID namespace"
            )),
        }
    }

    /// Processes causewayd's next request, or its end.
    fn serve_daemon(&mut self) {
        let Some(daemon) = &self.daemon else { return };
        let request = match receive::<Request>(&daemon.socket, RecvFlags::DONTWAIT) {
            Ok(request) => request,
            Err(ProtocolError::Nothing) => return,
            Err(ProtocolError::Closed) => return self.lose_daemon("causewayd is gone"),
            Err(error) => return self.lose_daemon(&error.to_string()),
        };
        let answer = self.answer(request);
        let sent = self.daemon.as_ref().map(|daemon| send(&daemon.socket, &answer));
        match sent {
            Some(Err(error)) => self.lose_daemon(&error.to_string()),
            _ if matches!(answer, Answer::Refused(_)) => {
                log::warn!(answer:? = answer; "request of causewayd refused");
            }
            _ => {}
        }
    }

    /// Handles causewayd's end: its ports wait for the next causewayd.
    fn lose_daemon(&mut self, why: &str) {
        self.daemon = None;
        for port in self.ports.values_mut() {
            port.set_route(None);
        }
        log::info!(ports = self.ports.len(), why; "causewayd disconnected: frontends wait for the next one");
    }

    /// Executes a request and returns its answer.
    fn answer(&mut self, request: Request) -> Answer {
        let generation = self.daemon.as_ref().and_then(|daemon| daemon.generation);
        match (request, generation) {
            (Request::Hello { version, .. }, _) if version != VERSION => Answer::Refused(format!(
                "causewayd uses protocol version {version}, this holder version {VERSION}: stop the holder, or start the causewayd of the same release"
            )),
            (Request::Hello { pid, .. }, _) => {
                self.generations = self.generations.saturating_add(1);
                if let Some(daemon) = &mut self.daemon {
                    daemon.generation = Some(self.generations);
                }
                log::info!(pid; "causewayd connected");
                Answer::Hello { version: VERSION, pid: std::process::id() }
            }
            (_, None) => Answer::Refused("expected hello as the first request".into()),
            (Request::Add(port), Some(generation)) => match &self.daemon {
                Some(daemon) => {
                    let process = daemon.process.clone();
                    self.add(ServedPort { generation, process, port })
                }
                None => Answer::Refused("the control connection is closed".into()),
            },
            (Request::RefusedUsers { name }, _) => match self.ports.get(&name) {
                Some(port) => {
                    let (total, user) = port.refused_users();
                    Answer::RefusedUsers { total, user }
                }
                None => Answer::Refused(format!("port {name} is not held")),
            },
            (Request::Delete { name }, _) => {
                self.ports.remove(&name);
                Answer::Done
            }
            (Request::Synced, Some(generation)) => {
                let all = std::mem::take(&mut self.ports);
                let stays = |port: &HeldPortState| port.generation() == Some(generation);
                let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
                    all.into_iter().partition(|(_, port)| stays(port));
                self.ports = kept;
                for name in gone.keys() {
                    log::info!(port = name.as_str(); "port is no longer configured: its frontend is disconnected");
                }
                disconnect_all(gone.into_values());
                Answer::Done
            }
            (Request::LetGo, _) => {
                disconnect_all(std::mem::take(&mut self.ports).into_values());
                self.leaving = !self.options.stay;
                Answer::Done
            }
        }
    }

    /// Holds a port. Its frontend stays connected if the port is the same device as before.
    fn add(&mut self, by: ServedPort) -> Answer {
        let name = by.port.name.clone();
        if let Some(port) = self.ports.get_mut(&name)
            && port.is_compatible(&by.port)
        {
            port.set_route(Some(by));
            return Answer::Done;
        }
        // Drop the old port first: the new port may listen at the same path.
        self.ports.remove(&name);
        if self.ports.len() >= PORTS_MAX {
            return Answer::Refused(format!("more than {PORTS_MAX} ports are held"));
        }
        match HeldPortState::new(by, Arc::clone(&self.replays)) {
            Ok(port) => {
                self.ports.insert(name, port);
                Answer::Done
            }
            Err(error) => Answer::Refused(format!("port {name}: {error}")),
        }
    }

    /// Exits after [`IDLE_LEAVE`] (60 s) without peers, or when the control socket was removed.
    fn check_idle(&mut self) {
        let busy = self.daemon.is_some() || self.ports.values().any(HeldPortState::is_busy);
        if busy {
            self.idle_since = Instant::now();
        } else if !self.options.stay && self.idle_since.elapsed() >= IDLE_LEAVE {
            log::info!(
                "idle without causewayd and frontends for {} s: the holder exits",
                IDLE_LEAVE.as_secs()
            );
            self.leaving = true;
        }
        if !busy && !self.control.is_reachable() {
            log::info!(path:% = self.control.path().display(); "the control socket was removed: the holder exits");
            self.leaving = true;
        }
    }
}
