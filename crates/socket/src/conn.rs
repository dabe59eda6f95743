//! A connection: a state machine over packet headers, free of I/O.
//!
//! `crate::transmit` passes the header of each packet of a guest to [`Conn::process`]; packets of
//! one side become [`Signals`] and data for the other side, which `crate::deliver` sends, or
//! `crate::host` if that side is a process. The connections of a shard are in [`crate::table`].
//!
//! Signals are flags and not queued packets, so a guest that repeats itself cannot grow a queue. A
//! packet in the wrong phase, with an unknown operation, beyond the credit or after a shutdown is a
//! [`Breach`]; but a request on an open connection is a [`PacketEffect::Reconnect`], a repeated
//! request is passed on again, and a packet that is recognized as late has no effect. The module
//! checks phases and credit; it neither copies data (except [`PendingData::copy_aside`]) nor finds
//! connections, and it has no clock and belongs to the thread of the shard: the service sets and
//! checks [`Conn::expires_ns`], and an answer clears it. A breach does not end the connection by
//! itself; the caller resets
//! it. Waiting data is bounded by the receiver's credit and by `crate::stall`. Both sides may be
//! guests, or one a process, or at a peer; two processes cannot be connected. A late reset of an earlier
//! connection with the same addresses is not recognized.

use std::collections::VecDeque;

use causeway_fabric::PortId;
use causeway_memory::{Cursor, Map, OutOfGrant};
use causeway_ring::Chain;
use causeway_wire::vsock::{Header, Op, SHUTDOWN_BOTH, SHUTDOWN_RECEIVE, SHUTDOWN_SEND, Type};

use crate::credit::{Credit, CreditError};
use crate::host::HostEnd;
use crate::ledger::OpenConnection;
use crate::limits::REMOTE_BUFFER_BYTES;
use crate::pack::Pack;
use crate::remote::RemoteEnd;
use crate::unread::Unread;

/// The side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The side that sent the request.
    Caller,
    /// The side that received the request.
    Callee,
}

impl Role {
    /// Returns the other side.
    pub fn other(self) -> Self {
        match self {
            Self::Caller => Self::Callee,
            Self::Callee => Self::Caller,
        }
    }
}

bitflags::bitflags! {
    /// Control packets that a side shall receive, besides data.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Signals: u8 {
        /// The other side connects.
        const REQUEST = 1;
        /// The other side accepted.
        const RESPONSE = 2;
        /// The credit of the other side changed.
        const CREDIT_UPDATE = 4;
        /// The other side requests this side's credit.
        const CREDIT_REQUEST = 8;
        /// The other side shut down directions; sent after the data that precedes it.
        const SHUTDOWN = 16;
        /// The connection is reset.
        const RESET = 32;
    }
}

/// Data that waits for room at its receiver.
#[derive(Debug)]
pub enum PendingData {
    /// Data in the sender's descriptors.
    Held {
        /// Sender.
        from: PortId,
        /// The sender's chain, not yet used.
        chain: Chain,
        /// Position of the next byte in the chain: the header and the delivered bytes.
        at: u64,
        /// Bytes that are not delivered.
        left: u32,
        /// SEQPACKET flags of the packet: end of message, end of record.
        flags: u32,
    },
    /// Data in a copy, charged to the quota of its sender.
    Staged(Pack),
}

impl PendingData {
    /// Returns whether the data is in descriptors of `port`.
    pub fn is_held_by(&self, port: PortId) -> bool {
        matches!(self, Self::Held { from, .. } if *from == port)
    }

    /// Copies the data out of its sender's descriptors, which lie in `map`.
    ///
    /// # Errors
    /// The descriptors are not granted.
    pub fn copy_aside(&mut self, map: &Map) -> Result<(), OutOfGrant> {
        if let Self::Held { from, chain, at, left, flags } = self {
            let mut pack = Pack::new(*from);
            let cursor = Cursor::at(chain.readable(), *at);
            pack.append(map, cursor, *left as usize, *flags)?;
            *self = Self::Staged(pack);
        }
        Ok(())
    }

    /// Returns the number of undelivered bytes.
    pub fn left(&self) -> usize {
        match self {
            Self::Held { left, .. } => *left as usize,
            Self::Staged(pack) => pack.left(),
        }
    }

