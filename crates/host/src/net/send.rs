//! Sends frames from their place: a private header, and a body in memory that other processes share
//! or that an application lends. The kernel reads each byte once; this process makes no copy and no
//! reference.
//!
//! Bytes that another process writes to a body during the send leave as written. A sender passes a
//! body to the kernel before it reports to the owner that the memory may be reused.
//!
//! This is the last step of a frame that leaves by a packet socket, a UDP batch, or a Unix socket
//! of a stream port: `PacketSocket::send`, `fabric::udp` and `stream::output` call it, in the
//! thread of the sending group, in that of the socket's own shard for frames that waited for room,
//! or, in direct mode of MX, the application's. A call sends at most [`FRAMES_PER_CALL_MAX`] (64)
//! frames and never blocks. The module builds no header and retries nothing: [`send_each`] may send
//! fewer frames than it was given, and the caller sends or drops the rest. A missing page of a body
//! (EFAULT) stops [`send_each`] before that frame; the call that begins with it returns the error,
//! and its caller drops the frame. [`send_segmented`] then sends none.

use std::io;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::net::SocketAddrUnix;
use rustix::net::addr::SocketAddrArg as _;

use crate::limits::FRAMES_PER_CALL_MAX;
use crate::net::app_memory::AppMemoryPiece;
use causeway_memory::View;

/// The body of a frame, behind its head.
#[derive(Debug, Clone)]
pub enum FrameBody {
    /// Memory that other processes share.
    Shared(View),
    /// Memory of this process, lent by its owner.
    Own(AppMemoryPiece),
}

impl FrameBody {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Shared(view) => view.len(),
            Self::Own(piece) => piece.len(),
        }
    }

    /// Returns whether the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address of the first byte, for the kernel.
    fn as_ptr(&self) -> *mut u8 {
        match self {
            Self::Shared(view) => view.as_ptr(),
            Self::Own(piece) => piece.as_ptr(),
        }
    }

    /// Copies the body out. Returns `false` if pages are missing.
    pub fn read_into(&self, into: &mut [u8]) -> bool {
        match self {
            Self::Shared(view) => view.read_into(0, into).is_ok() && !view.is_poisoned(),
            Self::Own(piece) => piece.read_into(into),
        }
    }
}

/// A frame to send.
#[derive(Debug, Clone, Copy)]
pub struct OutgoingFrame<'a> {
    /// The first bytes, in private memory.
    pub head: &'a [u8],
    /// The bytes behind the head.
    pub body: Option<&'a FrameBody>,
}

impl OutgoingFrame<'_> {
    /// Returns the length of head and body in bytes.
    pub fn len(&self) -> usize {
        self.head.len().saturating_add(self.body.map_or(0, FrameBody::len))
    }

    /// Returns whether the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Returns the frames that lie back to back in `bytes`, from index `from` on. `ends` contains the
/// end of each frame.
pub fn contiguous_frames<'a>(
    bytes: &'a [u8],
    ends: &'a [usize],
    from: usize,
) -> impl Iterator<Item = OutgoingFrame<'a>> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let frame = |(start, end): (usize, &usize)| bytes.get(start..*end).unwrap_or(&[]);
    starts.zip(ends).skip(from).map(frame).map(|head| OutgoingFrame { head, body: None })
}

/// Returns the vectors of a frame's head and body.
fn pieces_of(
    OutgoingFrame { head, body }: &OutgoingFrame<'_>,
) -> (libc::iovec, Option<libc::iovec>) {
    let lent =
        |body: &FrameBody| libc::iovec { iov_base: body.as_ptr().cast(), iov_len: body.len() };
    let head = libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() };
    (head, body.map(lent))
}

/// Returns the vectors of frames, and the number of vectors of each frame.
fn pieces<'a>(frames: impl Iterator<Item = OutgoingFrame<'a>>) -> (Vec<libc::iovec>, Vec<usize>) {
    let (mut all, mut counts) = (Vec::new(), Vec::new());
    for frame in frames.take(FRAMES_PER_CALL_MAX) {
        let (head, behind) = pieces_of(&frame);
        all.push(head);
        counts.push(1_usize.saturating_add(usize::from(behind.is_some())));
        all.extend(behind);
    }
    (all, counts)
}

