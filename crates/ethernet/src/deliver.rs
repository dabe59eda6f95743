//! Delivery into receive buffers: the one copy, and the software fallbacks for offloads.
//!
//! `crate::batch` calls [`Scratch::deliver`] for each frame that `crate::fast_path` does not take.
//! The function pops receive buffers (at most [`MERGED_BUFFERS_MAX`] (1,025) for a frame; a frame
//! that needs more is dropped as `BufferTooSmall`), writes virtio-net header and frame, and pushes
//! used entries without publishing them.
//!
//! The module chooses no receiver, and it does not keep a frame that finds no buffers:
//! [`DeliveryError::Short`] puts the popped buffers back, and the caller enqueues the frame
//! (`crate::pending`). It does not check a frame against the receiver's MTU; `crate::batch` does. A
//! frame that is cut ends with [`DeliveryError::Yield`] when the turn is over; after this error and
//! after `Short` the segments before `done` are delivered, and the caller continues at `done`. All
//! of it runs in the dispatcher's thread of the group.
//!
//! # Budget
//! A frame that passes uncut costs one copy of its bytes. The first 64 bytes (all headers of a
//! frame with an offload) come from the private copy in which they were checked. A checksum
//! completed in software costs a second copy through a private buffer; a frame cut for a receiver
//! that completes checksums does not.

use causeway_fabric::carrier::Body;
use causeway_fabric::{Slice, cost};
use causeway_memory::Map;
use causeway_memory::copy::CopyError;
use causeway_ring::{Chain, Queue};
use causeway_wire::virtio::has;
use causeway_wire::virtio_net::{ChecksumPlace, Gso, HEADER_LEN, Offload, VIRTIO_NET_F_MRG_RXBUF};

use crate::counters::{DropReason, PortCounters};
use crate::frame_store::{FrameStore, put, skip};
use crate::headers::{FrameHeaders, header_for, header_len, put_header};
use crate::limits::MERGED_BUFFERS_MAX;
use crate::offload::segment::{GsoSegment, Segmenter};
use crate::offload::{OffloadPlan, plan};

/// Why a frame was not delivered, or only in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeliveryError {
    /// The receiver has too few buffers; it has this many.
    Short(u16),
    /// The turn ended; segments are left.
    Yield,
    /// The frame cannot be delivered.
    Drop(DropReason),
    /// The receiver's guest broke a rule; the caller must close its port.
    Fault(String),
}

/// A frame, and the memory that holds its bytes.
#[derive(Debug)]
pub(crate) struct SourceFrame<'a> {
    /// The memory that holds the bytes.
    pub source: FrameStore<'a>,
    /// The sender's descriptors; empty for a frame of a link.
    pub chain: &'a Chain,
    /// As [`RxFrame::at`](crate::headers::RxFrame::at).
    pub at: usize,
    /// The private, checked headers.
    pub headers: &'a mut FrameHeaders,
}

impl<'a> SourceFrame<'a> {
    /// Returns the bytes that follow [`FrameHeaders::head`].
    #[inline]
    pub fn rest(&self) -> Body<'a> {
        self.source.rest(self.chain, self.at, self.headers)
    }

    /// Returns all bytes of the frame, the head included.
    pub fn all(&self) -> Body<'a> {
        self.source.all(self.chain, self.at, self.headers)
    }
}

/// The receive queue that a frame is delivered to.
#[derive(Debug)]
pub(crate) struct TargetQueue<'a> {
    /// Guest memory of the receiver.
    pub map: &'a Map,
    /// The receive ring.
    pub ring: &'a mut Queue,
    /// Features that the receiver's driver negotiated.
    pub features: u64,
    /// Longest payload that the receiver accepts, in bytes.
    pub mtu: u16,
    /// Counters of the receiver's port.
    pub counters: &'a mut PortCounters,
}

