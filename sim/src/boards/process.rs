//! A process with one MX endpoint: drives the host side of the endpoint step by step, sends the
//! messages posted to it and receives the messages that arrive.
//!
//! `super` starts, plays and ends the processes of a host, in the thread of the world:
//! [`Process::play`] is one turn, which takes at most 40 events of the endpoint's rings and sends
//! at most 40 messages. The process speaks the product's attachment protocol and rings
//! (`mx_rings`), with a simple host side of its own instead of the library's, so that the daemon is
//! tested alone. Messages by rendezvous have 3 granted regions for sends and 3 for pulls, of
//! 150,000 bytes each; a message waits while no region or ring space is free. A daemon that does
//! not answer an attachment within 64 of its turns, and a violation of the protocol, is a
//! [`StageError`] and so a violation of the world. Everything that is sent, received or completed
//! goes to the tape.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use causeway_attach::local::LocalAttachment;
use causeway_channel::mx_rings::{layout, read_event, write_request};
use causeway_channel::{Receiver, Sender, Side, open};
use causeway_host::ReceivedFd;
use causeway_memory::{Mapping, View, create};
use causeway_wire::local::{ClientMessage, DaemonMessage, VERSION};
use causeway_wire::mx::limits::MEDIUM_BYTES_MAX;
use causeway_wire::mx::{
    Address, Event as MxEvent, Handle, NicId, PeerId, RegionId, Request, Status, Token, Window,
};

use crate::bytes;
use crate::event::{Event, MessageEvent, MessageId, Place};
use crate::stage::{Stage, StageError};
use crate::tape::Tape;

/// The key of every endpoint.
const KEY: u32 = 7;
/// The number of regions granted, each for one large message.
const REGIONS: usize = 6;
/// The longest message, in bytes.
pub const LEN_MAX: usize = 150_000;
/// The time limit of one connection attempt.
const CONNECT_NS: u64 = 2_000_000_000;
/// The maximum number of events taken at a time.
const EVENTS: usize = 40;
/// Turns of the daemon within which it must answer.
const ANSWER_TURNS: usize = 64;

/// Returns the address of a NIC.
pub fn nic(board: u8) -> u64 {
    0x0200_0000_0100 | u64::from(board)
}

fn failed(error: impl std::fmt::Display) -> StageError {
    StageError::Host(io::Error::other(error.to_string()))
}

impl MessageId {
    /// Returns the match information, which encodes the message.
    fn info(self) -> u64 {
        let place = |place: Place| u64::from(place.stage) << 4 | u64::from(place.guest);
        u64::from(self.number)
            | place(self.from) << 32
            | place(self.to) << 40
            | u64::from(self.life) << 48
    }

    /// Returns the message that match information encodes.
    fn of(info: u64) -> Self {
        let [.., life, to, from, _, _, _, _] = info.to_be_bytes();
        let place = |byte: u8| Place { stage: byte >> 4, guest: byte & 15 };
        Self { from: place(from), life, to: place(to), number: info as u32 }
    }
}

/// A region granted for a large message.
#[derive(Debug)]
struct GrantedRegion {
    file: File,
    region: RegionId,
    busy: bool,
}

/// A process with one open endpoint.
#[derive(Debug)]
pub struct Process {
    pub at: Place,
    pub life: u8,
    /// The process does nothing until this time.
    pub away_until: u64,
    /// The process polls and never sleeps.
    polls: bool,
    local: LocalAttachment,
    sender: Sender,
    receiver: Receiver,
    bell: OwnedFd,
    /// The lock of the endpoint, held while the endpoint is open.
    _lock: OwnedFd,
    asleep: bool,
    /// The length of the request that did not fit into the ring.
    full: Option<usize>,
    token: u64,
    to_send: VecDeque<(Place, usize)>,
    numbers: BTreeMap<Place, u32>,
    peers: BTreeMap<Place, PeerId>,
    places: BTreeMap<PeerId, Place>,
    /// Peers that are gone, of which the daemon is still to be notified.
    forgets: VecDeque<PeerId>,
    connecting: BTreeMap<Token, Place>,
    sent: BTreeMap<Token, (MessageId, Option<usize>)>,
    waiting: VecDeque<(u64, u32, Handle, PeerId)>,
    pulls: BTreeMap<Token, (u64, u32, usize)>,
    regions: Vec<GrantedRegion>,
}

