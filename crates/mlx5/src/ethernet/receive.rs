//! Reception: from a frame to the receive queues of its transport interfaces.
//!
//! `hca::switch` calls [`receive_frame`] in the dispatcher's turn, for each adapter that receives a
//! frame: with the frame in the sender's memory, or with the copy that came by the uplink. Nothing
//! waits: a frame that cannot be delivered is dropped at one of these steps:
//!
//! | step | a frame is dropped |
//! |---|---|
//! | address filter ([`filter`]), flow tables ([`super::flow`]) | if no entry sends it to an interface |
//! | length | if it is longer than the driver's MTU |
//! | receive queue of each interface ([`super::interface`]) | if its queue does not receive |
//! | receive entry | if none is posted, or its buffers are too short |
//! | each piece ([`Deliveries`]) | if the frame had too many deliveries |
//!
//! A frame that its sender left uncut is cut here; if a piece is dropped, so are the later ones.
//! Each piece is copied once from the sender's memory, in chunks that stay in the cache and are
//! summed on the way ([`verify`](super::verify)).
//!
//! The length that a completion reports never exceeds the buffers of its entry, nor the MTU that
//! the driver set: drivers size their buffers by the MTU and do not check the length. A dropped
//! frame is counted, once for each interface, and takes no entry. A receive queue that cannot be
//! read, or whose entry names memory without permission, goes to the error state with an error
//! completion. A queue without room for the completion of a received frame goes to the error state,
//! too, with the entry taken. Later frames of a failed queue are dropped.

use causeway_memory::{Cursor, Map};
use causeway_verbs::Adapter;
use causeway_verbs::region::Regions;
use causeway_wire::checksum::Sum;
use causeway_wire::ethernet::{TAG_LEN, TYPE_VLAN};
use causeway_wire::frame::Frame as Headers;
use causeway_wire::mlx5::completion_queue::{CompletionEntry, Entry};
use causeway_wire::mlx5::work_queue::QueueState;
use causeway_wire::virtio_net::segment::Segmenter;
use causeway_wire::virtio_net::{ChecksumPlace, Offload};

use super::counters::Cast;
use super::frame::{Deliveries, FrameRef, Reader};
use super::hash::Hash;
use super::headers::match_headers;
use super::receive_queue::buffers;
use super::state::Scratch;
use super::verify::Verifier;
use super::{Received, filter, limits};
use crate::function::Function;
use crate::record::progress::Owner;

/// The receive queue of a frame.
#[derive(Debug, Clone, Copy)]
struct Target {
    queue: u32,
    hash: Hash,
    /// Value of the flow entry, which the completion carries.
    tag: u32,
}

/// A part of a frame that becomes a frame of its own, behind the bytes in [`Scratch::head`].
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Place of the checksum that must be completed.
    place: Option<ChecksumPlace>,
    /// Bytes behind the head.
    payload: usize,
    /// Headers of the piece, if they are known.
    headers: Option<Headers>,
}

/// The side of a copy that is not granted.
enum Revoked {
    Source,
    Destination,
}

/// Offers a frame to the adapter's receive queues. Counts the pieces in `deliveries`, and delivers
/// none beyond their bound.
pub fn receive_frame(
    adapter: &mut Adapter<Function>,
    frame: &FrameRef<'_>,
    deliveries: &mut Deliveries,
) -> Received {
    let (function, regions) = adapter.parts_mut();
    let mut scratch = function.objects.ethernet.scratch.take().unwrap_or_default();
    let before = deliveries.pieces();
    let received = function.receive(regions, frame, (&mut scratch, deliveries));
    if deliveries.pieces() == before {
        deliveries.count(0);
    }
    function.objects.ethernet.scratch = Some(scratch);
    received
}

impl Function {
    /// Filters and steers a frame, and delivers the frame to each interface.
    fn receive(
        &mut self,
        regions: &Regions,
        frame: &FrameRef<'_>,
        (scratch, deliveries): (&mut Scratch, &mut Deliveries),
    ) -> Received {
        let Ok(parsed) = Headers::parse(frame.head) else { return self.drop(Received::Filtered) };
        let objects = &mut self.objects;
        if !filter::accepts(&objects.vport, parsed.destination) {
            return self.drop(Received::Filtered);
        }
        let headers = match_headers(frame.head, &parsed);
        let verdict = objects.ethernet.flows.find(&headers);
        if verdict.interfaces().is_empty() {
            return self.drop(Received::Filtered);
        }
        let longest = usize::from(objects.vport.context.mtu);
        let longest = longest.saturating_sub(limits::CHECK_SEQUENCE_BYTES);
        if frame.offload.piece_len(frame.len) > longest {
            return self.drop(Received::TooLong);
        }
        let mut frames = 0_u32;
        let mut last = None;
        for interface in verdict.interfaces() {
            let interfaces = &mut self.objects.ethernet.interfaces;
            let Some((queue, hash)) = interfaces.select(*interface, &headers) else { continue };
            let target = Target { queue, hash, tag: verdict.tag };
            let to = (&mut *scratch, &mut *deliveries);
            let (count, end) = self.deliver(regions, target, (frame, &parsed), to);
            frames = frames.saturating_add(count);
            last = end.map(|end| self.drop(end)).or(last);
        }
        match last {
            _ if frames > 0 => Received::Delivered { frames },
            Some(last) => last,
            None => self.drop(Received::Down),
        }
    }

