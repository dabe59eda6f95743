//! The process: which ports are held, who connects to them, and whether causewayd is there.
//!
//! One thread listens; each frontend has a thread of its own ([`crate::relay`]).
//! causewayd's control connection is its sign of life: while it is open, ports
//! lead to it; when it ends without a word they are kept for the next one.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketType};

use crate::limits::{IDLE_LEAVE, LOOK, PORTS_MAX, REFUSAL_WAIT};
use crate::listen::Listener;
use crate::port::{HeldBy, Port};
use crate::protocol::{Answer, HeldPort, PacketError, Request, VERSION, receive, send};

/// The control socket's name in the holder's directory.
pub const CONTROL: &str = "control";
/// The lock's name in the holder's directory.
pub const LOCK: &str = "lock";

/// How to hold.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory for the control socket and the ports' inner sockets; for this user alone.
    pub dir: PathBuf,
    /// Stay when nothing is held any more: whoever started this process ends it.
    pub stay: bool,
}

/// Ends a holder from another thread.
#[derive(Debug, Clone)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    bell: Arc<OwnedFd>,
}

impl Stop {
    /// Has the holder let go of everything and return.
    pub fn stop(&self) {
        self.flag.store(true, Ordering::Release);
        ring(&self.bell);
    }
}

/// Writes to an eventfd; it can only fail when it has been rung already.
pub(crate) fn ring(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

/// causewayd's control connection.
#[derive(Debug)]
struct Daemon {
    socket: OwnedFd,
    /// It has said hello: ports lead to it.
    life: Option<u64>,
}

/// The holder.
#[derive(Debug)]
pub struct Holder {
    options: Options,
    control: Listener,
    _lock: OwnedFd,
    daemon: Option<Daemon>,
    ports: BTreeMap<String, Port>,
    /// Counts the causewayds that said hello.
    lives: u64,
    bell: Arc<OwnedFd>,
    flag: Arc<AtomicBool>,
    /// Nobody has needed this process since.
    idle: Instant,
    leaving: bool,
}

/// What became readable.
enum Ready {
    Control,
    Daemon,
    Port(String),
}

impl Holder {
    /// Claims the directory and listens for causewayd there.
    ///
    /// # Errors
    /// Another holder has the directory, or the host refused.
    pub fn new(options: Options) -> io::Result<Self> {
        let lock = crate::client::lock(&options.dir.join(LOCK))?;
        let control = Listener::bind(&options.dir.join(CONTROL), SocketType::SEQPACKET)?;
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Self {
            options,
            control,
            _lock: lock,
            daemon: None,
            ports: BTreeMap::new(),
            lives: 0,
            bell,
            flag: Arc::default(),
            idle: Instant::now(),
            leaving: false,
        })
    }

    /// For another thread to end this one.
    pub fn stopper(&self) -> Stop {
        Stop { flag: self.flag.clone(), bell: self.bell.clone() }
    }

    /// Holds until there is nothing left to hold.
    pub fn run(mut self) -> io::Result<()> {
        while !self.flag.load(Ordering::Acquire) && !self.leaving {
            // causewayd's end comes first: its successor may be knocking already.
            let ready = self.wait()?;
            for what in ready {
                match what {
                    Ready::Daemon => self.hear(),
                    Ready::Control => self.admit(),
                    Ready::Port(name) => {
                        if let Some(port) = self.ports.get_mut(&name) {
                            port.accept(&self.bell);
                        }
                    }
                }
            }
            for port in self.ports.values_mut() {
                port.look_after(&self.bell);
            }
            self.consider_leaving();
        }
        log::info!(ports = self.ports.len(); "letting go");
        Ok(())
    }

    /// Waits until something is there to do.
    fn wait(&self) -> io::Result<Vec<Ready>> {
        let mut what = Vec::new();
        let mut fds = vec![PollFd::new(&*self.bell, PollFlags::IN)];
        if let Some(daemon) = &self.daemon {
            what.push(Ready::Daemon);
            fds.push(PollFd::new(&daemon.socket, PollFlags::IN));
        }
        what.push(Ready::Control);
        fds.push(PollFd::new(&self.control, PollFlags::IN));
        let mut timeout = LOOK;
        for (name, port) in &self.ports {
            timeout = timeout.min(port.due().unwrap_or(LOOK));
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
        let rung = |fd: &PollFd<'_>| !fd.revents().is_empty();
        if fds.first().is_some_and(rung) {
            let mut count = [0; 8];
            let _ = rustix::io::read(&*self.bell, &mut count[..]);
        }
        let ready = what.into_iter().zip(fds.iter().skip(1)).filter(|(_, fd)| rung(fd));
        Ok(ready.map(|(what, _)| what).collect())
    }

    /// Someone connects to the control socket: one causewayd at a time, of our own user.
    fn admit(&mut self) {
        let Ok(Some(socket)) = self.control.accept() else { return };
        let refuse = |text: &str| {
            log::warn!("{text}");
            // A socket that is closed before it was read tells its peer nothing else.
            let mut hello = [PollFd::new(&socket, PollFlags::IN)];
            let pause = Timespec::try_from(REFUSAL_WAIT).ok();
            let _ = poll(&mut hello, pause.as_ref());
            let _ = receive::<Request>(&socket, RecvFlags::DONTWAIT);
            let _ = send(&socket, &Answer::Refused(text.into()));
        };
        let ours = rustix::process::geteuid();
        match rustix::net::sockopt::socket_peercred(&socket) {
            Ok(peer) if peer.uid == ours || peer.uid.is_root() => {}
            _ => return refuse("the control socket is for the user that the holder runs as"),
        }
        if self.daemon.is_some() {
            return refuse("another causewayd uses this holder; stop it first");
        }
        self.daemon = Some(Daemon { socket, life: None });
    }

    /// causewayd asks for something, or is gone.
    fn hear(&mut self) {
        let Some(daemon) = &self.daemon else { return };
        let request = match receive::<Request>(&daemon.socket, RecvFlags::DONTWAIT) {
            Ok(request) => request,
            Err(PacketError::Nothing) => return,
            Err(PacketError::Closed) => return self.bereaved("causewayd is gone"),
            Err(error) => return self.bereaved(&error.to_string()),
        };
        let answer = self.answer(request);
        let sent = self.daemon.as_ref().map(|daemon| send(&daemon.socket, &answer));
        match sent {
            Some(Err(error)) => self.bereaved(&error.to_string()),
            _ if matches!(answer, Answer::Refused(_)) => {
                log::warn!(answer:? = answer; "refused");
            }
            _ => {}
        }
    }

    /// causewayd is gone: its ports wait for another.
    fn bereaved(&mut self, why: &str) {
        self.daemon = None;
        for port in self.ports.values_mut() {
            port.lead_to(None);
        }
        log::info!(ports = self.ports.len(), why; "waiting for causewayd");
    }

    fn answer(&mut self, request: Request) -> Answer {
        let life = self.daemon.as_ref().and_then(|daemon| daemon.life);
        match (request, life) {
            (Request::Hello { version, .. }, _) if version != VERSION => Answer::Refused(format!(
                "causewayd speaks version {version}, this holder version {VERSION}; stop the \
                 holder, or start the causewayd that belongs to it"
            )),
            (Request::Hello { pid, .. }, _) => {
                self.lives = self.lives.saturating_add(1);
                if let Some(daemon) = &mut self.daemon {
                    daemon.life = Some(self.lives);
                }
                log::info!(pid; "causewayd is there");
                Answer::Hello { version: VERSION, pid: std::process::id() }
            }
            (_, None) => Answer::Refused("expected hello first".into()),
            (Request::Add(port), Some(life)) => self.add(port, life),
            (Request::Delete { name }, _) => {
                self.ports.remove(&name);
                Answer::Done
            }
            (Request::Synced, Some(life)) => {
                self.ports.retain(|name, port| {
                    let stays = port.life() == Some(life);
                    if !stays {
                        log::info!(port = name.as_str(); "no longer configured: let go");
                    }
                    stays
                });
                Answer::Done
            }
            (Request::LetGo, _) => {
                self.ports.clear();
                self.leaving = !self.options.stay;
                Answer::Done
            }
        }
    }

    fn add(&mut self, held: HeldPort, life: u64) -> Answer {
        let by = HeldBy { life, port: held };
        let name = by.port.name.clone();
        if let Some(port) = self.ports.get_mut(&name)
            && port.takes(&by.port)
        {
            port.lead_to(Some(by));
            return Answer::Done;
        }
        // Gone before its successor: it may listen at the same path.
        self.ports.remove(&name);
        if self.ports.len() >= PORTS_MAX {
            return Answer::Refused(format!("more than {PORTS_MAX} ports are held"));
        }
        match Port::new(by) {
            Ok(port) => {
                self.ports.insert(name, port);
                Answer::Done
            }
            Err(error) => Answer::Refused(format!("port {name}: {error}")),
        }
    }

    /// Leaves when nobody needs it, or when nobody could find it any more.
    fn consider_leaving(&mut self) {
        let busy = self.daemon.is_some() || self.ports.values().any(Port::is_busy);
        if busy {
            self.idle = Instant::now();
        } else if !self.options.stay && self.idle.elapsed() >= IDLE_LEAVE {
            log::info!("neither causewayd nor frontends for {} s", IDLE_LEAVE.as_secs());
            self.leaving = true;
        }
        if !busy && !self.control.is_reachable() {
            log::info!(path:% = self.control.path().display(); "the control socket is gone");
            self.leaving = true;
        }
    }
}

/// How long until `at`; nothing once it is past.
pub(crate) fn until(at: Instant) -> Duration {
    at.saturating_duration_since(Instant::now())
}

/// The value behind a lock, whatever became of others who held it.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the holder of the run directory `run_dir` lives.
pub fn dir_of(run_dir: &Path) -> PathBuf {
    run_dir.join("held")
}
