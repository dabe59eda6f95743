//! The local attachment: messages of one length ([`MESSAGE_BYTES`], 128), with file descriptors,
//! between a process and the daemon over a Unix stream socket ([`causeway_wire::local`]). The
//! process may be hostile. Both ends check the number of descriptors; the daemon also checks their
//! types.
//!
//! The daemon's end is an [`Attachment`] that raises [`Event::Message`] and [`Event::Closed`]; the
//! service (`mx`) reads the message with [`LocalAttachment::take_message`], and the next message is
//! read only after that. The daemon's end runs in the dispatcher's thread. A process
//! (`clients/endpoint`, in the thread of the application that makes the call) uses the other end
//! directly ([`LocalAttachment::receive`], [`LocalAttachment::send`]). Memory grants of a process
//! arrive in messages and belong to the process, not to a port, so the attachment has no map and no
//! queues.
//!
//! The module does not interpret messages. It never blocks, keeps their order, and never drops a
//! message of a living attachment: messages for which the socket has no room are queued, and the
//! send that finds [`LOCAL_UNSENT_MAX`] (1,024) queued messages fails. Queued messages leave only
//! by a later [`LocalAttachment::send`] or [`LocalAttachment::flush`], which the owner calls when
//! the socket has room, or after a while at the descriptor limit. A message carries at most
//! [`LOCAL_DESCRIPTORS_MAX`] (4) descriptors. After an error the owner drops the attachment, and
//! queued messages are lost.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use causeway_host::ReceivedFd;
use causeway_host::fd::receive::{self, ReceivedBytes, UntrustedSocket};
use causeway_memory::Map;
use causeway_wire::local::MESSAGE_BYTES;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::attachment::{Attachment, AttachmentError, Event, FaultKind};
use crate::limits::{LOCAL_DESCRIPTORS_MAX, LOCAL_UNSENT_MAX};

/// A message with its descriptors.
#[derive(Debug)]
pub struct LocalMessage {
    /// The message.
    pub bytes: [u8; MESSAGE_BYTES],
    /// The descriptors. A process may send memory files, eventfds, pidfds and Unix sockets; any
    /// other descriptor ends the attachment ([`LocalError::Descriptors`]). The daemon may send any
    /// descriptor.
    pub fds: Vec<ReceivedFd>,
}

/// The reason why a local attachment ended.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The peer closed the socket.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer sent descriptors that it may not send: of another kind, more than
    /// [`LOCAL_DESCRIPTORS_MAX`] (4), or while its account is behind
    /// ([`causeway_host::Account::is_behind`]). Also returned if this process is at its limit of
    /// descriptors, and for more than [`LOCAL_DESCRIPTORS_MAX`] in a message to send.
    #[error("the peer sent descriptors that it may not send")]
    Descriptors,
    /// The peer does not read its messages.
    #[error("the peer does not read its messages")]
    Unread,
    /// Waking the peer takes too long; the text is the reason. No function of this module returns
    /// it: a message wakes the peer by its arrival in the peer's socket, and the owner (`mx`)
    /// measures each [`LocalAttachment::flush`] and ends an attachment whose flushes take longer
    /// than its account of wake-ups permits (`fabric::wakes`).
    #[error("{0}")]
    Wakes(&'static str),
    /// The peer broke a rule of the protocol above; the text is the reason. No function of this
    /// module returns it: the owner (`mx`) ends an attachment with it.
    #[error("{0}")]
    Rule(String),
    /// A system call failed.
    #[error("the local socket failed")]
    Host(#[from] io::Error),
    /// The attachment ended.
    #[error(transparent)]
    Attachment(#[from] AttachmentError),
}

impl LocalError {
    /// Returns the party that caused the end.
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Closed => FaultKind::Connection,
            Self::Descriptors | Self::Unread | Self::Wakes(_) | Self::Rule(_) => FaultKind::Guest,
            Self::Host(_) => FaultKind::Host,
            Self::Attachment(error) => error.kind(),
        }
    }
}

impl From<Errno> for LocalError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            other => Self::Host(other.into()),
        }
    }
}

