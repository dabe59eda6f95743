//! One connection: a state machine over packet headers, free of I/O.
//!
//! Side 0 asked for the connection, side 1 was asked. What one side says
//! becomes [`Signals`] and data for the other. Signals are flags, not queued
//! packets: however often a guest repeats itself, what waits stays bounded.

use std::collections::VecDeque;

use causeway_fabric::PortId;
use causeway_memory::{Cursor, Map, OutOfGrant};
use causeway_ring::Chain;
use causeway_wire::vsock::{Header, Op, SHUTDOWN_BOTH, SHUTDOWN_RECEIVE, SHUTDOWN_SEND, Type};

use crate::credit::{Credit, CreditError};
use crate::host::HostEnd;
use crate::ledger::Open;
use crate::pack::Pack;
use crate::unread::Unread;

/// Which side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Asked for it.
    Caller,
    /// Was asked.
    Callee,
}

impl Which {
    /// The other side.
    pub fn other(self) -> Self {
        match self {
            Self::Caller => Self::Callee,
            Self::Callee => Self::Caller,
        }
    }
}

bitflags::bitflags! {
    /// What one side shall be told, beside data.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Signals: u8 {
        /// The other side connects.
        const REQUEST = 1;
        /// The other side accepted.
        const RESPONSE = 2;
        /// The other side's room has changed.
        const CREDIT_UPDATE = 4;
        /// The other side wants to know this side's room.
        const CREDIT_REQUEST = 8;
        /// The other side shut directions; told after the data that came before it.
        const SHUTDOWN = 16;
        /// It is over.
        const RESET = 32;
    }
}

/// Data that waits for room at its receiver.
#[derive(Debug)]
pub enum Pending {
    /// Still in the sender's descriptors.
    Held {
        /// The sender.
        from: PortId,
        /// Its chain, not yet used.
        chain: Chain,
        /// Bytes of the chain that are done with, header included.
        at: u64,
        /// Bytes left.
        left: u32,
        /// SEQPACKET flags for the last fragment.
        flags: u32,
    },
    /// Copied aside.
    Staged(Pack),
}

impl Pending {
    /// Whether it waits in descriptors of `port`.
    pub fn is_held_by(&self, port: PortId) -> bool {
        matches!(self, Self::Held { from, .. } if *from == port)
    }

    /// Takes it out of its sender's descriptors, by a copy out of `map`.
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

    /// Bytes that are not delivered.
    pub fn left(&self) -> usize {
        match self {
            Self::Held { left, .. } => *left as usize,
            Self::Staged(pack) => pack.left(),
        }
    }

    /// What it takes of its sender's quota for copies, in bytes.
    pub fn staged_cost(&self) -> usize {
        match self {
            Self::Held { .. } => 0,
            Self::Staged(pack) => pack.cost(),
        }
    }

    /// Its sender.
    pub fn from(&self) -> PortId {
        match self {
            Self::Held { from, .. } => *from,
            Self::Staged(pack) => pack.from,
        }
    }
}

/// Who is at a side.
#[derive(Debug)]
pub enum Party {
    /// A guest, by its port.
    Guest(PortId),
    /// A process of the host.
    Host(Box<HostEnd>),
}

/// One side.
#[derive(Debug)]
pub struct Side {
    /// Who.
    pub party: Party,
    /// Its CID.
    pub cid: u32,
    /// Its port number.
    pub port: u32,
    /// Its room, and what was sent to it.
    pub credit: Credit,
    /// Packets that it got and has not consumed, as far as its credit shows.
    pub unread: Unread,
    /// Packets that its credit has declared as consumed and that its port has not counted.
    pub returned: u32,
    /// Its credit was requested, and nothing was heard of it since.
    pub asked: bool,
    /// It was given the request of this connection.
    pub met: bool,
    /// Data for it is held back until it has consumed packets; see [`Unread`].
    pub held_back: bool,
    /// It is in the list of sides to be asked for their credit.
    pub ask_due: bool,
    /// How often it was asked since it consumed packets.
    pub asks: u8,
    /// What it shall be told.
    pub signals: Signals,
    /// Data for it.
    pub pending: VecDeque<Pending>,
    /// In its seat's list of connections with something to deliver.
    pub queued: bool,
    /// `SHUTDOWN_*` that it has sent.
    pub shut: u32,
    /// It has ended the connection, which lives on only to drain.
    pub gone: bool,
}

impl Side {
    /// A side that has said nothing yet.
    pub fn new(party: Party, cid: u32, port: u32) -> Self {
        Self {
            party,
            cid,
            port,
            credit: Credit::default(),
            unread: Unread::default(),
            returned: 0,
            asked: false,
            met: false,
            held_back: false,
            ask_due: false,
            asks: 0,
            signals: Signals::empty(),
            pending: VecDeque::new(),
            queued: false,
            shut: 0,
            gone: false,
        }
    }

    /// Packets that it takes before it has consumed some of those that it got.
    #[inline]
    pub fn room_packets(&self) -> usize {
        if self.shut & SHUTDOWN_RECEIVE != 0 {
            // It queues nothing any more, and never declares anything as consumed.
            return usize::MAX;
        }
        self.unread.room(self.credit.advertised().0)
    }

    /// Whether data is held back for it although it receives no more.
    pub fn is_freed(&self) -> bool {
        self.held_back && self.shut & SHUTDOWN_RECEIVE != 0
    }

