//! One native vsock connection: its receive buffer, its credit (virtio 1.3, 5.10.6.3), and its
//! state machine.
//!
//! It handles the packets of one connection and returns the reply to send; it sends nothing itself.

use std::collections::VecDeque;

use causeway_wire::vsock::{Header, Op, SEQ_EOM, SHUTDOWN_BOTH, SHUTDOWN_RECEIVE, SHUTDOWN_SEND};

use super::SocketError;
use crate::limits::NATIVE_BUFFER_BYTES;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The request was sent and has no response yet.
    Connecting,
    Open,
    /// The peer ended the connection. Bytes that it sent before can still be received.
    Ended {
        reset: bool,
    },
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    /// Directions that this end has shut down.
    pub(super) ours: u32,
    /// Directions that the peer has shut down.
    theirs: u32,
    inbox: VecDeque<u8>,
    /// Ends of seqpacket messages, as values of `came`.
    ends: VecDeque<u32>,
    /// Bytes received, and bytes read by the owner, modulo 2^32.
    came: u32,
    taken: u32,
    /// The value of `taken` that the peer knows.
    told: u32,
    /// Bytes sent, and the peer's last credit information.
    sent: u32,
    peer: Header,
    asked: bool,
}

impl Connection {
    pub(super) fn new(state: State) -> Self {
        Self {
            state,
            ours: 0,
            theirs: 0,
            inbox: VecDeque::new(),
            ends: VecDeque::new(),
            came: 0,
            taken: 0,
            told: 0,
            sent: 0,
            peer: Header::default(),
            asked: false,
        }
    }

    /// Stores the peer's credit information from a packet.
    pub(super) fn learn(&mut self, header: &Header) {
        self.peer = *header;
        self.asked = false;
    }

    /// Handles a packet of this connection. Returns the operation and flags of a reply.
    pub(super) fn packet(&mut self, header: &Header, op: Op, data: &[u8]) -> Option<(Op, u32)> {
        self.learn(header);
        match (self.state, op) {
            (_, Op::Reset) => {
                let reset = self.state == State::Connecting || self.theirs & SHUTDOWN_SEND == 0;
                self.state = State::Ended { reset };
                None
            }
            (State::Connecting, Op::Response) => {
                self.state = State::Open;
                None
            }
            (State::Open, Op::Data) => {
                let came = self.came.wrapping_add(header.len);
                if came.wrapping_sub(self.taken) > NATIVE_BUFFER_BYTES {
                    self.state = State::Ended { reset: true };
                    return Some((Op::Reset, 0));
                }
                self.came = came;
                self.inbox.extend(data);
                if header.flags & SEQ_EOM != 0 {
                    self.ends.push_back(came);
                }
                None
            }
            (State::Open, Op::Shutdown) => {
                self.theirs |= header.flags & SHUTDOWN_BOTH;
                if self.theirs == SHUTDOWN_BOTH {
                    self.state = State::Ended { reset: false };
                    return Some((Op::Reset, 0));
                }
                None
            }
            (State::Open, Op::CreditRequest) => Some((Op::CreditUpdate, 0)),
            (State::Open, Op::CreditUpdate) | (State::Ended { .. }, _) => None,
            _ => {
                self.state = State::Ended { reset: true };
                Some((Op::Reset, 0))
            }
        }
    }

    /// Ends the connection without a packet of the peer. Returns whether it was connecting or open.
    pub(super) fn lose(&mut self) -> bool {
        let lost = matches!(self.state, State::Connecting | State::Open);
        if lost {
            self.state = State::Ended { reset: true };
        }
        lost
    }

    pub(super) fn may_send(&self) -> Result<(), SocketError> {
        let closed = self.ours & SHUTDOWN_SEND != 0 || self.theirs & SHUTDOWN_RECEIVE != 0;
        match self.state {
            State::Ended { reset: true } => Err(SocketError::Reset),
            State::Open if !closed => Ok(()),
            _ => Err(SocketError::Closed),
        }
    }

    pub(super) fn may_receive(&self) -> Result<(), SocketError> {
        match self.state {
            State::Ended { reset: true } => Err(SocketError::Reset),
            State::Ended { reset: false } => Err(SocketError::Closed),
            _ if self.theirs & SHUTDOWN_SEND != 0 => Err(SocketError::Closed),
            _ => Ok(()),
        }
    }

    /// Returns the bytes that the peer's credit allows to send now.
    pub(super) fn credit(&self) -> usize {
        self.peer.peer_free(self.sent) as usize
    }

    /// Returns whether to send a credit request: once until a packet arrives.
    pub(super) fn wants_credit(&mut self) -> bool {
        !std::mem::replace(&mut self.asked, true)
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent = self.sent.wrapping_add(u32::try_from(bytes).unwrap_or(0));
    }

    /// Returns `buf_alloc` and `fwd_cnt` for a header.
    pub(super) fn announce(&mut self) -> (u32, u32) {
        self.told = self.taken;
        (NATIVE_BUFFER_BYTES, self.taken)
    }

    pub(super) fn owes_credit(&self) -> bool {
        let open = self.state == State::Open;
        open && self.taken.wrapping_sub(self.told) >= NATIVE_BUFFER_BYTES / 2
    }

    pub(super) fn take(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.inbox.len());
        let (front, back) = self.inbox.as_slices();
        let split = count.min(front.len());
        let (to_front, to_back) = into.split_at_mut(split);
        to_front.copy_from_slice(front.get(..split).unwrap_or_default());
        let rest = count.saturating_sub(split);
        if let (Some(to), Some(from)) = (to_back.get_mut(..rest), back.get(..rest)) {
            to.copy_from_slice(from);
        }
        self.inbox.drain(..count);
        self.taken = self.taken.wrapping_add(u32::try_from(count).unwrap_or(0));
        count
    }

    pub(super) fn take_message(&mut self) -> Option<Vec<u8>> {
        let end = self.ends.pop_front()?;
        let mut message = vec![0; end.wrapping_sub(self.taken) as usize];
        self.take(&mut message);
        Some(message)
    }
}