/// The owner of a socket.
#[derive(Debug)]
enum LocalSocket {
    /// A process that connected to the daemon. Its children may share the socket.
    Own(OwnedFd),
    /// The daemon.
    Accepted(UntrustedSocket),
}

impl LocalSocket {
    /// Returns whether more than 128 descriptors of the peer wait for their close.
    fn is_behind(&self) -> bool {
        matches!(self, Self::Accepted(socket) if socket.giver().is_behind())
    }

    /// Receives bytes of a message with their descriptors. `odd` becomes true if the daemon's peer
    /// sends a descriptor of a type that it may not send.
    fn receive(
        &self,
        part: &mut [u8],
        fds: &mut Vec<ReceivedFd>,
        odd: &mut bool,
    ) -> Result<ReceivedBytes, Errno> {
        match self {
            Self::Own(socket) => receive::receive_any(socket, part, fds),
            Self::Accepted(socket) => socket.receive(part, fds, odd),
        }
    }
}

impl AsFd for LocalSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(socket) => socket.as_fd(),
            Self::Accepted(socket) => socket.as_fd(),
        }
    }
}

/// One end of a local attachment.
#[derive(Debug)]
pub struct LocalAttachment {
    /// The connected socket.
    socket: LocalSocket,
    /// The message that is being received, and the number of its bytes that have arrived.
    bytes: [u8; MESSAGE_BYTES],
    have: usize,
    /// File descriptors that arrived with the message.
    fds: Vec<ReceivedFd>,
    /// Messages for which the socket had no room yet.
    unsent: VecDeque<([u8; MESSAGE_BYTES], Vec<OwnedFd>)>,
    /// Bytes of the first message that were sent.
    sent: usize,
    /// Set when the kernel's limit of file descriptors in flight is reached: the next
    /// [`Self::flush`] tries again.
    stuck: bool,
    /// The message of the last [`Event::Message`].
    message: Option<LocalMessage>,
    /// Messages that [`Attachment::poll`] has read.
    polled: u64,
}

impl LocalAttachment {
    /// Returns a process's end over a connected Unix stream socket.
    pub fn new(socket: OwnedFd) -> Self {
        Self::on(LocalSocket::Own(socket))
    }

    /// Returns the daemon's end over a connection from a process, which is not trusted. The daemon
    /// must not share the socket with another process.
    pub fn accepted(socket: impl Into<UntrustedSocket>) -> Self {
        Self::on(LocalSocket::Accepted(socket.into()))
    }

    /// Returns an end over `socket`, before the first message.
    fn on(socket: LocalSocket) -> Self {
        let (fds, unsent) = (Vec::new(), VecDeque::new());
        let bytes = [0; MESSAGE_BYTES];
        let (message, polled) = (None, 0);
        Self { socket, bytes, have: 0, fds, unsent, sent: 0, stuck: false, message, polled }
    }

    /// Returns the next message if all of it has arrived. Never blocks.
    ///
    /// # Errors
    /// Returns an error if the attachment has ended.
    pub fn receive(&mut self) -> Result<Option<LocalMessage>, LocalError> {
        while self.have < MESSAGE_BYTES {
            let part = self.bytes.get_mut(self.have..).unwrap_or_default();
            let mut odd = false;
            let got = match self.socket.receive(part, &mut self.fds, &mut odd) {
                Ok(got) => got,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            };
            let behind = !self.fds.is_empty() && self.socket.is_behind();
            if odd || got.cut || behind || self.fds.len() > LOCAL_DESCRIPTORS_MAX {
                return Err(LocalError::Descriptors);
            }
            if got.bytes == 0 {
                return Err(LocalError::Closed);
            }
            self.have = self.have.saturating_add(got.bytes);
        }
        self.have = 0;
        Ok(Some(LocalMessage { bytes: self.bytes, fds: std::mem::take(&mut self.fds) }))
    }

    /// Returns the message of the last [`Event::Message`], once.
    pub fn take_message(&mut self) -> Option<LocalMessage> {
        self.message.take()
    }