    /// Has its credit requested if it is due: its unread packets take up half of its room, and no
    /// request is under way. Returns whether it is.
    #[inline]
    pub fn ask_early(&mut self) -> bool {
        let receives = self.shut & SHUTDOWN_RECEIVE == 0;
        let due = receives && !self.asked && self.unread.is_high(self.credit.advertised().0);
        if due {
            self.asked = true;
            self.signals |= Signals::CREDIT_REQUEST;
        }
        due
    }

    /// Its port, if it is a guest.
    pub fn guest(&self) -> Option<PortId> {
        match self.party {
            Party::Guest(id) => Some(id),
            Party::Host(_) => None,
        }
    }
}

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The callee has not answered.
    Requested,
    /// Data may flow.
    Open,
}

/// What a packet of one side means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Signals for the other side were set.
    Signals,
    /// Data for the other side, credit checked and taken.
    Data,
    /// Nothing to pass on.
    Nothing,
    /// The side ended the connection.
    Ended,
    /// The side has forgotten the connection, and connects anew with its numbers.
    Anew,
}

/// Why a side's packet ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// Credit was claimed or used that was not there.
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

/// One connection.
#[derive(Debug)]
pub struct Conn {
    /// Stream or messages.
    pub kind: Type,
    /// How far it has come.
    pub phase: Phase,
    /// When it ends by itself unless it gets further; see the limits.
    pub expires_ns: Option<u64>,
    /// A connection of the same ends has ended before: late packets of that one may come.
    pub reused: bool,
    caller: Side,
    callee: Side,
}

impl Conn {
    /// A connect of `caller` to `callee`.
    pub fn new(kind: Type, caller: Side, callee: Side) -> Self {
        Self { kind, phase: Phase::Requested, expires_ns: None, reused: false, caller, callee }
    }

    /// One side.
    #[inline]
    pub fn side(&self, which: Which) -> &Side {
        match which {
            Which::Caller => &self.caller,
            Which::Callee => &self.callee,
        }
    }

    /// The connection as side `which` knows it.
    pub fn open_of(&self, which: Which) -> Open {
        let (own, peer) = (self.side(which), self.side(which.other()));
        Open {
            peer_cid: peer.cid,
            local_port: own.port,
            peer_port: peer.port,
            kind: self.kind.raw(),
        }
    }

    /// One side.
    #[inline]
    pub fn side_mut(&mut self, which: Which) -> &mut Side {
        match which {
            Which::Caller => &mut self.caller,
            Which::Callee => &mut self.callee,
        }
    }

    /// Takes in what side `from` says in `header`. Data has its credit taken here.
    pub fn hear(&mut self, from: Which, header: &Header) -> Result<Heard, Breach> {
        let op = header.op;
        let Some(operation) = header.operation() else { return Err(Breach::Unknown { op }) };
        if operation == Op::Reset {
            return Ok(Heard::Ended);
        }
        if self.reused && self.is_late(from, operation, header) {
            return Ok(Heard::Nothing);
        }
        let other_type = from == Which::Caller && header.kind != self.kind.raw();
        if operation == Op::Request && (self.phase == Phase::Open || other_type) {
            return Ok(Heard::Anew);
        }
        let side = self.side_mut(from);
        side.credit.advertise(header.buf_alloc, header.fwd_cnt)?;
        side.asked = false;
        side.returned = side.returned.saturating_add(side.unread.consume(header.fwd_cnt));
        let wrong_phase = Breach::Phase { op };
        match operation {
            Op::Response if from == Which::Callee && self.phase == Phase::Requested => {
                self.phase = Phase::Open;
                self.expires_ns = None;
                self.tell(from.other(), Signals::RESPONSE)
            }
            // A guest that gave up waiting says nothing, and may ask again from the same port. The
            // callee may have ignored the first request: Linux does while it still has a socket
            // of an earlier connection.
            Op::Request if from == Which::Caller && self.phase == Phase::Requested => {
                self.tell(from.other(), Signals::REQUEST)
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
                Ok(Heard::Data)
            }
            Op::CreditUpdate => self.tell(from.other(), Signals::CREDIT_UPDATE),
            Op::CreditRequest => self.tell(from.other(), Signals::CREDIT_REQUEST),
            Op::Shutdown => {
                let side = self.side_mut(from);
                let shut = side.shut | (header.flags & SHUTDOWN_BOTH);
                if shut == side.shut {
                    return Ok(Heard::Nothing);
                }
                side.shut = shut;
                self.tell(from.other(), Signals::SHUTDOWN)
            }
            Op::Reset => Ok(Heard::Ended),
        }
    }

    /// Whether a packet was sent on an earlier connection of the same ends. Linux sends credit
    /// updates for data that was read after the reset. A reset cannot be told apart.
    fn is_late(&self, from: Which, operation: Op, header: &Header) -> bool {
        match operation {
            Op::Response | Op::Reset | Op::Request | Op::Data => false,
            _ if from == Which::Callee && self.phase == Phase::Requested => true,
            _ => !self.side(from).credit.is_possible(header.fwd_cnt),
        }
    }

    /// Whether neither side sends or receives any more.
    pub fn is_over(&self) -> bool {
        self.caller.shut == SHUTDOWN_BOTH && self.callee.shut == SHUTDOWN_BOTH
    }

    /// Sets signals.
    fn tell(&mut self, to: Which, signals: Signals) -> Result<Heard, Breach> {
        self.side_mut(to).signals |= signals;
        Ok(Heard::Signals)
    }

    /// The header of a packet to side `to`, from the other side as it stands now. The addresses
    /// are ours, whatever the sender wrote.
    pub fn header(&self, to: Which, op: Op, len: u32, flags: u32) -> Header {
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
