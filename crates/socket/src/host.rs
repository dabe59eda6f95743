//! Connections with host processes, by the convention of Firecracker and Cloud Hypervisor.
//!
//! A process connects to the port's host socket and writes `CONNECT <port>\n`; when the guest
//! accepts it reads `OK <port>\n`, and from then on the stream is the connection. A guest that
//! connects to CID 2, port P, reaches the process that listens at `<host socket>_<P>`. The kernel
//! copies streams between the Unix socket and guest memory without an intermediate buffer.
//!
//! Messages (SEQPACKET) use sockets of type SOCK_SEQPACKET in the same way
//! ([`crate::host_messages`]): a process connects to `<host socket>_seqpacket`, where `CONNECT
//! <port>` and `OK <port>` are messages, and a guest reaches the SOCK_SEQPACKET listener at `<host
//! socket>_<P>`.
//!
//! The shard calls [`Socket::host_ready`] for events of sockets; [`crate::transmit`] passes data of
//! guests, [`crate::deliver`] fetches data for guests. [`listeners`] accepts processes and reads
//! their handshakes; the sockets are [`causeway_fabric::host`].
//!
//! A process sees no CID and no credit. Data that it does not read waits in [`HostEnd::out`], at
//! most [`HOST_BUFFER_BYTES`] (256 KiB) or [`HOST_MESSAGE_BYTES`] (128 KiB), which the credit
//! advertised to the guest bounds. A port has at most [`HOST_CONNECTIONS_PER_PORT_MAX`] (1,024)
//! such connections, a shard [`HOST_CONNECTIONS_MAX`] (16,384); a further connect of a guest is
//! answered with a reset. A process that is refused, by these limits, a rule or the guest, reads
//! `ERR <reason>\n` before its stream closes; if the guest has its most connections of all kinds,
//! or no source port or descriptor is free, the stream closes without a line. A connect to a
//! process does not block: a full backlog counts as refused. If the process shuts its stream down,
//! the guest gets a shutdown; if its socket fails, or waking it repeatedly takes too long, both
//! sides lose the connection, and the guest gets a reset. A process cannot send file descriptors,
//! and its connections end with the daemon.
//!
//! A port for processes (`processes`) has no guest: its CID is that of the processes at its host
//! socket, which connect to guests of the group by `CONNECT <CID>:<port>` ([`processes`]).

mod listeners;
mod processes;
mod tokens;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use causeway_fabric::host::{HostListener, HostStream};
use causeway_fabric::rate::Bucket;
use causeway_fabric::{Context, PortId, ServiceWatch, cost};
use causeway_memory::Cursor;
use causeway_ring::Chain;
use causeway_wire::pcapng::Direction;
use causeway_wire::vsock::{HEADER_LEN, Op, SHUTDOWN_BOTH, SHUTDOWN_RECEIVE, SHUTDOWN_SEND, Type};

use crate::capture;
use crate::conn::{Conn, Party, Phase, Role, Side, Signals};
use crate::counters::bump;
use crate::deliver::{CopyFault, RxFault, close_buffer, pop_buffer};
use crate::expiry::Expiry;
use crate::limits::{
    CONNECT_CALLS, HOST_BUFFER_BYTES, HOST_CONNECTIONS_MAX, HOST_CONNECTIONS_PER_PORT_MAX,
    HOST_MESSAGE_BYTES, HOST_PORT_FIRST, HOST_PORT_LAST,
};
use crate::service::{CID_HOST, RX, Socket, VSOCK_F_SEQPACKET};
use crate::socket_port::SocketPort;
use crate::table::{ConnId, ConnKey};
use crate::transmit::Refusal;
use tokens::HostToken;

pub(crate) use tokens::HostTokens;

/// The host socket of a port: its listeners and their limits.
#[derive(Debug)]
pub struct HostListeners {
    /// Path of the listener for streams; other paths derive from it.
    path: PathBuf,
    /// Users whose processes may connect; `None` admits all.
    users: Option<Vec<u32>>,
    /// Listener at `path`, SOCK_STREAM.
    streams: WatchedListener,
    /// Listener at `<path>_seqpacket`, SOCK_SEQPACKET.
    messages: WatchedListener,
    /// Rate limit of connects to both listeners.
    connects: Bucket,
    /// Handshakes in progress.
    handshakes: usize,
    /// Next source port to try for a connection of a process.
    next_port: u32,
}