    /// Returns the share of its sender's staging quota, in bytes.
    pub fn staged_cost(&self) -> usize {
        match self {
            Self::Held { .. } => 0,
            Self::Staged(pack) => pack.cost(),
        }
    }

    /// Returns the sender.
    pub fn from(&self) -> PortId {
        match self {
            Self::Held { from, .. } => *from,
            Self::Staged(pack) => pack.from,
        }
    }
}

/// The owner of a side.
#[derive(Debug)]
pub enum Party {
    /// A guest, by its port.
    Guest(PortId),
    /// A host process.
    Host(Box<HostEnd>),
    /// A guest of a peer.
    Remote(RemoteEnd),
}

/// State of a side. In the descriptions of fields, "it" is the guest or process at this side; "data
/// for it" comes from the other side.
#[derive(Debug)]
pub struct Side {
    /// Owner.
    pub party: Party,
    /// CID of the side.
    pub cid: u32,
    /// Port number of the side.
    pub port: u32,
    /// Credit that the side advertised, and bytes sent to it.
    pub credit: Credit,
    /// Packets that the side received and has not consumed, as far as its credit shows.
    pub unread: Unread,
    /// Packets that its credit declared as consumed and that are not yet added to its port's
    /// progress.
    pub returned: u32,
    /// The side was sent a credit request after its last packet.
    pub credit_requested: bool,
    /// The request of this connection was delivered to it.
    pub is_request_delivered: bool,
    /// Data for it is held back until it has consumed packets; see [`Unread`].
    pub is_held_back: bool,
    /// The other side is at a peer, which is advertised at most [`REMOTE_BUFFER_BYTES`] of its buffer.
    pub is_capped: bool,
    /// It is in a list of scheduled credit requests.
    pub has_scheduled_request: bool,
    /// Credit requests since it last consumed packets.
    pub credit_requests: u8,
    /// Control packets that it shall receive.
    pub signals: Signals,
    /// Data for it.
    pub pending: VecDeque<PendingData>,
    /// It is in its port's list of connections with deliveries.
    pub is_queued: bool,
    /// `SHUTDOWN_*` flags that it has sent.
    pub shut: u32,
    /// The side has ended the connection, which stays only until data of the side has reached the
    /// process at the other side.
    pub is_gone: bool,
}

impl Side {
    /// Makes a side that has sent nothing yet.
    pub fn new(party: Party, cid: u32, port: u32) -> Self {
        Self {
            party,
            cid,
            port,
            credit: Credit::default(),
            unread: Unread::default(),
            returned: 0,
            credit_requested: false,
            is_request_delivered: false,
            is_held_back: false,
            is_capped: false,
            has_scheduled_request: false,
            credit_requests: 0,
            signals: Signals::empty(),
            pending: VecDeque::new(),
            is_queued: false,
            shut: 0,
            is_gone: false,
        }
    }

    /// Returns the number of packets that the side accepts before it must consume earlier packets.
    #[inline]
    pub fn room_packets(&self) -> usize {
        if self.shut & SHUTDOWN_RECEIVE != 0 {
            // It queues no more packets, and never declares any as consumed.
            return usize::MAX;
        }
        self.unread.room(self.credit.advertised().0)
    }

    /// Returns whether data is held back for it although it receives no more.
    pub fn is_freed(&self) -> bool {
        self.is_held_back && self.shut & SHUTDOWN_RECEIVE != 0
    }

    /// Returns whether the side must be asked for its credit, because it may send no update by itself
    /// before the other side has used its credit up: data is held back for it, or its buffer is larger
    /// than advertised and more than half of the advertised bytes are unread. Linux before 6.7 sends an
    /// update once all but 64 KiB of the true buffer were read.
    pub fn awaits_credit(&self) -> bool {
        let is_larger = self.is_capped && self.credit.advertised().0 > REMOTE_BUFFER_BYTES;
        let is_high = self.credit.unread() > REMOTE_BUFFER_BYTES / 2;
        self.is_held_back || (is_larger && is_high && self.shut & SHUTDOWN_RECEIVE == 0)
    }

