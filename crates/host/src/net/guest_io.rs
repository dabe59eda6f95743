//! Sends guest memory to a socket and receives into it, without a private copy: the kernel reads
//! and writes the guest's pages itself, and reports a lost page as an error.
//!
//! [`write_frame`] does the same for a frame with headers in private memory (TAP interfaces).
//!
//! Stream sockets of guests towards this host (virtio-vsock, `fabric::host`) use it: the popped
//! chain gives the cursor, and `ring` returns the chain afterwards. A call passes at most
//! [`IOVECS_MAX`] (64) contiguous pieces to one system call. It keeps no buffer and does not block;
//! the caller repeats a partial transfer.
//!
//! Bytes that the guest changes during the call leave as written. Addresses that are not granted
//! with the needed right end the transfer before them. If the first address is not granted, the
//! call returns 0 without transferring; a receive then looks like the end of the stream. A lost
//! page (EFAULT) poisons its mapping (`memory::Map::poison`). Received writes are marked in the
//! dirty log. Descriptors that arrive with the bytes are closed; the receive then fails with
//! EBADMSG, its bytes are lost, and the caller ends the stream. [`send`] and [`receive`] run in the
//! dispatcher's thread of the shard that owns the socket, [`write_frame`] in that of the group that
//! sends.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::fd::receive::DescriptorBuffer;
use crate::limits::IOVECS_MAX;
use causeway_memory::Cursor;
use causeway_memory::Map;
use causeway_memory::Rights;

/// A vector without bytes.
const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// Writes vectors for the next at most `limit` bytes to `out`, for an access that needs `needed`;
/// returns their count.
fn iovecs(
    (map, needed): (&Map, Rights),
    mut cursor: Cursor<'_>,
    limit: u64,
    out: &mut [libc::iovec; IOVECS_MAX],
) -> i32 {
    let mut left = limit;
    let mut count = 0_i32;
    for slot in out.iter_mut() {
        let Some(span) = cursor.peek().filter(|_| left > 0) else { break };
        let Some((pointer, contiguous)) = map.pointer(span.addr, needed) else { break };
        let now =
            contiguous.min(span.len as usize).min(usize::try_from(left).unwrap_or(usize::MAX));
        *slot = libc::iovec { iov_base: pointer.as_ptr().cast(), iov_len: now };
        cursor.skip(now as u64);
        left = left.saturating_sub(now as u64);
        count = count.saturating_add(1);
    }
    count
}

/// Advances the cursor by a call's result, or returns the call's error; marks a lost page.
fn finish(map: &Map, cursor: &mut Cursor<'_>, done: isize) -> Result<usize, Errno> {
    match usize::try_from(done) {
        Ok(bytes) => {
            cursor.skip(bytes as u64);
            Ok(bytes)
        }
        Err(_) => {
            let error = std::io::Error::last_os_error();
            let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            if error == Errno::FAULT
                && let Some(span) = cursor.peek()
            {
                map.poison(span.addr);
            }
            Err(error)
        }
    }
}

/// Writes a frame to `fd` by one call: `heads` of private memory, then the `len` bytes at the
/// cursor. Returns false without writing if the bytes lie in more pieces than a call takes, or are
/// not granted. Never blocks if `fd` does not.
///
/// # Errors
/// The kernel's; the frame was not written. After `EFAULT` the page is marked as lost.
pub fn write_frame(
    fd: BorrowedFd<'_>,
    heads: [&[u8]; 2],
    map: &Map,
    mut cursor: Cursor<'_>,
    len: u64,
) -> Result<bool, Errno> {
    let mut pieces = [EMPTY; IOVECS_MAX];
    let count = usize::try_from(iovecs((map, Rights::READ), cursor, len, &mut pieces)).unwrap_or(0);
    let pieces = pieces.get(..count).unwrap_or(&[]);
    let found = pieces.iter().fold(0_u64, |sum, piece| sum.saturating_add(piece.iov_len as u64));
    if found != len {
        return Ok(false);
    }
    let mut vectors = [EMPTY; IOVECS_MAX.saturating_add(2)];
    let heads = heads
        .map(|head| libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() });
    for (slot, vector) in vectors.iter_mut().zip(heads.iter().chain(pieces)) {
        *slot = *vector;
    }
    let count = libc::c_int::try_from(count.saturating_add(2)).unwrap_or(0);
    // SAFETY: the vectors name private memory that `heads` borrow, and mapped memory that `map`
    // keeps alive over the call; the kernel only reads them.
    let done = unsafe { libc::writev(fd.as_raw_fd(), vectors.as_ptr(), count) };
    // Only an error needs the cursor: its first page is taken as lost.
    if done >= 0 { Ok(true) } else { finish(map, &mut cursor, done).map(|_| true) }
}

/// Returns a message header for the next at most `limit` bytes; it points into `vectors`.
fn message(
    map: (&Map, Rights),
    cursor: Cursor<'_>,
    limit: u64,
    vectors: &mut [libc::iovec; IOVECS_MAX],
) -> libc::msghdr {
    let count = iovecs(map, cursor, limit, vectors);
    // SAFETY: an all-zero msghdr is valid: no name, no data, no control.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = count.max(0) as _;
    message
}

/// Sends at most `limit` bytes at the cursor to `socket` and advances the cursor by the bytes sent.
/// Returns their number. Never blocks, never raises SIGPIPE.
///
/// # Errors
/// The kernel's. After `EFAULT` the page is marked as lost.
pub fn send(
    socket: BorrowedFd<'_>,
    map: &Map,
    cursor: &mut Cursor<'_>,
    limit: u64,
) -> Result<usize, Errno> {
    let mut vectors = [EMPTY; IOVECS_MAX];
    let message = message((map, Rights::READ), *cursor, limit, &mut vectors);
    // SAFETY: the vectors name mapped memory that `map` keeps alive over the call.
    let done = unsafe {
        libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    };
    finish(map, cursor, done)
}

/// Receives at most `limit` bytes from `socket` to the cursor and advances it by the bytes
/// received. Returns their number; 0 if the peer closed or if the cursor has no writable memory.
///
/// # Errors
/// [`Errno::BADMSG`] if descriptors arrived as well; or the kernel's.
pub fn receive(
    socket: BorrowedFd<'_>,
    map: &Map,
    cursor: &mut Cursor<'_>,
    limit: u64,
) -> Result<usize, Errno> {
    let mut vectors = [EMPTY; IOVECS_MAX];
    let mut message = message((map, Rights::WRITE), *cursor, limit, &mut vectors);
    let mut control = DescriptorBuffer::new();
    control.lend(&mut message);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the vectors name mapped, writable memory that `map` keeps alive over the call.
    let done = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, flags) };
    // SAFETY: the message was received successfully, with `control` lent to it.
    if done >= 0 && unsafe { control.take(&message) } {
        return Err(Errno::BADMSG);
    }
    let (mut written, mut left) = (*cursor, usize::try_from(done).unwrap_or(0));
    while let Some(span) = written.peek().filter(|_| left > 0) {
        let now = left.min(span.len as usize);
        map.wrote(span.addr, now);
        written.skip(now as u64);
        left = left.saturating_sub(now);
    }
    finish(map, cursor, done)
}
