//! One native vsock connection: its receive buffer, its credit (virtio 1.3, 5.10.6.3), and its
//! state machine.
//!
//! [`super::Sockets`] passes each received packet to [`NativeConnection::handle_packet`] and sends
//! the returned reply. The module sends nothing itself and has no time-outs. If the peer sends more
//! than its credit of [`NATIVE_BUFFER_BYTES`] (256 KiB), more than 262,144 messages that are not
//! taken, fewer bytes than a header states, or a packet that the state does not allow (also a second
//! request or response), this end resets the connection; bytes received before can still be read. Packets for an ended connection are ignored. Counts are modulo 2^32. It runs in
//! the thread that calls [`super::Sockets`].

use std::collections::VecDeque;

use causeway_wire::vsock::{Header, Op, SEQ_EOM, SHUTDOWN_BOTH, SHUTDOWN_RECEIVE, SHUTDOWN_SEND};

use super::SocketError;
use crate::limits::NATIVE_BUFFER_BYTES;

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// The request was sent and has no response yet.
    Connecting,
    /// Data flows in the directions that are not shut down.
    Open,
    /// The peer, a broken rule or a reset of the transport ended the connection. Bytes that the
    /// peer sent before can still be received.
    Ended {
        /// Whether the connection was aborted, not closed in order.
        reset: bool,
    },
}

/// One connection.
#[derive(Debug)]
pub(super) struct NativeConnection {
    /// State of the connection.
    pub(super) state: ConnectionState,
    /// Directions that this end has shut down.
    pub(super) own_shutdown: u32,
    /// Directions that the peer has shut down.
    peer_shutdown: u32,
    /// Received bytes that the application has not read.
    inbox: VecDeque<u8>,
    /// Ends of seqpacket messages, as values of `received`.
    ends: VecDeque<u32>,
    /// Bytes received, and bytes read by the owner, modulo 2^32.
    received: u32,
    consumed: u32,
    /// The value of `consumed` that the peer knows.
    announced: u32,
    /// Bytes sent, and the peer's last credit information.
    sent: u32,
    peer: Header,
    /// Whether a credit request was sent since the last packet of the peer.
    credit_requested: bool,
}

impl NativeConnection {
    /// Returns a connection without received bytes and without credit of the peer.
    pub(super) fn new(state: ConnectionState) -> Self {
        Self {
            state,
            own_shutdown: 0,
            peer_shutdown: 0,
            inbox: VecDeque::new(),
            ends: VecDeque::new(),
            received: 0,
            consumed: 0,
            announced: 0,
            sent: 0,
            peer: Header::default(),
            credit_requested: false,
        }
    }

    /// Stores the peer's credit information from a packet.
    pub(super) fn learn(&mut self, header: &Header) {
        self.peer = *header;
        self.credit_requested = false;
    }

    /// Handles a packet of this connection. Returns the operation and flags of a reply.
    pub(super) fn handle_packet(
        &mut self,
        header: &Header,
        op: Op,
        data: &[u8],
    ) -> Option<(Op, u32)> {
        self.learn(header);
        match (self.state, op) {
            (_, Op::Reset) => {
                let reset = self.state == ConnectionState::Connecting
                    || self.peer_shutdown & SHUTDOWN_SEND == 0;
                self.state = ConnectionState::Ended { reset };
                None
            }
            (ConnectionState::Connecting, Op::Response) => {
                self.state = ConnectionState::Open;
                None
            }
            (ConnectionState::Open, Op::Data) => {
                let received = self.received.wrapping_add(header.len);
                let is_whole = data.len() == header.len as usize;
                // An empty message takes no credit.
                let ends = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
                if !is_whole
                    || ends >= NATIVE_BUFFER_BYTES
                    || received.wrapping_sub(self.consumed) > NATIVE_BUFFER_BYTES
                {
                    self.state = ConnectionState::Ended { reset: true };
                    return Some((Op::Reset, 0));
                }
                self.received = received;
                self.inbox.extend(data);
                if header.flags & SEQ_EOM != 0 {
                    self.ends.push_back(received);
                }
                None
            }
            (ConnectionState::Open, Op::Shutdown) => {
                self.peer_shutdown |= header.flags & SHUTDOWN_BOTH;
                if self.peer_shutdown == SHUTDOWN_BOTH {
                    self.state = ConnectionState::Ended { reset: false };
                    return Some((Op::Reset, 0));
                }
                None
            }
            (ConnectionState::Open, Op::CreditRequest) => Some((Op::CreditUpdate, 0)),
            (ConnectionState::Open, Op::CreditUpdate) | (ConnectionState::Ended { .. }, _) => None,
            _ => {
                self.state = ConnectionState::Ended { reset: true };
                Some((Op::Reset, 0))
            }
        }
    }