    /// Schedules a credit request to this side if its unread packets use half of its room and no
    /// request is pending. Returns whether it did.
    #[inline]
    pub fn request_credit_early(&mut self) -> bool {
        let receives = self.shut & SHUTDOWN_RECEIVE == 0;
        let due =
            receives && !self.credit_requested && self.unread.is_high(self.credit.advertised().0);
        if due {
            self.credit_requested = true;
            self.signals |= Signals::CREDIT_REQUEST;
        }
        due
    }

    /// Returns the port whose CID the side has, or `None` if it is at a peer, or the host (CID 2).
    pub fn owner(&self) -> Option<PortId> {
        match &self.party {
            Party::Guest(id) => Some(*id),
            Party::Host(end) => end.owner,
            Party::Remote(_) => None,
        }
    }

    /// Returns the port of the side, or `None` if it is a process or at a peer.
    pub fn guest(&self) -> Option<PortId> {
        match self.party {
            Party::Guest(id) => Some(id),
            Party::Host(_) | Party::Remote(_) => None,
        }
    }
}

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The callee has not answered; data is a breach.
    Requested,
    /// Data may flow.
    Open,
}

/// The effect of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketEffect {
    /// Signals for the other side were set.
    Signals,
    /// The packet has data for the other side; its credit was checked and used. The caller delivers
    /// or queues the data.
    Data,
    /// No effect on the other side.
    Nothing,
    /// The side ended the connection by a reset.
    Ended,
    /// The side has lost the connection, and connects again from the same addresses: the caller
    /// ends this connection and opens another.
    Reconnect,
}

/// A violation that ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// A claim or use of credit that did not exist.
    #[error(transparent)]
    Credit(#[from] CreditError),
    /// The operation does not belong to the connection's phase.
    #[error("operation {op} in the wrong phase")]
    Phase {
        /// Raw operation.
        op: u16,
    },
    /// The operation is unknown.
    #[error("unknown operation {op}")]
    Unknown {
        /// Raw operation.
        op: u16,
    },
    /// Data after a shutdown of that direction.
    #[error("data after shutdown")]
    AfterShutdown,
}

/// A connection.
#[derive(Debug)]
pub struct Conn {
    /// Stream or messages.
    pub kind: Type,
    /// Phase.
    pub phase: Phase,
    /// Time at which the service resets the connection (`crate::expiry`): while the connect has no
    /// answer [`REQUEST_NS_MAX`](crate::limits::REQUEST_NS_MAX) after it, and others.
    pub expires_ns: Option<u64>,
    /// Time of the connect, on the fabric's clock; the service sets it.
    pub opened_ns: u64,
    /// A connection with the same addresses has ended before: its late packets may arrive.
    pub is_reused: bool,
    /// The side that sent the request.
    caller: Side,
    /// The side that received the request.
    callee: Side,
}

impl Conn {
    /// Makes the connection of a request from `caller` to `callee`.
    pub fn new(kind: Type, mut caller: Side, mut callee: Side) -> Self {
        caller.is_capped = matches!(callee.party, Party::Remote(_));
        callee.is_capped = matches!(caller.party, Party::Remote(_));
        Self {
            kind,
            phase: Phase::Requested,
            expires_ns: None,
            opened_ns: 0,
            is_reused: false,
            caller,
            callee,
        }
    }

    /// Returns side `role`.
    #[inline]
    pub fn side(&self, role: Role) -> &Side {
        match role {
            Role::Caller => &self.caller,
            Role::Callee => &self.callee,
        }
    }

    /// Returns the port of which the host socket carries the process of the connection: that of its CID, or
    /// the guest's. `None` without a process.
    pub fn process_port(&self) -> Option<PortId> {
        let port_of = |role: Role| match &self.side(role).party {
            Party::Host(end) => end.owner.or_else(|| self.side(role.other()).guest()),
            Party::Guest(_) | Party::Remote(_) => None,
        };
        port_of(Role::Caller).or_else(|| port_of(Role::Callee))
    }

    /// Returns the addresses and type of the connection as side `role` knows them.
    pub fn open_connection_of(&self, role: Role) -> OpenConnection {
        let (own, peer) = (self.side(role), self.side(role.other()));
        OpenConnection {
            peer_cid: peer.cid,
            local_port: own.port,
            peer_port: peer.port,
            kind: self.kind.raw(),
        }
    }

    /// Returns side `role`.
    #[inline]
    pub fn side_mut(&mut self, role: Role) -> &mut Side {
        match role {
            Role::Caller => &mut self.caller,
            Role::Callee => &mut self.callee,
        }
    }