/// Converts the result of a system call to the number of messages or bytes sent.
fn sent<T>(done: T) -> io::Result<usize>
where
    usize: TryFrom<T>,
{
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

/// Sends frames, each as a message of its own, at most [`FRAMES_PER_CALL_MAX`] (64). Returns the
/// number that was sent. Never blocks.
///
/// # Errors
/// The first frame was not sent; the error is the kernel's.
pub fn send_each<'a>(
    fd: BorrowedFd<'_>,
    mut frames: impl Iterator<Item = OutgoingFrame<'a>>,
) -> io::Result<usize> {
    let Some(first) = frames.next() else { return Ok(0) };
    let second = frames.next();
    if second.is_none() {
        return send_one(fd, &first);
    }
    let (mut vectors, counts) = pieces([Some(first), second].into_iter().flatten().chain(frames));
    let mut at = vectors.as_mut_ptr();
    let message = |count: &usize| {
        // SAFETY: an all-zero message is valid: no name, no data, no control.
        let mut one: libc::mmsghdr = unsafe { std::mem::zeroed() };
        (one.msg_hdr.msg_iov, one.msg_hdr.msg_iovlen) = (at, *count as _);
        at = at.wrapping_add(*count);
        one
    };
    let mut messages: Vec<libc::mmsghdr> = counts.iter().map(message).collect();
    let count = libc::c_uint::try_from(messages.len()).unwrap_or(0);
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: each message names its own consecutive vectors in `vectors`, and these the bytes that
    // the frames borrow: mapped, or private, until the call returns. The kernel detects missing
    // pages of lent bytes.
    sent(unsafe { libc::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), count, flags as _) })
}

/// As [`send_each`], to the socket at `to`, which is looked up for each frame.
///
/// # Errors
/// As for [`send_each`]; ECONNREFUSED or ENOENT: no socket is at `to`.
pub fn send_each_to<'a>(
    fd: BorrowedFd<'_>,
    to: &SocketAddrUnix,
    frames: impl Iterator<Item = OutgoingFrame<'a>>,
) -> io::Result<usize> {
    let (mut vectors, counts) = pieces(frames);
    if counts.is_empty() {
        return Ok(0);
    }
    let mut at = vectors.as_mut_ptr();
    // SAFETY: the kernel reads `len` bytes at `address`, which are valid during the call. Each message
    // names its own consecutive vectors in `vectors`, and these the bytes that the frames borrow:
    // mapped, or private, until the call returns. The kernel detects missing pages of lent bytes.
    sent(unsafe {
        to.with_sockaddr(|address, len| {
            let message = |count: &usize| {
                let mut one: libc::mmsghdr = std::mem::zeroed();
                one.msg_hdr.msg_name = address.cast_mut().cast();
                one.msg_hdr.msg_namelen = len;
                (one.msg_hdr.msg_iov, one.msg_hdr.msg_iovlen) = (at, *count as _);
                at = at.wrapping_add(*count);
                one
            };
            let mut messages: Vec<libc::mmsghdr> = counts.iter().map(message).collect();
            let count = libc::c_uint::try_from(messages.len()).unwrap_or(0);
            let flags = libc::MSG_DONTWAIT;
            libc::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), count, flags as _)
        })
    })
}

/// Sends a frame as [`send_each`] does, at less cost, and least without a body.
fn send_one(fd: BorrowedFd<'_>, frame: &OutgoingFrame<'_>) -> io::Result<usize> {
    if frame.body.is_none() {
        let flags = rustix::net::SendFlags::DONTWAIT;
        return Ok(rustix::net::send(fd, frame.head, flags).map(|_| 1)?);
    }
    let (head, behind) = pieces_of(frame);
    let count = 1_usize.saturating_add(usize::from(behind.is_some()));
    let mut vectors = [head, behind.unwrap_or(head)];
    // SAFETY: an all-zero message is valid: no name, no data, no control.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (vectors.as_mut_ptr(), count as _);
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: the message names its vectors, and these the bytes that the frame borrows: mapped, or
    // private, until the call returns; or lent, and checked by the kernel.
    sent(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, flags) }).map(|_| 1)
}

/// The control message with the length of the datagrams that the kernel cuts (`UDP_SEGMENT`).
#[repr(C, align(8))]
struct SegmentSize {
    header: libc::cmsghdr,
    len: u16,
}

