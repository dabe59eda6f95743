//! Receives bytes and descriptors from a Unix socket; the peer may send descriptors of any kind.
//!
//! A call reads at most one buffer of bytes and [`DESCRIPTORS_RECEIVED_MAX`] (253) descriptors, and
//! never blocks. Descriptors with a close that may block are closed in other threads
//! (`fd::deferred_close`). That includes descriptors that were sent and never received, because the
//! close of the socket closes them; and descriptors that arrived with urgent bytes, because the
//! kernel discards these when a reader passes them, unless the socket keeps urgent bytes in line
//! ([`in_line`]).
//!
//! The module parses no message and keeps no bytes: the caller joins the parts of a message, and
//! decides about unexpected descriptors and about [`ReceivedBytes::cut`]; attachments end the
//! connection for either. It does not check the peer's credentials. Attachments, the MX service,
//! the holder, the host end of virtio-vsock (`fabric::host`) and the ports of `causeway-stream`
//! read their sockets through it. [`UntrustedSocket::receive`] charges descriptors to the socket's
//! account, the functions to the account that the thread serves ([`Account::serve`]).

use std::io::IoSliceMut;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, Shutdown, SocketAddrAny,
    SocketAddrUnix, shutdown, sockopt,
};

use crate::fd::account::Account;
use crate::fd::control::{ControlMessages, HEADER_BYTES};
use crate::fd::deferred_close;
use crate::fd::reaper;
use crate::fd::received_fd::{FdKind, ReceivedFd};
use crate::limits::DESCRIPTORS_RECEIVED_MAX;

/// The result of a receive call.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedBytes {
    /// Bytes that were read; 0 if the peer closed.
    pub bytes: usize,
    /// Whether the kernel dropped descriptors for lack of room, or because this process is at its
    /// limit of descriptors. The bytes were received all the same.
    pub cut: bool,
}

/// Reads into `part` without blocking. Descriptors of an expected kind (memory file, eventfd,
/// pidfd, Unix socket) are appended to `fds`; if another descriptor arrives, it is closed and `odd`
/// becomes true. `odd` is never reset.
///
/// # Errors
/// The kernel's; `EAGAIN` if nothing arrived.
pub fn receive(
    socket: impl AsFd,
    part: &mut [u8],
    fds: &mut Vec<ReceivedFd>,
    odd: &mut bool,
) -> Result<ReceivedBytes, Errno> {
    receive_with(socket.as_fd(), RecvFlags::empty(), part, |received| match received.kind() {
        FdKind::Odd => *odd = true,
        _ => fds.push(received),
    })
}

/// Reads as [`receive`] does, but from a trusted peer: descriptors of any kind are appended to
/// `fds`.
///
/// # Errors
/// The kernel's.
pub fn receive_any(
    socket: impl AsFd,
    part: &mut [u8],
    fds: &mut Vec<ReceivedFd>,
) -> Result<ReceivedBytes, Errno> {
    receive_with(socket.as_fd(), RecvFlags::empty(), part, |received| fds.push(received))
}

/// Reads into `part` without blocking, and passes each received descriptor to `each`.
pub(crate) fn receive_with(
    socket: impl AsFd,
    flags: RecvFlags,
    part: &mut [u8],
    each: impl FnMut(ReceivedFd),
) -> Result<ReceivedBytes, Errno> {
    let (got, _) = receive_message(socket, flags, part, each)?;
    Ok(ReceivedBytes { bytes: got.bytes, cut: got.flags.contains(ReturnFlags::CTRUNC) })
}

/// Length and flags of a message.
struct Message {
    bytes: usize,
    flags: ReturnFlags,
}

/// As [`receive_with`], with the address of the sender.
fn receive_message(
    socket: impl AsFd,
    flags: RecvFlags,
    part: &mut [u8],
    each: impl FnMut(ReceivedFd),
) -> Result<(Message, Option<SocketAddrAny>), Errno> {
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_RECEIVED_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut vectors = [IoSliceMut::new(part)];
    let got = rustix::net::recvmsg(socket, &mut vectors, &mut control, flags)?;
    // Drains the whole buffer: its destructor would close the rest in this thread.
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(received) => Some(received),
        _ => None,
    });
    rights.flatten().map(ReceivedFd::new).for_each(each);
    Ok((Message { bytes: got.bytes, flags: got.flags }, got.address))
}

