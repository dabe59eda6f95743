//! An honest guest with sockets: behaves as the Linux driver does, without its timers.
//!
//! `super` lets the guest connect, send, receive and close, in the thread of the world. The guest
//! drives the product's native vsock frontend and records bytes, credit and ends of connections on
//! the tape. A connection request is accepted at any port. At most 4,096 control packets wait for
//! room in the ring; further ones are dropped. Another packet of an unknown connection than a
//! request or a reset is answered with a reset, as Linux does. An error of the frontend means that
//! the backend broke the protocol or a system call failed, and is a violation.

use std::collections::{BTreeMap, VecDeque};

use causeway_attach::native::{NativeError, VsockPort};
use causeway_wire::vsock::{Header, Op, SEQ_EOM, SHUTDOWN_BOTH, SHUTDOWN_SEND, Type};

use super::conn::{Conn, State};
use crate::bytes;
use crate::doorbells::Doorbells;
use crate::event::{Direction, Event, Link, Place};
use crate::play::Life;
use crate::tape::Tape;

const RECEIVE: usize = 0;
const SEND: usize = 1;
/// The CID of the first guest.
pub const CID_FIRST: u64 = 3;
/// The longest data packet that a guest sends, in bytes.
const PACKET_BYTES_MAX: u32 = 20_000;
/// Limit of control packets that wait for room in the ring; beyond it, the guest leaves connection
/// requests unanswered.
pub const BACKLOG_MAX: usize = 4096;

/// Identifies an end: messages or stream, own port, peer's CID, peer's port.
type Key = (bool, u32, u64, u32);

/// A guest with a vsock device.
#[derive(Debug)]
pub struct Guest {
    /// Stage and number of the guest.
    pub place: Place,
    /// The device, while the guest runs.
    pub port: Option<VsockPort>,
    /// The state that does not depend on the device type.
    pub life: Life,
    /// The guest requests credit when it has none.
    pub asks: bool,
    /// The range of receive buffer sizes, as exponents: 4 KiB times two to the power of these.
    buffers: (u64, u64),
    /// The ends of the guest's connections.
    conns: BTreeMap<Key, Conn>,
    /// Control packets that wait for room in the ring.
    backlog: VecDeque<Header>,
    next_port: u32,
    data: Vec<u8>,
}

impl Guest {
    /// Creates a guest without a device.
    pub fn new(place: Place) -> Self {
        Self {
            place,
            port: None,
            life: Life::default(),
            asks: false,
            buffers: (0, 0),
            conns: BTreeMap::new(),
            backlog: VecDeque::new(),
            next_port: 1 << 16,
            data: Vec::new(),
        }
    }

    /// Returns the guest's CID.
    pub fn cid(&self) -> u64 {
        CID_FIRST + u64::from(self.place.guest)
    }

    /// Returns true if the guest has a device and is not paused.
    pub fn is_running(&self) -> bool {
        self.port.is_some() && self.life.paused.is_none()
    }

    /// Attaches a device.
    pub fn join(&mut self, port: VsockPort, asks: bool, buffers: (u64, u64), tape: &mut Tape) {
        self.buffers = buffers;
        self.port = Some(port);
        self.asks = asks;
        tape.put(Event::Joined(self.place));
    }

    /// Removes the device and discards all connections.
    pub fn leave(&mut self, tape: &mut Tape) {
        if self.port.take().is_some() {
            tape.put(Event::Left(self.place));
        }
        self.life.paused = None;
        self.conns.clear();
        self.backlog.clear();
        self.life.doorbells = Doorbells::default();
    }

    /// Returns the keys of all ends.
    pub fn ends(&self) -> Vec<Key> {
        self.conns.keys().copied().collect()
    }

    /// Returns an end.
    pub fn conn(&mut self, key: Key) -> Option<&mut Conn> {
        self.conns.get_mut(&key)
    }

    /// Connects to another guest.
    pub fn connect(&mut self, to: u8, port: u32, messages: bool, buffer: u32, tape: &mut Tape) {
        let own = self.next_port;
        self.next_port += 1;
        let link = Link {
            stage: self.place.stage,
            messages,
            caller: (self.place.guest, own),
            callee: (to, port),
        };
        let direction = Direction { link, forth: true };
        let kind = if messages { Type::Seqpacket } else { Type::Stream };
        let key = (messages, own, CID_FIRST + u64::from(to), port);
        self.conns.insert(key, Conn::new(direction, kind, buffer, State::Asking));
        tape.put(Event::Opened { direction });
        self.queue_control(key, Op::Request, 0, tape);
    }

    /// Closes a connection, by shutdown or by reset.
    pub fn close(&mut self, key: Key, orderly: bool, tape: &mut Tape) {
        let Some(conn) = self.conns.get_mut(&key) else { return };
        if matches!(conn.state, State::Closing | State::Over) {
            return;
        }
        tape.put(Event::Closed(conn.direction));
        if orderly && conn.state == State::Open {
            conn.state = State::Closing;
            conn.ours = SHUTDOWN_BOTH;
            tape.put(Event::Shut(conn.direction));
            self.queue_control(key, Op::Shutdown, SHUTDOWN_BOTH, tape);
        } else {
            conn.state = State::Over;
            self.queue_control(key, Op::Reset, 0, tape);
            self.conns.remove(&key);
        }
    }

