//! What comes by a Unix socket, bytes and descriptors; the other end may send any.
//!
//! Descriptors of a kind that could take long to close go to the [`reaper`], also those that were
//! sent and never received: they would be closed with the socket, by whoever closes it.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};

use crate::limits::{DESCRIPTORS_RECEIVED_MAX, DRAINED_MESSAGES_MAX, PAYLOAD_BYTES_MAX};
use crate::reaper;

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
pub fn receive(
    socket: &OwnedFd,
    part: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    odd: &mut bool,
) -> Result<Got, Errno> {
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_RECEIVED_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut vectors = [IoSliceMut::new(part)];
    let got = rustix::net::recvmsg(socket, &mut vectors, &mut control, flags)?;
    // To the end, whatever is found: what is left over would be closed here.
    for message in control.drain() {
        let RecvAncillaryMessage::ScmRights(received) = message else { continue };
        for fd in received {
            if reaper::is_plain(&fd) {
                fds.push(fd);
            } else {
                *odd = true;
                reaper::close(fd);
            }
        }
    }
    Ok(Got { bytes: got.bytes, cut: got.flags.contains(ReturnFlags::CTRUNC) })
}

/// Receives what was sent and not received, before the socket is closed.
pub fn drain(socket: &OwnedFd) {
    drain_with(socket, drop);
}

/// As [`drain`]; all descriptors are closed elsewhere, whatever they are.
pub fn drain_elsewhere(socket: &OwnedFd) {
    drain_with(socket, reaper::close);
}

fn drain_with(socket: &OwnedFd, close: impl Fn(OwnedFd)) {
    let mut part = [0; PAYLOAD_BYTES_MAX];
    let (mut fds, mut odd) = (Vec::new(), false);
    for _ in 0..DRAINED_MESSAGES_MAX {
        let got = receive(socket, &mut part, &mut fds, &mut odd);
        fds.drain(..).for_each(&close);
        if got.is_err() || got.is_ok_and(|got| got.bytes == 0) {
            break;
        }
    }
}