/// Waits for the next answer of the daemon.
fn hear(
    local: &mut LocalAttachment,
    stage: &Stage,
) -> Result<(DaemonMessage, Vec<OwnedFd>), StageError> {
    for _ in 0..ANSWER_TURNS {
        if let Some(received) = local.receive().map_err(failed)? {
            let answer = DaemonMessage::parse(&received.bytes).map_err(failed)?;
            return Ok((answer, received.fds.into_iter().map(ReceivedFd::into_fd).collect()));
        }
        stage.step(1)?;
    }
    Err(failed("the daemon does not answer"))
}

/// Sends a message to the daemon.
fn ask(
    local: &mut LocalAttachment,
    ask: ClientMessage,
    fds: Vec<OwnedFd>,
) -> Result<(), StageError> {
    local.send(ask.emit(), fds).map_err(failed)
}

impl Process {
    /// Attaches to a NIC and opens an endpoint.
    ///
    /// # Errors
    /// The daemon refuses the attachment, or does not answer.
    pub fn start(stage: &Stage, at: Place, life: u8, polls: bool) -> Result<Self, StageError> {
        let mut local = LocalAttachment::new(stage.stream(stage.group())?);
        ask(&mut local, ClientMessage::Hello { version: VERSION, direct: 0 }, vec![])?;
        let (DaemonMessage::Welcome { .. }, _) = hear(&mut local, stage)? else {
            return Err(failed("the daemon refused the attachment"));
        };
        ask(&mut local, ClientMessage::Open { tag: 1, endpoint: at.guest, key: KEY }, vec![])?;
        let (answer, fds) = hear(&mut local, stage)?;
        // The ring file, the doorbell, and the lock of an endpoint that the next daemon awaits.
        let Ok([file, bell, lock]) = <[OwnedFd; 3]>::try_from(fds) else {
            return Err(failed(format!("the daemon refused the endpoint: {answer:?}")));
        };
        let len = layout().bytes();
        let mapping = Mapping::new(file.as_fd(), 0, len as u64).map_err(failed)?;
        let view = View::new(Arc::new(mapping), 0, len).map_err(failed)?;
        let (sender, receiver) = open(&view, Side::First).map_err(failed)?;
        let mut regions = Vec::new();
        for _ in 0..REGIONS {
            let file = create("sim-region", LEN_MAX as u64).map_err(failed)?;
            let (tag, len) = (2, LEN_MAX as u64);
            let granted = file.try_clone()?;
            ask(&mut local, ClientMessage::Region { tag, endpoint: at.guest, len }, vec![granted])?;
            let (answer, _) = hear(&mut local, stage)?;
            let DaemonMessage::Region { code: 0, region, .. } = answer else {
                return Err(failed(format!("the daemon refused the region: {answer:?}")));
            };
            regions.push(GrantedRegion {
                file: file.into(),
                region: RegionId(region),
                busy: false,
            });
        }
        Ok(Self {
            at,
            life,
            away_until: 0,
            polls,
            local,
            sender,
            receiver,
            bell,
            _lock: lock,
            asleep: false,
            full: None,
            token: 0,
            to_send: VecDeque::new(),
            numbers: BTreeMap::new(),
            peers: BTreeMap::new(),
            places: BTreeMap::new(),
            forgets: VecDeque::new(),
            connecting: BTreeMap::new(),
            sent: BTreeMap::new(),
            waiting: VecDeque::new(),
            pulls: BTreeMap::new(),
            regions,
        })
    }

    /// Posts a message to be sent, of at most [`LEN_MAX`] (150,000) bytes, and wakes the process.
    pub fn post(&mut self, to: Place, len: usize) {
        self.to_send.push_back((to, len));
        self.wake();
    }

    /// Disconnects from a peer, if there is one and the ring has room; the daemon then completes
    /// the messages in flight with the peer.
    ///
    /// # Errors
    /// The daemon or a ring violates the protocol.
    pub fn part(&mut self, from: Place) -> Result<(), StageError> {
        self.wake();
        if let Some(peer) = self.peers.get(&from).copied()
            && self.request(&Request::Disconnect { peer })?
        {
            self.peers.remove(&from);
        }
        Ok(())
    }

    /// Returns true if no message is in flight or waiting.
    pub fn is_idle(&self) -> bool {
        self.to_send.is_empty()
            && self.sent.is_empty()
            && self.waiting.is_empty()
            && self.pulls.is_empty()
            && self.forgets.is_empty()
    }

    /// Runs one turn of the process. Returns true if the process did any work.
    ///
    /// # Errors
    /// The daemon or a ring violates the protocol.
    pub fn play(&mut self, now: u64, tape: &mut Tape) -> Result<bool, StageError> {
        let mut busy = self.listen()?;
        if self.asleep || self.away_until > now {
            return Ok(busy);
        }
        busy |= self.take(EVENTS, tape)?;
        busy |= self.act(tape)?;
        if !busy && !self.polls {
            self.sleep()?;
        }
        Ok(busy)
    }

