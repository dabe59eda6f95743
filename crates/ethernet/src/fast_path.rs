//! The fast path of delivery: plain frames, each into one receive buffer of one descriptor.
//!
//! `deliver_all` in `crate::batch` calls [`Scratch::deliver_plain`] first; at most [`BATCH_CHAINS`]
//! (32) frames are delivered in a call. A frame qualifies if it has no offload and is within the
//! receiver's MTU, and if the next buffer is a single writable descriptor that holds virtio-net
//! header and frame.
//!
//! The module handles no offload, no mergeable buffer chain and no error of a frame. A frame that
//! does not qualify, or lies in unreachable memory, takes the general path (`crate::deliver`),
//! which reports the reason; its buffer is put back. Frames are delivered in order, and used
//! entries are not published. All of it runs in the dispatcher's thread of the group.
//!
//! # Budget
//! The receive buffers of a batch are popped together and pushed as used together. Each frame costs
//! one eligibility check (none if the whole batch is known to be plain), one translation of the
//! buffer's address, one comparison of the virtio-net header with the bytes in the buffer, and the
//! copy.

use causeway_memory::{Cursor, Map, Span};
use causeway_ring::Chain;
use causeway_ring::limits::BATCH_CHAINS;
use causeway_wire::ethernet;
use causeway_wire::virtio_net::{HEADER_LEN, Offload};

use crate::deliver::{Scratch, TargetQueue};
use crate::frame_store::{self, FrameStore};
use crate::headers::{RxFrame, header_len};

/// Virtio-net header of a plain frame in one buffer: no flags, `num_buffers` 1.
const PLAIN_HEADER: [u8; HEADER_LEN] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

impl Scratch {
    /// Delivers leading frames that qualify for the fast path; returns their number, 0 if the path
    /// is not `open`. Closes the path when a buffer does not qualify. `longest` as
    /// [`crate::batch::Delivery::longest`].
    ///
    /// # Errors
    /// Returns the broken rule of the receiver's ring. None of the frames counts as delivered then.
    #[inline(never)]
    pub fn deliver_plain(
        &mut self,
        open: &mut bool,
        from: FrameStore<'_>,
        to: &mut TargetQueue<'_>,
        frames: &[RxFrame],
        longest: usize,
    ) -> Result<usize, String> {
        let may =
            |rx: &&RxFrame| rx.headers.offload == Offload::None && rx.headers.fits_mtu(to.mtu);
        let most = if !*open {
            0
        } else if longest <= usize::from(to.mtu).wrapping_add(ethernet::HEADER_LEN) {
            frames.len().min(BATCH_CHAINS)
        } else {
            frames.iter().take(BATCH_CHAINS).take_while(may).count()
        };
        if most == 0 {
            return Ok(0);
        }
        if self.chains.len() < most {
            self.chains.resize_with(most, Chain::new);
        }
        let popped = to.ring.pop_batch(to.map, self.chains.iter_mut(), most);
        let popped = popped.map_err(|e| format!("receive queue: {e}"))?.count;
        let chains = self.chains.get(..popped).unwrap_or(&[]);
        let header = PLAIN_HEADER.get(..header_len(to.features)).unwrap_or(&[]);
        let (mut count, mut bytes) = (0_usize, 0_usize);
        for (rx, chain) in frames.iter().zip(chains) {
            if put(from, rx, to.map, chain, header).is_none() {
                break;
            }
            count = count.wrapping_add(1);
            bytes = bytes.wrapping_add(rx.headers.len);
        }
        let (used, left) = chains.split_at_checked(count).unwrap_or((chains, &[]));
        // The cause probably holds for the next buffers too, so they are not popped again in this
        // batch.
        *open = left.is_empty() && popped == most;
        for chain in left.iter().rev() {
            to.ring.put_back(chain.head());
        }
        let used = used.iter().zip(frames).map(|(chain, rx)| {
            // No overflow: `put` has checked the sum against the length of the buffer.
            (chain.head(), header.len().wrapping_add(rx.headers.len) as u32)
        });
        to.ring.push_batch(used).map_err(|e| e.to_string())?;
        to.counters.count_received(count, bytes);
        Ok(count)
    }
}

/// Writes a frame into a buffer. Returns `None` if the buffer is too short or has several
/// descriptors, or if memory of either side is unreachable.
#[inline(always)]
fn put(from: FrameStore<'_>, rx: &RxFrame, to: &Map, buffer: &Chain, header: &[u8]) -> Option<()> {
    let headers = &rx.headers;
    let Span { addr, len: room } = buffer.only_writable()?;
    if header.len().wrapping_add(headers.len) > room as usize {
        return None;
    }
    let framed = match (header.first_chunk::<HEADER_LEN>(), headers.full_head()) {
        (Some(header), Some(head)) => to.write_framed(addr, header, head),
        _ => false,
    };
    if !framed {
        to.write_headed(addr, header, headers.head()).ok()?;
    }
    if headers.len > headers.head().len() {
        put_rest(from, rx, to, (addr, header.len()))
    } else {
        Some(())
    }
}

/// Writes the bytes that follow the head.
#[inline(never)]
fn put_rest(
    from: FrameStore<'_>,
    rx: &RxFrame,
    to: &Map,
    (addr, header_len): (u64, usize),
) -> Option<()> {
    let head_len = rx.headers.head().len();
    let more = rx.headers.len.saturating_sub(head_len);
    let addr = addr.wrapping_add(header_len.wrapping_add(head_len) as u64);
    let room = [Span { addr, len: u32::try_from(more).unwrap_or(u32::MAX) }];
    frame_store::put(&mut from.behind(rx), to, &mut Cursor::new(&room), more as u64).ok()
}
