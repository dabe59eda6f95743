//! The route from a relay to causewayd: which causewayd serves the port, and when to connect.
//!
//! The holder's main thread changes the route; each relay watches it from its own thread, after its
//! connection to causewayd ended, and acts on [`RouteWatch::verdict`]:
//!
//! | state | verdict |
//! |---|---|
//! | the process that served the frontend last still runs, and another causewayd or none is connected | wait; after [`ENDING_MAX`] (4 s) the frontend is disconnected |
//! | no causewayd is connected, and that process has ended | wait, without a time limit |
//! | another causewayd is connected, and that process has ended | connect |
//! | the same causewayd closed a connection before the replay was complete | connect again, up to [`TRIES_MAX`] (10) connections |
//! | the same causewayd closed the connection otherwise, or 10 times, and still runs, with its control connection, after [`PARTING_GRACE`] (250 ms) | the frontend is disconnected: causewayd closed the connection on purpose |
//!
//! The end of causewayd's control connection alone does not show that its process ended; while the
//! process runs, guest memory is in use ([`DaemonProcess`]). A route whose causewayd closed its
//! control connection is that of a connected causewayd until the main thread has read the end; the
//! relay asks the kernel, so that a busy host costs no frontend its connection. Nothing here waits
//! or connects. A panic of another thread with the lock of a route has no effect.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::deaths::Replays;
use crate::limits::{ENDING_MAX, PARTING_GRACE, TRIES_MAX};
use crate::process::DaemonProcess;

/// The causewayd that serves a port; changed by the holder's main thread.
#[derive(Debug, Clone)]
pub struct DaemonRoute {
    /// The generation of causewayd, from 1; `None` while it is away.
    pub generation: Option<u64>,
    /// The process of that generation, or of the last while causewayd is away.
    pub process: DaemonProcess,
    /// Its socket for this port.
    pub inner: PathBuf,
    /// Number of the device's queues.
    pub queues: u16,
    /// Largest ring of the device, in descriptors.
    pub ring_size: u16,
}

/// A route shared by the main thread and the relay.
pub type SharedRoute = Arc<Mutex<DaemonRoute>>;

/// The next step of a relay without a connection to causewayd.
#[derive(Debug)]
pub enum Verdict {
    /// Connect.
    Connect(DaemonRoute),
    /// No causewayd runs, or its end is not known yet.
    Wait,
    /// A running causewayd closed the connection, or its process does not end.
    Closed,
}

/// A relay's view of the route.
#[derive(Debug)]
pub struct RouteWatch {
    route: SharedRoute,
    /// The generation that the relay connected to last; 0 for none yet.
    generation: u64,
    /// The process of that generation.
    process: Option<DaemonProcess>,
    /// Connections to this generation that ended before the replay was complete.
    tries: u32,
    /// The replays of all relays.
    replays: Arc<Replays>,
    /// The relay replays its frontend's set-up.
    is_replaying: bool,
}

impl RouteWatch {
    /// Returns the view of a relay that has not connected yet.
    pub fn new(route: SharedRoute, replays: Arc<Replays>) -> Self {
        let (generation, process, tries, is_replaying) = (0, None, 0, false);
        Self { route, generation, process, tries, replays, is_replaying }
    }

    /// Returns the current route.
    pub fn current(&self) -> DaemonRoute {
        self.route.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether no causewayd is connected to the holder. Its process may still run: see
    /// [`Self::is_memory_free`].
    pub fn is_away(&self) -> bool {
        self.route.lock().unwrap_or_else(PoisonError::into_inner).generation.is_none()
    }

    /// Returns whether the process that served the frontend last has ended, so that no process uses
    /// the memory of the guest.
    pub fn is_memory_free(&self) -> bool {
        self.process.as_ref().is_none_or(DaemonProcess::has_ended)
    }

    /// Returns the next step of a relay whose connection ended at `lost`. A replay begins with
    /// [`Verdict::Connect`].
    pub fn verdict(&mut self, lost: Instant) -> Verdict {
        let verdict = self.next_step(lost);
        if matches!(verdict, Verdict::Connect(_)) && !self.is_replaying {
            self.is_replaying = true;
            self.replays.begin();
        }
        verdict
    }

    fn next_step(&mut self, lost: Instant) -> Verdict {
        let route = self.current();
        let is_next = route.generation != Some(self.generation);
        let runs = !self.is_memory_free();
        if is_next && runs {
            let is_due = lost.elapsed() >= ENDING_MAX;
            return if is_due { Verdict::Closed } else { Verdict::Wait };
        }
        match route.generation {
            Some(generation) if is_next => {
                (self.generation, self.tries) = (generation, 0);
                self.process = Some(route.process.clone());
                Verdict::Connect(route)
            }
            Some(_) if self.tries > 0 && self.tries < TRIES_MAX => Verdict::Connect(route),
            Some(_) if runs && lost.elapsed() >= PARTING_GRACE && !route.process.has_parted() => {
                Verdict::Closed
            }
            _ => Verdict::Wait,
        }
    }

    /// Notes that a replay is complete.
    pub fn connected(&mut self) {
        self.tries = 0;
        self.end_replay(None);
    }

    /// Notes that causewayd did not listen, or closed the connection during a replay.
    pub fn failed(&mut self) {
        self.tries = self.tries.saturating_add(1);
        self.end_replay(Some(self.generation));
    }

    fn end_replay(&mut self, ended: Option<u64>) {
        if std::mem::take(&mut self.is_replaying) {
            self.replays.end(ended);
        }
    }

    /// Returns whether the causewayd of the last connection, which has just ended, did so during
    /// the replay of another frontend.
    pub fn is_shared_death(&self) -> bool {
        self.replays.include_end_of(self.generation)
    }
}

impl Drop for RouteWatch {
    fn drop(&mut self) {
        self.end_replay(None);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn route_of_a_causewayd_that_parted_is_not_closed_before_the_main_thread_knows() {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        let ours: Arc<OwnedFd> = Arc::new(ours);
        let process = DaemonProcess::of_peer(&ours).unwrap();
        let route = DaemonRoute {
            generation: Some(1),
            process,
            inner: PathBuf::new(),
            queues: 1,
            ring_size: 1,
        };
        let mut watch = RouteWatch::new(Arc::new(Mutex::new(route)), Arc::default());
        assert!(matches!(watch.verdict(Instant::now()), Verdict::Connect(_)));
        watch.connected();
        let lost = Instant::now();
        assert!(matches!(watch.verdict(lost), Verdict::Wait), "the grace has just begun");
        std::thread::sleep(PARTING_GRACE);
        assert!(matches!(watch.verdict(lost), Verdict::Closed), "closed on purpose");
        drop(theirs);
        assert!(matches!(watch.verdict(lost), Verdict::Wait), "the process is about to end");
    }
}