    /// Processes the header of a packet from side `from`. Uses credit for data.
    ///
    /// # Errors
    /// The packet violates the protocol; the connection must be reset.
    pub fn process(&mut self, from: Role, header: &Header) -> Result<PacketEffect, Breach> {
        let op = header.op;
        let Some(operation) = header.operation() else { return Err(Breach::Unknown { op }) };
        if operation == Op::Reset {
            return Ok(PacketEffect::Ended);
        }
        if self.is_reused && self.is_late(from, operation, header) {
            return Ok(PacketEffect::Nothing);
        }
        let other_type = from == Role::Caller && header.kind != self.kind.raw();
        if operation == Op::Request && (self.phase == Phase::Open || other_type) {
            return Ok(PacketEffect::Reconnect);
        }
        let side = self.side_mut(from);
        side.credit.advertise(header.buf_alloc, header.fwd_cnt)?;
        side.credit_requested = false;
        side.returned = side.returned.saturating_add(side.unread.consume(header.fwd_cnt));
        let wrong_phase = Breach::Phase { op };
        match operation {
            Op::Response if from == Role::Callee && self.phase == Phase::Requested => {
                self.phase = Phase::Open;
                self.expires_ns = None;
                self.signal(from.other(), Signals::RESPONSE)
            }
            // A guest whose connect timed out sends nothing, and may connect again from the same
            // port. The callee may have ignored the first request: Linux does so while it has a
            // socket of an earlier connection.
            Op::Request if from == Role::Caller && self.phase == Phase::Requested => {
                self.signal(from.other(), Signals::REQUEST)
            }
            Op::Request | Op::Response => Err(wrong_phase),
            Op::Data => {
                if self.phase != Phase::Open {
                    return Err(wrong_phase);
                }
                if self.side(from).shut & SHUTDOWN_SEND != 0 {
                    return Err(Breach::AfterShutdown);
                }
                self.side_mut(from.other()).credit.accept(header.len)?;
                Ok(PacketEffect::Data)
            }
            Op::CreditUpdate => self.signal(from.other(), Signals::CREDIT_UPDATE),
            Op::CreditRequest => self.signal(from.other(), Signals::CREDIT_REQUEST),
            Op::Shutdown => {
                let side = self.side_mut(from);
                let shut = side.shut | (header.flags & SHUTDOWN_BOTH);
                if shut == side.shut {
                    return Ok(PacketEffect::Nothing);
                }
                side.shut = shut;
                self.signal(from.other(), Signals::SHUTDOWN)
            }
            Op::Reset => Ok(PacketEffect::Ended),
        }
    }

    /// Returns whether a packet was sent on an earlier connection with the same addresses. Linux
    /// sends credit updates for data that was read after the reset. A late reset cannot be
    /// recognized.
    fn is_late(&self, from: Role, operation: Op, header: &Header) -> bool {
        match operation {
            Op::Response | Op::Reset | Op::Request | Op::Data => false,
            _ if from == Role::Callee && self.phase == Phase::Requested => true,
            _ => !self.side(from).credit.is_possible(header.fwd_cnt),
        }
    }

    /// Returns whether both sides have shut down both directions.
    pub fn is_over(&self) -> bool {
        self.caller.shut == SHUTDOWN_BOTH && self.callee.shut == SHUTDOWN_BOTH
    }

    /// Sets signals for side `to`.
    fn signal(&mut self, to: Role, signals: Signals) -> Result<PacketEffect, Breach> {
        self.side_mut(to).signals |= signals;
        Ok(PacketEffect::Signals)
    }

    /// Returns the header of a packet to side `to` with the present credit of the other side. The
    /// addresses are the connection's, not the sender's.
    pub fn header(&self, to: Role, op: Op, len: u32, flags: u32) -> Header {
        let (source, destination) = (self.side(to.other()), self.side(to));
        let (buf_alloc, fwd_cnt) = source.credit.advertised();
        Header {
            src_cid: u64::from(source.cid),
            dst_cid: u64::from(destination.cid),
            src_port: source.port,
            dst_port: destination.port,
            len,
            kind: self.kind.raw(),
            op: op.raw(),
            flags,
            buf_alloc,
            fwd_cnt,
        }
    }
}
