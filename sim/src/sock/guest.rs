//! An honest guest with sockets: what Linux does, without its timers.

use std::collections::{BTreeMap, VecDeque};

use causeway_attach::native::{NativeError, VsockPort};
use causeway_wire::vsock::{Header, Op, SEQ_EOM, SHUTDOWN_BOTH, SHUTDOWN_SEND, Type};

use super::conn::{Conn, State};
use crate::bells::Bells;
use crate::bytes;
use crate::event::{Event, Link, Place, Way};
use crate::play::Life;
use crate::tape::Tape;

const RECEIVE: usize = 0;
const SEND: usize = 1;
/// CID of the first guest.
pub const CID_FIRST: u64 = 3;
/// Longest data packet that a guest sends, in bytes.
const PACKET_BYTES_MAX: u32 = 20_000;
/// Control packets that wait for room; beyond it connections are simply not answered yet.
const BACKLOG_MAX: usize = 4096;

/// How an end is told apart: messages, own port, other CID, other port.
type Key = (bool, u32, u64, u32);

/// See the module.
#[derive(Debug)]
pub struct Guest {
    /// Which.
    pub place: Place,
    /// Its device, while it runs.
    pub port: Option<VsockPort>,
    /// What it has whatever its device.
    pub life: Life,
    /// It asks for credit when it has none.
    pub asks: bool,
    /// The sizes of its receive buffers: 4 KiB times two to the power of these.
    buffers: (u64, u64),
    conns: BTreeMap<Key, Conn>,
    backlog: VecDeque<Header>,
    next_port: u32,
    data: Vec<u8>,
}

impl Guest {
    /// A guest without a device.
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

    /// Its CID.
    pub fn cid(&self) -> u64 {
        CID_FIRST + u64::from(self.place.guest)
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.port.is_some() && self.life.paused.is_none()
    }

    /// A device begins its life.
    pub fn join(&mut self, port: VsockPort, asks: bool, buffers: (u64, u64), tape: &mut Tape) {
        self.buffers = buffers;
        self.port = Some(port);
        self.asks = asks;
        tape.put(Event::Joined(self.place));
    }

    /// The device is gone, and all that the guest knew with it.
    pub fn leave(&mut self, tape: &mut Tape) {
        if self.port.take().is_some() {
            tape.put(Event::Left(self.place));
        }
        self.life.paused = None;
        self.conns.clear();
        self.backlog.clear();
        self.life.bells = Bells::default();
    }

    /// Names of the ends that are there.
    pub fn ends(&self) -> Vec<Key> {
        self.conns.keys().copied().collect()
    }

    /// One of its ends.
    pub fn conn(&mut self, key: Key) -> Option<&mut Conn> {
        self.conns.get_mut(&key)
    }

    /// Connects to a guest.
    pub fn connect(&mut self, to: u8, port: u32, messages: bool, buffer: u32, tape: &mut Tape) {
        let own = self.next_port;
        self.next_port += 1;
        let link = Link {
            stage: self.place.stage,
            messages,
            caller: (self.place.guest, own),
            callee: (to, port),
        };
        let way = Way { link, forth: true };
        let kind = if messages { Type::Seqpacket } else { Type::Stream };
        let key = (messages, own, CID_FIRST + u64::from(to), port);
        self.conns.insert(key, Conn::new(way, kind, buffer, State::Asking));
        tape.put(Event::Opened { way });
        self.tell(key, Op::Request, 0, tape);
    }

    /// Ends a connection: orderly, or by a reset.
    pub fn close(&mut self, key: Key, orderly: bool, tape: &mut Tape) {
        let Some(conn) = self.conns.get_mut(&key) else { return };
        if matches!(conn.state, State::Closing | State::Over) {
            return;
        }
        tape.put(Event::Closed(conn.way));
        if orderly && conn.state == State::Open {
            conn.state = State::Closing;
            conn.ours = SHUTDOWN_BOTH;
            tape.put(Event::Shut(conn.way));
            self.tell(key, Op::Shutdown, SHUTDOWN_BOTH, tape);
        } else {
            conn.state = State::Over;
            self.tell(key, Op::Reset, 0, tape);
            self.conns.remove(&key);
        }
    }

    /// Queues a packet without data.
    fn tell(&mut self, key: Key, op: Op, flags: u32, tape: &mut Tape) {
        let cids = (self.cid(), key.2);
        let Some(conn) = self.conns.get_mut(&key) else { return };
        let header = conn.header(cids, op, flags, 0);
        tape.put(room(conn.way, &header));
        if self.backlog.len() < BACKLOG_MAX {
            self.backlog.push_back(header);
        }
    }

    /// Takes at most `most` packets that came; says how many.
    ///
    /// # Errors
    /// The backend broke a rule.
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