/// Private buffers that are reused for every frame.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Receive buffers of one frame, or of a fast-path batch.
    pub(crate) chains: Vec<Chain>,
    /// Room for a virtio-net header, then a whole frame, for software checksums. Empty until first
    /// used.
    frame: Vec<u8>,
    /// The virtio-net header and the headers of one segment.
    first: Vec<u8>,
}

impl Scratch {
    /// Delivers a frame from segment `done` on, and advances `done` by the delivered segments. The
    /// used entries are not published.
    ///
    /// # Errors
    /// Returns the reason if the frame, or a part of it, was not delivered.
    #[inline]
    pub fn deliver(
        &mut self,
        from: SourceFrame<'_>,
        to: &mut TargetQueue<'_>,
        done: &mut usize,
        slice: &mut Slice,
    ) -> Result<(), DeliveryError> {
        if from.headers.offload == Offload::None {
            return self.pass_through(from, to);
        }
        match plan(&from.headers.offload, to.features) {
            OffloadPlan::Pass => self.pass_through(from, to),
            OffloadPlan::Complete(place) => self.deliver_completed(from, to, place),
            OffloadPlan::Cut { place, gso, complete } => {
                self.deliver_segments(from, to, (place, gso, complete), done, slice)
            }
        }
    }

    /// Delivers a frame uncut, with the sender's offload request in its virtio-net header.
    #[inline]
    fn pass_through(
        &mut self,
        from: SourceFrame<'_>,
        to: &mut TargetQueue<'_>,
    ) -> Result<(), DeliveryError> {
        let len = from.headers.len;
        let count = self.pop_buffers(to, len)?;
        let rest = from.rest();
        let first = from.headers.header_and_head(count, header_len(to.features));
        self.write_and_push(to, count, first, rest, len)
    }

    /// Delivers a private copy of a frame, with the checksum at `place` completed.
    fn deliver_completed(
        &mut self,
        from: SourceFrame<'_>,
        to: &mut TargetQueue<'_>,
        place: ChecksumPlace,
    ) -> Result<(), DeliveryError> {
        let len = from.headers.len;
        let count = self.pop_buffers(to, len)?;
        let mut frame = self.copy_whole_frame(&from).inspect_err(|_| self.put_back(to, count))?;
        place.complete(frame.get_mut(HEADER_LEN..).unwrap_or(&mut []));
        let header_len = header_len(to.features);
        put_header(&mut frame, header_for(&Offload::None, count), header_len);
        let first = frame.get(HEADER_LEN.saturating_sub(header_len)..).unwrap_or(&[]);
        let written = self.write_and_push(to, count, first, Body::Private(&[]), len);
        self.frame = frame;
        let count = u64::from(written.is_ok());
        to.counters.checksummed = to.counters.checksummed.wrapping_add(count);
        written
    }

    /// Cuts a frame and delivers its segments from `done` on. `complete` is set if the receiver
    /// takes no incomplete checksums.
    fn deliver_segments(
        &mut self,
        from: SourceFrame<'_>,
        to: &mut TargetQueue<'_>,
        (place, gso, complete): (ChecksumPlace, Gso, bool),
        done: &mut usize,
        slice: &mut Slice,
    ) -> Result<(), DeliveryError> {
        let headers = &*from.headers;
        let mut segmenter = Segmenter::new(headers.head(), &headers.frame, place, gso, headers.len)
            .ok_or(DeliveryError::Drop(DropReason::BadHeader))?;
        segmenter.skip(*done);
        let frame = if complete {
            // Checked before the whole frame is copied: a receiver without buffers is retried
            // often.
            let count = self.pop_buffers(to, 1)?;
            self.put_back(to, count);
            self.copy_whole_frame(&from)?
        } else {
            Vec::new()
        };
        // The payload is walked once, segment by segment.
        let (mut rest, mut at) = (from.source.all(from.chain, from.at, headers), 0_usize);
        let mut result = Ok(());
        while let Some(piece) = segmenter.next_segment() {
            skip(&mut rest, piece.payload.start.saturating_sub(at));
            at = at.max(piece.payload.start);
            let body = match frame.get(HEADER_LEN..).filter(|_| complete) {
                Some(frame) => Body::Private(frame.get(piece.payload.clone()).unwrap_or(&[])),
                None => rest,
            };
            let len = piece.len();
            result = self.deliver_segment(to, piece, body, complete);
            if result.is_err() {
                break;
            }
            slice.charge(cost::PIECE_NS.saturating_add(cost::bytes(len)));
            if *done == 0 {
                to.counters.cut = to.counters.cut.wrapping_add(1);
            }
            *done = done.saturating_add(1);
            if slice.is_over() && segmenter.has_more() {
                result = Err(DeliveryError::Yield);
                break;
            }
        }
        if complete {
            self.frame = frame;
        }
        result
    }

