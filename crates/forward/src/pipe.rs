//! One direction of a connection: bytes from one socket to another, in order, through a bounded
//! buffer.
//!
//! [`Pipe::pump`] reads at most [`BUFFER_BYTES`] (64 KiB) at a time, writes what the receiver
//! takes, and keeps the rest in the buffer; while bytes wait there it reads no more, which the
//! sender's socket turns into back-pressure. The buffer has memory only while bytes wait. The end
//! of the sender's data is passed on by shutdown(2) once the buffer is empty; the other direction
//! goes on. The caller knows whether the sockets are ready and passes it in. A call after the end
//! moves nothing.
//!
//! `connection` owns two pipes, and calls them in the thread of [`crate::Relay::run`]. A pipe does
//! not wait, and has no time limit; after an error the caller closes both sockets.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use crate::limits::BUFFER_BYTES;

/// Bytes on their way, and the state of the direction.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// Bytes that were read and not written yet, from `start` on.
    buffer: Vec<u8>,
    start: usize,
    /// The sender has ended its data.
    is_ended: bool,
    /// The end was passed on.
    is_shut: bool,
    /// Bytes passed on.
    pub bytes: u64,
}

/// Whether a socket may have bytes, or take some; cleared by the system call that finds neither.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Readiness {
    /// A read may return bytes.
    pub readable: bool,
    /// A write may take bytes.
    pub writable: bool,
}

impl Pipe {
    /// Returns a pipe whose first bytes are given.
    pub fn starting_with(first: Vec<u8>) -> Self {
        Self { buffer: first, ..Self::default() }
    }

    /// Returns whether the direction is complete: all bytes and the end were passed on.
    pub const fn is_done(&self) -> bool {
        self.is_shut
    }

    /// Returns whether a call of [`Self::pump`] would move bytes, by the readiness of both sockets.
    pub fn has_work(&self, from: Readiness, to: Readiness) -> bool {
        let reads = from.readable && !self.is_ended && self.buffer.is_empty();
        let writes = to.writable && !self.is_shut && (self.is_ended || !self.buffer.is_empty());
        reads || writes
    }

    /// Moves at most about `most` bytes, and returns the number of bytes read. `scratch` is memory
    /// of [`BUFFER_BYTES`] that all pipes share.
    ///
    /// # Errors
    /// One of the sockets failed.
    pub fn pump(
        &mut self,
        (source, from): (impl AsFd, &mut Readiness),
        (sink, to): (impl AsFd, &mut Readiness),
        scratch: &mut [u8],
        most: usize,
    ) -> rustix::io::Result<usize> {
        let mut moved = 0_usize;
        while moved < most {
            if !self.buffer.is_empty() && !self.write_buffer(&sink, to)? {
                return Ok(moved);
            }
            if self.is_ended {
                self.shut(&sink)?;
                return Ok(moved);
            }
            if !from.readable {
                return Ok(moved);
            }
            let room = scratch.len().min(BUFFER_BYTES);
            let chunk = scratch.get_mut(..room).unwrap_or_default();
            match rustix::net::recv(&source, &mut *chunk, RecvFlags::empty()) {
                Ok((0, _)) => self.is_ended = true,
                Ok((len, _)) => {
                    moved = moved.saturating_add(len);
                    self.write(&sink, to, chunk.get(..len).unwrap_or_default())?;
                }
                Err(Errno::AGAIN) => from.readable = false,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    }

    /// Writes bytes that were just read, and keeps the rest.
    fn write(
        &mut self,
        sink: &impl AsFd,
        to: &mut Readiness,
        mut bytes: &[u8],
    ) -> rustix::io::Result<()> {
        while !bytes.is_empty() && to.writable {
            match rustix::net::send(sink, bytes, SendFlags::NOSIGNAL) {
                Ok(len) => {
                    self.bytes = self.bytes.wrapping_add(len as u64);
                    bytes = bytes.get(len..).unwrap_or_default();
                }
                Err(Errno::AGAIN) => to.writable = false,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes waiting bytes; returns whether none are left.
    fn write_buffer(&mut self, sink: &impl AsFd, to: &mut Readiness) -> rustix::io::Result<bool> {
        while to.writable {
            let left = self.buffer.get(self.start..).unwrap_or_default();
            match rustix::net::send(sink, left, SendFlags::NOSIGNAL) {
                Ok(len) => {
                    self.bytes = self.bytes.wrapping_add(len as u64);
                    self.start = self.start.saturating_add(len);
                }
                Err(Errno::AGAIN) => to.writable = false,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
            if self.start >= self.buffer.len() {
                (self.buffer, self.start) = (Vec::new(), 0);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Passes the end on.
    fn shut(&mut self, sink: &impl AsFd) -> rustix::io::Result<()> {
        if std::mem::replace(&mut self.is_shut, true) {
            return Ok(());
        }
        match rustix::net::shutdown(sink, Shutdown::Write) {
            // The receiver has closed the connection: it needs no end.
            Ok(()) | Err(Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
