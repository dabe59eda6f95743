//! Connections to targets: without blocking, within 10 s, and for a guest's AF_VSOCK port with the
//! handshake of its host socket.
//!
//! [`crate::connection`] starts a [`Dial`] for each accepted connection, and calls
//! [`Dial::advance`] when the socket is ready or the time is due, until it is open or failed.
//! [`crate::stdio`] does the same for its only connection. All of them run in the process of
//! `causeway forward`, on the one thread of [`crate::Relay`] or `stdio`; causewayd runs none of it.
//!
//! A host with several addresses is tried at each in turn, each once. [`DIAL_TIME`] (10 s) is the
//! limit of the whole attempt: an address that does not answer uses up the rest of it, and the next
//! is tried only after an error. While the queue of a Unix socket is full, the attempt connects
//! again every [`RETRY_TIME`] (50 ms).
//!
//! The handshake is one line in each direction: `CONNECT <port>`, or `CONNECT <CID>:<port>` at the
//! host socket of a port for processes, and `OK <number>`, or
//! `ERR <reason>` for a refusal. Another line, [`ANSWER_BYTES_MAX`] (256) bytes without an end of
//! line, the end of the stream and a reset are refusals too. The guest's data may follow the answer
//! in the same packet, and is kept. The module moves no data after the connection is open.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::limits::{ANSWER_BYTES_MAX, DIAL_TIME, RETRY_TIME};
use crate::{ForwardError, SocketAddress};

/// An attempt to connect to a target.
#[derive(Debug)]
pub(crate) struct Dial {
    state: DialState,
    /// Addresses of a TCP target that were tried.
    tried: usize,
    /// Why the last address failed.
    error: io::Error,
    /// The attempt fails at this time: [`DIAL_TIME`] (10 s) after its start.
    pub deadline: Instant,
}

/// State of the attempt.
#[derive(Debug)]
enum DialState {
    /// No socket is open; the next is opened at this time: at the start, or [`RETRY_TIME`] (50 ms)
    /// after the queue of the Unix socket was full.
    Next(Instant),
    /// The kernel connects.
    Connecting(OwnedFd),
    /// The host socket must answer; `answer` has the bytes so far, fewer than [`ANSWER_BYTES_MAX`]
    /// (256).
    Answering { fd: OwnedFd, answer: Vec<u8> },
    /// The connection was passed to the caller.
    Done,
}

/// Outcome of a step.
#[derive(Debug)]
pub(crate) enum DialOutcome {
    /// The attempt continues when its socket is ready, or at this time.
    Wait(Option<Instant>),
    /// A new socket must be watched; the attempt continues when it is ready.
    Opened,
    /// The target is connected. The bytes that followed the handshake are the first data.
    Connected(OwnedFd, Vec<u8>),
}

impl Dial {
    /// Returns an attempt that begins with the next [`Self::advance`].
    pub fn new(now: Instant) -> Self {
        Self {
            state: DialState::Next(now),
            tried: 0,
            error: io::ErrorKind::AddrNotAvailable.into(),
            deadline: now.checked_add(DIAL_TIME).unwrap_or(now),
        }
    }

    /// Returns the socket to watch.
    pub fn socket(&self) -> Option<&OwnedFd> {
        match &self.state {
            DialState::Connecting(fd) | DialState::Answering { fd, .. } => Some(fd),
            DialState::Next(_) | DialState::Done => None,
        }
    }

    /// Returns whether the host socket must answer.
    pub const fn is_answering(&self) -> bool {
        matches!(self.state, DialState::Answering { .. })
    }

    /// Continues the attempt. After the connection was returned, the result is `Wait(None)` until
    /// the deadline; the caller drops the attempt instead.
    ///
    /// # Errors
    /// The last address failed, the host socket refused, or the deadline passed. The socket is
    /// closed.
    pub fn advance(
        &mut self,
        to: &SocketAddress,
        now: Instant,
    ) -> Result<DialOutcome, ForwardError> {
        if now >= self.deadline {
            let seconds = DIAL_TIME.as_secs();
            return Err(ForwardError::Timeout { address: to.to_string(), seconds });
        }
        match std::mem::replace(&mut self.state, DialState::Done) {
            DialState::Next(at) if at > now => {
                self.state = DialState::Next(at);
                Ok(DialOutcome::Wait(Some(at)))
            }
            DialState::Next(_) => self.open(to, now),
            DialState::Connecting(fd) => self.check_connected(to, fd, now),
            DialState::Answering { fd, answer } => self.read_answer(to, fd, answer),
            DialState::Done => Ok(DialOutcome::Wait(None)),
        }
    }

    /// Opens a socket to the next address.
    fn open(&mut self, to: &SocketAddress, now: Instant) -> Result<DialOutcome, ForwardError> {
        let opened = match (to, to.connecting_path()) {
            (_, Some(path)) => open_unix(path),
            (SocketAddress::Tcp(all), None) => match all.get(self.tried) {
                Some(at) => open_tcp(*at),
                None => return Err(self.failed(to)),
            },
            (_, None) => return Err(self.failed(to)),
        };
        match opened {
            Ok(fd) => {
                self.state = DialState::Connecting(fd);
                Ok(DialOutcome::Opened)
            }
            Err(Errno::AGAIN) => {
                // The queue of the Unix socket is full.
                let at = now.checked_add(RETRY_TIME).unwrap_or(now);
                self.state = DialState::Next(at);
                Ok(DialOutcome::Wait(Some(at)))
            }
            Err(error) => self.try_next(to, error.into(), now),
        }
    }

