//! The connection between a process and the service: a Unix socket of a host process, or a session
//! of a process in a guest.
//!
//! Both carry the same messages ([`causeway_wire::local`]). A socket passes descriptors, a session
//! offers of registered memory. Messages to a process wait here or in the session, and nothing
//! blocks; a further message beyond the limit of the attachment is [`LocalError::Unread`]. A
//! request that is malformed, or has descriptors or an offer that do not fit its type, is an error,
//! at which `mx::client` ends the process. Owned by `mx::client`, on the dispatcher's thread.

use std::os::fd::{AsFd as _, OwnedFd};

use causeway_attach::local::{LocalAttachment, LocalError, LocalMessage};
use causeway_attach::{Attachment as _, Event};
use causeway_fabric::guest_session::{GuestMemory, GuestSession, OfferError};
use causeway_fabric::{Context, ServiceWatch};
use causeway_host::ReceivedFd;
use causeway_wire::local::{ClientMessage, DaemonMessage};
use causeway_wire::session::SessionMessage;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::limits::UNREAD_MAX;

/// Memory that came with a request.
#[derive(Debug)]
pub enum RequestMemory {
    /// None.
    None,
    /// A file of a host process.
    File(ReceivedFd),
    /// Registered memory of a process in a guest, or the reason why it is not granted.
    Guest(Result<GuestMemory, OfferError>),
}

/// The connection of a process.
#[derive(Debug)]
pub enum ProcessAttachment {
    /// A Unix socket.
    Socket {
        /// The socket, with the unread messages.
        local: Box<LocalAttachment>,
        /// Watches the socket for requests.
        #[expect(dead_code, reason = "held for its drop")]
        watch: ServiceWatch,
        /// Watches the socket for room while messages are unsent.
        room: Option<ServiceWatch>,
    },
    /// A session of a guest's process.
    Session(AttachedSession),
}

/// A session, which ends with its drop.
#[derive(Debug)]
pub struct AttachedSession(pub GuestSession);

impl Drop for AttachedSession {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl ProcessAttachment {
    /// Returns the session, if the process runs in a guest.
    pub fn session(&self) -> Option<&GuestSession> {
        match self {
            Self::Socket { .. } => None,
            Self::Session(AttachedSession(session)) => Some(session),
        }
    }

    /// Starts or stops watching for room, as needed. Sessions report room by themselves. Returns
    /// false if the host has no descriptor for the watch.
    pub fn watch_room(&mut self, cx: &Context<'_>, value: u32) -> bool {
        let Self::Socket { local, room, .. } = self else { return true };
        if local.backlog() == 0 {
            *room = None;
            return true;
        }
        if room.is_none() {
            *room = cx.watch(local.as_fd(), value).ok();
        }
        room.is_some()
    }

    /// Returns the number of messages that the process has not received.
    pub fn backlog(&self) -> usize {
        match self {
            Self::Socket { local, .. } => local.backlog(),
            Self::Session(AttachedSession(session)) => session.backlog(),
        }
    }

    /// Returns whether fewer than [`UNREAD_MAX`] messages wait. If not, a session makes a notice
    /// when so few wait.
    pub fn has_room(&self) -> bool {
        match self {
            Self::Socket { local, .. } => local.backlog() < UNREAD_MAX,
            Self::Session(AttachedSession(session)) => !session.await_room(UNREAD_MAX),
        }
    }

