//! The framing of vhost-user connections ([`crate::stream`]).
//!
//! `server` uses [`MessageStream`] for the daemon's end of a connection, [`crate::native`] for the
//! frontend's end, and the relays of `causeway-holder` for either end. The module does not decode
//! payloads; [`super::message`] does.
//!
//! Descriptors of other types than eventfds, pidfds, Unix sockets and memory files are *odd*:
//! `causeway_host` reads the type when it receives a descriptor, and closes odd descriptors. A
//! message with an odd descriptor ends the connection ([`Framing::admit_odd`] admits none). So do:
//!
//! - a header with another version than 1, reserved flags, an unknown request, or a payload of more
//!   than [`PAYLOAD_BYTES_MAX`](crate::limits::PAYLOAD_BYTES_MAX) (4,096) bytes;
//! - a message with more than 8 descriptors, or with any while more than 128 earlier ones of the
//!   peer wait for their close, or while this process is at its limit of descriptors;
//! - an end of the peer within a message.
//!
//! A send does not wait: if the socket's buffer has no room for the whole message, it fails with
//! [`Reason::RepliesUnread`], and a part may have been sent. It does not check that the payload has
//! the length in the header. After an error of a call the stream must be dropped. The thread is the
//! caller's: that of a dispatcher, of a native client, or of a relay.

use std::os::fd::BorrowedFd;

use super::fault::Reason;
use super::message::{HEADER_BYTES, Header};
use crate::stream::{self, Framing, StreamFault};
use crate::vhost_user::codes::FrontendReq;

/// The headers of vhost-user.
#[derive(Debug)]
pub enum VhostUser {}

/// A header of a known request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// The request code of the header.
    pub request: FrontendReq,
    /// The header.
    header: Header,
}

/// A received message that is not decoded yet.
pub type RawMessage = stream::RawMessage<RequestHeader>;
/// The result of a non-blocking read.
pub type ReadOutcome = stream::ReadOutcome<RequestHeader>;
/// One end of a vhost-user connection.
pub type MessageStream = stream::MessageStream<VhostUser>;

impl RequestHeader {
    /// Returns the version, reply and need_reply bits.
    pub fn flags(&self) -> u32 {
        self.header.flags
    }

    /// Returns whether the sender asks for an acknowledgement.
    pub fn needs_reply(&self) -> bool {
        self.header.needs_reply()
    }

    /// Returns whether the message is a reply.
    pub fn is_reply(&self) -> bool {
        self.header.is_reply()
    }
}

impl Framing for VhostUser {
    type Header = RequestHeader;
    type Reason = Reason;
    const HEADER_BYTES: usize = HEADER_BYTES;

    fn parse(bytes: &[u8]) -> Result<RequestHeader, Reason> {
        let (header, request) = Header::parse(*bytes.first_chunk().ok_or(Reason::Truncated)?)?;
        Ok(RequestHeader { request, header })
    }

    fn payload_bytes(header: &RequestHeader) -> usize {
        header.header.size as usize
    }

    fn admit_odd(header: Option<&RequestHeader>) -> Result<(), Reason> {
        Err(Reason::DescriptorKind { request: header.map(|header| header.request) })
    }
}

impl From<StreamFault> for Reason {
    fn from(fault: StreamFault) -> Self {
        match fault {
            StreamFault::DescriptorsCut => Self::DescriptorsCut,
            StreamFault::DescriptorsScarce => Self::DescriptorsScarce,
            StreamFault::DescriptorsUnclosed => Self::DescriptorsUnclosed,
            StreamFault::Truncated => Self::Truncated,
            StreamFault::Unread => Self::RepliesUnread,
            StreamFault::Socket(errno) => Self::Socket(errno),
        }
    }
}

impl MessageStream {
    /// Sends one whole message, without waiting.
    ///
    /// # Errors
    /// Returns [`Reason::RepliesUnread`] if the peer leaves no room for it,
    /// [`Reason::DescriptorsCut`] for more than 8 descriptors, or the error of the socket.
    pub fn send(
        &self,
        header: Header,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), Reason> {
        self.send_now(&[&header.emit(), payload].concat(), fds)
    }
}
