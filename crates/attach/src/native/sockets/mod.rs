//! Connections over a native vsock port: a small socket layer for processes, tests and benchmarks
//! without a kernel driver.
//!
//! [`Sockets`] implements stream and seqpacket sockets with credit (virtio 1.3, 5.10) on top of
//! [`super::VsockPort`]. It has no thread and no file descriptor of its own: packets are received,
//! answered and acknowledged only during calls, so an application that makes no call stops its
//! peers. Not thread-safe.
//!
//! There are at most [`NATIVE_CONNECTIONS_MAX`] (4,096) connections, each with a receive buffer of
//! [`NATIVE_BUFFER_BYTES`](crate::limits::NATIVE_BUFFER_BYTES) (256 KiB); further requests are
//! answered with a reset. Connections that the peer or a reset of the transport has ended, and
//! those that wait for [`Sockets::accept`], count until [`Sockets::close`]. Data is not
//! retransmitted and not buffered for sending. Control packets that find the ring full wait for a
//! later call, at most 16,384; further ones are dropped without a report: a connect then times out,
//! and a peer that misses a response, a shutdown or a credit update waits for it.
//!
//! If the daemon reports a reset of the transport, as after its restart, all connections that had
//! not ended before end with [`SocketError::Reset`]; listeners stay. A seqpacket connection is read
//! by [`Sockets::receive_message`]: the other calls return bytes without the ends of messages, and
//! a message of which they took a part is shorter afterwards.

mod connection;

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use causeway_wire::vsock::{
    EVENT_TRANSPORT_RESET, Header, Op, SEQ_EOM, SHUTDOWN_BOTH, SHUTDOWN_SEND, Type,
};
use connection::{ConnectionState, NativeConnection};

use super::error::NativeError;
use super::vsock::VsockPort;
use crate::limits::NATIVE_CONNECTIONS_MAX;

/// Number below the first local port number of `connect`.
const EPHEMERAL: u32 = 1 << 20;

/// Identifies a connection by its two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// Stream or seqpacket.
    pub kind: Type,
    /// The local port number.
    pub local: u32,
    /// The peer's CID.
    pub cid: u64,
    /// The peer's port number.
    pub port: u32,
}

/// The reason why a call on a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The peer refused or aborted the connection, or broke a rule, or the device was reset.
    #[error("connection reset by the peer")]
    Reset,
    /// The peer sends no more data, or accepts none, or the connection does not exist.
    #[error("the connection is closed in that direction")]
    Closed,
    /// The time-out expired.
    #[error("timed out")]
    TimedOut,
    /// [`NATIVE_CONNECTIONS_MAX`] (4,096) connections exist already.
    #[error("more than {NATIVE_CONNECTIONS_MAX} connections")]
    Many,
    /// The port itself failed.
    #[error(transparent)]
    Port(#[from] NativeError),
}

/// Connections over one vsock port. Not thread-safe; packets are handled only during calls.
#[derive(Debug)]
pub struct Sockets {
    /// The port that carries the packets.
    port: VsockPort,
    /// All connections, those that the peer has ended included until [`Self::close`].
    connections: HashMap<ConnectionId, NativeConnection>,
    /// Type and local port number of each listener.
    listening: HashSet<(Type, u32)>,
    /// New connections to listeners, for [`Self::accept`].
    accepted: VecDeque<ConnectionId>,
    /// Control packets that wait for room in the ring.
    pending_control: VecDeque<Header>,
    /// Last local port number that `connect` chose.
    ephemeral: u32,
    /// Buffer for one received packet.
    scratch: Vec<u8>,
}

/// Returns the time left of `timeout` since `since`, or an error if it has expired.
fn left(since: Instant, timeout: Duration) -> Result<Duration, SocketError> {
    let left = timeout.checked_sub(since.elapsed());
    left.filter(|left| !left.is_zero()).ok_or(SocketError::TimedOut)
}

impl Sockets {
    /// Returns a socket layer over `port`.
    pub fn new(port: VsockPort) -> Self {
        Self {
            port,
            connections: HashMap::new(),
            listening: HashSet::new(),
            accepted: VecDeque::new(),
            pending_control: VecDeque::new(),
            ephemeral: EPHEMERAL,
            scratch: Vec::new(),
        }
    }

