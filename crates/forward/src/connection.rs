//! A forwarded connection: the dial of its target, then two pipes.
//!
//! [`crate::Relay`] owns the connections, watches their sockets, and calls [`Connection::serve`]
//! after the accept, when a socket is ready, when a time is due, and while work is left. A
//! connection is complete when both directions have ended. If a socket fails, or the target
//! refuses, [`Connection::abort`] closes both sides; a TCP peer receives a reset, because an
//! orderly end would make a cut-off stream look whole. All of it runs in the thread that calls
//! [`crate::Relay::run`]. A dial that takes more than 10 s ends the connection; an open connection
//! has no time limit, and a receiver that does not read stops its sender after 64 KiB here and as
//! many bytes as the sockets hold.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

use crate::dial::{Dial, DialOutcome};
use crate::limits::TURN_BYTES;
use crate::pipe::{Pipe, Readiness};
use crate::{ForwardError, SocketAddress};

/// A side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The accepted socket.
    Client,
    /// The socket to the target.
    Target,
}

/// An accepted connection on its way to the target.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Index of its forward.
    pub forward: usize,
    client: OwnedFd,
    client_ready: Readiness,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Dialing(Dial),
    Open(Box<OpenConnection>),
}

#[derive(Debug)]
struct OpenConnection {
    target: OwnedFd,
    target_ready: Readiness,
    to_target: Pipe,
    to_client: Pipe,
}

/// What the relay does next with a connection.
#[derive(Debug)]
pub(crate) enum Next {
    /// Serve it again in the next round.
    Again,
    /// Serve it when a socket is ready, or at this time.
    Wait(Option<Instant>),
    /// Watch the new socket to the target.
    Watch,
    /// All data and both ends were passed on.
    Done,
}

impl Connection {
    /// Returns a connection that begins to dial with the next [`Self::serve`].
    pub fn new(forward: usize, client: OwnedFd, now: Instant) -> Self {
        let client_ready = Readiness { readable: true, writable: true };
        Self { forward, client, client_ready, stage: Stage::Dialing(Dial::new(now)) }
    }

    /// Returns the socket of a side; `None` if the target's is not open.
    pub fn socket(&self, side: Side) -> Option<&OwnedFd> {
        match (side, &self.stage) {
            (Side::Client, _) => Some(&self.client),
            (Side::Target, Stage::Dialing(dial)) => dial.socket(),
            (Side::Target, Stage::Open(open)) => Some(&open.target),
        }
    }

    /// Records that a socket became ready.
    pub fn note_ready(&mut self, side: Side, ready: Readiness) {
        let of = match (side, &mut self.stage) {
            (Side::Client, _) => &mut self.client_ready,
            (Side::Target, Stage::Open(open)) => &mut open.target_ready,
            (Side::Target, Stage::Dialing(_)) => return,
        };
        of.readable |= ready.readable;
        of.writable |= ready.writable;
    }

    /// Returns the time at which a dial fails.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Dialing(dial) => Some(dial.deadline),
            Stage::Open(_) => None,
        }
    }

    /// Returns whether the target was reached.
    pub const fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open(_))
    }

    /// Returns the bytes passed to the target and to the client.
    pub fn bytes(&self) -> (u64, u64) {
        match &self.stage {
            Stage::Dialing(_) => (0, 0),
            Stage::Open(open) => (open.to_target.bytes, open.to_client.bytes),
        }
    }

    /// Continues the dial, or moves about [`TURN_BYTES`] bytes in each direction.
    ///
    /// # Errors
    /// The target refuses, or a socket failed: the caller must [`abort`](Self::abort).
    pub fn serve(
        &mut self,
        to: &SocketAddress,
        now: Instant,
        scratch: &mut [u8],
    ) -> Result<Next, ForwardError> {
        if let Stage::Dialing(dial) = &mut self.stage {
            let (target, first) = match dial.advance(to, now)? {
                DialOutcome::Wait(at) => {
                    return Ok(Next::Wait(Some(
                        at.map_or(dial.deadline, |at| at.min(dial.deadline)),
                    )));
                }
                DialOutcome::Opened => return Ok(Next::Watch),
                DialOutcome::Connected(target, first) => (target, first),
            };
            self.stage = Stage::Open(Box::new(OpenConnection {
                target,
                target_ready: Readiness { readable: true, writable: true },
                to_target: Pipe::default(),
                to_client: Pipe::starting_with(first),
            }));
        }
        let Stage::Open(open) = &mut self.stage else { return Ok(Next::Wait(None)) };
        open.pump(&self.client, &mut self.client_ready, scratch)
            .map_err(|error| ForwardError::Lost { address: to.to_string(), error: error.into() })?;
        Ok(match open {
            open if open.to_target.is_done() && open.to_client.is_done() => Next::Done,
            open if open.has_work(self.client_ready) => Next::Again,
            _ => Next::Wait(None),
        })
    }

    /// Closes both sides without an orderly end.
    pub fn abort(self) {
        let target = match &self.stage {
            Stage::Open(open) => Some(open.target.as_fd()),
            Stage::Dialing(_) => None,
        };
        for fd in [Some(self.client.as_fd()), target].into_iter().flatten() {
            // Unix sockets have no reset; the option has no effect there.
            let _ = set_socket_linger(fd, Some(Duration::ZERO));
        }
    }
}

impl OpenConnection {
    /// Moves bytes in both directions.
    fn pump(
        &mut self,
        client: &OwnedFd,
        client_ready: &mut Readiness,
        scratch: &mut [u8],
    ) -> rustix::io::Result<()> {
        let (target, ready) = (&self.target, &mut self.target_ready);
        self.to_target.pump((client, client_ready), (target, ready), scratch, TURN_BYTES)?;
        let (target, ready) = (&self.target, &mut self.target_ready);
        self.to_client.pump((target, ready), (client, client_ready), scratch, TURN_BYTES)?;
        Ok(())
    }

    /// Returns whether bytes can move without a further event.
    fn has_work(&self, client: Readiness) -> bool {
        self.to_target.has_work(client, self.target_ready)
            || self.to_client.has_work(self.target_ready, client)
    }
}