    /// Ends the process after taking the events left in its rings.
    ///
    /// # Errors
    /// The daemon or a ring violates the protocol.
    pub fn die(mut self, tape: &mut Tape) -> Result<(), StageError> {
        while self.take(EVENTS, tape)? {}
        let Self { at, life, .. } = self;
        tape.put(Event::Message(MessageEvent::Died { at, life }));
        Ok(())
    }

    /// Ends the sleep of the process.
    fn wake(&mut self) {
        if std::mem::take(&mut self.asleep) {
            self.receiver.disarm();
            self.sender.disarm();
        }
    }

    /// Sleeps, unless there is work.
    fn sleep(&mut self) -> Result<(), StageError> {
        let mut stays = self.receiver.arm();
        if let Some(len) = self.full {
            stays |= self.sender.arm_room(len).map_err(failed)?;
        }
        self.asleep = true;
        if stays {
            self.full = None;
            self.wake();
        }
        Ok(())
    }

    /// Reads the daemon's messages.
    fn listen(&mut self) -> Result<bool, StageError> {
        let mut some = false;
        while let Some(received) = self.local.receive().map_err(failed)? {
            match DaemonMessage::parse(&received.bytes).map_err(failed)? {
                DaemonMessage::Wake { .. } => self.wake(),
                other => {
                    return Err(failed(format!("unexpected message from the daemon: {other:?}")));
                }
            }
            some = true;
        }
        Ok(some)
    }