impl HostListeners {
    /// Returns the next source port to try, in rotation.
    fn next_port(&mut self) -> u32 {
        let own = self.next_port;
        self.next_port = if own < HOST_PORT_LAST { own.saturating_add(1) } else { HOST_PORT_FIRST };
        own
    }
}

/// A listener of one socket type.
#[derive(Debug)]
struct WatchedListener {
    listener: HostListener,
    /// `None` while the listener is paused.
    watch: Option<ServiceWatch>,
    /// Index of the listener in [`HostTokens`].
    token: u32,
}

/// A process's end of a connection.
#[derive(Debug)]
pub struct HostEnd {
    /// Socket to the process.
    pub(crate) stream: HostStream,
    _watch: ServiceWatch,
    /// Index of the connection in [`HostTokens`].
    token: u32,
    /// The port whose CID the process has; `None`: the process has CID 2.
    pub(crate) owner: Option<PortId>,
    /// Stream or messages.
    kind: Type,
    /// Bytes for which the process has no room, and bytes of a peer that are not sent yet; bounded by
    /// the advertised credit. Each message follows its length in four bytes.
    pub(crate) out: VecDeque<u8>,
    /// Fragments of an incomplete message.
    pub(crate) partial: Vec<u8>,
    /// Bytes that the process has taken, modulo 2^32.
    pub(crate) consumed: u32,
    /// The value of `consumed` that the guest knows.
    advertised: u32,
    /// The socket may have data to read.
    pub(crate) readable: bool,
    /// The end waits for its turn in `Peers::unread`.
    pub(crate) is_unread: bool,
    /// Data of a peer was added to `out`, and not sent yet: the end is in `Peers::unsent`.
    pub(crate) is_unsent: bool,
    /// No more data will be read.
    pub(crate) read_done: bool,
    /// The guest sends no more data: shut the stream down after `out`.
    must_finish: bool,
    /// The stream was shut down. Repeating that would cause an event each time.
    has_finished: bool,
    /// The guest ended the connection: close it after `out`.
    must_close: bool,
}

/// Returns the bytes that a guest may have in flight to a process.
fn buffer_of(kind: Type) -> u32 {
    match kind {
        Type::Stream => HOST_BUFFER_BYTES,
        Type::Seqpacket => HOST_MESSAGE_BYTES,
    }
}

