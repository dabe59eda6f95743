//! Host processes at the other end, by the convention of Firecracker and its kin.
//!
//! A process connects to the port's host socket and writes `CONNECT <port>\n`;
//! when the guest accepts it reads `OK <port>\n`, and from then on the stream is
//! the connection. A guest that connects to CID 2, port P, reaches the process
//! that listens at `<host socket>_<P>`. Streams go between the Unix socket and
//! guest memory by the kernel's copy alone.
//!
//! Messages (SEQPACKET) go the same ways by sockets of type SOCK_SEQPACKET: a
//! process connects to `<host socket>_seqpacket`, where `CONNECT <port>` and
//! `OK <port>` are messages, and a guest that connects by SEQPACKET reaches the
//! SOCK_SEQPACKET listener at `<host socket>_<P>`; see [`crate::host_messages`].

mod listeners;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use causeway_fabric::host::{HostListener, HostStream};
use causeway_fabric::rate::Bucket;
use causeway_fabric::{Context, PortId, ServiceWatch, cost};
use causeway_memory::Cursor;
use causeway_ring::Chain;
use causeway_wire::vsock::{HEADER_LEN, Op, SHUTDOWN_BOTH, SHUTDOWN_RECEIVE, SHUTDOWN_SEND, Type};

use crate::conn::{Conn, Party, Phase, Side, Signals, Which};
use crate::counters::bump;
use crate::deliver::{Blame, RxFault, close, take};
use crate::limits::{
    CONNECT_CALLS, HOST_BUFFER_BYTES, HOST_CONNECTIONS_MAX, HOST_CONNECTIONS_PER_PORT_MAX,
    HOST_MESSAGE_BYTES, HOST_PORT_FIRST, HOST_PORT_LAST,
};
use crate::seat::Seat;
use crate::service::{CID_HOST, Expiry, RX, Socket, VSOCK_F_SEQPACKET};
use crate::table::{ConnId, Key};
use crate::transmit::Refusal;

/// A port's host socket.
#[derive(Debug)]
pub struct HostDoor {
    path: PathBuf,
    streams: Listening,
    messages: Listening,
    /// Connects to either that it may still take.
    connects: Bucket,
    /// Processes that have not yet said where to.
    knocks: usize,
    next_port: u32,
}

/// A listener of one socket type.
#[derive(Debug)]
struct Listening {
    listener: HostListener,
    /// `None` while processes connect too fast.
    watch: Option<ServiceWatch>,
    token: u32,
}

/// A process's end of a connection.
#[derive(Debug)]
pub struct HostEnd {
    pub(crate) stream: HostStream,
    _watch: ServiceWatch,
    token: u32,
    /// Stream or messages.
    pub(crate) kind: Type,
    /// Bytes that the process has no room for; bounded by the credit we give. Of messages, each
    /// behind its length in four bytes.
    pub(crate) out: VecDeque<u8>,
    /// What came of a message whose end has not come.
    pub(crate) partial: Vec<u8>,
    /// Bytes that the process has taken, modulo 2^32, and how many of them the guest knows of.
    pub(crate) consumed: u32,
    told: u32,
    /// There may be something to read.
    pub(crate) readable: bool,
    /// Nothing more will be read.
    pub(crate) read_done: bool,
    /// Nothing more will come from the guest: end the stream after `out`.
    finish: bool,
    /// The stream was ended. Once: each time would wake us, even by itself.
    finished: bool,
    /// The guest wants no more at all: end the connection after `out`.
    closing: bool,
}

/// Someone who has connected and not yet said where to.
#[derive(Debug)]
struct Knock {
    port: PortId,
    kind: Type,
    stream: HostStream,
    _watch: ServiceWatch,
    deadline_ns: u64,
}

/// What a watched descriptor of ours is.
#[derive(Debug)]
enum HostToken {
    Door(PortId, Type),
    Knock(Knock),
    Conn(ConnId),
}