    /// Ends the connection without a packet of the peer. Returns whether it was connecting or open.
    pub(super) fn lose(&mut self) -> bool {
        let lost = matches!(self.state, ConnectionState::Connecting | ConnectionState::Open);
        if lost {
            self.state = ConnectionState::Ended { reset: true };
        }
        lost
    }

    /// Returns an error if the application cannot send any more.
    pub(super) fn may_send(&self) -> Result<(), SocketError> {
        let closed =
            self.own_shutdown & SHUTDOWN_SEND != 0 || self.peer_shutdown & SHUTDOWN_RECEIVE != 0;
        match self.state {
            ConnectionState::Ended { reset: true } => Err(SocketError::Reset),
            ConnectionState::Open if !closed => Ok(()),
            _ => Err(SocketError::Closed),
        }
    }

    /// Returns an error if no more bytes will arrive.
    pub(super) fn may_receive(&self) -> Result<(), SocketError> {
        match self.state {
            ConnectionState::Ended { reset: true } => Err(SocketError::Reset),
            ConnectionState::Ended { reset: false } => Err(SocketError::Closed),
            _ if self.peer_shutdown & SHUTDOWN_SEND != 0 => Err(SocketError::Closed),
            _ => Ok(()),
        }
    }

    /// Returns the bytes that the peer's credit allows to send now.
    pub(super) fn credit(&self) -> usize {
        self.peer.peer_free(self.sent) as usize
    }

    /// Returns whether to send a credit request: once until a packet arrives.
    pub(super) fn wants_credit(&mut self) -> bool {
        !std::mem::replace(&mut self.credit_requested, true)
    }

    /// Counts sent data bytes against the credit.
    pub(super) fn count_sent(&mut self, bytes: usize) {
        self.sent = self.sent.wrapping_add(u32::try_from(bytes).unwrap_or(0));
    }

    /// Returns `buf_alloc` and `fwd_cnt` for a header.
    pub(super) fn announce(&mut self) -> (u32, u32) {
        self.announced = self.consumed;
        (NATIVE_BUFFER_BYTES, self.consumed)
    }

    /// Returns whether the peer must be informed that half of the buffer is free.
    pub(super) fn owes_credit(&self) -> bool {
        let open = self.state == ConnectionState::Open;
        open && self.consumed.wrapping_sub(self.announced) >= NATIVE_BUFFER_BYTES / 2
    }

    /// Moves received bytes into `into`, and drops the ends of messages among them; returns the
    /// number of bytes.
    pub(super) fn take(&mut self, into: &mut [u8]) -> usize {
        let before = self.consumed;
        let count = self.take_bytes(into);
        let is_passed = |end: &u32| (1..=count).contains(&(end.wrapping_sub(before) as usize));
        while self.ends.front().is_some_and(is_passed) {
            self.ends.pop_front();
        }
        count
    }

    /// Moves received bytes into `into`; returns their number.
    fn take_bytes(&mut self, into: &mut [u8]) -> usize {
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
        self.consumed = self.consumed.wrapping_add(u32::try_from(count).unwrap_or(0));
        count
    }

    /// Returns the next whole seqpacket message, if there is one.
    pub(super) fn take_message(&mut self) -> Option<Vec<u8>> {
        let end = self.ends.pop_front()?;
        let mut message = vec![0; end.wrapping_sub(self.consumed) as usize];
        self.take_bytes(&mut message);
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(len: u32, flags: u32) -> Header {
        Header { len, flags, ..Header::default() }
    }

    #[test]
    fn native_connection_bounds_empty_messages_that_nobody_takes() {
        let mut connection = NativeConnection::new(ConnectionState::Open);
        for _ in 0..NATIVE_BUFFER_BYTES {
            assert_eq!(connection.handle_packet(&data(0, SEQ_EOM), Op::Data, &[]), None);
        }
        let answer = connection.handle_packet(&data(0, SEQ_EOM), Op::Data, &[]);
        assert_eq!(answer, Some((Op::Reset, 0)));
        assert_eq!(connection.ends.len(), NATIVE_BUFFER_BYTES as usize);
        assert_eq!(connection.take_message(), Some(Vec::new()), "what came before can be received");
    }

    #[test]
    fn native_connection_is_reset_by_a_header_that_states_more_than_arrived() {
        let mut connection = NativeConnection::new(ConnectionState::Open);
        assert_eq!(connection.handle_packet(&data(3, SEQ_EOM), Op::Data, b"abc"), None);
        let answer = connection.handle_packet(&data(9, SEQ_EOM), Op::Data, b"def");
        assert_eq!(answer, Some((Op::Reset, 0)));
        assert_eq!(connection.take_message().as_deref(), Some(&b"abc"[..]));
        assert_eq!(connection.take_message(), None, "no message of zeros");
    }
}
