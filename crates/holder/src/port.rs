//! One held port: its public socket and the frontend that is there.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use causeway_host::Account;
use causeway_host::fd::receive::Incoming;
use rustix::net::{Shutdown, SocketType, shutdown};

use crate::holder::{locked, ring, until};
use crate::limits::{ACCEPT_RETRY, LOG_LINES_MAX, LOG_WINDOW, STACK_BYTES, SUCCESSOR_WAIT};
use crate::listen::Listener;
use crate::protocol::HeldPort;
use crate::relay::{End, Relay, Route, SharedRoute};

/// A port as one causewayd serves it.
#[derive(Debug)]
pub struct HeldBy {
    /// Which causewayd, counted from 1.
    pub life: u64,
    /// The port.
    pub port: HeldPort,
}

/// A frontend that is there.
#[derive(Debug)]
struct Seat {
    /// A second descriptor of its connection, to cut it.
    connection: Incoming,
    thread: JoinHandle<()>,
    over: Arc<AtomicBool>,
}

/// Lets a bounded number of lines through.
#[derive(Debug)]
struct Lines {
    since: Instant,
    count: u32,
}

impl Lines {
    fn admit(&mut self) -> bool {
        if self.since.elapsed() >= LOG_WINDOW {
            *self = Self { since: Instant::now(), count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= LOG_LINES_MAX
    }
}

/// One held port. Dropped, it lets go of its frontend.
#[derive(Debug)]
pub struct Port {
    held: HeldPort,
    listener: Listener,
    route: SharedRoute,
    seat: Option<Seat>,
    /// Connected while the one before had not left, and until when it may wait.
    next: Option<(Incoming, Instant)>,
    /// Nobody is accepted before.
    barred: Option<Instant>,
    /// Whose the descriptors are that its frontends hand over.
    giver: Account,
    lines: Arc<Mutex<Lines>>,
}

impl Port {
    /// Listens for frontends.
    pub fn new(by: HeldBy) -> io::Result<Self> {
        let listener = Listener::bind(&by.port.public, SocketType::STREAM)?;
        let route = Route {
            life: Some(by.life),
            inner: by.port.inner.clone(),
            queues: by.port.queues,
            ring_size: by.port.ring_size,
        };
        Ok(Self {
            listener,
            route: Arc::new(Mutex::new(route)),
            held: by.port,
            seat: None,
            next: None,
            barred: None,
            giver: Account::unique(),
            lines: Arc::new(Mutex::new(Lines { since: Instant::now(), count: 0 })),
        })
    }

    /// Whether a frontend of this port may go on as one of `new`.
    pub fn takes(&self, new: &HeldPort) -> bool {
        let same = |a: &HeldPort| (a.public.clone(), a.device.clone(), a.queues, a.ring_size);
        same(&self.held) == same(new) && self.listener.is_reachable()
    }

    /// Leads frontends to a causewayd, or to none.
    pub fn lead_to(&mut self, by: Option<HeldBy>) {
        let mut route = locked(&self.route);
        route.life = by.as_ref().map(|by| by.life);
        if let Some(HeldBy { port, .. }) = by {
            route.inner.clone_from(&port.inner);
            self.held = port;
        }
    }

    /// The causewayd that serves it.
    pub fn life(&self) -> Option<u64> {
        locked(&self.route).life
    }

    /// Whether a frontend is there.
    pub fn is_busy(&self) -> bool {
        self.seat.is_some()
    }

    /// The listening socket, while it is to be watched.
    pub fn listening(&self) -> Option<BorrowedFd<'_>> {
        (self.next.is_none() && self.barred.is_none()).then(|| self.listener.as_fd())
    }

    /// How long until it must be looked after.
    pub fn due(&self) -> Option<Duration> {
        let next = self.next.as_ref().map(|(_, at)| *at);
        next.into_iter().chain(self.barred).map(until).min()
    }

    fn name(&self) -> &str {
        &self.held.name
    }

    /// A frontend connects. One at a time; another waits a moment for the first to be gone.
    pub fn accept(&mut self, bell: &Arc<OwnedFd>) {
        let now = Instant::now();
        let accepted = self.listener.accept();
        let given = |stream: OwnedFd| Incoming::from(stream).given_by(self.giver);
        match accepted.map(|stream| stream.map(given)) {
            Ok(None) => {}
            Ok(Some(_)) if self.giver.is_behind() => {
                self.barred = now.checked_add(ACCEPT_RETRY);
                if locked(&self.lines).admit() {
                    let why = "descriptors of earlier ones take long to close";
                    log::warn!(port = self.name(), reason = why; "a frontend was turned away");
                }
            }
            Ok(Some(stream)) if self.seat.is_some() => {
                let next = now.checked_add(SUCCESSOR_WAIT).map(|at| (stream, at));
                if std::mem::replace(&mut self.next, next).is_some() {
                    self.log_turned_away();
                }
            }
            Ok(Some(stream)) => self.seat(stream, bell),
            Err(error) => {
                self.barred = now.checked_add(ACCEPT_RETRY);
                if locked(&self.lines).admit() {
                    log::warn!(port = self.name(), error:% = error; "cannot accept a frontend");
                }
            }
        }
    }

    fn seat(&mut self, stream: Incoming, bell: &Arc<OwnedFd>) {
        match self.start(stream, bell.clone()) {
            Ok(seat) => self.seat = Some(seat),
            Err(error) => {
                if locked(&self.lines).admit() {
                    log::warn!(port = self.name(), error:% = error; "cannot serve a frontend");
                }
            }
        }
    }

    fn start(&self, stream: Incoming, bell: Arc<OwnedFd>) -> io::Result<Seat> {
        let connection = Incoming::from(stream.as_fd().try_clone_to_owned()?).given_by(self.giver);
        let over = Arc::new(AtomicBool::new(false));
        let relay = Relay::new(stream, self.route.clone());
        let (name, lines, done) = (self.held.name.clone(), self.lines.clone(), over.clone());
        let thread = thread::Builder::new().name("relay".into()).stack_size(STACK_BYTES);
        let thread = thread.spawn(move || {
            let end = relay.run();
            if locked(&lines).admit() {
                match end {
                    End::Left => log::info!(port = name.as_str(); "frontend left"),
                    end => log::warn!(port = name.as_str(), reason:% = end; "frontend let go"),
                }
            }
            done.store(true, Ordering::Release);
            ring(&bell);
        })?;
        if locked(&self.lines).admit() {
            log::info!(port = self.name(); "frontend connected");
        }
        Ok(Seat { connection, thread, over })
    }

    /// Notices who left and whose time is up.
    pub fn look_after(&mut self, bell: &Arc<OwnedFd>) {
        let now = Instant::now();
        self.barred = self.barred.filter(|at| *at > now);
        let over = |seat: &mut Seat| seat.over.load(Ordering::Acquire) || seat.thread.is_finished();
        if let Some(seat) = self.seat.take_if(over) {
            let _ = seat.thread.join();
        }
        match self.next.take() {
            Some((stream, _)) if self.seat.is_none() => self.seat(stream, bell),
            Some((stream, at)) if at > now => self.next = Some((stream, at)),
            Some(_) => self.log_turned_away(),
            None => {}
        }
    }

    fn log_turned_away(&self) {
        if locked(&self.lines).admit() {
            log::warn!(port = self.name(); "a second frontend was turned away: the port has one");
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take() {
            let _ = shutdown(&seat.connection, Shutdown::Both);
            let _ = seat.thread.join();
        }
    }
}
