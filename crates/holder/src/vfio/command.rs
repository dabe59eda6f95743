//! A command of a frontend on its way, and the connection to causewayd's inner socket.
//!
//! Frontends number their commands as they like; therefore the holder sends each under a number of
//! its own and asks for a reply to each. A command without a reply when the connection ends counts
//! as executed by no causewayd: the holder answers it ([`super::away`]), or it goes to the next
//! causewayd. The connection does not reconnect, and a send
//! waits at most 2 s for room ([`MessageStream::send`]) and then fails, which ends the connection;
//! commands in flight are bounded so that they fit the socket ([`super::relay`]). The relay's
//! thread alone uses both types.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Instant;

use causeway_attach::vfio_user::fault::Reason;
use causeway_attach::vfio_user::message::{Header, RegionAccess, command};
use causeway_attach::vfio_user::stream::{MessageStream, RawMessage, ReadOutcome};

use super::registers::is_doorbell;
use crate::deaths::Deaths;
use crate::inner::connect_unix;

/// A command of a frontend.
#[derive(Debug)]
pub struct Command {
    /// The command.
    pub message: RawMessage,
    /// Number of the command on the connection to causewayd.
    pub number: u16,
    /// Whether the frontend expects a reply. The holder answers some commands itself and keeps them
    /// for the next causewayd.
    pub wants_reply: bool,
    /// Whether commands behind this one must wait: the holder has no answer to it while causewayd
    /// is away.
    pub is_blocking: bool,
    /// Whether the command reached the causewayd for which it is in flight.
    pub is_sent: bool,
    /// The causewayds that ended while they had the command.
    pub deaths: Deaths,
    /// Time of the arrival.
    pub since: Instant,
}

impl Command {
    /// Returns a command that has just arrived.
    pub fn new(message: RawMessage) -> Self {
        let wants_reply = message.header.needs_reply();
        let since = Instant::now();
        let (number, deaths) = (0, Deaths::default());
        Self { message, number, wants_reply, is_blocking: false, is_sent: false, deaths, since }
    }

    /// Returns whether the command writes a register or rings a doorbell.
    pub fn is_write(&self) -> bool {
        self.message.header.command == command::REGION_WRITE
    }

    /// Returns whether the command rings a doorbell.
    pub fn is_doorbell(&self) -> bool {
        let access = RegionAccess::parse(&self.message.payload);
        self.is_write() && access.is_some_and(|(access, _)| is_doorbell(&access))
    }

    /// Returns the length of the message, in bytes.
    pub fn bytes(&self) -> usize {
        self.message.payload.len()
    }
}

/// A connection to a port's inner socket.
#[derive(Debug)]
pub struct DaemonSocket {
    stream: MessageStream,
    /// Number of the last command.
    number: u16,
}

impl DaemonSocket {
    /// Connects to the socket at `path`, without blocking; `None` if causewayd does not listen.
    pub fn connect(path: &Path) -> Option<Self> {
        let socket = connect_unix(path).ok()?;
        Some(Self { stream: MessageStream::new(socket), number: 0 })
    }

    /// Returns the next number that `is_free`. The caller leaves at least one of 2^16 free.
    pub fn next_number(&mut self, is_free: impl Fn(u16) -> bool) -> u16 {
        loop {
            self.number = self.number.wrapping_add(1);
            // Fewer numbers are in use than exist.
            if is_free(self.number) {
                return self.number;
            }
        }
    }

    /// Sends a command under `number`, with a request for a reply.
    ///
    /// # Errors
    /// The connection failed.
    pub fn send(
        &self,
        number: u16,
        command: u16,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), Reason> {
        let header = Header::command(number, command, payload.len());
        self.stream.send(&[header.emit().as_slice(), payload].concat(), fds, None)
    }

    /// Returns the next reply, if one is complete.
    ///
    /// # Errors
    /// The connection failed, or the message is malformed.
    pub fn receive(&mut self) -> Result<ReadOutcome, Reason> {
        self.stream.receive()
    }
}

impl AsFd for DaemonSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
