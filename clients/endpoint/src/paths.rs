//! Paths to peers: channels to endpoints of this host, which the daemon sets up on request
//! (`control`), and rings to the NIC side for other hosts, if the NIC has a network. Peers of this
//! host without a channel (processes in guests, and processes with `CAUSEWAY_MX_CHANNELS=0`) are
//! reached through the rings too, and count as peers of other hosts here. An endpoint of a NIC with
//! a network, behind an adapter, or without channels has rings from the start; another endpoint
//! gets them from the daemon with the first connect that needs them, its own or that of a peer. The
//! matching engine uses both as one transport (`transport`). The paths outlive the daemon
//! (`resume`).
//!
//! # Limits
//! Without a network connects to other hosts fail with `EndpointUnknown`. While the daemon is gone,
//! channels go on, rings to the daemon fail their requests, and connects wait until `RESUME_WAIT`
//! (5 s) after the daemon's end; then they and all later connects fail with `EndpointUnreachable`,
//! until the next daemon answers (`resume`). Rings in direct mode go on. The daemon grants an
//! endpoint at most 1,024 channels; of the channels to one target endpoint, all processes of a user
//! together get at most 896, and a single process 64. A further connect fails with `NoResources`. A
//! connect beyond 256 without an answer waits (`connects`). The paths have no lock and no thread of
//! their own: all work happens within calls, which the caller serialises. A caller that sleeps must
//! call [`Paths::arm`] before and [`Paths::disarm`] after; a peer does not ring otherwise.
//!
//! # Place
//! [`Endpoint`](crate::Endpoint) owns the paths and passes them to each call of the matching engine
//! ([`causeway_message::library`]). Below are the channels and rings of `causeway_channel`, and the
//! conversation with the daemon.

mod connects;
mod control;
mod local_peers;
mod open;
mod resume;
#[cfg(test)]
mod tests;
mod transport;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use causeway_message::library::{Channels, PeerDoorbell, Rings, Transport};
use causeway_message::split::{NicId, RegionId};
use causeway_wire::local::ClientMessage;

use crate::adapter::Link;
use crate::bypass::Bypass;
use crate::connection::{Attached, Grant};
use crate::nic::Conversation;
use crate::staging::StagingSlabs;
use connects::Connects;
use local_peers::LocalPeers;
use open::{RingMemory, remote_paths};
use resume::Resume;
use transport::PollTurn;

pub use crate::staging::{CacheCounters, StagingCounters};
pub use local_peers::LocalDoorbell;

/// Doorbell of the NIC side.
#[derive(Debug)]
pub(crate) enum NicDoorbell {
    /// The NIC side is in this process.
    None,
    /// The daemon's eventfd.
    Eventfd(OwnedFd),
    /// The session over an adapter, and the number of the endpoint.
    Adapter(Arc<Link>, u8),
}

impl PeerDoorbell for NicDoorbell {
    fn ring(&self) {
        match self {
            Self::None => {}
            Self::Eventfd(doorbell) => {
                // A write fails only if the counter is full, and then it is readable.
                let _ = rustix::io::write(doorbell, &1_u64.to_ne_bytes());
            }
            Self::Adapter(link, endpoint) => link.ring(*endpoint),
        }
    }
}

/// Channels and rings of an endpoint, and its conversation with the daemon.
#[derive(Debug)]
pub struct Paths {
    /// Number of the own endpoint in its NIC.
    own: u8,
    /// Channels to peers of this host.
    pub channels: Channels<LocalDoorbell>,
    /// Rings to the NIC side; `None` if the NIC has no network and no connect has needed them.
    rings: Option<Rings<NicDoorbell, StagingSlabs>>,
    /// NIC side at the other end of the rings, in this process; `None` if the daemon has it.
    bypass: Option<Box<Bypass>>,
    /// Staging was accepted or refused since the last poll of the rings, so waiting messages can
    /// continue. If that poll finds a message for the application's handler, the matching engine
    /// continues them in a later poll, which it requires before a sleep.
    granted: bool,
    /// Conversation with the daemon.
    pub conversation: Conversation,
    /// Peers of this host.
    local_peers: LocalPeers,
    /// The daemon is gone: channels go on, but there are no new ones.
    pub has_no_daemon: bool,
    /// Progress of the registration with the next daemon.
    resume: Resume,
    /// Lock file that is held while the endpoint is open: the next daemon detects an open endpoint
    /// by it. In direct mode the NIC side holds the lock instead.
    lock: Option<OwnedFd>,
    /// Connects in progress, and their results.
    connects: Connects,
    /// Whether channels or rings are polled next.
    turn: PollTurn,
    /// The last event came through the daemon, which needs a processor, too.
    pub is_through_daemon: bool,
}

