//! Framed messages over a Unix stream socket: whole messages in, whole messages out, with
//! descriptors.
//!
//! [`crate::vhost_user::stream`] and [`crate::vfio_user::stream`] define the two framings
//! ([`Framing`]): a header of fixed length that states the length of its payload. The servers, the
//! native clients and the relays of `causeway-holder` use [`MessageStream`] for either end of a
//! connection. A message is read in two steps, its header and then exactly its payload, so that a
//! file descriptor always belongs to the message that it arrived with. Every descriptor is owned
//! from the moment it is received.
//!
//! A receive never blocks and keeps one incomplete message. A send either needs room for all of its
//! bytes ([`MessageStream::send_now`]), or waits for room, at most [`REPLY_STALL_MS`] (2 s;
//! [`MessageStream::send_all`]); nothing is queued. A message with more than
//! [`STREAM_DESCRIPTORS_MAX`] (8) descriptors, or with any while more than 128 earlier ones wait
//! for their close, ends the connection. Descriptors of other types than eventfds, pidfds, Unix
//! sockets and memory files are closed; the framing then refuses the message, or the receiver does
//! ([`RawMessage::is_odd`]).
//!
//! Calls run in the caller's thread. Dispatchers serve vhost-user frontends, and call only
//! [`MessageStream::receive`] and [`MessageStream::send_now`], which never wait. The control thread
//! of a vfio-user frontend, threads of the holder, and applications with a native client also wait
//! ([`MessageStream::wait_readable`], [`MessageStream::send_all`]). After an error of any call the
//! stream is unusable and must be dropped. Of the content only the header is checked.

use std::fmt::Debug;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use causeway_host::fd::receive::UntrustedSocket;
use causeway_host::{Account, ReceivedFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::limits::{REPLY_STALL_MS, STREAM_DESCRIPTORS_MAX, STREAM_HEADER_BYTES_MAX};

/// The reason of the transport for the end of a connection, independent of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFault {
    /// More than [`STREAM_DESCRIPTORS_MAX`] (8) descriptors arrived with one message.
    DescriptorsCut,
    /// This process is at its descriptor limit, so the kernel discarded those of a message.
    DescriptorsScarce,
    /// Too many descriptors of the peer are still being closed.
    DescriptorsUnclosed,
    /// The peer closed the connection within a message.
    Truncated,
    /// The peer leaves no room for a message.
    Unread,
    /// The socket failed.
    Socket(Errno),
}

/// The headers of a protocol.
pub trait Framing {
    /// A header that [`Self::parse`] accepted.
    type Header: Copy + Debug;
    /// The reason why a connection ends.
    type Reason: From<StreamFault>;
    /// Length of a header, at most [`STREAM_HEADER_BYTES_MAX`] (16 bytes).
    const HEADER_BYTES: usize;

    /// Parses a header of [`Self::HEADER_BYTES`] bytes, and checks the length of its payload.
    ///
    /// # Errors
    /// The rule that the peer broke.
    fn parse(bytes: &[u8]) -> Result<Self::Header, Self::Reason>;

    /// Returns the length of the payload, in bytes.
    fn payload_bytes(header: &Self::Header) -> usize;

    /// Admits or refuses a message with descriptors of other types. `header` is `None` while the
    /// header is incomplete.
    ///
    /// # Errors
    /// The reason, if such a message ends the connection.
    fn admit_odd(header: Option<&Self::Header>) -> Result<(), Self::Reason>;
}

/// A received message that is not decoded yet.
#[derive(Debug)]
pub struct RawMessage<H> {
    /// The header.
    pub header: H,
    /// The payload.
    pub payload: Vec<u8>,
    /// The descriptors that arrived with the message.
    pub fds: Vec<ReceivedFd>,
    /// Whether descriptors of other types arrived with the message and were closed.
    pub is_odd: bool,
}

/// The result of a non-blocking read.
#[derive(Debug)]
pub enum ReadOutcome<H> {
    /// A whole message.
    Message(RawMessage<H>),
    /// No whole message is available.
    Nothing,
    /// The peer closed the connection between two messages.
    Closed,
}