/// Watched descriptors by token.
#[derive(Debug, Default)]
pub(crate) struct HostTokens {
    list: Vec<Option<HostToken>>,
    free: Vec<u32>,
    /// When handshakes end, in that order. Some have ended since.
    knocking: VecDeque<(u64, u32)>,
    /// Host sockets that are not watched, and when they are again, in that order.
    shut: VecDeque<(u64, PortId)>,
}

impl HostTokens {
    fn reserve(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.list.push(None);
            u32::try_from(self.list.len().saturating_sub(1)).unwrap_or(u32::MAX)
        })
    }

    fn count(&self) -> usize {
        self.list.len().saturating_sub(self.free.len())
    }

    fn set(&mut self, token: u32, what: HostToken) {
        if let Some(place) = self.list.get_mut(token as usize) {
            *place = Some(what);
        }
    }

    fn get(&self, token: u32) -> Option<&HostToken> {
        self.list.get(token as usize)?.as_ref()
    }

    /// Whether an entry of `knocking` is still of a handshake: tokens are used again.
    fn is_knocking(&self, (deadline_ns, token): (u64, u32)) -> bool {
        matches!(self.get(token), Some(HostToken::Knock(knock)) if knock.deadline_ns == deadline_ns)
    }

    /// Drops the entries of ended handshakes in front of the first that goes on. Behind it are no
    /// more than the host sockets took within `HANDSHAKE_NS_MAX`.
    fn forget_ended(&mut self) {
        while self.knocking.front().is_some_and(|entry| !self.is_knocking(*entry)) {
            self.knocking.pop_front();
        }
    }

    fn remove(&mut self, token: u32) -> Option<HostToken> {
        let what = self.list.get_mut(token as usize)?.take()?;
        self.free.push(token);
        Some(what)
    }
}

/// Bytes that a guest may have on the way to a process.
fn buffer_of(kind: Type) -> u32 {
    match kind {
        Type::Stream => HOST_BUFFER_BYTES,
        Type::Seqpacket => HOST_MESSAGE_BYTES,
    }
}

impl Socket {
    /// A descriptor of ours is ready.
    pub(crate) fn host_ready(
        &mut self,
        cx: &mut Context<'_>,
        token: u32,
        readable: bool,
        writable: bool,
    ) {
        match self.tokens.get(token) {
            Some(HostToken::Door(port, kind)) => {
                let (port, kind) = (*port, *kind);
                self.answer_door(cx, port, kind);
            }
            Some(HostToken::Knock(_)) => self.knock(cx, token),
            Some(HostToken::Conn(id)) => {
                let id = *id;
                if writable {
                    self.flush(cx, id);
                }
                if readable {
                    self.wake_guest(cx, id);
                }
            }
            None => {}
        }
    }

    /// The process may have written something: the guest's turn takes it.
    fn wake_guest(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let Some((which, end)) = self.host_end(id) else { return };
        end.readable = true;
        self.attend(cx, id, which.other());
    }

    /// The process's end of a connection, and which side it is.
    pub(crate) fn host_end(&mut self, id: ConnId) -> Option<(Which, &mut HostEnd)> {
        let conn = self.table.get_mut(id)?;
        let callee = matches!(conn.side(Which::Callee).party, Party::Host(_));
        let which = if callee { Which::Callee } else { Which::Caller };
        match &mut conn.side_mut(which).party {
            Party::Host(end) => Some((which, end)),
            Party::Guest(_) => None,
        }
    }

