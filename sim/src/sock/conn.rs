//! One end of a vsock connection, as an honest guest keeps its state.
//!
//! [`super::guest`] owns the ends of its connections, in the thread of the world. The module
//! computes credit, flags and headers (virtio 1.3, 5.10); it sends nothing and checks nothing.
//! Counters stay far below 2^32 in every world and are not wrapped. [`Conn::header`] counts as an
//! advertisement of credit, so that the caller must send the header. All other changes of the state
//! are those of the caller: every field is public.

use causeway_wire::vsock::{Header, Op, SHUTDOWN_BOTH, SHUTDOWN_SEND, Type};

use crate::event::Direction;

/// The state of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The connection request was sent and has no answer.
    Asking,
    /// Data may flow.
    Open,
    /// Both directions are shut down; the peer's reset is awaited.
    Closing,
    /// The connection is over.
    Over,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Conn {
    /// The direction in which this end sends.
    pub direction: Direction,
    /// The state.
    pub state: State,
    /// Stream or messages.
    pub kind: Type,
    /// Bytes of receive buffer.
    pub buffer: u32,
    /// Bytes received.
    pub received: u32,
    /// Bytes taken by the application.
    pub taken: u32,
    /// The value of `taken` last advertised to the peer.
    pub advertised: u32,
    /// Bytes sent.
    pub sent: u32,
    /// The peer's last header, which carries its credit.
    pub peer: Header,
    /// Bytes of the current message that are still to be sent.
    pub want: u32,
    /// Shutdown flags sent.
    pub ours: u32,
    /// Shutdown flags received.
    pub theirs: u32,
    /// Shut the sending direction down once all data is sent.
    pub shut_after: bool,
    /// A credit request was sent and has no answer.
    pub asked: bool,
}

impl Conn {
    /// Creates an end that sends in direction `direction`.
    pub fn new(direction: Direction, kind: Type, buffer: u32, state: State) -> Self {
        Self {
            direction,
            state,
            kind,
            buffer,
            received: 0,
            taken: 0,
            advertised: 0,
            sent: 0,
            peer: Header::default(),
            want: 0,
            ours: 0,
            theirs: 0,
            shut_after: false,
            asked: false,
        }
    }

    /// Returns the number of bytes that may be sent now.
    pub fn credit(&self) -> u32 {
        self.peer.peer_free(self.sent)
    }

    /// Returns true if a credit update is due.
    pub fn owes_credit(&self) -> bool {
        self.state == State::Open && self.taken - self.advertised >= (self.buffer / 2).max(1)
    }

    /// Returns true if the application may send.
    pub fn may_send(&self) -> bool {
        self.state == State::Open && self.ours & SHUTDOWN_SEND == 0
    }

    /// Builds the header of a packet of this end.
    pub fn header(&mut self, cids: (u64, u64), op: Op, flags: u32, len: u32) -> Header {
        let link = self.direction.link;
        let (own, peer) = match self.direction.forth {
            true => (link.caller.1, link.callee.1),
            false => (link.callee.1, link.caller.1),
        };
        self.advertised = self.taken;
        Header {
            src_cid: cids.0,
            dst_cid: cids.1,
            src_port: own,
            dst_port: peer,
            len,
            kind: self.kind.raw(),
            op: op.raw(),
            flags,
            buf_alloc: self.buffer,
            fwd_cnt: self.taken,
        }
    }

    /// Returns true if the peer shut both directions down.
    pub fn is_shut_by_peer(&self) -> bool {
        self.theirs == SHUTDOWN_BOTH
    }
}
