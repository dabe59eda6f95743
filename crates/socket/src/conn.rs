//! One connection: a state machine over packet headers, free of I/O.
//!
//! Side 0 asked for the connection, side 1 was asked. What one side says
//! becomes [`Signals`] and data for the other. Signals are flags, not queued
//! packets: however often a guest repeats itself, what waits stays bounded.

use std::collections::VecDeque;

use causeway_fabric::PortId;
use causeway_memory::{Cursor, Map, OutOfGrant};
use causeway_ring::Chain;
use causeway_wire::vsock::{Header, Op, SHUTDOWN_BOTH, SHUTDOWN_SEND, Type};

use crate::credit::{Credit, CreditError};
use crate::host::HostEnd;
use crate::ledger::Open;
use crate::limits::STAGED_PIECE_BYTES;

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

/// What a copy of `len` bytes takes of its sender's quota: however small, it is not free.
pub fn staged_cost(len: usize) -> usize {
    len.saturating_add(STAGED_PIECE_BYTES)
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
    Staged {
        /// Who sent it, for its quota.
        from: PortId,
        /// The bytes.
        bytes: Vec<u8>,
        /// Bytes that are done with.
        at: usize,
        /// SEQPACKET flags for the last fragment.
        flags: u32,
    },
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
            let mut bytes = vec![0; *left as usize];
            Cursor::at(chain.readable(), *at).read(map, &mut bytes)?;
            *self = Self::Staged { from: *from, bytes, at: 0, flags: *flags };
        }
        Ok(())
    }

    /// Bytes that are not delivered.
    pub fn left(&self) -> usize {
        match self {
            Self::Held { left, .. } => *left as usize,
            Self::Staged { bytes, at, .. } => bytes.len().saturating_sub(*at),
        }
    }

    /// What it takes of its sender's quota for copies, in bytes.
    pub fn staged_cost(&self) -> usize {
        match self {
            Self::Held { .. } => 0,
            Self::Staged { bytes, .. } => staged_cost(bytes.len()),
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
            signals: Signals::empty(),
            pending: VecDeque::new(),
            queued: false,
            shut: 0,
            gone: false,
        }
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
    caller: Side,
    callee: Side,
}

impl Conn {
    /// A connect of `caller` to `callee`.
    pub fn new(kind: Type, caller: Side, callee: Side) -> Self {
        Self { kind, phase: Phase::Requested, expires_ns: None, caller, callee }
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
        self.side_mut(from).credit.advertise(header.buf_alloc, header.fwd_cnt)?;
        let wrong_phase = Breach::Phase { op };
        match operation {
            Op::Response if from == Which::Callee && self.phase == Phase::Requested => {
                self.phase = Phase::Open;
                self.expires_ns = None;
                self.tell(from.other(), Signals::RESPONSE)
            }
            // A guest that gave up waiting says nothing, and may ask again from the same port.
            Op::Request if from == Which::Caller && self.phase == Phase::Requested => {
                Ok(Heard::Nothing)
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