    /// Returns the port below.
    pub fn port(&mut self) -> &mut VsockPort {
        &mut self.port
    }

    /// Returns the local CID.
    pub fn cid(&self) -> u64 {
        self.port.cid()
    }

    /// Accepts connections to `port` from now on. No effect if the port listens already; listening
    /// cannot be ended.
    pub fn listen(&mut self, kind: Type, port: u32) {
        self.listening.insert((kind, port));
    }

    /// Waits for a connection to any listening port.
    ///
    /// # Errors
    /// Returns [`SocketError::TimedOut`] after `timeout`, or the error of the port.
    pub fn accept(&mut self, timeout: Duration) -> Result<ConnectionId, SocketError> {
        let since = Instant::now();
        loop {
            self.turn()?;
            if let Some(id) = self.accepted.pop_front() {
                return Ok(id);
            }
            self.wait_port(false, left(since, timeout)?)?;
        }
    }

    /// Connects to `port` at `cid`, and waits for the response.
    ///
    /// # Errors
    /// Returns [`SocketError::Reset`] if the peer refuses, [`SocketError::TimedOut`] after
    /// `timeout`, [`SocketError::Many`], or the error of the port. No connection is left then,
    /// except after an error of the port. Local port numbers ascend from 2^20 + 1 and begin again
    /// after 2^32 - 1; an old connection that has the same two ends by then is replaced.
    pub fn connect(
        &mut self,
        kind: Type,
        cid: u64,
        port: u32,
        timeout: Duration,
    ) -> Result<ConnectionId, SocketError> {
        let since = Instant::now();
        self.ephemeral = self.ephemeral.checked_add(1).unwrap_or(EPHEMERAL);
        let id = ConnectionId { kind, local: self.ephemeral, cid, port };
        self.insert(id, ConnectionState::Connecting)?;
        self.control(id, Op::Request, 0)?;
        loop {
            self.turn()?;
            match self.connections.get(&id).map(|c| c.state) {
                Some(ConnectionState::Open) => return Ok(id),
                Some(ConnectionState::Connecting) => {}
                _ => {
                    self.connections.remove(&id);
                    return Err(SocketError::Reset);
                }
            }
            let waited = left(since, timeout);
            if waited.is_err() {
                self.close(id)?;
            }
            self.wait_port(false, waited?)?;
        }
    }

    /// Adds a connection, if there are fewer than [`NATIVE_CONNECTIONS_MAX`] (4,096).
    fn insert(&mut self, id: ConnectionId, state: ConnectionState) -> Result<(), SocketError> {
        if self.connections.len() >= NATIVE_CONNECTIONS_MAX {
            return Err(SocketError::Many);
        }
        self.connections.insert(id, NativeConnection::new(state));
        Ok(())
    }

    /// Returns a connection, or [`SocketError::Closed`] if it does not exist (any more).
    fn connection(&mut self, id: ConnectionId) -> Result<&mut NativeConnection, SocketError> {
        self.connections.get_mut(&id).ok_or(SocketError::Closed)
    }

    /// Sends as many bytes as credit and ring allow now; returns their number. A seqpacket message
    /// ends with the last byte of `data`.
    ///
    /// # Errors
    /// Returns an error if the connection is closed for sending, or if the port fails.
    pub fn try_send(&mut self, id: ConnectionId, data: &[u8]) -> Result<usize, SocketError> {
        self.turn()?;
        let largest = self.port.data_bytes_max();
        let mut sent = 0;
        while let Some(rest) = data.get(sent..).filter(|rest| !rest.is_empty()) {
            let connection = self.connection(id)?;
            connection.may_send()?;
            let now = rest.len().min(largest).min(connection.credit());
            if now == 0 {
                if connection.wants_credit() {
                    self.control(id, Op::CreditRequest, 0)?;
                }
                break;
            }
            let part = rest.get(..now).unwrap_or_default();
            let last = now == rest.len() && id.kind == Type::Seqpacket;
            let flags = if last { SEQ_EOM } else { 0 };
            let header = self.header(id, Op::Data, flags, part.len())?;
            if !self.port.queue(&header, part)? {
                break;
            }
            self.connection(id)?.count_sent(part.len());
            sent = sent.saturating_add(now);
        }
        self.port.flush()?;
        Ok(sent)
    }

