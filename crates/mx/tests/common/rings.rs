//! A minimal host side of an endpoint with a network.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use causeway_channel::mx_rings::{layout, read_event, write_request};
use causeway_channel::{Receiver, Sender, Side, open};
use causeway_memory::{Mapping, View};
use causeway_wire::local::{ClientMessage, DaemonMessage};
use causeway_wire::mx::{Address, Event, NicId, PeerId, Request, Status, Token};

use super::{Process, nic, soon};

/// The host side's end of the rings.
pub struct Rings {
    pub sender: Sender,
    pub receiver: Receiver,
    pub view: View,
    bell: OwnedFd,
}

impl Rings {
    pub fn open(process: &mut Process, endpoint: u8) -> Self {
        process.ask(ClientMessage::Open { tag: 1, endpoint, key: 7 });
        let (tell, fds) = process.hear();
        assert!(matches!(tell, DaemonMessage::Opened { code: 0, .. }), "{tell:?}");
        Self::of(fds)
    }

    /// Returns the rings of the descriptors that a daemon sent.
    pub fn of(fds: Vec<OwnedFd>) -> Self {
        let [file, bell, _lock]: [OwnedFd; 3] = fds.try_into().unwrap();
        let len = layout().bytes();
        let mapping = Mapping::new(file.as_fd(), 0, len as u64).unwrap();
        let view = View::new(Arc::new(mapping), 0, len).unwrap();
        let (sender, receiver) = open(&view, Side::First).unwrap();
        Self { sender, receiver, view, bell }
    }

    pub fn ring(&self) {
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).unwrap();
    }

    pub fn request(&mut self, request: &Request<'_>) {
        assert!(write_request(&mut self.sender, request).unwrap());
        self.ring();
    }

    /// Consumes an event, and rings if the daemon waits for room.
    fn advance(&mut self, event: &causeway_channel::Event) {
        if self.receiver.advance(event) {
            self.ring();
        }
    }

    /// Returns the next event.
    pub fn hear(&mut self) -> Event<'static> {
        soon(|| self.receiver.ready(), "no message arrives");
        let event = self.receiver.poll().unwrap().unwrap();
        self.advance(&event);
        read_event(&event.head, event.len).unwrap()
    }

    /// Connects. Returns the status and the peer.
    pub fn connect(&mut self, to: Address, key: u32) -> (Status, PeerId) {
        let mut partner = PeerId::NONE;
        let token = Token(77);
        self.request(&Request::Connect { token, to, key, timeout_ns: Some(5_000_000_000) });
        loop {
            match self.hear() {
                Event::Connected { token: Token(77), status, peer } => return (status, peer),
                Event::PeerSeen { peer, address, .. } if address == to => partner = peer,
                other => panic!("{other:?}, {partner:?}"),
            }
        }
    }

    /// Sends a message, and waits for its end.
    pub fn send(&mut self, peer: PeerId, match_info: u64, data: &[u8]) {
        let token = Token(match_info);
        self.request(&Request::Eager { peer, token, match_info, data });
        loop {
            match self.hear() {
                Event::Sent { token: Token(sent), status, .. } if sent == match_info => {
                    return assert_eq!(status, Status::Success);
                }
                Event::PeerSeen { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Returns the next message.
    pub fn receive(&mut self) -> (u64, Vec<u8>) {
        loop {
            soon(|| self.receiver.ready(), "no message arrives");
            let event = self.receiver.poll().unwrap().unwrap();
            let mut data = vec![0; event.len];
            self.receiver.copy(&event, 0, &mut data);
            self.advance(&event);
            match read_event(&event.head, event.len).unwrap() {
                Event::Message { match_info, .. } => return (match_info, data),
                Event::PeerSeen { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

pub fn at(board: &str, endpoint: u8) -> Address {
    Address { nic: NicId(nic(board)), endpoint }
}