impl Socket {
    /// Handles a ready descriptor: accepts processes, reads a handshake, or moves data of a
    /// connection.
    pub(crate) fn host_ready(
        &mut self,
        cx: &mut Context<'_>,
        token: u32,
        readable: bool,
        writable: bool,
    ) {
        match self.tokens.get(token) {
            Some(HostToken::Listener(port, kind)) => {
                let (port, kind) = (*port, *kind);
                self.accept_processes(cx, port, kind);
            }
            Some(HostToken::Handshake(_)) => self.read_handshake(cx, token),
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

    /// Schedules the guest that receives from the process, which may have written.
    fn wake_guest(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let Some((role, end)) = self.host_end(id) else { return };
        end.readable = true;
        self.schedule_side(cx, id, role.other());
    }

    /// Returns the process's end of a connection, and its side.
    pub(crate) fn host_end(&mut self, id: ConnId) -> Option<(Role, &mut HostEnd)> {
        let conn = self.table.get_mut(id)?;
        let callee = matches!(conn.side(Role::Callee).party, Party::Host(_));
        let role = if callee { Role::Callee } else { Role::Caller };
        match &mut conn.side_mut(role).party {
            Party::Host(end) => Some((role, end)),
            Party::Guest(_) | Party::Remote(_) => None,
        }
    }

    /// Opens a connection of a process after its handshake, to port number `port` of the guest at
    /// `to`. On refusal the process reads `ERR <reason>` (in some cases, which the module lists,
    /// nothing), and its stream closes.
    fn connect_from_host(
        &mut self,
        cx: &mut Context<'_>,
        to: PortId,
        mut stream: HostStream,
        port: u32,
        kind: Type,
    ) {
        let Some(socket_port) = self.socket_ports.get(to) else { return };
        let (group, cid) = (socket_port.group, socket_port.cid);
        if self.host_full(socket_port) {
            refuse(&mut stream, "the port has its most connections with host processes");
            if let Some(socket_port) = self.socket_ports.get_mut(to) {
                bump(&mut socket_port.counters.refused_limit);
            }
            return;
        }
        let Some(own) = self.next_host_port(to, cid, port) else { return };
        let Some(socket_port) = self.socket_ports.get_mut(to) else { return };
        let Some(target) = cx.ports.get(to).filter(|p| p.is_running(0) && p.is_running(1)) else {
            bump(&mut socket_port.counters.refused_unknown);
            return refuse(&mut stream, "the guest is not up");
        };
        if kind == Type::Seqpacket && target.features() & VSOCK_F_SEQPACKET == 0 {
            bump(&mut socket_port.counters.refused_type);
            return refuse(&mut stream, "the guest's driver has no SOCK_SEQPACKET");
        }
        if !self.admits(cx, group, (CID_HOST, own), (cid, port)) {
            if let Some(socket_port) = self.socket_ports.get_mut(to) {
                bump(&mut socket_port.counters.refused_rule);
            }
            return refuse(&mut stream, "a rule rejects the connection");
        }
        let Some(caller) = self.host_side(cx, stream, (None, own), kind) else { return };
        let token = host_token(&caller);
        let callee = Side::new(Party::Guest(to), cid, port);
        let opened = self.open_connection(cx, Conn::new(kind, caller, callee));
        self.note_opened(to, token, opened);
    }

    /// Notes the connection that a process of the host socket of `port` opened, or counts the
    /// refusal.
    fn note_opened(&mut self, port: PortId, token: u32, opened: Result<ConnId, Refusal>) {
        match opened {
            Ok(id) => self.tokens.set(token, HostToken::Conn(id)),
            Err(_) => {
                self.tokens.release(token);
                if let Some(socket_port) = self.socket_ports.get_mut(port) {
                    bump(&mut socket_port.counters.refused_limit);
                }
            }
        }
    }

    /// Returns a source port for a connection of a process to `port` of the guest at `to` that no
    /// connection of the two uses. `None`: all are in use.
    fn next_host_port(&mut self, to: PortId, cid: u32, port: u32) -> Option<u32> {
        for _ in HOST_PORT_FIRST..=HOST_PORT_LAST {
            let own = self.socket_ports.get_mut(to)?.host_listeners.as_mut()?.next_port();
            let key = ConnKey { port: to, peer_cid: CID_HOST, local_port: port, peer_port: own };
            if self.table.find(key).is_none() {
                return Some(own);
            }
        }
        log::debug!(cid = cid, port = port; "no source port is free for a host process: its connection is closed");
        None
    }

    /// Returns whether a port or the shard has reached its limit of connections with processes.
    pub(crate) fn host_full(&self, socket_port: &SocketPort) -> bool {
        socket_port.host_connections >= HOST_CONNECTIONS_PER_PORT_MAX
            || self.tokens.count() > HOST_CONNECTIONS_MAX
    }

    /// Opens a connection of the guest at `from` to the process that listens for port number
    /// `port`.
    pub(crate) fn connect_to_host(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        caller: Side,
        port: u32,
        kind: Type,
    ) -> Result<(), Refusal> {
        let socket_port = self.socket_ports.get(from).ok_or(Refusal::Unknown)?;
        let host_listeners = socket_port.host_listeners.as_ref().ok_or(Refusal::Unknown)?;
        if self.host_full(socket_port) {
            return Err(Refusal::Limit);
        }
        cx.slice.charge(CONNECT_CALLS.saturating_mul(cost::CALL_NS));
        let mut path = OsString::from(&host_listeners.path);
        path.push(format!("_{port}"));
        let path = Path::new(&path);
        // The most frequent refusal costs one system call, and no socket.
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
        let callee = self.host_side(cx, stream, (None, port), kind).ok_or(Refusal::Limit)?;
        let token = host_token(&callee);
        let mut conn = Conn::new(kind, caller, callee);
        (conn.phase, conn.opened_ns) = (Phase::Open, cx.now_ns);
        conn.side_mut(Role::Caller).signals |= Signals::RESPONSE;
        match self.add_connection(conn) {
            Ok(id) => {
                self.tokens.set(token, HostToken::Conn(id));
                self.wake_guest(cx, id);
                Ok(())
            }
            Err(refusal) => {
                self.tokens.release(token);
                Err(refusal)
            }
        }
    }

    /// Makes the side of a process, with the CID of `owner`, or CID 2: watches its socket, and sets the
    /// credit that is advertised to the guest. `None`: the host has no descriptor.
    fn host_side(
        &mut self,
        cx: &mut Context<'_>,
        stream: HostStream,
        (owner, port): (Option<PortId>, u32),
        kind: Type,
    ) -> Option<Side> {
        let cid = match owner {
            Some(owner) => self.socket_ports.get(owner)?.cid,
            None => CID_HOST,
        };
        let token = self.tokens.reserve();
        let Ok(watch) = cx.watch(std::os::fd::AsFd::as_fd(&stream), token) else {
            self.tokens.release(token);
            return None;
        };
        let end = HostEnd {
            stream,
            _watch: watch,
            token,
            owner,
            kind,
            out: VecDeque::new(),
            partial: Vec::new(),
            consumed: 0,
            advertised: 0,
            readable: false,
            is_unread: false,
            is_unsent: false,
            read_done: false,
            must_finish: false,
            has_finished: false,
            must_close: false,
        };
        let mut side = Side::new(Party::Host(Box::new(end)), cid, port);
        side.credit.advertise(buffer_of(kind), 0).ok()?;
        Some(side)
    }

    /// Sends a guest's data to a process from the guest's descriptors, and copies the rest to
    /// [`HostEnd::out`]. A process that fails ends the connection.
    pub(crate) fn data_to_host(
        &mut self,
        cx: &mut Context<'_>,
        from: PortId,
        chain: &Chain,
        len: u32,
        id: ConnId,
        role: Role,
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
        self.update_guest_credit(cx, id, role);
    }

    /// Counts bytes that the process has taken; sends the guest a credit update if it is worth a
    /// packet.
    pub(crate) fn update_guest_credit(&mut self, cx: &mut Context<'_>, id: ConnId, guest: Role) {
        let Some((role, end)) = self.host_end(id) else { return };
        let (consumed, buffer) = (end.consumed, buffer_of(end.kind));
        let news = consumed.wrapping_sub(end.advertised) >= buffer / 4;
        if news {
            end.advertised = consumed;
        }
        let Some(conn) = self.table.get_mut(id) else { return };
        let credit = &mut conn.side_mut(role).credit;
        let (_, before) = credit.advertised();
        credit.deliver(consumed.wrapping_sub(before));
        // Never fails: as many bytes were delivered as are declared consumed.
        let _ = credit.advertise(buffer, consumed);
        if news {
            conn.side_mut(guest).signals |= Signals::CREDIT_UPDATE;
            self.schedule_side(cx, id, guest);
        }
    }

    /// Sends the process the data that waits for it, as far as it has room.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let Some((role, end)) = self.host_end(id) else { return };
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
            // Few connections need the buffer often, and many would keep its memory.
            end.out = VecDeque::new();
        }
        if drained && end.must_finish && !std::mem::replace(&mut end.has_finished, true) {
            end.stream.finish();
        }
        if drained && end.must_close {
            return self.end(cx, id, true);
        }
        self.update_guest_credit(cx, id, role.other());
    }