    /// Sends a message with descriptors, or queues it until there is room. Never blocks.
    ///
    /// # Errors
    /// Returns an error if the attachment has ended, or if the peer leaves [`LOCAL_UNSENT_MAX`]
    /// (1,024) messages unread.
    pub fn send(
        &mut self,
        bytes: [u8; MESSAGE_BYTES],
        fds: Vec<OwnedFd>,
    ) -> Result<(), LocalError> {
        self.queue(bytes, fds)?;
        self.flush().map(drop)
    }

    /// Queues a message with descriptors for the next [`Self::flush`].
    ///
    /// # Errors
    /// Returns an error if the peer leaves [`LOCAL_UNSENT_MAX`] (1,024) messages unread.
    pub fn queue(
        &mut self,
        bytes: [u8; MESSAGE_BYTES],
        fds: Vec<OwnedFd>,
    ) -> Result<(), LocalError> {
        if self.unsent.len() >= LOCAL_UNSENT_MAX {
            return Err(LocalError::Unread);
        }
        self.unsent.push_back((bytes, fds));
        Ok(())
    }

    /// Returns the number of messages that wait for the peer to read.
    pub fn backlog(&self) -> usize {
        self.unsent.len()
    }

    /// Returns the number of file descriptors in the messages of [`Self::backlog`].
    pub fn descriptors(&self) -> usize {
        self.unsent.iter().map(|(_, fds)| fds.len()).sum()
    }

    /// Returns whether the host currently lets no more descriptors pass. The cause may be other
    /// processes, and no event reports its end.
    pub fn is_at_descriptor_limit(&self) -> bool {
        self.stuck
    }

    /// Sends queued messages as far as there is room. Returns whether all are sent.
    ///
    /// # Errors
    /// Returns an error if the attachment has ended.
    pub fn flush(&mut self) -> Result<bool, LocalError> {
        self.stuck = false;
        while let Some((bytes, fds)) = self.unsent.front() {
            let rest = bytes.get(self.sent..).unwrap_or(&[]);
            let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LOCAL_DESCRIPTORS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            // The descriptors travel with the message's first byte.
            if self.sent == 0
                && !borrowed.is_empty()
                && !control.push(SendAncillaryMessage::ScmRights(&borrowed))
            {
                return Err(LocalError::Descriptors);
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let vectors = [IoSlice::new(rest)];
            match rustix::net::sendmsg(&self.socket, &vectors, &mut control, flags) {
                Ok(count) => self.sent = self.sent.saturating_add(count),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::TOOMANYREFS) => {
                    self.stuck = true;
                    return Ok(false);
                }
                Err(errno) => return Err(errno.into()),
            }
            if self.sent >= MESSAGE_BYTES {
                self.unsent.pop_front();
                self.sent = 0;
            }
        }
        Ok(true)
    }
}

impl Attachment for LocalAttachment {
    /// Reads one message, unless the last message was not taken yet. A peer that closes the socket
    /// within a message raises [`Event::Closed`] as well; the part is lost.
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), AttachmentError> {
        if self.message.is_some() {
            return Ok(());
        }
        match self.receive() {
            Ok(None) => {}
            Ok(message) => {
                self.message = message;
                self.polled = self.polled.saturating_add(1);
                events.push(Event::Message);
            }
            Err(LocalError::Closed) => events.push(Event::Closed),
            Err(ended) => return Err(AttachmentError::new(ended.kind(), ended)),
        }
        Ok(())
    }

    fn cost(&self) -> u64 {
        self.polled
    }

    fn map(&self) -> Option<&Map> {
        None
    }
}

