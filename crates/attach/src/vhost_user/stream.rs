//! The vhost-user connection: whole messages in, whole messages out, without blocking.
//!
//! `server` uses it for the daemon's end of a connection, and [`crate::native`] for the frontend's
//! end. A message is read in two steps, its header and then exactly its payload, so that a file
//! descriptor always belongs to the message that it arrived with. Every descriptor is owned from
//! the moment it is received.
//!
//! The module does not decode payloads; [`super::message`] does. It keeps one incomplete message,
//! and queues nothing for sending: if the socket's buffer is full, the send fails with
//! [`Reason::RepliesUnread`]. A message with more than [`DESCRIPTORS_MAX`] (8) descriptors, with a
//! descriptor other than an eventfd, pidfd, Unix socket or memory file, or with any descriptor
//! while more than 128 earlier ones wait for their close, is an error. After an error the owner
//! closes the connection.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use causeway_host::fd::receive::UntrustedSocket;
use causeway_host::{Account, ReceivedFd};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::fault::Reason;
use super::message::{HEADER_BYTES, Header};
use crate::limits::DESCRIPTORS_MAX;
use crate::vhost_user::codes::FrontendReq;

/// A received message that is not decoded yet.
#[derive(Debug)]
pub struct Raw {
    /// The header.
    pub header: Header,
    /// The request code of the header.
    pub request: FrontendReq,
    /// The payload.
    pub payload: Vec<u8>,
    /// The descriptors that arrived with the message.
    pub fds: Vec<ReceivedFd>,
}

/// The result of a non-blocking read.
#[derive(Debug)]
pub enum ReadOutcome {
    /// A whole message.
    Message(Raw),
    /// No whole message is available.
    Nothing,
    /// The peer closed the connection between two messages.
    Closed,
}

/// One end of a vhost-user connection.
#[derive(Debug)]
pub struct MessageStream {
    socket: UntrustedSocket,
    header: [u8; HEADER_BYTES],
    /// Set once the header is whole and checked.
    parsed: Option<(Header, FrontendReq)>,
    payload: Vec<u8>,
    /// Bytes received of the header, and then of the payload.
    have: usize,
    fds: Vec<ReceivedFd>,
}

/// The result of a single `recvmsg`.
enum Read {
    /// Bytes arrived.
    Some,
    /// No bytes are available.
    WouldBlock,
    /// The peer closed the connection.
    End,
}

impl MessageStream {
    /// Takes over a connected Unix stream socket, blocking or not.
    pub fn new(socket: impl Into<UntrustedSocket>) -> Self {
        Self {
            socket: socket.into(),
            header: [0; HEADER_BYTES],
            parsed: None,
            payload: Vec::new(),
            have: 0,
            fds: Vec::new(),
        }
    }

    /// Returns the peer's account, which is charged for received descriptors and their mappings.
    pub fn giver(&self) -> Account {
        self.socket.giver()
    }

    /// Reads as far as possible, and returns a message once it is whole.
    ///
    /// # Errors
    /// Returns the rule that the peer broke, or the error of the socket.
    pub fn receive(&mut self) -> Result<ReadOutcome, Reason> {
        loop {
            let (header, request) = match self.parsed {
                Some(parsed) if self.have == self.payload.len() => parsed,
                _ => match self.fill()? {
                    Read::Some => {
                        self.parse_header()?;
                        continue;
                    }
                    Read::WouldBlock => return Ok(ReadOutcome::Nothing),
                    Read::End if self.have == 0 && self.parsed.is_none() => {
                        return Ok(ReadOutcome::Closed);
                    }
                    Read::End => return Err(Reason::Truncated),
                },
            };
            self.parsed = None;
            self.have = 0;
            let payload = std::mem::take(&mut self.payload);
            let fds = std::mem::take(&mut self.fds);
            return Ok(ReadOutcome::Message(Raw { header, request, payload, fds }));
        }
    }

    /// Checks a complete header, and allocates its payload.
    fn parse_header(&mut self) -> Result<(), Reason> {
        if self.parsed.is_none() && self.have == HEADER_BYTES {
            let (header, request) = Header::parse(self.header)?;
            self.parsed = Some((header, request));
            self.payload = vec![0; header.size as usize];
            self.have = 0;
        }
        Ok(())
    }

    /// Reads the missing bytes of the header or payload, with their descriptors.
    fn fill(&mut self) -> Result<Read, Reason> {
        let part = if self.parsed.is_some() { &mut self.payload } else { &mut self.header[..] };
        let missing = part.get_mut(self.have..).unwrap_or_default();
        let mut odd = false;
        let got = match self.socket.receive(missing, &mut self.fds, &mut odd) {
            Ok(got) => got,
            Err(Errno::INTR) => return Ok(Read::Some),
            Err(Errno::AGAIN) => return Ok(Read::WouldBlock),
            Err(Errno::CONNRESET) => return Ok(Read::End),
            Err(errno) => return Err(Reason::Socket(errno)),
        };
        if self.fds.len() > DESCRIPTORS_MAX {
            return Err(Reason::DescriptorsCut);
        }
        if got.cut {
            // The buffer fits all descriptors that the kernel accepts, so this process is at its
            // limit.
            return Err(Reason::DescriptorsScarce);
        }
        if !self.fds.is_empty() && self.socket.giver().is_behind() {
            return Err(Reason::DescriptorsUnclosed);
        }
        if got.bytes == 0 {
            return Ok(Read::End);
        }
        self.have = self.have.saturating_add(got.bytes);
        if odd {
            // Refused at once: the rest of the message may never arrive.
            return Err(Reason::DescriptorKind { request: self.request() });
        }
        Ok(Read::Some)
    }

    /// Returns the request of the message being read, if its header is whole.
    fn request(&self) -> Option<FrontendReq> {
        let fresh = || {
            let whole = self.have == HEADER_BYTES;
            whole.then(|| Header::parse(self.header).ok()).flatten()
        };
        self.parsed.or_else(fresh).map(|(_, request)| request)
    }

    /// Sends one whole message.
    ///
    /// # Errors
    /// Returns [`Reason::RepliesUnread`] if the peer leaves no room for it, or the error of the
    /// socket.
    pub fn send(
        &self,
        header: Header,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), Reason> {
        let bytes = [&header.emit(), payload].concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Reason::DescriptorsCut);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            let vectors = [IoSlice::new(&bytes)];
            return match rustix::net::sendmsg(&self.socket, &vectors, &mut control, flags) {
                Ok(sent) if sent == bytes.len() => Ok(()),
                Ok(_) | Err(Errno::AGAIN) => Err(Reason::RepliesUnread),
                Err(Errno::INTR) => continue,
                Err(errno) => Err(Reason::Socket(errno)),
            };
        }
    }
}

impl AsFd for MessageStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
