//! One end of a connection as an honest guest keeps it.

use causeway_wire::vsock::{Header, Op, SHUTDOWN_BOTH, SHUTDOWN_SEND, Type};

use crate::event::Way;

/// How far an end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It asked, and has no answer.
    Asking,
    /// Data may flow.
    Open,
    /// It said that all is over, and waits for the other end's word.
    Closing,
    /// Over.
    Over,
}

/// See the module.
#[derive(Debug)]
pub struct Conn {
    /// The direction that it sends.
    pub way: Way,
    /// How far it has come.
    pub state: State,
    /// Stream or messages.
    pub kind: Type,
    /// Bytes of receive buffer.
    pub buffer: u32,
    /// Bytes that came, that the application took, and of which the other end was told.
    pub came: u32,
    /// See `came`.
    pub taken: u32,
    /// See `came`.
    pub told: u32,
    /// Bytes sent.
    pub sent: u32,
    /// The other end's room.
    pub peer: Header,
    /// Bytes that the application wants to send still, of its present message.
    pub want: u32,
    /// What was shut here, and there.
    pub ours: u32,
    /// See `ours`.
    pub theirs: u32,
    /// Shut the sending direction once all is sent.
    pub shut_after: bool,
    /// Asked for credit, without an answer.
    pub asked: bool,
}

impl Conn {
    /// An end that sends by `way`.
    pub fn new(way: Way, kind: Type, buffer: u32, state: State) -> Self {
        Self {
            way,
            state,
            kind,
            buffer,
            came: 0,
            taken: 0,
            told: 0,
            sent: 0,
            peer: Header::default(),
            want: 0,
            ours: 0,
            theirs: 0,
            shut_after: false,
            asked: false,
        }
    }

    /// Bytes that may be sent now.
    pub fn credit(&self) -> u32 {
        self.peer.peer_free(self.sent)
    }

    /// Whether the other end should be told of room.
    pub fn owes_credit(&self) -> bool {
        self.state == State::Open && self.taken - self.told >= (self.buffer / 2).max(1)
    }

    /// Whether the application may send.
    pub fn may_send(&self) -> bool {
        self.state == State::Open && self.ours & SHUTDOWN_SEND == 0
    }

    /// A packet of this end.
    pub fn header(&mut self, cids: (u64, u64), op: Op, flags: u32, len: u32) -> Header {
        let link = self.way.link;
        let (own, peer) = match self.way.forth {
            true => (link.caller.1, link.callee.1),
            false => (link.callee.1, link.caller.1),
        };
        self.told = self.taken;
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

    /// Whether both directions are shut by one end.
    pub fn is_shut_by_peer(&self) -> bool {
        self.theirs == SHUTDOWN_BOTH
    }
}