impl AsFd for LocalAttachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn sockets() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
    }

    fn pair() -> (LocalAttachment, LocalAttachment) {
        let (a, b) = sockets();
        (LocalAttachment::new(a), LocalAttachment::new(b))
    }

    fn memory() -> OwnedFd {
        causeway_memory::create("test", 4096).unwrap()
    }

    #[test]
    fn local_messages_keep_their_descriptors() {
        let (mut a, mut b) = pair();
        for n in 0..3_u8 {
            let fds = (0..n).map(|_| memory()).collect();
            a.send([n; MESSAGE_BYTES], fds).unwrap();
        }
        for n in 0..3_u8 {
            let got = b.receive().unwrap().unwrap();
            assert_eq!((got.bytes, got.fds.len()), ([n; MESSAGE_BYTES], usize::from(n)));
        }
        assert!(b.receive().unwrap().is_none());
        drop(a);
        assert!(matches!(b.receive(), Err(LocalError::Closed)));
    }

    #[test]
    fn local_attachment_raises_an_event_for_each_message_and_the_end() {
        let (a, b) = sockets();
        let (mut a, mut b) = (LocalAttachment::new(a), LocalAttachment::accepted(b));
        let mut events = Vec::new();
        b.poll(&mut events).unwrap();
        assert!(events.is_empty() && b.take_message().is_none());
        for byte in [1, 2] {
            a.send([byte; MESSAGE_BYTES], vec![memory()]).unwrap();
        }
        for byte in [1, 2] {
            // The second message waits until the first message is taken.
            b.poll(&mut events).unwrap();
            b.poll(&mut events).unwrap();
            assert_eq!(std::mem::take(&mut events), [Event::Message]);
            let message = b.take_message().unwrap();
            assert_eq!((message.bytes, message.fds.len()), ([byte; MESSAGE_BYTES], 1));
        }
        assert_eq!(b.cost(), 2);
        assert!(b.map().is_none() && b.device().is_none() && !b.is_running(0));
        drop(a);
        b.poll(&mut events).unwrap();
        assert_eq!(events, [Event::Closed]);
    }

    #[test]
    fn hostile_peer_that_does_not_read_is_disconnected() {
        let (mut a, _b) = pair();
        let mut sent = 0;
        let ended = loop {
            match a.send([7; MESSAGE_BYTES], Vec::new()) {
                Ok(()) => sent += 1,
                Err(ended) => break ended,
            }
            assert!(sent < 1_000_000);
        };
        assert!(matches!(ended, LocalError::Unread), "{ended}");
    }

    /// Sends a message with descriptors of any type.
    fn send(a: &LocalAttachment, fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        let bytes = [0; MESSAGE_BYTES];
        let vectors = [IoSlice::new(&bytes)];
        rustix::net::sendmsg(&a.socket, &vectors, &mut control, SendFlags::empty()).unwrap();
    }

    #[test]
    fn hostile_descriptors_end_the_conversation() {
        let odd: OwnedFd = std::fs::File::open("/").unwrap().into();
        let (a, b) = sockets();
        let (mut a, mut b) = (LocalAttachment::new(a), LocalAttachment::accepted(b));
        send(&a, &[odd.as_fd(), odd.as_fd()]);
        let mut events = Vec::new();
        let error = b.poll(&mut events).unwrap_err();
        assert!(events.is_empty() && error.kind() == FaultKind::Guest);
        assert_eq!(error.to_string(), LocalError::Descriptors.to_string());
        // Processes trust the daemon, which may send any descriptor.
        send(&b, &[odd.as_fd(), odd.as_fd()]);
        assert_eq!(a.receive().unwrap().unwrap().fds.len(), 2);
        let (a, mut b) = pair();
        let plain = memory();
        send(&a, &[plain.as_fd(); LOCAL_DESCRIPTORS_MAX + 1]);
        assert!(matches!(b.receive(), Err(LocalError::Descriptors)));
    }

    /// Opens a TCP connection whose close blocks: its peer reads nothing, and it lingers.
    #[test]
    fn hostile_descriptors_left_unreceived_do_not_block_the_close() {
        use std::net::{TcpListener, TcpStream};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let lingers = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _silent = listener.accept().unwrap();
        lingers.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &lingers, &[0; 65536]).is_ok() {}
        let patience = std::time::Duration::from_secs(20);
        rustix::net::sockopt::set_socket_linger(&lingers, Some(patience)).unwrap();
        let (a, b) = sockets();
        let (a, b) = (LocalAttachment::new(a), LocalAttachment::accepted(b));
        send(&a, &[lingers.as_fd()]);
        drop(lingers);
        let since = std::time::Instant::now();
        drop(b);
        assert!(
            since.elapsed() < patience / 2,
            "the descriptor was closed on the thread that closed the socket"
        );
    }
}
