//! UDP batches: datagrams of equal length sent in one call (UDP GSO), or one by one where GSO
//! fails.
//!
//! GSO fails on devices without checksum offload, with IPsec, and for datagrams that IP has to
//! fragment. A failure is remembered for [`GSO_RETRY_BATCHES`] (1,024) batches, because routes and
//! hosts change; until then datagrams of that length or longer are sent one by one.
//!
//! The last step of a frame that leaves by UDP: the carriers of [`super::bare`] and
//! [`super::tunnels`] own a sender each and call it, in the thread of the group, with a full batch
//! or at a flush. The sender neither waits for buffer space nor retries a datagram, except that a
//! batch whose GSO failed is sent again one by one: refused datagrams are lost, and the caller
//! counts them. An error other than a failed GSO (a full send buffer), or a first datagram that is
//! too long, loses the whole batch. Datagrams keep their order.

use std::io;
use std::net::SocketAddr;

use causeway_fabric::udp::{Origin, Udp, is_batch_refusal};
use rustix::io::Errno;

use super::limits::GSO_RETRY_BATCHES;

/// State of GSO for one destination.
#[derive(Debug)]
pub struct BatchSender {
    /// Shortest datagram length that is sent one by one.
    pub(super) single_from: usize,
    /// Batches left until GSO is tried again.
    pub(super) batches_left: u32,
}

/// Datagrams that the host refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LostDatagrams {
    /// Their number.
    pub count: u64,
    /// Their bytes in all.
    pub bytes: usize,
}

impl Default for BatchSender {
    fn default() -> Self {
        Self { single_from: usize::MAX, batches_left: 0 }
    }
}

impl BatchSender {
    /// Sends datagrams as [`Udp::send_as`] takes them. Calls `refused` with each error of the host
    /// and the number of datagrams lost. Returns all that are lost.
    pub fn send(
        &mut self,
        udp: &Udp,
        to: SocketAddr,
        origin: Origin,
        (bytes, segment): (&[u8], usize),
        mut refused: impl FnMut(&io::Error, u64),
    ) -> LostDatagrams {
        let segment = segment.max(1);
        let count = bytes.len().div_ceil(segment) as u64;
        let all = LostDatagrams { count, bytes: bytes.len() };
        if count <= 1 || segment < self.single_from {
            let Err(error) = udp.send_as(to, origin, bytes, segment) else {
                return LostDatagrams::default();
            };
            if count <= 1 || !is_batch_refusal(&error) {
                refused(&error, count);
                return all;
            }
        }
        let mut lost = LostDatagrams::default();
        for (nth, datagram) in (0..count).zip(bytes.chunks(segment)) {
            let Err(error) = udp.send_as(to, origin, datagram, datagram.len()) else { continue };
            if nth == 0 && Errno::from_io_error(&error) == Some(Errno::MSGSIZE) {
                // Their length is refused, not their number: all but the last are as long.
                refused(&error, count);
                return all;
            }
            refused(&error, 1);
            lost.count = lost.count.saturating_add(1);
            lost.bytes = lost.bytes.saturating_add(datagram.len());
        }
        if segment < self.single_from {
            (self.single_from, self.batches_left) = (segment, GSO_RETRY_BATCHES);
        }
        self.batches_left = self.batches_left.saturating_sub(1);
        if self.batches_left == 0 {
            self.single_from = usize::MAX;
        }
        lost
    }
}
