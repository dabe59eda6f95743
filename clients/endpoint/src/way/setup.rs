//! What the daemon sets up for an endpoint: channels to partners of this host, and connects to those
//! of other hosts. It is asked by the conversation, and its answers are heard here; no message goes
//! this way.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use causeway_channel::allow_fences;
use causeway_message::library::{Channel, Direct, Refused, Rings};
use causeway_message::split::{Address, NicId, PeerId, RegionId, Token};
use causeway_message::status::Status;
use causeway_wire::local::{Ask, Tell};

use super::open::map;
use super::{Way, Ways};
use crate::direct::Memory;
use crate::ears::Awaited;

impl Way {
    /// Takes what the daemon told. True: it told something.
    #[cold]
    pub fn hear(&mut self) -> bool {
        if self.parted {
            return self.look_for_daemon();
        }
        if self.resume.count > 0 {
            self.renew_rings();
            self.ask_again();
        }
        let mut heard = false;
        while !self.parted {
            match self.conversation.hear() {
                Ok(Some((tell, fds))) => self.told(tell, fds),
                Ok(None) => return heard,
                Err(_) => self.part(),
            }
            heard = true;
        }
        heard
    }

    /// As [`Self::hear`], one thing that is known to be there: who sleeps is woken by the next.
    pub fn hear_one(&mut self) {
        if self.parted {
            self.look_for_daemon();
            return;
        }
        match self.conversation.hear() {
            Ok(Some((tell, fds))) => self.told(tell, fds),
            Ok(None) => {}
            Err(_) => self.part(),
        }
    }

    /// What is waited for of the daemon.
    pub fn awaited(&self) -> Awaited {
        match self.parted {
            true => Awaited::Nothing,
            // Nothing tells when it is time for them.
            false if self.has_later() => Awaited::Descriptors,
            false => self.conversation.awaited(),
        }
    }

    fn told(&mut self, tell: Tell, fds: Vec<OwnedFd>) {
        match tell {
            Tell::Channel { of, side, session, way, token, nic, .. } => {
                let address = Address { nic: NicId(nic), endpoint: of };
                let peer = self.add(address, session, (way, side), fds);
                if peer.is_none() {
                    // Nothing that the other side sends would be heard.
                    self.disconnect_from(address, way);
                }
                if self.connects.end(token).is_some() {
                    match peer {
                        Some(peer) => self.connects.note(token, Status::Success, peer),
                        None => self.connects.note(token, Status::NoResources, PeerId::NONE),
                    }
                }
            }
            Tell::Refused { status, token, .. } if self.asks_later(token, status) => {}
            Tell::Refused { status, token, .. } => {
                let Some(wish) = self.connects.end(token) else { return };
                let known = self.partners.at(wish.to);
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
            Tell::Gone { of, way, nic, .. } => {
                let address = Address { nic: NicId(nic), endpoint: of };
                if let Some(peer) = self.partners.closed(address, way) {
                    self.channels.lost(peer, Status::EndpointClosed);
                }
            }
            Tell::Remote { token, known, .. } => {
                if let Some(wish) = self.connects.wish(token) {
                    if let Some(bypass) = self.bypass.as_mut().filter(|_| known == 1) {
                        bypass.know(wish.to.nic);
                    }
                    self.connects.push_remote(token);
                    self.connect_remote();
                }
            }
            Tell::Region { tag, code, region, .. } => {
                if let Some(rings) = &mut self.rings {
                    let region = (code == 0).then_some(RegionId(region));
                    rings.staging.answered(tag, region);
                }
            }
            Tell::Host { known: 1, nic, .. } => {
                if let Some(bypass) = &mut self.bypass {
                    bypass.know(NicId(nic));
                }
            }
            Tell::Welcome { .. } | Tell::Opened { .. } | Tell::Host { .. } | Tell::Wake { .. } => {}
        }
    }

    /// Hands connects to other hosts over.
    pub(super) fn connect_remote(&mut self) {
        // The rings of the next daemon are not used yet.
        if self.rings.as_ref().is_some_and(Rings::has_ended) && self.bypass.is_none() {
            self.renew_rings();
            if self.rings.as_ref().is_some_and(Rings::has_ended) && self.awaits_rings() {
                return;
            }
        }
        while let Some(token) = self.connects.next_remote() {
            let gone = Err(Refused::Never(Status::EndpointUnreachable));
            let handed = match (self.connects.wish(token), &mut self.rings) {
                // It was given up.
                (None, _) => Ok(()),
                (Some(wish), Some(rings)) => {
                    let rings: &mut Ways = rings;
                    rings.connect(Token(token), wish.to, wish.key, wish.timeout_ns)
                }
                (Some(_), None) => gone,
            };
            if handed == Err(Refused::Full) {
                return;
            }
            self.connects.end_remote();
            if let Err(Refused::Never(status)) = handed {
                self.connects.note(token, status, PeerId::NONE);
            }
        }
    }

    /// A board that we do not know sent something. Strangers are not to fill what the daemon is yet
    /// to read: while it has not read all, they are left out, and try again.
    #[cold]
    pub(super) fn ask_of(&mut self, board: NicId) {
        if !self.parted && self.conversation.awaited() == Awaited::Words {
            let _ = self.conversation.ask(Ask::Name { tag: 0, nic: board.0 });
        }
    }

    /// A new partner.
    fn add(
        &mut self,
        address: Address,
        session: u32,
        (way, side): (u32, u8),
        fds: Vec<OwnedFd>,
    ) -> Option<PeerId> {
        let mut fds = fds.into_iter();
        let (file, bell, process) = (fds.next()?, fds.next()?, fds.next());
        let (mut sender, receiver, _) = map(&file, side)?;
        static ALLOWED: OnceLock<bool> = OnceLock::new();
        if *ALLOWED.get_or_init(allow_fences) {
            sender.spare();
        }
        let peer = self.partners.free()?;
        let direct = process.and_then(Memory::of).map(|memory| Box::new(memory) as Box<dyn Direct>);
        let channels = &mut self.channels;
        let added = self.partners.add(peer, (address, way), bell, |bell| {
            channels.add(Channel { peer, address, session, sender, receiver, bell, direct })
        });
        added.then_some(peer)
    }

    /// Frees the number of a partner.
    pub(super) fn drop_peer(&mut self, peer: PeerId) {
        if let Some((address, way)) = self.partners.remove(peer) {
            self.disconnect_from(address, way);
        }
    }

    /// Tells the daemon that a way is closed.
    fn disconnect_from(&mut self, address: Address, way: u32) {
        let Address { nic, endpoint: to } = address;
        let ask = Ask::Disconnect { endpoint: self.own, to, way, nic: nic.0 };
        if !self.parted && self.conversation.ask(ask).is_err() {
            self.part();
        }
    }
}