/// Sends frames of equal length (the last may be shorter) by a system call, as datagrams that the
/// kernel cuts (UDP GSO): either all of them or none. Never blocks.
///
/// # Errors
/// No frame was sent: the kernel has no room or refuses the address or the length, or there are
/// more than [`FRAMES_PER_CALL_MAX`] (64) frames.
pub fn send_segmented<'a>(
    fd: BorrowedFd<'_>,
    to: &SocketAddr,
    frames: impl Iterator<Item = OutgoingFrame<'a>> + Clone,
) -> io::Result<()> {
    let cut = frames.clone().next().map_or(0, |frame| frame.len());
    let len = u16::try_from(cut).map_err(|_| rustix::io::Errno::MSGSIZE)?;
    if frames.clone().nth(FRAMES_PER_CALL_MAX).is_some() {
        return Err(rustix::io::Errno::MSGSIZE.into());
    }
    let (mut vectors, counts) = pieces(frames);
    // SAFETY: the function only calculates.
    let cmsg_len = unsafe { libc::CMSG_LEN(size_of::<u16>() as u32) };
    let (cmsg_level, cmsg_type) = (libc::SOL_UDP, libc::UDP_SEGMENT);
    let header = libc::cmsghdr { cmsg_len: cmsg_len as _, cmsg_level, cmsg_type };
    let mut control = SegmentSize { header, len };
    // SAFETY: an all-zero message is valid: no name, no data, no control.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (vectors.as_mut_ptr(), vectors.len() as _);
    if counts.len() > 1 {
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<SegmentSize>() as _;
    }
    // SAFETY: the message names the address, the vectors and the control message, and the vectors
    // the bytes that the frames borrow: mapped, or private, until the call returns; or lent, and
    // checked by the kernel.
    sent(unsafe {
        to.with_sockaddr(|address, len| {
            message.msg_name = address.cast_mut().cast();
            message.msg_namelen = len;
            libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT)
        })
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_memory::{Mapping, create};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::net::UdpSocket;
    use std::os::fd::AsFd as _;
    use std::sync::Arc;

    /// Returns a window of shared memory with these bytes.
    fn shared(bytes: &[u8]) -> FrameBody {
        let file = create("test", 8192).unwrap();
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, 8192).unwrap());
        let view = View::new(mapping, 100, bytes.len()).unwrap();
        view.write(0, bytes).unwrap();
        FrameBody::Shared(view)
    }

    #[test]
    fn frames_are_messages_of_head_and_body() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let body = shared(b"body");
        let frames = [
            OutgoingFrame { head: b"one ", body: Some(&body) },
            OutgoingFrame { head: b"two", body: None },
            OutgoingFrame { head: b"three ", body: Some(&body) },
        ];
        assert_eq!(send_each(a.as_fd(), frames.into_iter()).unwrap(), 3);
        let mut room = [0; 64];
        for frame in [&b"one body"[..], b"two", b"three body"] {
            let len = rustix::io::read(&b, &mut room).unwrap();
            assert_eq!(&room[..len], frame);
        }
        let many = std::iter::repeat_n(frames[1], 1000);
        assert_eq!(send_each(a.as_fd(), many).unwrap(), FRAMES_PER_CALL_MAX);
        drop(b);
        assert!(send_each(a.as_fd(), frames.into_iter()).is_err());
    }

    #[test]
    fn frames_of_equal_length_leave_as_one_gso_batch() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let (a, b) = (UdpSocket::bind(local).unwrap(), UdpSocket::bind(local).unwrap());
            b.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
            let to = b.local_addr().unwrap();
            let (body, short) = (shared(&[7; 1000]), shared(&[8; 10]));
            let whole = OutgoingFrame { head: &[1; 24], body: Some(&body) };
            let last = OutgoingFrame { head: &[2; 24], body: Some(&short) };
            send_segmented(a.as_fd(), &to, [whole, whole, last].into_iter()).unwrap();
            let mut room = [0; 2000];
            for (number, fill, len) in [(1, 7, 1000), (1, 7, 1000), (2, 8, 10)] {
                let (came, _) = b.recv_from(&mut room).unwrap();
                assert_eq!(&room[..came], [&[number; 24][..], &vec![fill; len]].concat());
            }
            let many = std::iter::repeat_n(last, FRAMES_PER_CALL_MAX + 1);
            assert!(send_segmented(a.as_fd(), &to, many).is_err());
            send_segmented(a.as_fd(), &to, [last].into_iter()).unwrap();
            assert_eq!(b.recv_from(&mut room).unwrap().0, 34);
        }
    }
}