/// Reads as [`receive`] does, from a peer that must not send descriptors.
///
/// # Errors
/// [`Errno::BADMSG`] if descriptors arrived: they are closed and the bytes are lost; or the
/// kernel's.
pub fn receive_bytes(socket: impl AsFd, part: &mut [u8]) -> Result<usize, Errno> {
    let mut any = false;
    let got = receive_with(socket.as_fd(), RecvFlags::empty(), part, |_| any = true)?;
    if any || got.cut { Err(Errno::BADMSG) } else { Ok(got.bytes) }
}

/// A datagram that was received.
#[derive(Debug, Clone)]
pub struct ReceivedDatagram {
    /// Bytes that were written to the buffer.
    pub bytes: usize,
    /// Whether the datagram was longer than the buffer, or descriptors arrived with it: they are
    /// closed, and the caller drops the datagram.
    pub is_odd: bool,
    /// Address of the sender; `None` if it has none, or is no Unix socket.
    pub from: Option<SocketAddrUnix>,
}

/// Receives a datagram without blocking, from a peer that must not send descriptors.
///
/// # Errors
/// The kernel's; `EAGAIN` if nothing arrived.
pub fn receive_datagram(socket: impl AsFd, part: &mut [u8]) -> Result<ReceivedDatagram, Errno> {
    let mut any = false;
    let (got, address) = receive_message(socket.as_fd(), RecvFlags::empty(), part, |_| any = true)?;
    let from = address.and_then(|address| SocketAddrUnix::try_from(address).ok());
    let is_odd = any || got.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC);
    Ok(ReceivedDatagram { bytes: got.bytes, is_odd, from: from.filter(|at| !at.is_unnamed()) })
}

/// Makes the kernel refuse descriptors that are sent to `socket`, or to the sockets it accepts. Has
/// no effect before Linux 6.16.
pub fn refuse_descriptors(socket: impl AsFd) {
    const SO_PASSRIGHTS: libc::c_int = 83;
    let no: libc::c_int = 0;
    // SAFETY: the option's value is an int, of which the kernel is given address and length.
    unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            std::ptr::from_ref(&no).cast(),
            size_of_val(&no) as libc::socklen_t,
        );
    }
}

/// Keeps the urgent bytes of a stream in line with the others.
pub fn in_line(socket: impl AsFd) {
    // Sockets other than streams refuse the option and have no urgent bytes.
    let _ = sockopt::set_socket_oobinline(socket, true);
}

/// A connected Unix socket with an untrusted peer. If unread data, which may contain descriptors,
/// lie in the socket when it is dropped, another thread closes it; otherwise the drop does. The
/// peer sees the same as after a close in this thread. No other descriptor of this process may
/// refer to the socket. Its account is the one that the thread serves at the conversion, else a new
/// one.
#[derive(Debug)]
pub struct UntrustedSocket {
    /// Taken when the value is dropped, and at no other time.
    socket: ManuallyDrop<OwnedFd>,
    /// The account to which descriptors of the socket are charged.
    giver: Account,
}

impl From<OwnedFd> for UntrustedSocket {
    fn from(socket: OwnedFd) -> Self {
        in_line(&socket);
        let giver = Some(Account::now()).filter(|giver| *giver != Account::default());
        let giver = giver.unwrap_or_else(Account::unique);
        Self { socket: ManuallyDrop::new(socket), giver }
    }
}

impl UntrustedSocket {
    /// Charges descriptors that arrive on the socket, or that lie unread in it at its close, to
    /// `giver`.
    pub fn charged_to(mut self, giver: Account) -> Self {
        self.giver = giver;
        self
    }

    /// Returns the account that descriptors of the socket are charged to.
    pub fn giver(&self) -> Account {
        self.giver
    }

    /// Returns whether the process that connected has the user of this process, or is root's.
    pub fn is_of_same_user(&self) -> bool {
        let own = rustix::process::geteuid();
        sockopt::socket_peercred(self).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
    }