    /// Wakes the daemon.
    fn ring(&self) {
        // The write fails only if the counter is full, and a full counter is readable as well.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Posts a request, if the ring has room.
    fn request(&mut self, request: &Request<'_>) -> Result<bool, StageError> {
        let len = if let Request::Eager { data, .. } = request { data.len() } else { 32 };
        let taken = write_request(&mut self.sender, request).map_err(failed)?;
        self.full = (!taken).then_some(len);
        if taken && self.sender.must_wake() {
            self.ring();
        }
        Ok(taken)
    }

    fn token(&mut self) -> Token {
        self.token += 1;
        Token(self.token)
    }

    /// Returns a free region. Sends and pulls have regions of their own: otherwise two processes
    /// that send each other large messages would wait for each other.
    fn room(&self, sends: bool) -> Option<usize> {
        let free =
            |(at, granted): (usize, &GrantedRegion)| !granted.busy && (at < REGIONS / 2) == sends;
        self.regions.iter().enumerate().position(free)
    }

    /// Posts the requests that are due. Returns true if any was posted.
    fn act(&mut self, tape: &mut Tape) -> Result<bool, StageError> {
        let mut some = false;
        while let Some(peer) = self.forgets.front().copied() {
            if !self.request(&Request::Forget { peer })? {
                return Ok(some);
            }
            self.forgets.pop_front();
            some = true;
        }
        while let Some((info, len, handle, _)) = self.waiting.front().copied() {
            let Some(at) = self.room(false) else { break };
            let token = self.token();
            let into = Window { region: self.regions[at].region, offset: 0, len };
            if !self.request(&Request::Pull { handle, token, into })? {
                return Ok(some);
            }
            self.waiting.pop_front();
            self.regions[at].busy = true;
            self.pulls.insert(token, (info, len, at));
            some = true;
        }
        for _ in 0..EVENTS {
            if !self.send(tape)? {
                return Ok(some);
            }
            some = true;
        }
        Ok(some)
    }

    /// Sends the next message, or connects to its destination. Returns true if a request was
    /// posted.
    fn send(&mut self, tape: &mut Tape) -> Result<bool, StageError> {
        let Some((to, len)) = self.to_send.front().copied() else { return Ok(false) };
        let token = self.token();
        let Some(peer) = self.peers.get(&to).copied() else {
            if self.connecting.values().any(|other| *other == to) {
                return Ok(false);
            }
            let address = Address { nic: NicId(nic(to.stage)), endpoint: to.guest };
            let timeout_ns = Some(CONNECT_NS);
            let connect = Request::Connect { token, to: address, key: KEY, timeout_ns };
            if self.request(&connect)? {
                self.connecting.insert(token, to);
            }
            return Ok(false);
        };
        let number = self.numbers.get(&to).copied().unwrap_or(0);
        let id = MessageId { from: self.at, life: self.life, to, number };
        let info = id.info();
        let data = bytes::take(info, 0, len);
        let mut at = None;
        // Some short messages are sent by rendezvous too, as synchronous sends are.
        let taken = if len <= MEDIUM_BYTES_MAX && !number.is_multiple_of(7) {
            self.request(&Request::Eager { peer, token, match_info: info, data: &data })?
        } else {
            let Some(free) = self.room(true) else { return Ok(false) };
            at = Some(free);
            self.regions[free].file.write_all_at(&data, 0)?;
            let from = Window { region: self.regions[free].region, offset: 0, len: len as u32 };
            self.request(&Request::Offer { peer, token, match_info: info, from })?
        };
        if taken {
            if let Some(at) = at {
                self.regions[at].busy = true;
            }
            self.numbers.insert(to, number + 1);
            self.sent.insert(token, (id, at));
            self.to_send.pop_front();
            tape.put(Event::Message(MessageEvent::Sent { id, len: len as u32 }));
        }
        Ok(taken)
    }

    /// Takes at most `most` events. Returns true if any was available.
    fn take(&mut self, most: usize, tape: &mut Tape) -> Result<bool, StageError> {
        let mut some = false;
        for _ in 0..most {
            let Some(event) = self.receiver.poll().map_err(failed)? else { break };
            let mut data = vec![0; event.len];
            self.receiver.copy(&event, 0, &mut data);
            let mx_event = read_event(&event.head, event.len).map_err(failed)?;
            if self.receiver.advance(&event) {
                self.ring();
            }
            self.handle_event(mx_event, &data, tape)?;
            some = true;
        }
        Ok(some)
    }

    /// Records that the process is notified of a message.
    fn heard(&self, info: u64, tape: &mut Tape) {
        let Self { at, life, .. } = *self;
        tape.put(Event::Message(MessageEvent::Heard { at, life, id: MessageId::of(info) }));
    }

    /// Records a message that arrived completely, and whether its content is the sent content.
    fn got(&self, info: u64, data: &[u8], tape: &mut Tape) {
        let sound = data == bytes::take(info, 0, data.len());
        let (id, len) = (MessageId::of(info), data.len() as u32);
        let Self { at, life, .. } = *self;
        tape.put(Event::Message(MessageEvent::Got { at, life, id, len, sound }));
    }

    fn handle_event(
        &mut self,
        mx_event: MxEvent<'_>,
        data: &[u8],
        tape: &mut Tape,
    ) -> Result<(), StageError> {
        match mx_event {
            MxEvent::Message { match_info, .. } => {
                self.heard(match_info, tape);
                self.got(match_info, data, tape);
            }
            MxEvent::Offered { peer, match_info, len, handle } => {
                self.heard(match_info, tape);
                self.waiting.push_back((match_info, len, handle, peer));
            }
            MxEvent::Connected { token, status, peer } => {
                let to = self.connecting.remove(&token);
                if let Some(to) = to.filter(|_| status == Status::Success) {
                    self.peers.insert(to, peer);
                }
            }
            MxEvent::PeerSeen { peer, address, .. } => {
                let from = Place { stage: address.nic.0 as u8, guest: address.endpoint };
                if self.places.insert(peer, from).is_some() {
                    return Err(failed(format!("{peer:?} was reported twice, now as {from:?}")));
                }
                self.peers.insert(from, peer);
            }
            MxEvent::PeerGone { peer, .. } => {
                let from = self.places.remove(&peer);
                if let Some(from) = from
                    && self.peers.get(&from) == Some(&peer)
                {
                    self.peers.remove(&from);
                }
                self.waiting.retain(|waiting| waiting.3 != peer);
                self.forgets.push_back(peer);
            }
            MxEvent::Sent { token, status, .. } => {
                let ended = self.sent.remove(&token);
                let (id, at) = ended.ok_or_else(|| failed(format!("{token:?} completed twice")))?;
                if let Some(at) = at {
                    self.regions[at].busy = false;
                }
                let well = status == Status::Success;
                tape.put(Event::Message(MessageEvent::Ended { id, well }));
            }
            MxEvent::Pulled { token, status } => {
                let pulled = self.pulls.remove(&token);
                let (info, len, at) =
                    pulled.ok_or_else(|| failed(format!("{token:?} was pulled twice")))?;
                self.regions[at].busy = false;
                if status == Status::Success {
                    let mut data = vec![0; len as usize];
                    self.regions[at].file.read_exact_at(&mut data, 0)?;
                    self.got(info, &data, tape);
                }
            }
        }
        Ok(())
    }
}
