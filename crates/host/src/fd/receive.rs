//! Receives bytes and descriptors from a Unix socket. The peer may send descriptors of any kind.
//!
//! Descriptors whose close may block are closed in other threads (`fd::deferred_close`).
//! That includes descriptors that were sent and never received, because the close of the socket
//! closes them; and descriptors that came with urgent bytes, because the kernel discards these while
//! it reads on, unless the socket keeps urgent bytes in line ([`in_line`]).

use std::io::IoSliceMut;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, Shutdown, shutdown, sockopt,
};

use crate::fd::account::Account;
use crate::fd::control::{HEADER_BYTES, Messages};
use crate::fd::deferred_close;
use crate::fd::reaper;
use crate::fd::received_fd::{Kind, ReceivedFd};
use crate::limits::DESCRIPTORS_RECEIVED_MAX;

/// How many bytes were read, and whether descriptors were lost.
#[derive(Debug, Clone, Copy)]
pub struct Got {
    /// 0: the other end closed.
    pub bytes: usize,
    /// Whether more descriptors came than there was room for.
    pub cut: bool,
}

/// Reads into `part`, without waiting. Descriptors of a kind that messages may have go to `fds`;
/// that there were others is said in `odd`.
///
/// # Errors
/// The kernel's.
pub fn receive(
    socket: impl AsFd,
    part: &mut [u8],
    fds: &mut Vec<ReceivedFd>,
    odd: &mut bool,
) -> Result<Got, Errno> {
    receive_with(socket.as_fd(), RecvFlags::empty(), part, |handed| match handed.kind() {
        Kind::Odd => *odd = true,
        _ => fds.push(handed),
    })
}

/// As [`receive`], of one who is trusted: with descriptors of any kind.
///
/// # Errors
/// The kernel's.
pub fn receive_any(
    socket: impl AsFd,
    part: &mut [u8],
    fds: &mut Vec<ReceivedFd>,
) -> Result<Got, Errno> {
    receive_with(socket.as_fd(), RecvFlags::empty(), part, |handed| fds.push(handed))
}

pub(crate) fn receive_with(
    socket: impl AsFd,
    flags: RecvFlags,
    part: &mut [u8],
    each: impl FnMut(ReceivedFd),
) -> Result<Got, Errno> {
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_RECEIVED_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut vectors = [IoSliceMut::new(part)];
    let got = rustix::net::recvmsg(socket, &mut vectors, &mut control, flags)?;
    // To the end, whatever is found: what is left over would be closed here.
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(received) => Some(received),
        _ => None,
    });
    rights.flatten().map(ReceivedFd::new).for_each(each);
    Ok(Got { bytes: got.bytes, cut: got.flags.contains(ReturnFlags::CTRUNC) })
}

/// As [`receive`], of one that may send no descriptors at all.
///
/// # Errors
/// [`Errno::BADMSG`]: it did; or the kernel's.
pub fn receive_bytes(socket: impl AsFd, part: &mut [u8]) -> Result<usize, Errno> {
    let mut any = false;
    let got = receive_with(socket.as_fd(), RecvFlags::empty(), part, |_| any = true)?;
    if any || got.cut { Err(Errno::BADMSG) } else { Ok(got.bytes) }
}

/// From here on nobody can send descriptors to whoever connects to `socket`, or to itself, if the
/// kernel knows of that (Linux 6.16).
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

/// Has urgent bytes of a stream stand where they came, as any others.
pub fn in_line(socket: impl AsFd) {
    // Other sockets have none.
    let _ = sockopt::set_socket_oobinline(socket, true);
}

/// A connected Unix socket whose other end may send anything, and that nobody but us has. What lies
/// in it unread when it is closed may have descriptors: then it is closed elsewhere. The other end
/// sees the same as without.
#[derive(Debug)]
pub struct Incoming {
    /// Taken out when this is dropped, and at no other time.
    socket: ManuallyDrop<OwnedFd>,
    giver: Account,
}

impl From<OwnedFd> for Incoming {
    fn from(socket: OwnedFd) -> Self {
        in_line(&socket);
        let giver = Some(Account::now()).filter(|giver| *giver != Account::default());
        let giver = giver.unwrap_or_else(Account::unique);
        Self { socket: ManuallyDrop::new(socket), giver }
    }
}

impl Incoming {
    /// Descriptors that come by it, or that lie in it in the end, are that one's.
    pub fn given_by(mut self, giver: Account) -> Self {
        self.giver = giver;
        self
    }

    /// Whose they are.
    pub fn giver(&self) -> Account {
        self.giver
    }

    /// As [`receive`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive(
        &self,
        part: &mut [u8],
        fds: &mut Vec<ReceivedFd>,
        odd: &mut bool,
    ) -> Result<Got, Errno> {
        self.giver.serve(|| receive(self, part, fds, odd))
    }
}

impl AsFd for Incoming {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // SAFETY: nobody sees it again.
        let socket = unsafe { ManuallyDrop::take(&mut self.socket) };
        // Nothing more can come.
        let _ = shutdown(&socket, Shutdown::Read);
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let unread = rustix::net::recv(&socket, &mut [0; 1], flags);
        if unread.is_ok_and(|(_, bytes)| bytes > 0) {
            if reaper::is_held_up(self.giver) {
                // The peer learns of the end at once.
                let _ = shutdown(&socket, Shutdown::Both);
            }
            deferred_close::slow(self.giver, socket);
        }
    }
}

/// What [`Incoming`] does before it is closed, for a socket that is only sometimes such a one.
pub fn part(socket: &OwnedFd) {
    if let Ok(other) = socket.try_clone() {
        drop(Incoming::from(other));
    }
}

/// Room for the descriptors of a message that the kernel receives into memory of a guest.
#[derive(Debug)]
#[repr(C, align(8))]
pub(crate) struct Control([MaybeUninit<u8>; CONTROL_BYTES]);

/// A header, and as many descriptors as there may be.
const CONTROL_BYTES: usize = HEADER_BYTES
    .saturating_add(DESCRIPTORS_RECEIVED_MAX.saturating_mul(size_of::<RawFd>()))
    .next_multiple_of(8);

impl Control {
    pub fn new() -> Self {
        Self([MaybeUninit::uninit(); CONTROL_BYTES])
    }

    /// Lets a message's descriptors come here.
    pub fn lend(&mut self, message: &mut libc::msghdr) {
        message.msg_control = self.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES as _;
    }

    /// Takes over the descriptors that came with a message; returns whether there were any.
    ///
    /// # Safety
    /// `recvmsg(2)` received `message`, to which the buffer was [lent](Self::lend), and succeeded.
    /// Nothing else takes over its descriptors.
    pub unsafe fn take(self, message: &libc::msghdr) -> bool {
        let mut any = message.msg_flags & libc::MSG_CTRUNC != 0;
        #[allow(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
        let written = self.0.get(..message.msg_controllen as usize).unwrap_or(&self.0);
        // SAFETY: the kernel wrote the messages of so many bytes, as the caller says.
        for message in unsafe { Messages::new(written) } {
            if message.kind != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                continue;
            }
            for fd in (0..).map_while(|at| message.value(at)).map(RawFd::from_ne_bytes) {
                any = true;
                // SAFETY: the kernel made the descriptor for this process, and nobody else has it.
                drop(ReceivedFd::new(unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
        any
    }
}