    /// Receives as the function [`receive`] does, and charges descriptors to the socket's account.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive(
        &self,
        part: &mut [u8],
        fds: &mut Vec<ReceivedFd>,
        odd: &mut bool,
    ) -> Result<ReceivedBytes, Errno> {
        self.giver.serve(|| receive(self, part, fds, odd))
    }
}

impl AsFd for UntrustedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for UntrustedSocket {
    fn drop(&mut self) {
        // SAFETY: the field is not used after this.
        let socket = unsafe { ManuallyDrop::take(&mut self.socket) };
        // Afterwards no further message can arrive.
        let _ = shutdown(&socket, Shutdown::Read);
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let unread = rustix::net::recv(&socket, &mut [0; 1], flags);
        if unread.is_ok_and(|(_, bytes)| bytes > 0) {
            if reaper::is_held_up(self.giver) {
                // The peer learns of the end at once, although the close is delayed.
                let _ = shutdown(&socket, Shutdown::Both);
            }
            deferred_close::close_slow(self.giver, socket);
        }
    }
}

/// Prepares the close of a socket that is not always an [`UntrustedSocket`]: shuts the socket down
/// for reading, and if unread data may contain descriptors, another thread takes a reference and
/// closes it.
pub fn part(socket: &OwnedFd) {
    if let Ok(other) = socket.try_clone() {
        drop(UntrustedSocket::from(other));
    }
}

/// A control buffer for the descriptors of a message that the kernel writes to guest memory.
#[derive(Debug)]
#[repr(C, align(8))]
pub(crate) struct DescriptorBuffer([MaybeUninit<u8>; CONTROL_BYTES]);

/// A header, and the most descriptors of a message.
const CONTROL_BYTES: usize = HEADER_BYTES
    .saturating_add(DESCRIPTORS_RECEIVED_MAX.saturating_mul(size_of::<RawFd>()))
    .next_multiple_of(8);

impl DescriptorBuffer {
    /// Returns an empty buffer.
    pub fn new() -> Self {
        Self([MaybeUninit::uninit(); CONTROL_BYTES])
    }

    /// Makes the kernel write the descriptors of a message to this buffer.
    pub fn lend(&mut self, message: &mut libc::msghdr) {
        message.msg_control = self.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES as _;
    }

    /// Takes the descriptors that arrived with a message and drops them; returns whether there were
    /// any.
    ///
    /// # Safety
    /// `recvmsg(2)` received `message`, to which the buffer was [lent](Self::lend), and succeeded.
    /// No other code takes its descriptors.
    pub unsafe fn take(self, message: &libc::msghdr) -> bool {
        let mut any = message.msg_flags & libc::MSG_CTRUNC != 0;
        #[allow(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
        let written = self.0.get(..message.msg_controllen as usize).unwrap_or(&self.0);
        // SAFETY: the kernel wrote the messages in these bytes, as the caller guarantees.
        for message in unsafe { ControlMessages::new(written) } {
            if message.kind != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                continue;
            }
            for fd in (0..).map_while(|at| message.value(at)).map(RawFd::from_ne_bytes) {
                any = true;
                // SAFETY: the kernel created the descriptor for this process; no other value owns
                // it.
                drop(ReceivedFd::new(unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::Command;

    use super::*;

    #[test]
    fn receive_knows_the_user_of_the_process_that_connected() {
        let path = std::env::temp_dir().join(format!("causeway-user-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let _own = UnixStream::connect(&path).unwrap();
        let accept = || UntrustedSocket::from(OwnedFd::from(listener.accept().unwrap().0));
        assert!(accept().is_of_same_user());
        let script = "import os, socket, sys; os.chmod(sys.argv[1], 0o777); os.setuid(65534); \
                      s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])";
        let other = Command::new("python3")
            .args(["-c", script])
            .arg(&path)
            .stderr(std::process::Stdio::null())
            .status();
        if other.is_ok_and(|status| status.success()) {
            assert!(!accept().is_of_same_user());
        } else {
            eprintln!("skipped: only root connects as another user, by python3");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