    /// Sends all of `data`, waiting for credit and room.
    ///
    /// # Errors
    /// As [`Self::try_send`], and [`SocketError::TimedOut`] after `timeout`; a part of `data` may
    /// have been sent then, and its length is not reported.
    pub fn send(
        &mut self,
        id: ConnectionId,
        data: &[u8],
        timeout: Duration,
    ) -> Result<(), SocketError> {
        let since = Instant::now();
        let mut rest = data;
        loop {
            let sent = self.try_send(id, rest)?;
            rest = rest.get(sent..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(());
            }
            let credit = self.connection(id)?.credit() > 0;
            self.wait_port(credit, left(since, timeout)?)?;
        }
    }

    /// Reads received bytes into `into`; returns their number, 0 if there are none now.
    ///
    /// # Errors
    /// Returns [`SocketError::Closed`] after the last byte of the peer or if the connection does
    /// not exist, [`SocketError::Reset`] after the last byte of an aborted connection, or the error
    /// of the port.
    pub fn try_receive(&mut self, id: ConnectionId, into: &mut [u8]) -> Result<usize, SocketError> {
        self.turn()?;
        let connection = self.connection(id)?;
        let taken = connection.take(into);
        if taken == 0 && !into.is_empty() {
            connection.may_receive()?;
        }
        self.update_credit(id)?;
        Ok(taken)
    }

    /// Fills `into`, waiting for bytes.
    ///
    /// # Errors
    /// As [`Self::try_receive`], and [`SocketError::TimedOut`] after `timeout`; bytes that were
    /// moved into `into` before are no longer in the connection.
    pub fn receive(
        &mut self,
        id: ConnectionId,
        into: &mut [u8],
        timeout: Duration,
    ) -> Result<(), SocketError> {
        let since = Instant::now();
        let mut rest = into;
        while !rest.is_empty() {
            let taken = self.try_receive(id, rest)?;
            rest = rest.get_mut(taken..).unwrap_or_default();
            if taken == 0 {
                self.wait_port(false, left(since, timeout)?)?;
            }
        }
        Ok(())
    }