    fn packet(&mut self, header: &Header, data: &[u8], tape: &mut Tape) {
        let (Some(kind), Some(op)) = (header.socket_type(), header.operation()) else { return };
        let messages = kind == Type::Seqpacket;
        let key = (messages, header.dst_port, header.src_cid, header.src_port);
        let Some(conn) = self.conns.get_mut(&key) else {
            return self.stranger(key, kind, header, op, tape);
        };
        let way = conn.way;
        if op == Op::Reset {
            conn.state = State::Over;
            tape.put(Event::Over(way));
            self.conns.remove(&key);
            return;
        }
        tape.put(Event::Told { way, consumed: header.fwd_cnt, buffer: header.buf_alloc });
        conn.peer = *header;
        conn.asked = false;
        match (conn.state, op) {
            (State::Asking, Op::Response) => conn.state = State::Open,
            (State::Open, Op::Data) => {
                conn.came += header.len;
                let end = messages && header.flags & SEQ_EOM != 0;
                let sum = bytes::sum(data);
                tape.put(Event::Got { way: way.back(), len: header.len, sum, end });
            }
            (State::Open, Op::Shutdown) => {
                let before = conn.theirs;
                conn.theirs |= header.flags & SHUTDOWN_BOTH;
                let by_peer = conn.is_shut_by_peer();
                if (conn.theirs & !before) & SHUTDOWN_SEND != 0 {
                    tape.put(Event::Eof(way.back()));
                }
                if by_peer {
                    tape.put(Event::Over(way));
                    self.tell(key, Op::Reset, 0, tape);
                    self.conns.remove(&key);
                }
            }
            // Both ended it at once.
            (State::Closing, Op::Shutdown) => {
                conn.theirs |= header.flags & SHUTDOWN_BOTH;
                if conn.is_shut_by_peer() {
                    tape.put(Event::Over(way));
                    self.tell(key, Op::Reset, 0, tape);
                    self.conns.remove(&key);
                }
            }
            (State::Open, Op::CreditRequest) => self.tell(key, Op::CreditUpdate, 0, tape),
            _ => {}
        }
    }

    /// A packet of no connection that is known here.
    fn stranger(&mut self, key: Key, kind: Type, header: &Header, op: Op, tape: &mut Tape) {
        if op == Op::Request {
            let Ok(guest) = u8::try_from(header.src_cid.wrapping_sub(CID_FIRST)) else { return };
            let link = Link {
                stage: self.place.stage,
                messages: key.0,
                caller: (guest, header.src_port),
                callee: (self.place.guest, header.dst_port),
            };
            let way = Way { link, forth: false };
            let (first, last) = self.buffers;
            let buffer = 4096 << (first + u64::from(header.src_port) % (last - first + 1));
            let mut conn = Conn::new(way, kind, buffer, State::Open);
            conn.peer = *header;
            self.conns.insert(key, conn);
            tape.put(Event::Opened { way });
            tape.put(Event::Told { way, consumed: header.fwd_cnt, buffer: header.buf_alloc });
            self.tell(key, Op::Response, 0, tape);
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

    /// The applications take at most `most` bytes of each connection; owed credit is told.
    pub fn consume(&mut self, most: u32, tape: &mut Tape) {
        for key in self.ends() {
            let Some(conn) = self.conns.get_mut(&key) else { continue };
            conn.taken += most.min(conn.came - conn.taken);
            if conn.owes_credit() {
                self.tell(key, Op::CreditUpdate, 0, tape);
            }
        }
    }

    /// Sends what waits as far as ring and credit have room; `false`: the ring is full.
    ///
    /// # Errors
    /// The backend broke a rule.
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
        // Ends that were shut, and wishes for credit.
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

    /// One data packet of a connection; `None`: it has nothing to send now.
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
                tape.put(Event::Shut(conn.way));
                self.tell(key, Op::Shutdown, SHUTDOWN_SEND, tape);
            }
            return Ok(None);
        }
        let len = conn.want.min(conn.credit()).min(PACKET_BYTES_MAX);
        if len == 0 {
            if asks && !std::mem::replace(&mut conn.asked, true) {
                self.tell(key, Op::CreditRequest, 0, tape);
            }
            return Ok(None);
        }
        let end = conn.kind == Type::Seqpacket && len == conn.want;
        let (way, told) = (conn.way, conn.told);
        let data = bytes::take(way.key(), u64::from(conn.sent), len as usize);
        let header = conn.header(cids, Op::Data, if end { SEQ_EOM } else { 0 }, len);
        if !port.queue(&header, &data)? {
            conn.told = told;
            return Ok(Some(false));
        }
        tape.put(room(way, &header));
        tape.put(Event::Sent { way, len, end });
        conn.sent += len;
        conn.want -= len;
        Ok(Some(true))
    }

    /// Everything that an attentive guest does when it is notified, and nothing when it is not.
    ///
    /// # Errors
    /// The backend broke a rule.
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
        self.life.bells.wakes(port.frontend(), queue)
    }

    fn sleep(&mut self, queue: usize, sender: bool) -> Result<bool, NativeError> {
        let Some(port) = &mut self.port else { return Ok(true) };
        self.life.bells.sleep(port.frontend(), queue, sender)
    }
}

/// What a header says of its sender's room.
fn room(way: Way, header: &Header) -> Event {
    Event::Room { way: way.back(), consumed: header.fwd_cnt, buffer: header.buf_alloc }
}
