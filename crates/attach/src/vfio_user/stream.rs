//! The vfio-user connection: whole messages in, whole messages out.
//!
//! The control thread uses it for the server's end, the native client for the frontend's end, and
//! the holder's relay thread for both. A message is read in two steps, its header and then exactly
//! its payload, so that a file descriptor always belongs to the message that it arrived with. Every
//! descriptor is owned from the moment it is received.
//!
//! A receive never blocks and keeps one incomplete message. A send waits for room in the socket, at
//! most [`REPLY_STALL_MS`] (2 s). A message with more than [`VFIO_DESCRIPTORS_MAX`] (8)
//! descriptors, or with any while more than 128 earlier ones wait for their close, ends the
//! connection. Descriptors of other types than eventfds, pidfds, Unix sockets and memory files are
//! closed, and the message is marked ([`RawMessage::is_odd`]): the server refuses the message with
//! EINVAL and goes on, because a VMM may try to map the file of another device.
//!
//! After an error of any call the stream is unusable and must be dropped. Of the content only the
//! header's size is checked; commands, message types and payloads are the server's part. Nothing is
//! queued for sending: a send that fails may have sent a part of its messages.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use causeway_host::fd::receive::UntrustedSocket;
use causeway_host::{Account, ReceivedFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::fault::Reason;
use super::message::{HEADER_BYTES, Header};
use crate::limits::{REPLY_STALL_MS, VFIO_DESCRIPTORS_MAX};

/// A received message that is not decoded yet.
#[derive(Debug)]
pub struct RawMessage {
    /// The header.
    pub header: Header,
    /// The payload.
    pub payload: Vec<u8>,
    /// The descriptors that arrived with the message.
    pub fds: Vec<ReceivedFd>,
    /// Whether descriptors of other types arrived with the message and were closed.
    pub is_odd: bool,
}

/// The result of a non-blocking read.
#[derive(Debug)]
pub enum ReadOutcome {
    /// A whole message.
    Message(RawMessage),
    /// No whole message is available.
    Nothing,
    /// The peer closed the connection between two messages.
    Closed,
}

/// One end of a vfio-user connection.
#[derive(Debug)]
pub struct MessageStream {
    socket: UntrustedSocket,
    header: [u8; HEADER_BYTES],
    /// Set once the header is whole and checked.
    parsed: Option<Header>,
    payload: Vec<u8>,
    /// Bytes received of the header, and then of the payload.
    have: usize,
    fds: Vec<ReceivedFd>,
    is_odd: bool,
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

/// Returns the time until `deadline` as the kernel expects it.
fn time_until(deadline: Instant) -> Timespec {
    let left = deadline.saturating_duration_since(Instant::now());
    let tv_sec = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: i64::from(left.subsec_nanos()) }
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
            is_odd: false,
        }
    }

    /// Returns the peer's account, which is charged for received descriptors and their mappings.
    pub fn giver(&self) -> Account {
        self.socket.giver()
    }

    /// Returns the socket. An incomplete message is lost.
    pub fn into_socket(self) -> UntrustedSocket {
        self.socket
    }

    /// Reads as far as possible, and returns a message once all of its bytes have arrived.
    ///
    /// # Errors
    /// Returns the rule that the peer broke, or the error of the socket.
    pub fn receive(&mut self) -> Result<ReadOutcome, Reason> {
        loop {
            let header = match self.parsed {
                Some(header) if self.have == self.payload.len() => header,
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
            let is_odd = std::mem::take(&mut self.is_odd);
            return Ok(ReadOutcome::Message(RawMessage { header, payload, fds, is_odd }));
        }
    }

    /// Checks a complete header, and allocates its payload.
    fn parse_header(&mut self) -> Result<(), Reason> {
        if self.parsed.is_none() && self.have == HEADER_BYTES {
            let header = Header::parse(self.header)?;
            self.parsed = Some(header);
            self.payload = vec![0; header.payload_bytes()];
            self.have = 0;
        }
        Ok(())
    }

    /// Reads the missing bytes of the header or payload, with their descriptors.
    fn fill(&mut self) -> Result<Read, Reason> {
        let part = if self.parsed.is_some() { &mut self.payload } else { &mut self.header[..] };
        let missing = part.get_mut(self.have..).unwrap_or_default();
        let got = match self.socket.receive(missing, &mut self.fds, &mut self.is_odd) {
            Ok(got) => got,
            Err(Errno::INTR) => return Ok(Read::Some),
            Err(Errno::AGAIN) => return Ok(Read::WouldBlock),
            Err(Errno::CONNRESET) => return Ok(Read::End),
            Err(errno) => return Err(Reason::Socket(errno)),
        };
        if self.fds.len() > VFIO_DESCRIPTORS_MAX {
            return Err(Reason::DescriptorsCut);
        }
        if got.cut {
            // The buffer fits all descriptors that the kernel accepts, so this process is at its
            // limit.
            return Err(Reason::DescriptorsScarce);
        }
        if (self.is_odd || !self.fds.is_empty()) && self.socket.giver().is_behind() {
            return Err(Reason::DescriptorsUnclosed);
        }
        if got.bytes == 0 {
            return Ok(Read::End);
        }
        self.have = self.have.saturating_add(got.bytes);
        Ok(Read::Some)
    }

    /// Waits until bytes can be read, until `stop` is readable, or until `deadline`. Returns
    /// whether one of the descriptors is ready.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn wait_readable(
        &self,
        stop: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Result<bool, Reason> {
        self.wait(PollFlags::IN, stop, deadline)
    }

    /// Waits until the socket is ready as `flags` name, `stop` is readable, or `deadline` is past.
    fn wait(
        &self,
        flags: PollFlags,
        stop: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Result<bool, Reason> {
        let mut fds = vec![PollFd::new(&self.socket, flags)];
        fds.extend(stop.as_ref().map(|stop| PollFd::new(stop, PollFlags::IN)));
        let time = deadline.map(time_until);
        match poll(&mut fds, time.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(Reason::Socket(errno)),
        }
    }

    /// Sends whole messages, of which the first has `fds` as descriptors. Waits for room in the
    /// socket, at most [`REPLY_STALL_MS`] and until `stop` is readable.
    ///
    /// # Errors
    /// Returns [`Reason::RepliesUnread`] if the peer leaves no room, or the error of the socket.
    pub fn send(
        &self,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<(), Reason> {
        let deadline = Instant::now().checked_add(Duration::from_millis(REPLY_STALL_MS));
        let (mut rest, mut fds) = (bytes, fds);
        while !rest.is_empty() {
            match self.send_part(rest, fds) {
                Ok(sent) => {
                    rest = rest.get(sent..).unwrap_or_default();
                    // Descriptors travel with the first byte.
                    fds = &[];
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let is_late = deadline.is_none_or(|deadline| Instant::now() >= deadline);
                    if is_late || !self.wait(PollFlags::OUT, stop, deadline)? {
                        return Err(Reason::RepliesUnread);
                    }
                    if stop.is_some_and(is_readable) {
                        return Err(Reason::RepliesUnread);
                    }
                }
                Err(errno) => return Err(Reason::Socket(errno)),
            }
        }
        Ok(())
    }

    /// Sends as many bytes as the socket has room for.
    fn send_part(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(VFIO_DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::INVAL);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, flags)
    }
}

/// Returns whether a descriptor is readable now.
fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

impl AsFd for MessageStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
