//! The framing of vfio-user connections ([`crate::stream`]).
//!
//! The control thread uses [`MessageStream`] for the server's end, the native client for the
//! frontend's end, and the relays of `causeway-holder` for either end. A message with descriptors
//! of other types is received and marked
//! ([`RawMessage::is_odd`](crate::stream::RawMessage::is_odd)): the server refuses the message with
//! EINVAL and goes on, because a VMM may try to map the file of another device. Of the content only
//! the header's size is checked; commands, message types and payloads are the server's part. A send
//! waits for room, at most 2 s.

use std::os::fd::BorrowedFd;

use super::fault::Reason;
use super::message::{HEADER_BYTES, Header};
use crate::stream::{self, Framing, StreamFault};

/// The headers of vfio-user.
#[derive(Debug)]
pub enum VfioUser {}

/// A received message that is not decoded yet.
pub type RawMessage = stream::RawMessage<Header>;
/// The result of a non-blocking read.
pub type ReadOutcome = stream::ReadOutcome<Header>;
/// One end of a vfio-user connection.
pub type MessageStream = stream::MessageStream<VfioUser>;

impl Framing for VfioUser {
    type Header = Header;
    type Reason = Reason;
    const HEADER_BYTES: usize = HEADER_BYTES;

    fn parse(bytes: &[u8]) -> Result<Header, Reason> {
        Header::parse(*bytes.first_chunk().ok_or(Reason::Truncated)?)
    }

    fn payload_bytes(header: &Header) -> usize {
        header.payload_bytes()
    }

    fn admit_odd(_header: Option<&Header>) -> Result<(), Reason> {
        Ok(())
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
    /// Sends whole messages as [`Self::send_all`] does.
    ///
    /// # Errors
    /// Returns [`Reason::RepliesUnread`] if the peer leaves no room or `stop` is readable, or the
    /// error of the socket.
    pub fn send(
        &self,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<(), Reason> {
        self.send_all(bytes, fds, stop)
    }
}