    /// A process connects to a guest.
    fn connect_from_host(
        &mut self,
        cx: &mut Context<'_>,
        to: PortId,
        stream: HostStream,
        port: u32,
        kind: Type,
    ) {
        let Some(seat) = self.seats.get_mut(to) else { return };
        let (group, cid) = (seat.group, seat.cid);
        let Some(own) = self.next_host_port(to, cid, port) else { return };
        let Some(seat) = self.seats.get_mut(to) else { return };
        let Some(target) = cx.ports.get(to).filter(|p| p.runs(0) && p.runs(1)) else {
            bump(&mut seat.counters.refused_unknown);
            return;
        };
        if kind == Type::Seqpacket && target.features() & VSOCK_F_SEQPACKET == 0 {
            bump(&mut seat.counters.refused_type);
            return;
        }
        if !self.admits(cx, group, (CID_HOST, own), (cid, port)) {
            if let Some(seat) = self.seats.get_mut(to) {
                bump(&mut seat.counters.refused_rule);
            }
            return;
        }
        let Some(caller) = self.host_side(cx, stream, own, kind) else { return };
        let token = host_token(&caller);
        let callee = Side::new(Party::Guest(to), cid, port);
        let conn = Conn::new(kind, caller, callee);
        match self.open_connection(cx, conn) {
            Ok(id) => self.tokens.set(token, HostToken::Conn(id)),
            Err(_) => {
                self.tokens.free.push(token);
                if let Some(seat) = self.seats.get_mut(to) {
                    bump(&mut seat.counters.refused_limit);
                }
            }
        }
    }

    /// A source port for a connection that a process makes to `port` of the guest at `to`: none of
    /// a connection that the two have. `None`: all are taken.
    fn next_host_port(&mut self, to: PortId, cid: u32, port: u32) -> Option<u32> {
        for _ in HOST_PORT_FIRST..=HOST_PORT_LAST {
            let door = self.seats.get_mut(to)?.door.as_mut()?;
            let own = door.next_port;
            door.next_port =
                if own < HOST_PORT_LAST { own.saturating_add(1) } else { HOST_PORT_FIRST };
            let key = Key { seat: to, peer_cid: CID_HOST, local_port: port, peer_port: own };
            if self.table.find(key).is_none() {
                return Some(own);
            }
        }
        log::debug!(cid = cid, port = port; "no source port is free for a host process");
        None
    }

    /// Whether a port may have no more connections with processes.
    pub(crate) fn host_full(&self, seat: &Seat) -> bool {
        seat.host_connections >= HOST_CONNECTIONS_PER_PORT_MAX
            || self.tokens.count() > HOST_CONNECTIONS_MAX
    }

    /// A guest connects to a process.
    pub(crate) fn connect_to_host(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        caller: Side,
        port: u32,
        kind: Type,
    ) -> Result<(), Refusal> {
        let seat = self.seats.get(from).ok_or(Refusal::Unknown)?;
        let door = seat.door.as_ref().ok_or(Refusal::Unknown)?;
        if self.host_full(seat) {
            return Err(Refusal::Limit);
        }
        cx.slice.charge(CONNECT_CALLS.saturating_mul(cost::CALL_NS));
        let mut path = OsString::from(&door.path);
        path.push(format!("_{port}"));
        let path = Path::new(&path);
        // The usual refusal costs one system call, not a socket of ours and its close.
        if std::fs::symlink_metadata(path).is_err() {
            return Err(Refusal::Unknown);
        }
        let stream = match kind {
            Type::Stream => HostStream::connect(path),
            Type::Seqpacket => HostStream::connect_messages(path),
        };
        let stream = stream.map_err(|error| {
            if error.raw_os_error() != Some(rustix::io::Errno::PROTOTYPE.raw_os_error()) {
                return Refusal::Unknown;
            }
            let wanted = match kind {
                Type::Stream => "SOCK_STREAM",
                Type::Seqpacket => "SOCK_SEQPACKET",
            };
            let path = path.display();
            cx.remark(from, format_args!(
                "a connect to the host was refused: the process at {path} does not listen with {wanted}"
            ));
            Refusal::Type
        })?;
        let callee = self.host_side(cx, stream, port, kind).ok_or(Refusal::Limit)?;
        let token = host_token(&callee);
        let mut conn = Conn::new(kind, caller, callee);
        conn.phase = Phase::Open;
        conn.side_mut(Which::Caller).signals |= Signals::RESPONSE;
        match self.add_connection(conn) {
            Ok(id) => {
                self.tokens.set(token, HostToken::Conn(id));
                self.wake_guest(cx, id);
                Ok(())
            }
            Err(refusal) => {
                self.tokens.free.push(token);
                Err(refusal)
            }
        }
    }