    /// Delivers one segment. The checksum is completed here if `complete` is set and `body` is
    /// private; otherwise the receiver completes it.
    fn deliver_segment(
        &mut self,
        to: &mut TargetQueue<'_>,
        mut piece: GsoSegment<'_>,
        body: Body<'_>,
        complete: bool,
    ) -> Result<(), DeliveryError> {
        let len = piece.len();
        let count = self.pop_buffers(to, len)?;
        let offload = match &body {
            Body::Private(payload) if complete => {
                piece.complete(payload);
                Offload::None
            }
            // A link's frame is private too, but its `body` extends beyond the segment.
            Body::Private(_) | Body::Guest(..) => piece.offload(),
        };
        let mut first = std::mem::take(&mut self.first);
        first.clear();
        let header = header_for(&offload, count);
        first.extend_from_slice(header.get(..header_len(to.features)).unwrap_or(&[]));
        first.extend_from_slice(piece.headers);
        let written = self.write_and_push(to, count, &first, body, len);
        self.first = first;
        written
    }

    /// Pops receive buffers for `len` bytes and a header; returns their number. On an error all of
    /// them are put back, except on [`DeliveryError::Fault`], after which the port closes.
    fn pop_buffers(
        &mut self,
        to: &mut TargetQueue<'_>,
        len: usize,
    ) -> Result<usize, DeliveryError> {
        let header = header_len(to.features) as u64;
        let need = header.saturating_add(len as u64);
        let mergeable = has(to.features, VIRTIO_NET_F_MRG_RXBUF);
        let (mut count, mut room) = (0_usize, 0_u64);
        loop {
            if self.chains.len() == count {
                self.chains.push(Chain::new());
            }
            let Some(chain) = self.chains.get_mut(count) else {
                return Err(DeliveryError::Drop(DropReason::NoBuffer));
            };
            match to.ring.pop(to.map, chain) {
                Ok(true) => {}
                Ok(false) => {
                    let all = to.ring.in_flight() >= to.ring.size();
                    self.put_back(to, count);
                    // The guest has posted its whole ring and cannot add buffers.
                    return Err(match all {
                        true => DeliveryError::Drop(DropReason::BufferTooSmall),
                        false => DeliveryError::Short(u16::try_from(count).unwrap_or(u16::MAX)),
                    });
                }
                Err(error) => return Err(DeliveryError::Fault(format!("receive queue: {error}"))),
            }
            let bytes = chain.writable_bytes();
            if bytes < header {
                let text = format!("a receive buffer of {bytes} bytes, expected at least {header}");
                return Err(DeliveryError::Fault(text));
            }
            count = count.saturating_add(1);
            room = room.saturating_add(bytes);
            if room >= need {
                return Ok(count);
            }
            if !mergeable || count >= MERGED_BUFFERS_MAX {
                self.put_back(to, count);
                return Err(DeliveryError::Drop(DropReason::BufferTooSmall));
            }
        }
    }