    /// Passes the guest's signals to the process at side `role`.
    pub(crate) fn signal_host(&mut self, cx: &mut Context<'_>, id: ConnId, role: Role) {
        let Some(conn) = self.table.get_mut(id) else { return };
        let shut = conn.side(role.other()).shut;
        let side = conn.side_mut(role);
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
            end.must_finish |= shut & SHUTDOWN_SEND != 0;
            end.read_done |= shut & SHUTDOWN_RECEIVE != 0;
            end.must_close |= shut & SHUTDOWN_BOTH == SHUTDOWN_BOTH;
            return self.flush(cx, id);
        }
        if signals.contains(Signals::CREDIT_REQUEST) {
            conn.side_mut(role.other()).signals |= Signals::CREDIT_UPDATE;
        }
        self.schedule_side(cx, id, role.other());
    }

    /// Resumes reading from a process that waits for the guest's credit.
    pub(crate) fn resume_reading(&mut self, cx: &mut Context<'_>, id: ConnId, guest: Role) {
        if self.host_end(id).is_some_and(|(_, end)| end.readable && !end.read_done) {
            self.schedule_side(cx, id, guest);
        }
    }

    /// Moves data of a process into the buffers of the guest at side `role`, at most `buffers`.
    /// `None`: the other side is no process; `Some(true)`: data is left, but no buffer;
    /// `Some(false)`: no data now, or no credit.
    pub(crate) fn receive_from_host(
        &mut self,
        cx: &mut Context<'_>,
        to: PortId,
        id: ConnId,
        role: Role,
        buffers: &mut usize,
    ) -> Result<Option<bool>, CopyFault> {
        loop {
            let Some(conn) = self.table.get(id).filter(|c| c.phase == Phase::Open) else {
                return Ok(None);
            };
            let Party::Host(end) = &conn.side(role.other()).party else { return Ok(None) };
            if end.kind == Type::Seqpacket {
                return self.receive_messages_from_host(cx, to, id, role, buffers);
            }
            let free = conn.side(role).credit.free();
            if !end.readable || end.read_done || free == 0 {
                return Ok(Some(false));
            }
            cx.charge(cost::CALL_NS);
            if cx.is_over() {
                *buffers = 0;
            }
            let Some((port, socket_port)) = self.socket_ports.with_port(cx, to) else {
                return Ok(None);
            };
            close_buffer(&mut self.table, port, socket_port, 0)?;
            if *buffers == 0 || !pop_buffer(port, socket_port)? {
                return Ok(Some(true));
            }
            *buffers = buffers.saturating_sub(1);
            let Some((map, ring)) = port.queue(RX) else { return Ok(None) };
            let chain = &socket_port.filling.chain;
            let mut room = Cursor::at(chain.writable(), HEADER_LEN as u64);
            let limit = u64::from(free).min(room.remaining());
            let Some((_, end)) = self.table.get(id).and_then(host_end_of) else { return Ok(None) };
            let got = match end.stream.receive(map, &mut room, limit) {
                Ok(Some(got)) if got > 0 => u32::try_from(got).unwrap_or(0),
                outcome => {
                    ring.put_back(chain.head());
                    return self.process_idle(cx, id, role, outcome.map(|got| got.is_some()));
                }
            };
            let Some(conn) = self.table.get_mut(id) else { return Ok(None) };
            let side = conn.side_mut(role);
            // Never fails: `free` bounds the received bytes.
            let _ = side.credit.accept(got);
            side.credit.deliver(got);
            side.unread.add(got);
            side.signals.remove(Signals::CREDIT_UPDATE);
            let header = conn.header(role, Op::Data, got, 0);
            let shown = socket_port.guest_cid.translate(header).emit();
            chain.writer().write(map, &shown).map_err(RxFault::Memory)?;
            if !socket_port.captures.is_empty() {
                let data = (map, capture::data_of(chain.writable()));
                socket_port.captures.add(Direction::Out, &header, data, got);
            }
            ring.push(chain.head(), got.saturating_add(HEADER_LEN as u32))
                .map_err(RxFault::Ring)?;
            socket_port.count_data(got);
            cx.charge(cost::bytes(got as usize));
        }
    }

    /// Handles a process without data. `ended`: `Ok(false)`: no data now; `Ok(true)`: the end of
    /// its stream; an error: its socket failed, or, for `FAULT`, the guest's buffer is not granted.
    pub(crate) fn process_idle(
        &mut self,
        cx: &mut Context<'_>,
        id: ConnId,
        guest: Role,
        ended: Result<bool, rustix::io::Errno>,
    ) -> Result<Option<bool>, CopyFault> {
        let Some((role, end)) = self.host_end(id) else { return Ok(None) };
        end.readable = false;
        match ended {
            Ok(false) => {}
            Ok(true) => {
                end.read_done = true;
                if let Some(conn) = self.table.get_mut(id) {
                    conn.side_mut(role).shut |= SHUTDOWN_SEND;
                    conn.side_mut(guest).signals |= Signals::SHUTDOWN;
                }
                self.start_linger(cx.now_ns, id);
            }
            Err(rustix::io::Errno::FAULT) => {
                let gap = causeway_memory::OutOfGrant { addr: 0, len: 0 };
                return Err(CopyFault::Receiver(RxFault::Memory(gap)));
            }
            Err(_) => self.end(cx, id, true),
        }
        Ok(Some(false))
    }

    /// Keeps a connection that the guest ended after it had shut down sending, if data still waits
    /// for the process: until the process has taken it, 5 min at most. Returns whether it is kept;
    /// if not, waiting data is dropped.
    pub(crate) fn begin_drain(&mut self, now_ns: u64, id: ConnId, guest: Role) -> bool {
        let Some((_, end)) = self.host_end(id) else { return false };
        if end.out.is_empty() || !end.must_finish {
            return false;
        }
        end.must_close = true;
        end.read_done = true;
        let Some(conn) = self.table.get_mut(id) else { return false };
        conn.side_mut(guest).is_gone = true;
        if conn.expires_ns.is_none() {
            self.expire_for(now_ns, id, Expiry::Drain);
        }
        true
    }

    /// Returns whether a process has data left to take.
    pub(crate) fn has_undelivered_output(&mut self, id: ConnId) -> bool {
        self.host_end(id).is_some_and(|(_, end)| !end.out.is_empty())
    }

    /// Drops the process of a connection that ended: its socket closes.
    pub(crate) fn drop_host(&mut self, mut conn: Conn) {
        let is_requested = conn.phase == Phase::Requested;
        let number = conn.side(Role::Callee).port;
        let is_remote = matches!(conn.side(Role::Callee).party, Party::Remote(_));
        if let Party::Host(end) = &mut conn.side_mut(Role::Caller).party
            && is_requested
        {
            let mut reason = format!(
                "no program listens at port {number} of the guest, or the guest did not answer"
            );
            if is_remote {
                reason.push_str(", or a rule of its host rejects the connection");
            }
            refuse(&mut end.stream, &reason);
        }
        for role in [Role::Caller, Role::Callee] {
            if let Party::Host(end) = &conn.side(role).party {
                self.tokens.remove(end.token);
            }
        }
    }

    /// Returns the first deadline of a handshake, which may have ended.
    pub(crate) fn handshake_deadline_ns(&self) -> Option<u64> {
        self.tokens.handshake_deadline_ns()
    }

    /// Closes the streams of processes with an expired handshake, without a line, and counts them.
    pub(crate) fn expire_handshakes(&mut self, now_ns: u64) {
        while let Some(token) = self.tokens.take_expired_handshake(now_ns) {
            if let Some(handshake) = self.end_handshake(token) {
                self.count_refused_handshake(handshake.port);
            }
        }
    }
}

/// Returns the process's end of a connection, and its side.
pub(crate) fn host_end_of(conn: &Conn) -> Option<(Role, &HostEnd)> {
    [Role::Caller, Role::Callee].into_iter().find_map(|role| match &conn.side(role).party {
        Party::Host(end) => Some((role, &**end)),
        Party::Guest(_) | Party::Remote(_) => None,
    })
}

/// Sends a process the reason of a refusal; the caller closes the stream. A process without room
/// reads the end of the stream only.
pub(crate) fn refuse(stream: &mut HostStream, reason: &str) {
    let _ = stream.send_bytes(format!("ERR {reason}\n").as_bytes());
}

/// Returns the token of the process at a side.
fn host_token(side: &Side) -> u32 {
    match &side.party {
        Party::Host(end) => end.token,
        Party::Guest(_) | Party::Remote(_) => u32::MAX,
    }
}