    /// A watched process as a side, with the room that we give a guest towards it.
    fn host_side(
        &mut self,
        cx: &mut Context<'_>,
        stream: HostStream,
        port: u32,
        kind: Type,
    ) -> Option<Side> {
        let token = self.tokens.reserve();
        let Ok(watch) = cx.watch(std::os::fd::AsFd::as_fd(&stream), token) else {
            self.tokens.free.push(token);
            return None;
        };
        let end = HostEnd {
            stream,
            _watch: watch,
            token,
            kind,
            out: VecDeque::new(),
            partial: Vec::new(),
            consumed: 0,
            told: 0,
            readable: false,
            read_done: false,
            finish: false,
            finished: false,
            closing: false,
        };
        let mut side = Side::new(Party::Host(Box::new(end)), CID_HOST, port);
        side.credit.advertise(buffer_of(kind), 0).ok()?;
        Some(side)
    }

    /// Data of a guest for a process: sent from its descriptors, the rest kept within credit.
    pub(crate) fn data_to_host(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        chain: &Chain,
        len: u32,
        id: ConnId,
        which: Which,
    ) {
        let Some(map) = cx.ports.get(from).and_then(|p| p.map()) else { return };
        let Some((_, end)) = self.host_end(id) else { return };
        let mut cursor = Cursor::at(chain.readable(), HEADER_LEN as u64);
        let mut left = u64::from(len);
        let mut broken = false;
        while left > 0 && end.out.is_empty() {
            cx.slice.charge(cost::CALL_NS);
            match end.stream.send(map, &mut cursor, left) {
                Ok(Some(sent)) if sent > 0 => {
                    left = left.saturating_sub(sent as u64);
                    end.consumed = end.consumed.wrapping_add(u32::try_from(sent).unwrap_or(0));
                }
                Ok(_) => break,
                Err(_) => {
                    broken = true;
                    break;
                }
            }
        }
        if left > 0 && !broken {
            let mut rest = vec![0; usize::try_from(left).unwrap_or(0)];
            broken = cursor.read(map, &mut rest).is_err();
            end.out.extend(rest);
        }
        if broken {
            self.end(cx, id, true);
            return;
        }
        self.credit_guest(cx, id, which);
    }

    /// Takes account of what the process has taken; tells the guest when it is worth a packet.
    pub(crate) fn credit_guest(&mut self, cx: &mut Context<'_>, id: ConnId, guest: Which) {
        let Some((which, end)) = self.host_end(id) else { return };
        let (consumed, buffer) = (end.consumed, buffer_of(end.kind));
        let news = consumed.wrapping_sub(end.told) >= buffer / 4;
        if news {
            end.told = consumed;
        }
        let Some(conn) = self.table.get_mut(id) else { return };
        let credit = &mut conn.side_mut(which).credit;
        let (_, before) = credit.advertised();
        credit.deliver(consumed.wrapping_sub(before));
        // Never fails: just as much was delivered as is claimed consumed.
        let _ = credit.advertise(buffer, consumed);
        if news {
            conn.side_mut(guest).signals |= Signals::CREDIT_UPDATE;
            self.attend(cx, id, guest);
        }
    }

    /// Sends what the process had no room for.
    fn flush(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let Some((which, end)) = self.host_end(id) else { return };
        if end.kind == Type::Seqpacket && !end.flush_messages() {
            return self.end(cx, id, true);
        }
        while end.kind == Type::Stream && !end.out.is_empty() {
            let (front, _) = end.out.as_slices();
            match end.stream.send_bytes(front) {
                Ok(Some(sent)) => {
                    end.out.drain(..sent.min(end.out.len()));
                    end.consumed = end.consumed.wrapping_add(u32::try_from(sent).unwrap_or(0));
                }
                Ok(None) => break,
                Err(_) => return self.end(cx, id, true),
            }
        }
        let drained = end.out.is_empty();
        if drained {
            // Few connections need it often; many would keep its room for nothing.
            end.out = VecDeque::new();
        }
        if drained && end.finish && !std::mem::replace(&mut end.finished, true) {
            end.stream.finish();
        }
        if drained && end.closing {
            return self.end(cx, id, true);
        }
        self.credit_guest(cx, id, which.other());
    }