    /// Puts the first `count` chains back into the ring.
    fn put_back(&self, to: &mut TargetQueue<'_>, count: usize) {
        for chain in self.chains.iter().take(count).rev() {
            to.ring.put_back(chain.head());
        }
    }

    /// Writes a frame of `len` bytes into the first `count` chains and pushes them as used. `first`
    /// holds the header and the frame's first bytes; `body` follows.
    #[inline]
    fn write_and_push(
        &mut self,
        to: &mut TargetQueue<'_>,
        count: usize,
        first: &[u8],
        body: Body<'_>,
        len: usize,
    ) -> Result<(), DeliveryError> {
        let all = (header_len(to.features) as u64).saturating_add(len as u64);
        if let Err(error) = self.write_buffers(to, count, first, body, all) {
            self.put_back(to, count);
            return Err(delivery_error(error));
        }
        let mut left = all;
        for chain in self.chains.iter().take(count) {
            let written = left.min(chain.writable_bytes());
            left = left.saturating_sub(written);
            let written = u32::try_from(written).unwrap_or(u32::MAX);
            to.ring.push(chain.head(), written).map_err(|e| DeliveryError::Fault(e.to_string()))?;
        }
        to.counters.count_received(1, len);
        Ok(())
    }

    /// Writes `all` bytes (virtio-net header and frame) into the first `count` chains.
    #[inline]
    fn write_buffers(
        &mut self,
        to: &TargetQueue<'_>,
        count: usize,
        mut first: &[u8],
        mut body: Body<'_>,
        all: u64,
    ) -> Result<(), CopyError> {
        let header_len = header_len(to.features);
        let mut left = all;
        for (index, chain) in self.chains.iter().take(count).enumerate() {
            let mut writer = chain.writer();
            let now = left.min(chain.writable_bytes());
            left = left.saturating_sub(now);
            let room = usize::try_from(now).unwrap_or(usize::MAX);
            let (part, later) = first.split_at_checked(room).unwrap_or((first, &[]));
            first = later;
            if index == 0 {
                // Most frames have the same header, which the buffer still holds from its last use.
                // Skipping the write leaves the cache line with the guest.
                let (header, part) = part.split_at_checked(header_len).unwrap_or((part, &[]));
                writer.write_changed(to.map, header).map_err(CopyError::Destination)?;
                writer.write(to.map, part).map_err(CopyError::Destination)?;
            } else {
                writer.write(to.map, part).map_err(CopyError::Destination)?;
            }
            let rest = now.saturating_sub(part.len() as u64);
            if rest > 0 {
                put(&mut body, to.map, &mut writer, rest)?;
            }
        }
        Ok(())
    }

    /// Copies the whole frame into private memory, after room for a header: the checked first
    /// bytes, and the rest from the sender. The caller must put the buffer back into `self.frame`.
    fn copy_whole_frame(&mut self, from: &SourceFrame<'_>) -> Result<Vec<u8>, DeliveryError> {
        let mut frame = std::mem::take(&mut self.frame);
        let headers = &*from.headers;
        frame.resize(HEADER_LEN.saturating_add(headers.len), 0);
        let (head, rest) = frame
            .get_mut(HEADER_LEN..)
            .and_then(|bytes| bytes.split_at_mut_checked(headers.head().len()))
            .ok_or(DeliveryError::Drop(DropReason::TooBig))?;
        head.copy_from_slice(headers.head());
        from.rest().read(rest).map_err(|_| DeliveryError::Drop(DropReason::SenderFault))?;
        Ok(frame)
    }
}

/// Attributes a failed copy: an unreadable source drops the frame, an unwritable destination is the
/// receiver's fault.
#[cold]
fn delivery_error(error: CopyError) -> DeliveryError {
    match error {
        CopyError::Source(_) => DeliveryError::Drop(DropReason::SenderFault),
        CopyError::Destination(gap) => DeliveryError::Fault(format!("receive buffer: {gap}")),
    }
}