    /// Queues a packet without data.
    fn queue_control(&mut self, key: Key, op: Op, flags: u32, tape: &mut Tape) {
        let cids = (self.cid(), key.2);
        let Some(conn) = self.conns.get_mut(&key) else { return };
        let header = conn.header(cids, op, flags, 0);
        if self.backlog.len() < BACKLOG_MAX {
            tape.put(room(conn.direction, &header));
            self.backlog.push_back(header);
        }
    }

    /// Receives at most `most` packets and returns their number.
    ///
    /// # Errors
    /// The backend broke the protocol.
    pub fn receive(&mut self, most: usize, tape: &mut Tape) -> Result<usize, NativeError> {
        let Some(mut port) = self.port.take() else { return Ok(0) };
        let mut data = std::mem::take(&mut self.data);
        let mut count = 0;
        let outcome = loop {
            if count >= most {
                break Ok(count);
            }
            match port.receive(&mut data) {
                Ok(Some(header)) => self.packet(&header, &data, tape),
                Ok(None) => break Ok(count),
                Err(error) => break Err(error),
            }
            count += 1;
        };
        self.data = data;
        self.port = Some(port);
        outcome
    }

    /// Handles a received packet.
    fn packet(&mut self, header: &Header, data: &[u8], tape: &mut Tape) {
        let (Some(kind), Some(op)) = (header.socket_type(), header.operation()) else { return };
        let messages = kind == Type::Seqpacket;
        let key = (messages, header.dst_port, header.src_cid, header.src_port);
        let Some(conn) = self.conns.get_mut(&key) else {
            return self.receive_unknown(key, kind, header, op, tape);
        };
        let direction = conn.direction;
        if op == Op::Reset {
            conn.state = State::Over;
            tape.put(Event::Over(direction));
            self.conns.remove(&key);
            return;
        }
        tape.put(Event::CreditReceived {
            direction,
            consumed: header.fwd_cnt,
            buffer: header.buf_alloc,
        });
        conn.peer = *header;
        conn.asked = false;
        match (conn.state, op) {
            (State::Asking, Op::Response) => conn.state = State::Open,
            (State::Open, Op::Data) => {
                conn.received += header.len;
                let end = messages && header.flags & SEQ_EOM != 0;
                let sum = bytes::sum(data);
                tape.put(Event::Got { direction: direction.back(), len: header.len, sum, end });
            }
            (State::Open, Op::Shutdown) => {
                let before = conn.theirs;
                conn.theirs |= header.flags & SHUTDOWN_BOTH;
                let by_peer = conn.is_shut_by_peer();
                if (conn.theirs & !before) & SHUTDOWN_SEND != 0 {
                    tape.put(Event::Eof(direction.back()));
                }
                if by_peer {
                    tape.put(Event::Over(direction));
                    self.queue_control(key, Op::Reset, 0, tape);
                    self.conns.remove(&key);
                }
            }
            // Both ends closed the connection at the same time.
            (State::Closing, Op::Shutdown) => {
                conn.theirs |= header.flags & SHUTDOWN_BOTH;
                if conn.is_shut_by_peer() {
                    tape.put(Event::Over(direction));
                    self.queue_control(key, Op::Reset, 0, tape);
                    self.conns.remove(&key);
                }
            }
            (State::Open, Op::CreditRequest) => self.queue_control(key, Op::CreditUpdate, 0, tape),
            _ => {}
        }
    }

    /// Handles a packet that belongs to no known connection.
    fn receive_unknown(&mut self, key: Key, kind: Type, header: &Header, op: Op, tape: &mut Tape) {
        if op == Op::Request {
            let Ok(guest) = u8::try_from(header.src_cid.wrapping_sub(CID_FIRST)) else { return };
            let link = Link {
                stage: self.place.stage,
                messages: key.0,
                caller: (guest, header.src_port),
                callee: (self.place.guest, header.dst_port),
            };
            let direction = Direction { link, forth: false };
            let (first, last) = self.buffers;
            let buffer = 4096 << (first + u64::from(header.src_port) % (last - first + 1));
            let mut conn = Conn::new(direction, kind, buffer, State::Open);
            conn.peer = *header;
            self.conns.insert(key, conn);
            tape.put(Event::Opened { direction });
            tape.put(Event::CreditReceived {
                direction,
                consumed: header.fwd_cnt,
                buffer: header.buf_alloc,
            });
            self.queue_control(key, Op::Response, 0, tape);
        } else if op != Op::Reset && self.backlog.len() < BACKLOG_MAX {
            self.backlog.push_back(Header {
                src_cid: self.cid(),
                dst_cid: header.src_cid,
                src_port: header.dst_port,
                dst_port: header.src_port,
                len: 0,
                kind: header.kind,
                op: Op::Reset.raw(),
                flags: 0,
                buf_alloc: 0,
                fwd_cnt: 0,
            });
        }
    }