    /// Records why an address failed, and opens a socket to the next one, if there is one.
    fn try_next(
        &mut self,
        to: &SocketAddress,
        error: io::Error,
        now: Instant,
    ) -> Result<DialOutcome, ForwardError> {
        self.error = error;
        self.tried = self.tried.saturating_add(1);
        match to {
            SocketAddress::Tcp(all) if self.tried < all.len() => self.open(to, now),
            _ => Err(self.failed(to)),
        }
    }

    fn failed(&mut self, to: &SocketAddress) -> ForwardError {
        let error = std::mem::replace(&mut self.error, io::ErrorKind::Other.into());
        ForwardError::Connect { address: to.to_string(), error }
    }

    /// Checks whether the kernel has connected the socket.
    fn check_connected(
        &mut self,
        to: &SocketAddress,
        fd: OwnedFd,
        now: Instant,
    ) -> Result<DialOutcome, ForwardError> {
        match rustix::net::sockopt::socket_error(&fd) {
            Ok(Ok(())) => {}
            Ok(Err(error)) | Err(error) => return self.try_next(to, error.into(), now),
        }
        if rustix::net::getpeername(&fd).is_err() {
            self.state = DialState::Connecting(fd);
            return Ok(DialOutcome::Wait(None));
        }
        // The send buffer is empty: it has room for a line.
        let line = match to {
            SocketAddress::Vsock { cid: None, port, .. } => format!("CONNECT {port}\n"),
            SocketAddress::Vsock { cid: Some(cid), port, .. } => format!("CONNECT {cid}:{port}\n"),
            _ => return Ok(DialOutcome::Connected(fd, Vec::new())),
        };
        match rustix::net::send(&fd, line.as_bytes(), SendFlags::NOSIGNAL) {
            Ok(sent) if sent == line.len() => self.read_answer(to, fd, Vec::new()),
            Ok(_) => Err(refused(to, &[])),
            Err(error) => {
                Err(ForwardError::Connect { address: to.to_string(), error: error.into() })
            }
        }
    }

    /// Reads the host socket's answer.
    fn read_answer(
        &mut self,
        to: &SocketAddress,
        fd: OwnedFd,
        mut answer: Vec<u8>,
    ) -> Result<DialOutcome, ForwardError> {
        loop {
            let mut chunk = [0_u8; ANSWER_BYTES_MAX];
            match rustix::net::recv(fd.as_fd(), &mut chunk, RecvFlags::empty()) {
                Ok((0, _)) => return Err(refused(to, &answer)),
                Ok((len, _)) => {
                    answer.extend_from_slice(chunk.get(..len).unwrap_or_default());
                    if let Some(end) = answer.iter().position(|byte| *byte == b'\n') {
                        let rest = answer.split_off(end.saturating_add(1));
                        return match answer.starts_with(b"OK ") {
                            true => Ok(DialOutcome::Connected(fd, rest)),
                            false => Err(refused(to, &answer)),
                        };
                    }
                    if answer.len() >= ANSWER_BYTES_MAX {
                        return Err(refused(to, &answer));
                    }
                }
                Err(Errno::AGAIN) => {
                    self.state = DialState::Answering { fd, answer };
                    return Ok(DialOutcome::Wait(None));
                }
                Err(Errno::INTR) => {}
                // causewayd closes with unread bytes where a rule or the guest refuses.
                Err(Errno::CONNRESET) => return Err(refused(to, &answer)),
                Err(error) => {
                    return Err(ForwardError::Connect {
                        address: to.to_string(),
                        error: error.into(),
                    });
                }
            }
        }
    }
}

/// Returns the error for an answer that is no `OK`. `ERR <reason>` has the reason; other host
/// sockets close the stream without one.
fn refused(to: &SocketAddress, answer: &[u8]) -> ForwardError {
    let text = answer.strip_prefix(b"ERR ").and_then(|reason| std::str::from_utf8(reason).ok());
    let reason = text.map(|reason| reason.trim().replace(char::is_control, " "));
    let reason = reason.unwrap_or_else(|| {
        "no program listens at this port, the guest is not up, or a rule rejects it (`causeway \
         trace connect` has the reason)"
            .into()
    });
    ForwardError::Refused { address: to.to_string(), reason }
}

/// Returns a non-blocking socket that is connected to a path.
fn open_unix(path: &std::path::Path) -> rustix::io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&fd, &address)?;
    Ok(fd)
}

/// Returns a non-blocking socket that the kernel connects to an address.
fn open_tcp(at: std::net::SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::sockopt::set_tcp_nodelay(&fd, true)?;
    match rustix::net::connect(&fd, &at) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        // EAGAIN has another meaning for TCP: no local port is left.
        Err(Errno::AGAIN) => Err(Errno::ADDRNOTAVAIL),
        Err(error) => Err(error),
    }
}
