//! The connection: whole messages in, whole messages out, never blocking.
//!
//! A message is read in two steps, its header and then exactly its payload, so
//! that a descriptor can only belong to the message whose bytes it came with.
//! Every descriptor is owned the moment it is received.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use causeway_host::fd::receive::Incoming;
use causeway_host::{Account, ReceivedFd};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use vhost::vhost_user::message::FrontendReq;

use super::fault::Reason;
use super::message::{HEADER_BYTES, Header};
use crate::limits::DESCRIPTORS_MAX;

/// A message as it came, not yet understood.
#[derive(Debug)]
pub struct Raw {
    /// Its header.
    pub header: Header,
    /// The header's code.
    pub request: FrontendReq,
    /// Its payload.
    pub payload: Vec<u8>,
    /// The descriptors that came with it.
    pub fds: Vec<ReceivedFd>,
}

/// What one look at the connection gave.
#[derive(Debug)]
pub enum Received {
    /// A whole message.
    Message(Raw),
    /// Nothing whole yet.
    Nothing,
    /// The other side closed, between two messages.
    Closed,
}

/// One end of a vhost-user connection.
#[derive(Debug)]
pub struct Stream {
    socket: Incoming,
    header: [u8; HEADER_BYTES],
    /// Set once the header is whole and checked.
    parsed: Option<(Header, FrontendReq)>,
    payload: Vec<u8>,
    /// Bytes of the header, and then of the payload, that are there.
    have: usize,
    fds: Vec<ReceivedFd>,
}

/// How a single read ended.
enum Read {
    Some,
    WouldBlock,
    End,
}

impl Stream {
    /// Takes over a connected Unix stream socket; its blocking mode does not matter.
    pub fn new(socket: impl Into<Incoming>) -> Self {
        Self {
            socket: socket.into(),
            header: [0; HEADER_BYTES],
            parsed: None,
            payload: Vec::new(),
            have: 0,
            fds: Vec::new(),
        }
    }

    /// The account of the peer: descriptors that come here and what is mapped of them are its.
    pub fn giver(&self) -> Account {
        self.socket.giver()
    }

    /// Reads on; gives a message when one is whole.
    pub fn receive(&mut self) -> Result<Received, Reason> {
        loop {
            let (header, request) = match self.parsed {
                Some(parsed) if self.have == self.payload.len() => parsed,
                _ => match self.fill()? {
                    Read::Some => {
                        self.parse_header()?;
                        continue;
                    }
                    Read::WouldBlock => return Ok(Received::Nothing),
                    Read::End if self.have == 0 && self.parsed.is_none() => {
                        return Ok(Received::Closed);
                    }
                    Read::End => return Err(Reason::Truncated),
                },
            };
            self.parsed = None;
            self.have = 0;
            let payload = std::mem::take(&mut self.payload);
            let fds = std::mem::take(&mut self.fds);
            return Ok(Received::Message(Raw { header, request, payload, fds }));
        }
    }

    /// Once the header's last byte is there: checks it and makes room for the payload.
    fn parse_header(&mut self) -> Result<(), Reason> {
        if self.parsed.is_none() && self.have == HEADER_BYTES {
            let (header, request) = Header::parse(self.header)?;
            self.parsed = Some((header, request));
            self.payload = vec![0; header.size as usize];
            self.have = 0;
        }
        Ok(())
    }

    /// Reads what is missing of the header or the payload, and the descriptors beside it.
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
            // There was room for as many as the kernel lets come: this process may have no more.
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
            // At once, and not when the message is whole: that may be never.
            return Err(Reason::DescriptorKind { request: self.request() });
        }
        Ok(Read::Some)
    }

    /// What the message at hand asks for, if that is known yet.
    fn request(&self) -> Option<FrontendReq> {
        let fresh = || {
            let whole = self.have == HEADER_BYTES;
            whole.then(|| Header::parse(self.header).ok()).flatten()
        };
        self.parsed.or_else(fresh).map(|(_, request)| request)
    }

    /// Sends one whole message. A peer that leaves no room for it is at fault.
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

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