    /// Returns the number of descriptors that the process has not read.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Socket { local, .. } => local.descriptors(),
            Self::Session(_) => 0,
        }
    }

    /// Returns whether a message waits because the kernel refuses its descriptors at present.
    pub fn is_at_descriptor_limit(&self) -> bool {
        matches!(self, Self::Socket { local, .. } if local.is_at_descriptor_limit())
    }

    /// Returns whether the process closed the connection.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Socket { local, .. } => {
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                let mut socket = [PollFd::new(&**local, PollFlags::empty())];
                let seen = poll(&mut socket, Some(&now));
                let [socket] = socket;
                seen == Ok(1) && socket.revents().intersects(PollFlags::HUP | PollFlags::ERR)
            }
            Self::Session(AttachedSession(session)) => session.is_revoked(),
        }
    }

    /// Returns the next request with its memory, or `None`.
    ///
    /// # Errors
    /// The process closed the connection, or broke a rule.
    pub fn next(&mut self) -> Result<Option<(ClientMessage, RequestMemory)>, LocalError> {
        match self {
            Self::Socket { local, .. } => next_of_socket(local),
            Self::Session(AttachedSession(session)) => next_of_session(session),
        }
    }

    /// Queues a message. A session has no descriptors.
    ///
    /// # Errors
    /// [`LocalError::Unread`]: too many messages wait.
    pub fn queue(&mut self, message: &DaemonMessage, fds: Vec<OwnedFd>) -> Result<(), LocalError> {
        match self {
            Self::Socket { local, .. } => local.queue(message.emit(), fds),
            Self::Session(AttachedSession(session)) => {
                let message = SessionMessage { message: *message, offer: None };
                session.answer(message.emit()).then_some(()).ok_or(LocalError::Unread)
            }
        }
    }

    /// Sends the queued messages as far as there is room.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn flush(&mut self) -> Result<(), LocalError> {
        match self {
            Self::Socket { local, .. } => local.flush().map(drop),
            Self::Session(_) => Ok(()),
        }
    }
}

/// Returns the next request of a host process.
fn next_of_socket(
    local: &mut LocalAttachment,
) -> Result<Option<(ClientMessage, RequestMemory)>, LocalError> {
    let mut events = Vec::new();
    local.poll(&mut events)?;
    let closed = events.contains(&Event::Closed);
    let Some(LocalMessage { bytes, mut fds }) = local.take_message() else {
        return if closed { Err(LocalError::Closed) } else { Ok(None) };
    };
    let request = ClientMessage::parse(&bytes).map_err(|e| LocalError::Rule(e.to_string()))?;
    let wanted = usize::from(matches!(request, ClientMessage::Region { .. }));
    if fds.len() != wanted || closed {
        return Err(if closed { LocalError::Closed } else { LocalError::Descriptors });
    }
    let memory = fds.pop().map_or(RequestMemory::None, RequestMemory::File);
    Ok(Some((request, memory)))
}

/// Returns the next request of a guest's process.
fn next_of_session(
    session: &GuestSession,
) -> Result<Option<(ClientMessage, RequestMemory)>, LocalError> {
    let Some(next) = session.take_request() else { return Ok(None) };
    let request = ClientMessage::parse(&next.bytes).map_err(|e| LocalError::Rule(e.to_string()))?;
    let is_wanted = matches!(
        request,
        ClientMessage::Region { .. } | ClientMessage::Open { .. } | ClientMessage::Resume { .. }
    );
    match (next.memory, is_wanted) {
        (Some(memory), true) => Ok(Some((request, RequestMemory::Guest(memory)))),
        (None, false) => Ok(Some((request, RequestMemory::None))),
        (Some(_), false) => Err(LocalError::Rule("a request offers memory in vain".into())),
        (None, true) => Err(LocalError::Rule("a request offers no memory".into())),
    }
}

#[cfg(test)]
mod tests {
    use causeway_fabric::guest_session::{ServingEnd, SessionNotice, SessionRequest, TurnGate};
    use causeway_fabric::mailbox::mailbox;

    use super::*;

    #[test]
    fn session_has_one_notice_however_often_its_requests_are_taken() {
        let (to, notices) = mailbox(64).unwrap();
        let (carrier, _answers) = mailbox(64).unwrap();
        let end = ServingEnd { to, gate: TurnGate::default(), tag: 1 };
        let session = GuestSession::begin(end, carrier).unwrap();
        let Some(SessionNotice::Began(1, served)) = notices.next() else { panic!("no session") };
        let mut attachment = ProcessAttachment::Session(AttachedSession(served.clone()));
        let bytes = ClientMessage::Name { tag: 1, nic: 2 }.emit();
        let request = || SessionRequest { bytes, memory: None };
        for _ in 0..20 {
            session.push_request(request());
            session.ring(3);
            assert!(attachment.has_room());
            assert!(attachment.next().unwrap().is_some());
            assert!(attachment.next().unwrap().is_none());
        }
        assert!(matches!(notices.next(), Some(SessionNotice::Ready(_))));
        assert!(notices.next().is_none(), "a second notice waits");
        // The shard that takes the notice is told of what comes later.
        served.begin_requests();
        session.push_request(request());
        assert!(matches!(notices.next(), Some(SessionNotice::Ready(_))));
    }
}
