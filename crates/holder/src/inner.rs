//! The conversation with causewayd, as a frontend that asks for every acknowledgement.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use causeway_attach::Reason;
use causeway_attach::vhost_user::message::{Header, Message};
use causeway_attach::vhost_user::stream::{Raw, Received, Stream};
use causeway_attach::vhost_user::{FrontendReq as R, VhostUserProtocolFeatures as Protocol};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Why an exchange with causewayd came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// It hung up, or does not listen.
    #[error("causewayd is not there")]
    Gone,
    /// It answered what was not asked.
    #[error("causewayd answers rubbish: {0}")]
    Garbled(Reason),
    /// It does not take what an earlier one took.
    #[error("causewayd does not take {0:?} again")]
    Refused(R),
    /// It lacks what this connection was set up with.
    #[error("causewayd no longer offers {0}")]
    Lacking(&'static str),
    /// Meanwhile the frontend hung up.
    #[error("the frontend left")]
    Left,
}

impl From<Reason> for Trouble {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Socket(_) | Reason::Truncated => Self::Gone,
            other => Self::Garbled(other),
        }
    }
}

/// A connection to a port's inner socket.
#[derive(Debug)]
pub struct Inner {
    stream: Stream,
}

/// Protocol features that the holder needs for itself.
pub const NEEDED: Protocol = Protocol::REPLY_ACK.union(Protocol::INFLIGHT_SHMFD);

/// Whether a request is answered by more than an acknowledgement.
pub fn is_question(request: R) -> bool {
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

impl Inner {
    /// Connects to the socket at `path`. Never blocks.
    pub fn connect(path: &Path) -> Result<Self, Trouble> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let connected = || -> Result<OwnedFd, Errno> {
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
            Ok(socket)
        };
        connected().map(|socket| Self { stream: Stream::new(socket) }).map_err(|_| Trouble::Gone)
    }

    /// Agrees with causewayd on `protocol` and what the holder needs; gives the virtio features
    /// that it offers. `frontend` is watched meanwhile.
    pub fn begin(&mut self, protocol: u64, frontend: BorrowedFd<'_>) -> Result<u64, Trouble> {
        let offered = self.ask_number(R::GET_FEATURES, frontend)?;
        let known = self.ask_number(R::GET_PROTOCOL_FEATURES, frontend)?;
        let wanted = protocol | NEEDED.bits();
        if wanted & !known != 0 {
            return Err(Trouble::Lacking("the protocol features of this connection"));
        }
        self.tell(R::SET_PROTOCOL_FEATURES, &wanted.to_ne_bytes(), &[], frontend)?;
        Ok(offered)
    }

    fn ask_number(&mut self, request: R, frontend: BorrowedFd<'_>) -> Result<u64, Trouble> {
        let reply = self.exchange(request, &[], &[], frontend)?;
        Ok(Message::decode_number(request, &reply.payload)?)
    }

    /// Sends a request that must be taken.
    pub fn tell(
        &mut self,
        request: R,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
        frontend: BorrowedFd<'_>,
    ) -> Result<(), Trouble> {
        let reply = self.exchange(request, payload, fds, frontend)?;
        match Message::decode_number(request, &reply.payload)? {
            0 => Ok(()),
            _ => Err(Trouble::Refused(request)),
        }
    }

    /// Sends a request and waits for the answer or acknowledgement, for as long as both sides
    /// are there.
    pub fn exchange(
        &mut self,
        request: R,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
        frontend: BorrowedFd<'_>,
    ) -> Result<Raw, Trouble> {
        let size = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.stream.send(Header::request(request, size).need_reply(), payload, fds)?;
        loop {
            match self.stream.receive()? {
                Received::Message(raw) if raw.header.is_reply() && raw.request == request => {
                    return Ok(raw);
                }
                Received::Message(_) => return Err(Reason::Reply(request).into()),
                Received::Closed => return Err(Trouble::Gone),
                Received::Nothing => {}
            }
            let mut both = [
                PollFd::new(&self.stream, PollFlags::IN),
                PollFd::from_borrowed_fd(frontend, PollFlags::RDHUP),
            ];
            match poll(&mut both, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return Err(Trouble::Gone),
            }
            let [_, frontend] = both;
            if !frontend.revents().is_empty() {
                return Err(Trouble::Left);
            }
        }
    }
}

impl AsFd for Inner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