    /// Counts a dropped frame, or the dropped rest of a frame.
    fn drop(&mut self, received: Received) -> Received {
        let counters = &mut self.objects.ethernet.counters;
        let counter = match received {
            Received::Delivered { .. } => return received,
            Received::NoBuffer => &mut counters.out_of_buffer,
            Received::TooLong => &mut counters.too_long,
            Received::Filtered => &mut counters.filtered,
            Received::Down => &mut counters.down,
            Received::Lost => &mut counters.lost,
            Received::OverLimit => &mut counters.over_limit,
        };
        *counter = counter.wrapping_add(1);
        received
    }

    /// Delivers a frame, in pieces if it must be cut. Returns the number of delivered pieces, and
    /// why the others were dropped.
    fn deliver(
        &mut self,
        regions: &Regions,
        target: Target,
        (frame, parsed): (&FrameRef<'_>, &Headers),
        (scratch, deliveries): (&mut Scratch, &mut Deliveries),
    ) -> (u32, Option<Received>) {
        let mut reader = frame.reader();
        let (place, gso) = match *frame.offload {
            Offload::Segment(place, gso) => (place, gso),
            Offload::None | Offload::Checksum(_) => {
                let head = frame.head.len();
                reader.skip(head);
                scratch.head.clear();
                scratch.head.extend_from_slice(frame.head);
                let place = match *frame.offload {
                    Offload::Checksum(place) => Some(place),
                    _ => None,
                };
                let (payload, headers) = (frame.len.saturating_sub(head), Some(*parsed));
                let piece = Piece { place, payload, headers };
                if !deliveries.count(frame.len) {
                    return (0, Some(Received::OverLimit));
                }
                return match self.put(regions, target, piece, &mut reader, scratch) {
                    Ok(()) => (1, None),
                    Err(end) => (0, Some(end)),
                };
            }
        };
        let segmenter = Segmenter::new(frame.head, parsed, place, gso, frame.len);
        let Some(mut segmenter) = segmenter else { return (0, Some(Received::Filtered)) };
        reader.skip(usize::from(gso.header_len));
        let mut count = 0_u32;
        while let Some(segment) = segmenter.next_segment() {
            scratch.head.clear();
            scratch.head.extend_from_slice(segment.headers);
            // Each segment has lengths of its own.
            let payload = segment.payload.len();
            let piece = Piece { place: Some(place), payload, headers: None };
            if !deliveries.count(scratch.head.len().saturating_add(piece.payload)) {
                return (count, Some(Received::OverLimit));
            }
            if let Err(end) = self.put(regions, target, piece, &mut reader, scratch) {
                return (count, Some(end));
            }
            count = count.saturating_add(1);
        }
        (count, None)
    }

    /// Puts a piece into the next entry of a receive queue, and completes the entry.
    fn put(
        &mut self,
        regions: &Regions,
        target: Target,
        piece: Piece,
        reader: &mut Reader<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), Received> {
        let (map, ethernet) = (&self.map, &mut self.objects.ethernet);
        let queue = ethernet.receive_queues.get_mut(target.queue);
        let queue = queue.filter(|queue| queue.is_ready()).ok_or(Received::Down)?;
        let mut place = piece.place;
        let vlan = if queue.context.keeps_vlan { None } else { remove_tag(&mut scratch.head) };
        if vlan.is_some() {
            place = place.map(|place| ChecksumPlace {
                start: place.start.saturating_sub(TAG_LEN as u16),
                ..place
            });
        }
        match queue.peek(map, &mut scratch.entry, &mut scratch.work) {
            Ok(true) => {}
            Ok(false) => {
                let set = queue.context.counter_set;
                ethernet.count_out_of_buffer(set);
                return Err(Received::NoBuffer);
            }
            Err(error) => return Err(self.fail_receive(target.queue, error.0)),
        }
        let (index, domain) = (scratch.work.token.index, queue.context.queue.domain);
        let head_len = scratch.head.len();
        let len = head_len.saturating_add(piece.payload);
        scratch.spans.clear();
        match buffers(&scratch.work, (regions, domain), len, &mut scratch.spans) {
            Ok(true) => {}
            Ok(false) => return Err(Received::TooLong),
            Err(_) => {
                let reason = "a receive entry names memory without permission";
                return Err(self.fail_receive(target.queue, reason));
            }
        }
        let headers = piece.headers.filter(|_| vlan.is_none());
        let headers = headers.or_else(|| Headers::parse(&scratch.head).ok()).unwrap_or_default();
        let verifier = Verifier::new(headers, len);
        let covered = verifier.covered(head_len);
        let sum = match copy(map, reader, (piece.payload, covered), scratch) {
            Ok(sum) => sum,
            Err(Revoked::Source) => return Err(Received::Lost),
            Err(Revoked::Destination) => {
                return Err(self.fail_receive(target.queue, "a receive buffer is not granted"));
            }
        };
        if let Some(place) = place {
            verifier.complete(&mut scratch.head, place, &sum);
        }
        if Cursor::new(&scratch.spans).write(map, &scratch.head).is_err() {
            return Err(self.fail_receive(target.queue, "a receive buffer is not granted"));
        }
        queue.take();
        let mut entry = queue.success(index, target.tag, len);
        verifier.report(&scratch.head, &sum, &mut entry);
        (entry.hash, entry.hash_type) = (target.hash.value, target.hash.covered);
        (entry.has_vlan, entry.vlan) = (vlan.is_some(), vlan.unwrap_or(0));
        ethernet.counters.received.count(Cast::of(&scratch.head), len);
        self.complete_receive(target.queue, entry)
    }

    /// Adds the completion of a received frame. The queue fails if the completion has no room.
    fn complete_receive(&mut self, number: u32, entry: CompletionEntry) -> Result<(), Received> {
        let queue = self.objects.ethernet.receive_queues.get(number).ok_or(Received::Down)?;
        let completion_queue = queue.context.completion_queue;
        let owner = Owner::EthernetReceive(number);
        if self.push_completion(completion_queue, Entry::Success(entry), owner) {
            return Ok(());
        }
        if let Some(queue) = self.objects.ethernet.receive_queues.get_mut(number) {
            queue.set_state(QueueState::Error);
        }
        self.store_progress(owner);
        self.report_broken_queue(completion_queue);
        Err(Received::Down)
    }

    /// Moves a receive queue to the error state and adds the completion of its present entry.
    fn fail_receive(&mut self, number: u32, reason: &'static str) -> Received {
        self.fault = Some(reason);
        self.counters.malformed_entries = self.counters.malformed_entries.wrapping_add(1);
        let ethernet = &mut self.objects.ethernet;
        ethernet.counters.failed_receives = ethernet.counters.failed_receives.wrapping_add(1);
        let Some(queue) = ethernet.receive_queues.get_mut(number) else { return Received::Down };
        queue.set_state(QueueState::Error);
        let entry = queue.failure(number, queue.positions().taken);
        let completion_queue = queue.context.completion_queue;
        if !self.push_completion(completion_queue, entry, Owner::EthernetReceive(number)) {
            self.report_broken_queue(completion_queue);
        }
        Received::Down
    }
}

/// Copies the payload of a piece to its buffers, behind the head. Returns the sum over its first
/// `covered` bytes.
fn copy(
    map: &Map,
    reader: &mut Reader<'_>,
    (payload, covered): (usize, usize),
    scratch: &mut Scratch,
) -> Result<Sum, Revoked> {
    let mut sum = Sum::new();
    let mut to = Cursor::at(&scratch.spans, scratch.head.len() as u64);
    let (mut left, mut covered) = (payload, covered);
    scratch.chunk.resize(limits::CHUNK_BYTES, 0);
    while left > 0 {
        let now = left.min(limits::CHUNK_BYTES);
        let chunk = scratch.chunk.get_mut(..now).ok_or(Revoked::Source)?;
        reader.read(chunk).map_err(|_| Revoked::Source)?;
        sum.add(chunk.get(..now.min(covered)).unwrap_or(&[]));
        to.write(map, chunk).map_err(|_| Revoked::Destination)?;
        left = left.saturating_sub(now);
        covered = covered.saturating_sub(now);
    }
    Ok(sum)
}

/// Removes the outer tag of a frame if it is a customer tag. Returns its control field.
fn remove_tag(head: &mut Vec<u8>) -> Option<u16> {
    const TAG: usize = 12;
    let tag: &[u8; TAG_LEN] = head.get(TAG..)?.first_chunk()?;
    let [a, b, c, d] = *tag;
    if u16::from_be_bytes([a, b]) != TYPE_VLAN {
        return None;
    }
    head.drain(TAG..TAG.saturating_add(TAG_LEN));
    Some(u16::from_be_bytes([c, d]))
}
