//! Control messages of an endpoint: the daemon sets up channels to peers of this host and admits
//! connects to other hosts. No MX message passes here.
//!
//! A connect to a peer of this host ends with a channel (memory, doorbell, perhaps a process
//! descriptor) or a refusal. A connect to another host is only admitted here; the rings then carry
//! it, and wait for room; so is a connect to a peer of this host that has no channel.
//!
//! # Limits
//! The functions do not block. `hear` reads all messages that have arrived, `hear_one` one. An
//! invalid message or a closed socket ends the conversation (`Paths::part`), and `resume` looks for
//! the next daemon. A channel that cannot be mapped, or that exceeds the 4,096 channels of an
//! endpoint (a correct daemon grants 1,024), is reported to the daemon as closed, and its connect
//! fails with [`Status::NoResources`]. A question about an unknown NIC is dropped while commands
//! are queued; all other commands are queued; at the limit of the connection (1,024) the
//! conversation ends. A refusal of staging is passed to `staging`; messages with an unknown token,
//! path or tag are ignored.
//!
//! # Place
//! [`Endpoint::hear`](crate::Endpoint::hear) calls [`Paths::hear`] in the rare checks and after a
//! sleep; a thread of `libmyriexpress.so` that the daemon woke calls [`Paths::hear_one`].

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use causeway_channel::allow_fences;
use causeway_message::library::{Channel, RemoteMemory, Rings, TransportError};
use causeway_message::split::{Address, NicId, PeerId, RegionId, Token};
use causeway_message::status::Status;
use causeway_wire::local::{ClientMessage, DaemonMessage};

use super::open::map;
use super::{AnyTransport, Paths};
use crate::connection::Attached;
use crate::process_memory::ProcessMemory;
use crate::waiter::Awaited;

impl Paths {
    /// Handles the daemon's messages. Returns whether there were any.
    #[cold]
    pub fn hear(&mut self) -> bool {
        if self.has_no_daemon {
            return self.look_for_daemon();
        }
        if self.resume.count > 0 {
            self.renew_rings();
            self.retry_connects();
        }
        let mut record_ring = false;
        while !self.has_no_daemon {
            match self.conversation.hear() {
                Ok(Some((tell, attached))) => self.handle_message(tell, attached),
                Ok(None) => return record_ring,
                Err(_) => self.part(),
            }
            record_ring = true;
        }
        record_ring
    }

    /// Handles one message of the daemon. The caller knows that a message is there; a further
    /// message wakes a sleeping thread again.
    pub fn hear_one(&mut self) {
        if self.has_no_daemon {
            self.look_for_daemon();
            return;
        }
        match self.conversation.hear() {
            Ok(Some((tell, attached))) => self.handle_message(tell, attached),
            Ok(None) => {}
            Err(_) => self.part(),
        }
    }

    /// Returns the condition for which the endpoint waits on the daemon's socket.
    pub fn awaited(&self) -> Awaited {
        match self.has_no_daemon {
            true => Awaited::Nothing,
            // No event announces the next attempt.
            false if self.has_retries() => Awaited::Descriptors,
            false => self.conversation.awaited(),
        }
    }

    /// Handles one message of the daemon. Messages that only the opening of an endpoint awaits are
    /// ignored.
    fn handle_message(&mut self, tell: DaemonMessage, attached: Attached) {
        match tell {
            DaemonMessage::Channel { of, side, session, way, token, nic, .. } => {
                let address = Address { nic: NicId(nic), endpoint: of };
                let peer = self.add(address, session, (way, side), attached.into_files());
                if peer.is_none() {
                    // The peer must not send into a channel without a receiver.
                    self.disconnect_from(address, way);
                }
                if self.connects.end(token).is_some() {
                    match peer {
                        Some(peer) => self.connects.note(token, Status::Success, peer),
                        None => self.connects.note(token, Status::NoResources, PeerId::NONE),
                    }
                }
            }
            DaemonMessage::Refused { status, token, .. } if self.retry_connect(token, status) => {}
            DaemonMessage::Refused { status, token, .. } => {
                let Some(parameters) = self.connects.end(token) else { return };
                let known = self.local_peers.at(parameters.to);
                match (Status::of(status.into()), known) {
                    (Some(Status::Success), Some(peer)) => {
                        self.connects.note(token, Status::Success, peer);
                    }
                    (None | Some(Status::Success), _) => {
                        self.connects.note(token, Status::EndpointUnreachable, PeerId::NONE);
                    }
                    (Some(status), _) => self.connects.note(token, status, PeerId::NONE),
                }
            }
            DaemonMessage::Gone { of, way, nic, .. } => {
                let address = Address { nic: NicId(nic), endpoint: of };
                if let Some(peer) = self.local_peers.closed(address, way) {
                    self.channels.report_lost(peer, Status::EndpointClosed);
                }
            }
            DaemonMessage::Remote { token, known, .. } => {
                if let Some(parameters) = self.connects.parameters(token) {
                    if let Some(bypass) = self.bypass.as_mut().filter(|_| known == 1) {
                        bypass.add_known_nic(parameters.to.nic);
                    }
                    self.connects.push_remote(token);
                    self.connect_remote();
                }
            }
            DaemonMessage::Region { tag, code, region, .. } => {
                if let Some(rings) = &mut self.rings {
                    let region = (code == 0).then_some(RegionId(region));
                    rings.staging.record_answer(tag, region);
                    self.granted = true;
                }
            }
            DaemonMessage::Host { known: 1, nic, .. } => {
                if let Some(bypass) = &mut self.bypass {
                    bypass.add_known_nic(NicId(nic));
                }
            }
            DaemonMessage::Opened { code: 0, .. } if !attached.is_empty() => {
                self.accept_rings(attached);
            }
            DaemonMessage::Welcome { .. }
            | DaemonMessage::Opened { .. }
            | DaemonMessage::Host { .. }
            | DaemonMessage::Wake { .. } => {}
        }
    }