    /// Passes what the guest said on to the process at side `which`.
    pub(crate) fn tell_host(&mut self, cx: &mut Context<'_>, id: ConnId, which: Which) {
        let Some(conn) = self.table.get_mut(id) else { return };
        let shut = conn.side(which.other()).shut;
        let side = conn.side_mut(which);
        let signals = std::mem::take(&mut side.signals);
        let port = side.port;
        let Party::Host(end) = &mut side.party else { return };
        if signals.contains(Signals::RESPONSE) {
            let line = format!("OK {port}\n");
            match end.stream.send_bytes(line.as_bytes()) {
                Ok(Some(sent)) if sent == line.len() => end.readable = true,
                _ => return self.end(cx, id, true),
            }
        }
        if signals.contains(Signals::SHUTDOWN) {
            end.finish |= shut & SHUTDOWN_SEND != 0;
            end.read_done |= shut & SHUTDOWN_RECEIVE != 0;
            end.closing |= shut & SHUTDOWN_BOTH == SHUTDOWN_BOTH;
            return self.flush(cx, id);
        }
        if signals.contains(Signals::CREDIT_REQUEST) {
            conn.side_mut(which.other()).signals |= Signals::CREDIT_UPDATE;
        }
        self.attend(cx, id, which.other());
    }

    /// The guest said something; it may be the credit that a process waits for.
    pub(crate) fn attend_host(&mut self, cx: &mut Context<'_>, id: ConnId, guest: Which) {
        if self.host_end(id).is_some_and(|(_, end)| end.readable && !end.read_done) {
            self.attend(cx, id, guest);
        }
    }

    /// Moves what a process wrote into a guest's buffers. `None`: there is no process;
    /// `Some(true)`: there is more, but no buffer for it now.
    pub(crate) fn pump(
        &mut self,
        cx: &mut Context<'_>,
        to: PortId,
        id: ConnId,
        which: Which,
        buffers: &mut usize,
    ) -> Result<Option<bool>, Blame> {
        loop {
            let Some(conn) = self.table.get(id).filter(|c| c.phase == Phase::Open) else {
                return Ok(None);
            };
            let Party::Host(end) = &conn.side(which.other()).party else { return Ok(None) };
            if end.kind == Type::Seqpacket {
                return self.pump_messages(cx, to, id, which, buffers);
            }
            let free = conn.side(which).credit.free();
            if !end.readable || end.read_done || free == 0 {
                return Ok(Some(false));
            }
            cx.charge(cost::CALL_NS);
            if cx.is_over() {
                *buffers = 0;
            }
            let Some((port, seat)) = self.seats.with_port(cx, to) else { return Ok(None) };
            close(&mut self.table, port, seat, 0)?;
            if *buffers == 0 || !take(port, seat)? {
                return Ok(Some(true));
            }
            *buffers = buffers.saturating_sub(1);
            let Some((map, ring)) = port.queue(RX) else { return Ok(None) };
            let chain = &seat.filling.chain;
            let mut room = Cursor::at(chain.writable(), HEADER_LEN as u64);
            let limit = u64::from(free).min(room.remaining());
            let Some((_, end)) = self.table.get(id).and_then(host_end_of) else { return Ok(None) };
            let got = match end.stream.receive(map, &mut room, limit) {
                Ok(Some(got)) if got > 0 => u32::try_from(got).unwrap_or(0),
                outcome => {
                    ring.put_back(chain.head());
                    return self.process_silent(cx, id, which, outcome.map(|got| got.is_some()));
                }
            };
            let Some(conn) = self.table.get_mut(id) else { return Ok(None) };
            let side = conn.side_mut(which);
            // Never fails: `free` bounds what was received.
            let _ = side.credit.accept(got);
            side.credit.deliver(got);
            side.unread.add(got);
            side.signals.remove(Signals::CREDIT_UPDATE);
            let header = conn.header(which, Op::Data, got, 0).emit();
            chain.writer().write(map, &header).map_err(RxFault::Memory)?;
            ring.push(chain.head(), got.saturating_add(HEADER_LEN as u32))
                .map_err(RxFault::Ring)?;
            seat.got_data(got);
            cx.charge(cost::bytes(got as usize));
        }
    }