    /// Lets the applications take at most `most` bytes of each connection, and queues credit
    /// updates that are due.
    pub fn consume(&mut self, most: u32, tape: &mut Tape) {
        for key in self.ends() {
            let Some(conn) = self.conns.get_mut(&key) else { continue };
            conn.taken += most.min(conn.received - conn.taken);
            if conn.owes_credit() {
                self.queue_control(key, Op::CreditUpdate, 0, tape);
            }
        }
    }

    /// Sends waiting data as far as ring and credit have room. Returns false if the ring is full.
    ///
    /// # Errors
    /// The backend broke the protocol.
    pub fn send(&mut self, tape: &mut Tape) -> Result<bool, NativeError> {
        let Some(mut port) = self.port.take() else { return Ok(true) };
        let outcome = self.send_by(&mut port, tape);
        self.port = Some(port);
        outcome
    }

    fn send_by(&mut self, port: &mut VsockPort, tape: &mut Tape) -> Result<bool, NativeError> {
        let mut room = self.send_backlog(port)?;
        for key in self.ends() {
            while room {
                let Some(sent) = self.send_data(port, key, tape)? else { break };
                room = sent;
            }
        }
        // `send_data` may have queued shutdowns and credit requests.
        room &= self.send_backlog(port)?;
        port.flush()?;
        Ok(room)
    }

    fn send_backlog(&mut self, port: &mut VsockPort) -> Result<bool, NativeError> {
        while let Some(header) = self.backlog.front() {
            if !port.queue(header, &[])? {
                return Ok(false);
            }
            self.backlog.pop_front();
        }
        Ok(true)
    }

    /// Sends a data packet of a connection. Returns `None` if the connection has nothing to send
    /// now.
    fn send_data(
        &mut self,
        port: &mut VsockPort,
        key: Key,
        tape: &mut Tape,
    ) -> Result<Option<bool>, NativeError> {
        let cids = (self.cid(), key.2);
        let asks = self.asks;
        let Some(conn) = self.conns.get_mut(&key).filter(|c| c.may_send()) else {
            return Ok(None);
        };
        if conn.want == 0 {
            if std::mem::take(&mut conn.shut_after) {
                conn.ours |= SHUTDOWN_SEND;
                tape.put(Event::Shut(conn.direction));
                self.queue_control(key, Op::Shutdown, SHUTDOWN_SEND, tape);
            }
            return Ok(None);
        }
        let len = conn.want.min(conn.credit()).min(PACKET_BYTES_MAX);
        if len == 0 {
            if asks && !std::mem::replace(&mut conn.asked, true) {
                self.queue_control(key, Op::CreditRequest, 0, tape);
            }
            return Ok(None);
        }
        let end = conn.kind == Type::Seqpacket && len == conn.want;
        let (direction, advertised) = (conn.direction, conn.advertised);
        let data = bytes::take(direction.key(), u64::from(conn.sent), len as usize);
        let header = conn.header(cids, Op::Data, if end { SEQ_EOM } else { 0 }, len);
        if !port.queue(&header, &data)? {
            conn.advertised = advertised;
            return Ok(Some(false));
        }
        tape.put(room(direction, &header));
        tape.put(Event::Sent { direction, len, end });
        conn.sent += len;
        conn.want -= len;
        Ok(Some(true))
    }

    /// Does all work of a guest that was notified. Without a notification nothing is received or
    /// sent; the applications still take received bytes, and credit updates are queued.
    ///
    /// # Errors
    /// The backend broke the protocol.
    pub fn attend(&mut self, tape: &mut Tape) -> Result<bool, NativeError> {
        let mut worked = false;
        if self.wakes(RECEIVE)? {
            worked |= self.receive(usize::MAX, tape)? > 0;
            while !self.sleep(RECEIVE, false)? {
                worked |= self.receive(usize::MAX, tape)? > 0;
            }
        }
        self.consume(u32::MAX, tape);
        if self.wakes(SEND)? {
            while !self.send(tape)? && !self.sleep(SEND, true)? {
                worked = true;
            }
        }
        Ok(worked)
    }

    fn wakes(&mut self, queue: usize) -> Result<bool, NativeError> {
        let Some(port) = &mut self.port else { return Ok(false) };
        self.life.doorbells.wakes(port.frontend(), queue)
    }

    fn sleep(&mut self, queue: usize, sender: bool) -> Result<bool, NativeError> {
        let Some(port) = &mut self.port else { return Ok(true) };
        self.life.doorbells.sleep(port.frontend(), queue, sender)
    }
}

/// Returns the credit advertisement that a header carries.
fn room(direction: Direction, header: &Header) -> Event {
    Event::CreditAdvertised {
        direction: direction.back(),
        consumed: header.fwd_cnt,
        buffer: header.buf_alloc,
    }
}