/// One end of a connection.
#[derive(Debug)]
pub struct MessageStream<F: Framing> {
    socket: UntrustedSocket,
    header: [u8; STREAM_HEADER_BYTES_MAX],
    /// Set once the header is whole and checked.
    parsed: Option<F::Header>,
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

/// Returns whether a descriptor is readable now.
fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

impl<F: Framing> MessageStream<F> {
    /// Takes over a connected Unix stream socket, blocking or not.
    pub fn new(socket: impl Into<UntrustedSocket>) -> Self {
        Self {
            socket: socket.into(),
            header: [0; STREAM_HEADER_BYTES_MAX],
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
    pub fn receive(&mut self) -> Result<ReadOutcome<F::Header>, F::Reason> {
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
                    Read::End => return Err(StreamFault::Truncated.into()),
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
    fn parse_header(&mut self) -> Result<(), F::Reason> {
        if self.parsed.is_none() && self.have == F::HEADER_BYTES {
            let header = F::parse(self.header.get(..F::HEADER_BYTES).unwrap_or_default())?;
            self.parsed = Some(header);
            self.payload = vec![0; F::payload_bytes(&header)];
            self.have = 0;
        }
        Ok(())
    }

    /// Reads the missing bytes of the header or payload, with their descriptors.
    fn fill(&mut self) -> Result<Read, F::Reason> {
        let header = self.header.get_mut(..F::HEADER_BYTES).unwrap_or_default();
        let part = if self.parsed.is_some() { &mut self.payload } else { header };
        let missing = part.get_mut(self.have..).unwrap_or_default();
        let mut is_odd = false;
        let got = match self.socket.receive(missing, &mut self.fds, &mut is_odd) {
            Ok(got) => got,
            Err(Errno::INTR) => return Ok(Read::Some),
            Err(Errno::AGAIN) => return Ok(Read::WouldBlock),
            Err(Errno::CONNRESET) => return Ok(Read::End),
            Err(errno) => return Err(StreamFault::Socket(errno).into()),
        };
        if self.fds.len() > STREAM_DESCRIPTORS_MAX {
            return Err(StreamFault::DescriptorsCut.into());
        }
        if got.cut {
            // The buffer fits all descriptors that the kernel accepts, so this process is at its
            // limit.
            return Err(StreamFault::DescriptorsScarce.into());
        }
        if (is_odd || !self.fds.is_empty()) && self.socket.giver().is_behind() {
            return Err(StreamFault::DescriptorsUnclosed.into());
        }
        if got.bytes == 0 {
            return Ok(Read::End);
        }
        self.have = self.have.saturating_add(got.bytes);
        self.is_odd |= is_odd;
        if is_odd {
            // Decided at once: the rest of the message may never arrive.
            F::admit_odd(self.known_header().as_ref())?;
        }
        Ok(Read::Some)
    }

    /// Returns the header of the message being read, if it is whole and valid.
    fn known_header(&self) -> Option<F::Header> {
        let bytes = self.header.get(..self.have).filter(|bytes| bytes.len() == F::HEADER_BYTES);
        self.parsed.or_else(|| F::parse(bytes?).ok())
    }

    /// Waits until bytes can be read, until `stop` is readable, or until `deadline`. Returns
    /// whether one of the descriptors is ready, or may be: a signal ended the wait.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn wait_readable(
        &self,
        stop: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Result<bool, F::Reason> {
        self.wait(PollFlags::IN, stop, deadline)
    }

    /// Waits until the socket is ready as `flags` name, `stop` is readable, or `deadline` is past.
    fn wait(
        &self,
        flags: PollFlags,
        stop: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Result<bool, F::Reason> {
        let mut fds = vec![PollFd::new(&self.socket, flags)];
        fds.extend(stop.as_ref().map(|stop| PollFd::new(stop, PollFlags::IN)));
        let time = deadline.map(time_until);
        match poll(&mut fds, time.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(StreamFault::Socket(errno).into()),
        }
    }

    /// Sends one message without waiting.
    ///
    /// # Errors
    /// Returns [`StreamFault::Unread`] if the peer leaves no room for all of its bytes, or the
    /// error of the socket.
    pub fn send_now(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), F::Reason> {
        loop {
            return match self.send_part(bytes, fds)? {
                Ok(sent) if sent == bytes.len() => Ok(()),
                Ok(_) | Err(Errno::AGAIN) => Err(StreamFault::Unread.into()),
                Err(Errno::INTR) => continue,
                Err(errno) => Err(StreamFault::Socket(errno).into()),
            };
        }
    }

    /// Sends whole messages, of which the first has `fds` as descriptors. Waits for room in the
    /// socket, at most [`REPLY_STALL_MS`] (2 s) for all of them, and until `stop` is readable.
    /// While there is room, `stop` is not considered.
    ///
    /// # Errors
    /// Returns [`StreamFault::Unread`] if the peer leaves no room in this time, or `stop` is
    /// readable while there is none; or the error of the socket. A part of the bytes may have been
    /// sent.
    pub fn send_all(
        &self,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<(), F::Reason> {
        let deadline = Instant::now().checked_add(Duration::from_millis(REPLY_STALL_MS));
        let (mut rest, mut fds) = (bytes, fds);
        while !rest.is_empty() {
            match self.send_part(rest, fds)? {
                Ok(sent) => {
                    rest = rest.get(sent..).unwrap_or_default();
                    // Descriptors travel with the first byte.
                    fds = &[];
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let is_late = deadline.is_none_or(|deadline| Instant::now() >= deadline);
                    if is_late
                        || !self.wait(PollFlags::OUT, stop, deadline)?
                        || stop.is_some_and(is_readable)
                    {
                        return Err(StreamFault::Unread.into());
                    }
                }
                Err(errno) => return Err(StreamFault::Socket(errno).into()),
            }
        }
        Ok(())
    }

    /// Sends as many bytes as the socket has room for. Returns the result of the system call.
    fn send_part(
        &self,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Result<usize, Errno>, F::Reason> {
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAM_DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(StreamFault::DescriptorsCut.into());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, flags))
    }
}

impl<F: Framing> AsFd for MessageStream<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
