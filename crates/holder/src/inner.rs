//! The connection of a vhost-user relay to causewayd: the inner socket of a port, with an
//! acknowledgement of every message.
//!
//! [`crate::relay`] forwards the frontend's messages by it, [`crate::replay`] sends recorded state,
//! both in the thread of the relay. Towards causewayd the holder is an ordinary vhost-user frontend
//! that negotiated REPLY_ACK. Each exchange waits for the reply, without a time limit (a causewayd
//! that hangs blocks the frontend), and ends early if causewayd or the frontend disconnects. One
//! exchange is in progress at a time.
//!
//! causewayd sends no requests on this connection; any message that is not the reply is
//! [`ExchangeError::Garbled`]. A refusal (a non-zero acknowledgement) is an error of
//! [`DaemonStream::send_checked`], and the payload of the reply of [`DaemonStream::exchange`]. The
//! module changes no payload and does not reconnect: after an error the relay drops the stream.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use causeway_attach::Reason;
use causeway_attach::vhost_user::message::{Header, Message};
use causeway_attach::vhost_user::stream::{MessageStream, RawMessage, ReadOutcome};
use causeway_attach::vhost_user::{FrontendReq as R, VhostUserProtocolFeatures as Protocol};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Why an exchange with causewayd failed.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// causewayd closed the connection, or does not listen.
    #[error("causewayd does not listen")]
    Gone,
    /// The reply does not match the request.
    #[error("invalid reply of causewayd: {0}")]
    Garbled(Reason),
    /// causewayd refuses a message that an earlier causewayd accepted.
    #[error("causewayd refuses {0:?}, which an earlier causewayd accepted")]
    Refused(R),
    /// causewayd lacks a feature that the connection uses.
    #[error("causewayd no longer offers {0}")]
    Lacking(&'static str),
    /// The frontend disconnected during the exchange.
    #[error("the frontend left")]
    FrontendLeft,
}

impl From<Reason> for ExchangeError {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Socket(_) | Reason::Truncated => Self::Gone,
            other => Self::Garbled(other),
        }
    }
}

/// A vhost-user connection to a port's inner socket.
#[derive(Debug)]
pub struct DaemonStream {
    stream: MessageStream,
}

/// Protocol features that the holder needs for itself, and negotiates also if the frontend does
/// not.
pub const NEEDED: Protocol = Protocol::REPLY_ACK.union(Protocol::INFLIGHT_SHMFD);

/// Returns whether the reply to a request is more than an acknowledgement.
pub fn expects_reply(request: R) -> bool {
    matches!(
        request,
        R::GET_FEATURES
            | R::GET_PROTOCOL_FEATURES
            | R::GET_QUEUE_NUM
            | R::GET_VRING_BASE
            | R::GET_CONFIG
            | R::GET_INFLIGHT_FD
            | R::GET_MAX_MEM_SLOTS
            | R::GET_STATUS
    )
}

/// Returns a socket that is connected to the listening socket at `path`, without blocking.
///
/// # Errors
/// The error of the kernel.
pub(crate) fn connect_unix(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

impl DaemonStream {
    /// Connects to the socket at `path`, without blocking.
    ///
    /// # Errors
    /// causewayd does not listen there.
    pub fn connect(path: &Path) -> Result<Self, ExchangeError> {
        connect_unix(path)
            .map(|socket| Self { stream: MessageStream::new(socket) })
            .map_err(|_| ExchangeError::Gone)
    }

    /// Negotiates the features that the holder needs for a frontend that has sent no message yet:
    /// sends SET_PROTOCOL_FEATURES with [`NEEDED`], and no query. causewayd distinguishes VMMs by
    /// the order of their first queries (`causeway_attach::vhost_user`), so the holder must not
    /// send a query before the frontend does. A causewayd that lacks a feature refuses the message.
    ///
    /// # Errors
    /// The exchange failed, or causewayd lacks a feature ([`ExchangeError::Refused`]).
    pub fn begin_new(&mut self, frontend: BorrowedFd<'_>) -> Result<(), ExchangeError> {
        let needed = NEEDED.bits().to_ne_bytes();
        self.send_checked(R::SET_PROTOCOL_FEATURES, &needed, &[], frontend)
    }

    /// Negotiates `protocol` and the features that the holder needs for a frontend that has
    /// negotiated before, and sends SET_OWNER; returns the virtio features that causewayd offers.
    /// SET_OWNER precedes the offer, so that it has all features that any frontend may have
    /// accepted. `frontend` is watched meanwhile.
    ///
    /// # Errors
    /// The exchange failed, or causewayd lacks a feature: [`ExchangeError::Refused`] for one of
    /// [`NEEDED`], [`ExchangeError::Lacking`] for one of `protocol`.
    pub fn begin(&mut self, protocol: u64, frontend: BorrowedFd<'_>) -> Result<u64, ExchangeError> {
        self.begin_new(frontend)?;
        self.send_checked(R::SET_OWNER, &[], &[], frontend)?;
        let offered = self.ask_number(R::GET_FEATURES, frontend)?;
        let known = self.ask_number(R::GET_PROTOCOL_FEATURES, frontend)?;
        let wanted = protocol | NEEDED.bits();
        if wanted & !known != 0 {
            return Err(ExchangeError::Lacking("the protocol features of this connection"));
        }
        self.send_checked(R::SET_PROTOCOL_FEATURES, &wanted.to_ne_bytes(), &[], frontend)?;
        Ok(offered)
    }

    /// Sends a request without payload and returns the number in its reply.
    fn ask_number(&mut self, request: R, frontend: BorrowedFd<'_>) -> Result<u64, ExchangeError> {
        let reply = self.exchange(request, &[], &[], frontend)?;
        Ok(Message::decode_number(request, &reply.payload)?)
    }

    /// Sends a request that causewayd must accept.
    ///
    /// # Errors
    /// The exchange failed, or causewayd refused.
    pub fn send_checked(
        &mut self,
        request: R,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
        frontend: BorrowedFd<'_>,
    ) -> Result<(), ExchangeError> {
        let reply = self.exchange(request, payload, fds, frontend)?;
        match Message::decode_number(request, &reply.payload)? {
            0 => Ok(()),
            _ => Err(ExchangeError::Refused(request)),
        }
    }

    /// Sends a request and waits for the reply or acknowledgement, while both sides are connected.
    ///
    /// # Errors
    /// Either side disconnected, or the reply does not match.
    pub fn exchange(
        &mut self,
        request: R,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
        frontend: BorrowedFd<'_>,
    ) -> Result<RawMessage, ExchangeError> {
        let size = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.stream.send(Header::request(request, size).need_reply(), payload, fds)?;
        loop {
            match self.stream.receive()? {
                ReadOutcome::Message(raw)
                    if raw.header.is_reply() && raw.header.request == request =>
                {
                    return Ok(raw);
                }
                ReadOutcome::Message(_) => return Err(Reason::Reply(request).into()),
                ReadOutcome::Closed => return Err(ExchangeError::Gone),
                ReadOutcome::Nothing => {}
            }
            let mut both = [
                PollFd::new(&self.stream, PollFlags::IN),
                PollFd::from_borrowed_fd(frontend, PollFlags::RDHUP),
            ];
            match poll(&mut both, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return Err(ExchangeError::Gone),
            }
            let [_, frontend] = both;
            if !frontend.revents().is_empty() {
                return Err(ExchangeError::FrontendLeft);
            }
        }
    }
}

impl AsFd for DaemonStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