    /// Returns the next whole seqpacket message, waiting for it. A message longer than
    /// [`NATIVE_BUFFER_BYTES`](crate::limits::NATIVE_BUFFER_BYTES) (256 KiB) never arrives.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub fn receive_message(
        &mut self,
        id: ConnectionId,
        timeout: Duration,
    ) -> Result<Vec<u8>, SocketError> {
        let since = Instant::now();
        loop {
            self.turn()?;
            let connection = self.connection(id)?;
            if let Some(message) = connection.take_message() {
                self.update_credit(id)?;
                return Ok(message);
            }
            connection.may_receive()?;
            self.wait_port(false, left(since, timeout)?)?;
        }
    }

    /// Announces that this end sends no more data. A second call announces it again.
    ///
    /// # Errors
    /// Returns an error if the connection does not exist, or if the port fails.
    pub fn shutdown_send(&mut self, id: ConnectionId) -> Result<(), SocketError> {
        self.connection(id)?.own_shutdown |= SHUTDOWN_SEND;
        self.control(id, Op::Shutdown, SHUTDOWN_SEND)
    }

    /// Closes the connection. Received bytes that were not read are lost, and the peer is informed
    /// by a shutdown of both directions, or by a reset if the connection is not open or does not
    /// exist: a second call only sends a reset.
    ///
    /// # Errors
    /// Returns an error if the port fails.
    pub fn close(&mut self, id: ConnectionId) -> Result<(), SocketError> {
        let open = self.connection(id).is_ok_and(|c| c.state == ConnectionState::Open);
        let (op, flags) = if open { (Op::Shutdown, SHUTDOWN_BOTH) } else { (Op::Reset, 0) };
        self.control(id, op, flags)?;
        self.connections.remove(&id);
        Ok(())
    }

    /// Waits for a packet or an event. Returns `false` after `timeout`.
    ///
    /// # Errors
    /// Returns an error if the port fails.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, SocketError> {
        self.wait_port(false, timeout)
    }

    /// Waits; also for room to send, if `room` is set or control packets wait.
    fn wait_port(&mut self, room: bool, timeout: Duration) -> Result<bool, SocketError> {
        Ok(self.port.wait(room || !self.pending_control.is_empty(), Some(timeout))?)
    }

    /// Handles all received packets without waiting; returns their number. Packets behind one with
    /// an invalid header wait for the next call.
    ///
    /// # Errors
    /// Returns an error if the port fails.
    pub fn turn(&mut self) -> Result<usize, SocketError> {
        // Events first: packets behind a transport reset belong to new connections.
        while let Some(event) = self.port.receive_event()? {
            if event == EVENT_TRANSPORT_RESET {
                self.reset_all()?;
            }
        }
        let mut data = std::mem::take(&mut self.scratch);
        let mut packets = 0_usize;
        while let Some(header) = self.port.receive(&mut data)? {
            packets = packets.saturating_add(1);
            self.handle_packet(&header, &data)?;
        }
        self.scratch = data;
        while let Some(header) = self.pending_control.pop_front() {
            if !self.port.queue(&header, &[])? {
                self.pending_control.push_front(header);
                break;
            }
        }
        self.port.flush()?;
        Ok(packets)
    }

    /// Resets all connections after the device was replaced. The peer of a connection that began
    /// since is informed.
    fn reset_all(&mut self) -> Result<(), SocketError> {
        self.pending_control.clear();
        let lost = self.connections.iter_mut().filter_map(|(id, c)| c.lose().then_some(*id));
        for id in lost.collect::<Vec<_>>() {
            self.control(id, Op::Reset, 0)?;
        }
        Ok(())
    }

    /// Passes a packet to its connection or listener, and sends the reply. A packet without either
    /// is answered with a reset.
    fn handle_packet(&mut self, header: &Header, data: &[u8]) -> Result<(), SocketError> {
        let (Some(kind), Some(op)) = (header.socket_type(), header.operation()) else {
            return Ok(());
        };
        let (local, cid, port) = (header.dst_port, header.src_cid, header.src_port);
        let id = ConnectionId { kind, local, cid, port };
        if let Some(connection) = self.connections.get_mut(&id) {
            let answer = connection.handle_packet(header, op, data);
            return match answer {
                Some((op, flags)) => self.control(id, op, flags),
                None => Ok(()),
            };
        }
        let wanted = op == Op::Request && self.listening.contains(&(kind, local));
        if wanted && self.insert(id, ConnectionState::Open).is_ok() {
            self.connection(id)?.learn(header);
            self.accepted.push_back(id);
            return self.control(id, Op::Response, 0);
        }
        if op == Op::Reset { Ok(()) } else { self.control(id, Op::Reset, 0) }
    }

    /// Sends a credit update when half of the buffer is free without the peer's knowledge.
    fn update_credit(&mut self, id: ConnectionId) -> Result<(), SocketError> {
        if self.connection(id)?.owes_credit() {
            self.control(id, Op::CreditUpdate, 0)?;
        }
        Ok(())
    }

    /// Returns the header of a packet with the credit of this end.
    fn header(
        &mut self,
        id: ConnectionId,
        op: Op,
        flags: u32,
        len: usize,
    ) -> Result<Header, SocketError> {
        let (buf_alloc, fwd_cnt) =
            self.connections.get_mut(&id).map_or((0, 0), NativeConnection::announce);
        Ok(Header {
            src_cid: self.port.cid(),
            dst_cid: id.cid,
            src_port: id.local,
            dst_port: id.port,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            kind: id.kind.raw(),
            op: op.raw(),
            flags,
            buf_alloc,
            fwd_cnt,
        })
    }

    /// Sends a packet without data, now or when there is room.
    fn control(&mut self, id: ConnectionId, op: Op, flags: u32) -> Result<(), SocketError> {
        let header = self.header(id, op, flags, 0)?;
        if !self.pending_control.is_empty() || !self.port.queue(&header, &[])? {
            // Bounded, because a connection has only a few control packets in flight.
            if self.pending_control.len() < NATIVE_CONNECTIONS_MAX.saturating_mul(4) {
                self.pending_control.push_back(header);
            }
        }
        Ok(self.port.flush()?)
    }
}
