//! Datagrams of one length, sent together where the host cuts them apart, else one by one.
//!
//! Not every way can: a device that computes no checksums, IPsec, datagrams that IP has to cut. What
//! was met is remembered for a while, because ways and hosts change.

use std::io;
use std::net::SocketAddr;

use causeway_fabric::udp::{Origin, Udp, is_too_much};
use rustix::io::Errno;

use super::limits::ALONE_BATCHES;

/// See the module.
#[derive(Debug)]
pub struct Together {
    /// Datagrams from this length on leave alone...
    pub(super) uncut: usize,
    /// ... as long as so many batches have not left so.
    pub(super) alone: u32,
}

impl Default for Together {
    fn default() -> Self {
        Self { uncut: usize::MAX, alone: 0 }
    }
}

impl Together {
    /// Sends datagrams as [`Udp::send_as`] takes them. `refused` is told why the host did not take some,
    /// and of how many; says how many these are in all.
    pub fn send(
        &mut self,
        udp: &Udp,
        to: SocketAddr,
        origin: Origin,
        (bytes, segment): (&[u8], usize),
        mut refused: impl FnMut(&io::Error, u64),
    ) -> u64 {
        let segment = segment.max(1);
        let count = bytes.len().div_ceil(segment) as u64;
        if count <= 1 || segment < self.uncut {
            let Err(error) = udp.send_as(to, origin, bytes, segment) else { return 0 };
            if count <= 1 || !is_too_much(&error) {
                refused(&error, count);
                return count;
            }
        }
        let mut lost = 0_u64;
        for (nth, datagram) in (0..count).zip(bytes.chunks(segment)) {
            let Err(error) = udp.send_as(to, origin, datagram, datagram.len()) else { continue };
            if nth == 0 && Errno::from_io_error(&error) == Some(Errno::MSGSIZE) {
                // It is their length, not their number: the others are no shorter.
                refused(&error, count);
                return count;
            }
            refused(&error, 1);
            lost = lost.saturating_add(1);
        }
        if segment < self.uncut {
            (self.uncut, self.alone) = (segment, ALONE_BATCHES);
        }
        self.alone = self.alone.saturating_sub(1);
        if self.alone == 0 {
            self.uncut = usize::MAX;
        }
        lost
    }
}