    /// The process has nothing to read now, has ended its stream, or is gone.
    pub(crate) fn process_silent(
        &mut self,
        cx: &mut Context<'_>,
        id: ConnId,
        guest: Which,
        ended: Result<bool, rustix::io::Errno>,
    ) -> Result<Option<bool>, Blame> {
        let Some((which, end)) = self.host_end(id) else { return Ok(None) };
        end.readable = false;
        match ended {
            Ok(false) => {}
            Ok(true) => {
                end.read_done = true;
                if let Some(conn) = self.table.get_mut(id) {
                    conn.side_mut(which).shut |= SHUTDOWN_SEND;
                    conn.side_mut(guest).signals |= Signals::SHUTDOWN;
                }
                self.lingers(cx.now_ns, id);
            }
            Err(rustix::io::Errno::FAULT) => {
                let gap = causeway_memory::OutOfGrant { addr: 0, len: 0 };
                return Err(Blame::Receiver(RxFault::Memory(gap)));
            }
            Err(_) => self.end(cx, id, true),
        }
        Ok(Some(false))
    }

    /// A guest is done with a connection; whether what it sent before still has to reach the
    /// process. If so the connection lives on without the guest, until that or its expiry.
    pub(crate) fn drains_on(&mut self, now_ns: u64, id: ConnId, guest: Which) -> bool {
        let Some((_, end)) = self.host_end(id) else { return false };
        if end.out.is_empty() || !end.finish {
            return false;
        }
        end.closing = true;
        end.read_done = true;
        let Some(conn) = self.table.get_mut(id) else { return false };
        conn.side_mut(guest).gone = true;
        if conn.expires_ns.is_none() {
            self.expire_for(now_ns, id, Expiry::Drain);
        }
        true
    }

    /// Whether a process has yet to take something.
    pub(crate) fn has_to_drain(&mut self, id: ConnId) -> bool {
        self.host_end(id).is_some_and(|(_, end)| !end.out.is_empty())
    }

    /// Lets go of the process at a connection that ended.
    pub(crate) fn drop_host(&mut self, conn: Conn) {
        for which in [Which::Caller, Which::Callee] {
            if let Party::Host(end) = &conn.side(which).party {
                self.tokens.remove(end.token);
            }
        }
    }

    /// When the first process that has not said where to is turned away.
    pub(crate) fn handshake_deadline_ns(&self) -> Option<u64> {
        self.tokens.knocking.front().map(|(at, _)| *at)
    }

    /// Turns away processes that did not say where to.
    pub(crate) fn expire_handshakes(&mut self, now_ns: u64) {
        while let Some((at, token)) = self.tokens.knocking.front().copied() {
            if at > now_ns {
                return;
            }
            let goes_on = self.tokens.is_knocking((at, token));
            self.tokens.knocking.pop_front();
            if goes_on && let Some(knock) = self.end_knock(token) {
                self.turned_away(knock.port);
            }
        }
    }
}

/// The process's end of a connection, and which side it is.
pub(crate) fn host_end_of(conn: &Conn) -> Option<(Which, &HostEnd)> {
    [Which::Caller, Which::Callee].into_iter().find_map(|which| match &conn.side(which).party {
        Party::Host(end) => Some((which, &**end)),
        Party::Guest(_) => None,
    })
}

fn host_token(side: &Side) -> u32 {
    match &side.party {
        Party::Host(end) => end.token,
        Party::Guest(_) => u32::MAX,
    }
}