    /// Hands connects to other hosts to the rings.
    pub(super) fn connect_remote(&mut self) {
        // The rings of the next daemon are not in use yet.
        if self.rings.as_ref().is_some_and(Rings::has_ended) && self.bypass.is_none() {
            self.renew_rings();
            if self.rings.as_ref().is_some_and(Rings::has_ended) && self.awaits_rings() {
                return;
            }
        }
        while let Some(token) = self.connects.next_remote() {
            let gone = Err(TransportError::Never(Status::EndpointUnreachable));
            let handed = match (self.connects.parameters(token), &mut self.rings) {
                // The request was cancelled.
                (None, _) => Ok(()),
                (Some(parameters), Some(rings)) => {
                    let rings: &mut AnyTransport = rings;
                    rings.connect(
                        Token(token),
                        parameters.to,
                        parameters.key,
                        parameters.timeout_ns,
                    )
                }
                (Some(_), None) => gone,
            };
            if handed == Err(TransportError::Full) {
                return;
            }
            self.connects.end_remote();
            if let Err(TransportError::Never(status)) = handed {
                self.connects.note(token, status, PeerId::NONE);
            }
        }
    }

    /// Asks the daemon about an unknown NIC. Forged addresses must not fill the daemon's queue:
    /// while it has unread commands, the question is dropped, and a later frame repeats it.
    #[cold]
    pub(super) fn ask_about(&mut self, board: NicId) {
        if !self.has_no_daemon && self.conversation.awaited() == Awaited::Words {
            let _ = self.conversation.ask(ClientMessage::Name { tag: 0, nic: board.0 });
        }
    }

    /// Adds a peer of this host. `way` is the daemon's number of the path, `side` the end of the
    /// channel (0 or 1). Returns `None` if the channel cannot be used.
    fn add(
        &mut self,
        address: Address,
        session: u32,
        (way, side): (u32, u8),
        fds: Vec<OwnedFd>,
    ) -> Option<PeerId> {
        let mut fds = fds.into_iter();
        let (file, doorbell, process) = (fds.next()?, fds.next()?, fds.next());
        let (mut sender, receiver, _) = map(&file, side)?;
        static ALLOWED: OnceLock<bool> = OnceLock::new();
        if *ALLOWED.get_or_init(allow_fences) {
            sender.omit_fences();
        }
        let peer = self.local_peers.free()?;
        let direct = process
            .and_then(ProcessMemory::of)
            .map(|memory| Box::new(memory) as Box<dyn RemoteMemory>);
        let channels = &mut self.channels;
        let added = self.local_peers.add(peer, (address, way), doorbell, |doorbell| {
            channels.add(Channel { peer, address, session, sender, receiver, doorbell, direct })
        });
        added.then_some(peer)
    }

    /// Frees the number of a peer.
    pub(super) fn drop_peer(&mut self, peer: PeerId) {
        if let Some((address, way)) = self.local_peers.remove(peer) {
            self.disconnect_from(address, way);
        }
    }

    /// Reports to the daemon that a path is closed.
    fn disconnect_from(&mut self, address: Address, way: u32) {
        let Address { nic, endpoint: to } = address;
        let ask = ClientMessage::Disconnect { endpoint: self.own, to, way, nic: nic.0 };
        if !self.has_no_daemon && self.conversation.ask(ask).is_err() {
            self.part();
        }
    }
}