impl Paths {
    /// Returns the paths of an endpoint. `direct_secrets`: its key and session in direct mode.
    /// `attached`: what belongs to the daemon's answer.
    ///
    /// # Errors
    /// The kernel's error if memory or descriptors are missing.
    pub fn new(
        own: u8,
        direct_secrets: Option<(u32, u32)>,
        conversation: Conversation,
        attached: Attached,
    ) -> std::io::Result<Self> {
        let board = NicId(conversation.board.nic);
        let (memory, lock) = RingMemory::of(attached).unzip();
        let (rings, bypass) = remote_paths((board, own), direct_secrets, memory)?;
        Ok(Self {
            own,
            channels: Channels::default(),
            rings,
            bypass,
            granted: false,
            conversation,
            local_peers: LocalPeers::new()?,
            has_no_daemon: false,
            resume: Resume::new(),
            lock: lock.flatten(),
            connects: Connects::default(),
            turn: PollTurn::default(),
            is_through_daemon: false,
        })
    }

    /// Returns the descriptor that is readable when a peer rings.
    pub fn doorbells(&self) -> BorrowedFd<'_> {
        self.local_peers.doorbells()
    }

    /// Returns whether an answer of the daemon is pending: to a connect, or to a request for
    /// staging.
    #[inline]
    pub fn connecting(&self) -> bool {
        !self.connects.is_empty()
            || self.rings.as_ref().is_some_and(|rings| rings.staging.awaits_answer())
    }

    /// Sends the commands that staging has queued, to the daemon or to the NIC side in this
    /// process.
    #[inline]
    fn send_commands(&mut self) {
        if self.rings.as_ref().is_some_and(|rings| !rings.staging.commands.is_empty()) {
            self.send_all_commands();
        }
    }

    /// Sends the queued commands of staging. In direct mode the NIC side in this process executes
    /// them.
    #[cold]
    fn send_all_commands(&mut self) {
        let Some(rings) = &mut self.rings else { return };
        for (ask, grant) in std::mem::take(&mut rings.staging.commands) {
            if let Some(bypass) = &mut self.bypass {
                match (ask, grant) {
                    (ClientMessage::Region { tag, len, .. }, Grant::File(file)) => {
                        rings.staging.record_answer(tag, bypass.add_staging(&file, len));
                        self.granted = true;
                    }
                    (ClientMessage::Unregion { region, .. }, _) => {
                        bypass.remove_staging(RegionId(region))
                    }
                    _ => {}
                }
                continue;
            }
            if !self.has_no_daemon && self.conversation.ask_with(ask, grant).is_err() {
                return self.part();
            }
        }
    }

    /// Polls the NIC side in this process. Returns whether there was any work.
    #[inline]
    fn poll_direct(&mut self) -> bool {
        let Some(bypass) = &mut self.bypass else { return false };
        let worked = bypass.poll_if_ready();
        if bypass.broken
            && let Some(rings) = &mut self.rings
        {
            rings.end();
        }
        if let Some(board) = bypass.next_unknown_nic() {
            self.ask_about(board);
        }
        worked
    }

    /// Runs new requests in the NIC side in this process.
    #[inline]
    fn serve_direct(&mut self) {
        if let Some(bypass) = &mut self.bypass {
            bypass.send();
        }
    }

    /// Records that a peer rang while the endpoint is awake.
    pub fn record_ring(&mut self, doorbell: u64) {
        self.local_peers.record_ring(doorbell);
    }

    /// Clears the doorbells that rang.
    fn clear(&mut self) {
        let channels: &mut AnyTransport = &mut self.channels;
        self.local_peers.clear(|peer| channels.fail_peer(peer));
    }

    /// Invalidates the memory of offers to peers of this host.
    pub fn withdraw(&mut self) {
        self.channels.withdraw();
    }

    /// Closes the endpoint: its channels report it to the peers. Waits at most 2 s for each peer
    /// that is writing to this process, and for the daemon behind an adapter.
    pub fn end(&mut self) {
        for peer in self.local_peers.all() {
            let channels: &mut AnyTransport = &mut self.channels;
            channels.disconnect(peer);
        }
        self.lock = None;
        // Includes peers whose path the daemon has closed.
        self.channels.await_peer_writes();
        self.local_peers.part();
        // Before the close command: the daemon must find the lock released.
        if let Some(mut bypass) = self.bypass.take() {
            bypass.close();
        }
        if !self.has_no_daemon {
            let _ = self.conversation.ask(ClientMessage::Close { endpoint: self.own });
            self.conversation.finish();
        }
    }

    /// Retries received messages that were deferred for lack of room, after a receive was posted.
    /// Must be called before a sleep. Returns whether there are any.
    #[inline]
    pub fn nudge(&mut self) -> bool {
        let near = self.channels.nudge();
        self.rings.as_mut().is_some_and(|rings| rings.nudge()) || near
    }

    /// Returns whether the endpoint has rings, by which it reaches other hosts and peers of this
    /// host without a channel.
    #[inline]
    pub fn is_networked(&self) -> bool {
        self.rings.is_some()
    }

    /// Returns whether the endpoint is in direct mode.
    pub fn goes_past(&self) -> bool {
        self.bypass.is_some()
    }

    /// Returns whether an event may be ready, by a cheap check without system calls. It may be true
    /// without an event.
    #[inline]
    pub fn comes(&self) -> bool {
        self.rings_have_event() || self.connects.has_notes() || self.channels.may_have_event()
    }

    /// Returns whether an event of other hosts may be ready.
    #[inline]
    fn rings_have_event(&self) -> bool {
        let Some(rings) = &self.rings else { return false };
        rings.may_have_event()
            || self.bypass.as_ref().is_some_and(|bypass| bypass.may_have_work())
            || self.granted
            || self.connects.has_remote()
            || !rings.staging.commands.is_empty()
    }

    /// Returns whether messages that the NIC side in this process sent without a completion event
    /// are unacknowledged. The matching engine does not count them.
    pub fn is_sending(&self) -> bool {
        self.bypass.as_ref().is_some_and(|bypass| !bypass.broken && bypass.is_sending())
    }

    /// Returns the counters of staging.
    pub fn staged(&self) -> StagingCounters {
        let Some(rings) = &self.rings else { return StagingCounters::default() };
        rings.staging.counters()
    }

    /// Returns whether an answer of the daemon was read that takes effect in the next poll. No thread
    /// is woken for that answer again.
    pub fn has_unpolled_answer(&self) -> bool {
        self.granted || self.connects.has_notes()
    }

    /// Prepares to sleep, as [`Channels::arm`] does: requests doorbells. Returns false if an event
    /// is ready, so that the thread must not sleep; [`Self::disarm`] must follow in either case.
    pub fn arm(&mut self) -> bool {
        // Before the polls below: a later doorbell is seen by them, or rings again.
        self.clear();
        self.renew_rings();
        if self.connects.has_remote() {
            self.connect_remote();
        }
        let mut idle = !self.has_unpolled_answer() & self.channels.arm();
        if let Some(bypass) = &mut self.bypass {
            idle &= bypass.arm(self.local_peers.doorbells());
        }
        if let Some(rings) = &mut self.rings {
            idle &= rings.arm();
        }
        if !self.has_no_daemon {
            idle &= self.conversation.arm();
        }
        idle
    }

    /// Ends a sleep, as [`Channels::disarm`] does.
    pub fn disarm(&mut self) {
        self.channels.disarm();
        if let Some(bypass) = &mut self.bypass {
            bypass.disarm(self.local_peers.doorbells());
        }
        if let Some(rings) = &mut self.rings {
            rings.disarm();
        }
        self.conversation.disarm();
    }
}

/// Transport for calls without a buffer.
type AnyTransport = dyn Transport<Vec<u8>>;
