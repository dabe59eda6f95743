//! Transmission: from send queue entries to frames.
//!
//! An entry holds the first bytes of the frame and names the others by local keys. The head is
//! copied once ([`limits::HEAD_BYTES`]); lengths and checksums that the driver leaves to the device
//! are then written to the copy, so that a frame with an offload has valid header fields and the
//! sum over the pseudo-header in its checksum field. The driver's values there are ignored.
//!
//! An entry with a segmentation request becomes one frame with an offload, which the receiver cuts
//! if it must. A segmentation request that does not agree with the frame's headers, or a frame
//! below 14 bytes, drops the frame; the entry then completes as if the frame had been sent. An
//! entry that cannot be read, that names memory without permission, or whose frame is longer than
//! [`limits::FRAME_BYTES_MAX`] (65,557 bytes) before a tag is inserted, completes with an error,
//! and its queue goes to the error state; posted entries are flushed with completions only if the
//! driver asked for that, the queue can be read, and the entry that failed is not malformed. A
//! completion queue without room stops the send queue, too. A call takes at most
//! [`limits::ENTRIES_PER_CALL_MAX`] (64) entries, and never waits. `hca::switch` is the caller, in
//! the dispatcher's turn.

use causeway_memory::{Cursor, Map, Span};
use causeway_verbs::region::{Regions, Rights};
use causeway_verbs::{Adapter, QueueError};
use causeway_wire::ethernet::{TYPE_VLAN, TYPE_VLAN_SERVICE};
use causeway_wire::mlx5::completion_queue::Syndrome;
use causeway_wire::mlx5::work_queue::{QueueState, SEND_BLOCK};
use causeway_wire::mlx5::work_request::{
    CHECKSUM_L3, CHECKSUM_L4, ControlSegment, EthernetSegment, FrameRequest, Payload,
};

use super::counters::Cast;
use super::frame::Frame;
use super::send_queue::{Block, EntryBytes, Head, SendQueue};
use super::state::Sending;
use super::{Next, limits, offload};
use crate::function::Function;
use crate::record::progress::Owner;
use crate::work_queues::SEND_ENTRY_BYTES_MAX;

/// Bit of [`EthernetSegment::inline_len`]: the inserted tag is a service tag.
const INSERT_SERVICE_TAG: u16 = 1 << 0;
/// Bytes of a VLAN tag.
const TAG_BYTES: usize = 4;
/// Bits of [`EthernetSegment::segment_size`].
const SEGMENT_SIZE: u16 = 0x3fff;

/// Result of reading an entry.
enum Outcome {
    /// `frame` is to be forwarded.
    Frame,
    /// The frame was dropped, and its entry is complete.
    Dropped,
    /// The entry had no frame.
    Nothing,
    /// The queue is empty.
    Empty,
}

/// Returns whether an entry waits in one of the adapter's send queues, and the number of queues
/// that the call looked at. Takes no entry.
pub fn has_frames(adapter: &Adapter<Function>) -> (bool, u32) {
    let function = adapter.queues();
    let ethernet = &function.objects.ethernet;
    let mut looks = 0_u32;
    let is_posted = ethernet.rotation.queues().any(|number| {
        looks = looks.saturating_add(1);
        let queue = ethernet.send_queues.get(number);
        queue.is_some_and(|queue| queue.is_posted(&function.map))
    });
    (is_posted, looks)
}

/// Takes the next frame of the adapter's send queues, in turn. The caller must call
/// [`complete_frame`] after it copied the frame; otherwise the next call completes the frame. With
/// any result, [`Frame::looks`] is the work that the call did.
pub fn next_frame(adapter: &mut Adapter<Function>, frame: &mut Frame) -> Next {
    complete_frame(adapter);
    frame.clear();
    frame.looks = 0;
    let (function, regions) = adapter.parts_mut();
    let (mut empty, mut taken, mut has_more) = (0_usize, 0_u32, false);
    while taken < limits::ENTRIES_PER_CALL_MAX {
        let rotation = &mut function.objects.ethernet.rotation;
        if empty >= rotation.len() {
            return if has_more { Next::Dropped } else { Next::Empty };
        }
        let Some(queue) = rotation.present() else { return Next::Empty };
        frame.looks = frame.looks.saturating_add(1);
        match function.take(regions, queue, frame) {
            Outcome::Empty => {
                function.objects.ethernet.rotation.advance();
                empty = empty.saturating_add(1);
                continue;
            }
            Outcome::Frame => {
                function.objects.ethernet.rotation.count();
                return Next::Frame;
            }
            Outcome::Dropped => {
                function.objects.ethernet.rotation.count();
                return Next::Dropped;
            }
            // A queue that loses its turn may have more entries.
            Outcome::Nothing => has_more |= function.objects.ethernet.rotation.count(),
        }
        taken = taken.saturating_add(1);
    }
    Next::Dropped
}

/// Completes the entry of the last frame of [`next_frame`].
pub fn complete_frame(adapter: &mut Adapter<Function>) {
    let function = adapter.queues_mut();
    if let Some(sending) = function.objects.ethernet.sending.take() {
        function.complete_entry(&sending);
    }
}

impl Function {
    /// Takes an entry of a send queue.
    fn take(&mut self, regions: &Regions, number: u32, frame: &mut Frame) -> Outcome {
        let ethernet = &mut self.objects.ethernet;
        let Some(queue) = ethernet.send_queues.get_mut(number) else {
            ethernet.rotation.set(number, false);
            return Outcome::Nothing;
        };
        match queue.has_next(&self.map) {
            Ok(true) => {}
            Ok(false) => return Outcome::Empty,
            Err(error) => return self.fail_ring(number, error),
        }
        let mut first = [0; SEND_BLOCK];
        match queue.first(&self.map, &mut first) {
            Ok(head) if head.blocks == 1 => {
                queue.advance(head);
                self.begin(regions, (number, head), &first, frame)
            }
            Ok(head) => self.take_long(regions, (number, head), &first, frame),
            Err(error) => self.fail_ring(number, error),
        }
    }

    /// Takes an entry of more than one block. Not inlined, so that other entries do not clear the
    /// room for its copy.
    #[inline(never)]
    fn take_long(
        &mut self,
        regions: &Regions,
        (number, head): (u32, Head),
        first: &Block,
        frame: &mut Frame,
    ) -> Outcome {
        let Some(queue) = self.objects.ethernet.send_queues.get_mut(number) else {
            return Outcome::Nothing;
        };
        let mut bytes: EntryBytes = [0; SEND_ENTRY_BYTES_MAX];
        match queue.rest(&self.map, (head, first), &mut bytes) {
            Ok(entry) => {
                queue.advance(head);
                self.begin(regions, (number, head), entry, frame)
            }
            Err(error) => self.fail_ring(number, error),
        }
    }

    /// Begins the execution of an entry, which was taken.
    #[inline]
    fn begin(
        &mut self,
        regions: &Regions,
        (number, head): (u32, Head),
        entry: &[u8],
        frame: &mut Frame,
    ) -> Outcome {
        let opcode = entry.get(3).copied().unwrap_or(0);
        let sending = Sending { queue: number, index: head.index, opcode, is_signaled: true };
        let queue = self.objects.ethernet.send_queues.get(number);
        if queue.and_then(SendQueue::state) != Some(QueueState::Ready) {
            self.fail_entry(&sending, Syndrome::Flushed);
            return Outcome::Nothing;
        }
        self.execute(regions, sending, entry, frame)
    }

    /// Executes an entry.
    fn execute(
        &mut self,
        regions: &Regions,
        mut sending: Sending,
        entry: &[u8],
        frame: &mut Frame,
    ) -> Outcome {
        let request = match FrameRequest::parse(entry) {
            Ok(Some(request)) => request,
            Ok(None) => {
                let control = ControlSegment::parse(entry);
                sending.is_signaled = control.is_ok_and(|control| control.is_signaled());
                self.complete_entry(&sending);
                return Outcome::Nothing;
            }
            Err(_) => {
                self.count_fault("a send entry is malformed");
                self.fail_entry(&sending, Syndrome::LocalQueuePairOperation);
                return Outcome::Dropped;
            }
        };
        sending.is_signaled = request.control.is_signaled();
        let queue = self.objects.ethernet.send_queues.get(sending.queue);
        let domain = queue.map_or(0, |queue| queue.context.queue.domain);
        match gather(&request, (&self.map, regions, domain), frame) {
            Ok(true) => {
                let ethernet = &mut self.objects.ethernet;
                ethernet.counters.sent.count(Cast::of(&frame.head), frame.len);
                ethernet.sending = Some(sending);
                return Outcome::Frame;
            }
            Ok(false) => {
                let counters = &mut self.objects.ethernet.counters;
                counters.refused_sends = counters.refused_sends.wrapping_add(1);
                self.complete_entry(&sending);
            }
            Err(syndrome) => {
                self.count_fault("a send entry names memory without permission");
                self.fail_entry(&sending, syndrome);
            }
        }
        frame.clear();
        Outcome::Dropped
    }

    /// Fails a queue that cannot be read.
    fn fail_ring(&mut self, number: u32, error: QueueError) -> Outcome {
        let queue = self.objects.ethernet.send_queues.get(number);
        let index = queue.map_or(0, |queue| queue.positions().taken);
        let sending = Sending { queue: number, index, opcode: 0, is_signaled: true };
        self.count_fault(error.0);
        self.fail_entry(&sending, Syndrome::LocalQueuePairOperation);
        Outcome::Dropped
    }

    /// Counts a send entry that cannot be executed.
    fn count_fault(&mut self, reason: &'static str) {
        self.fault = Some(reason);
        self.counters.malformed_entries = self.counters.malformed_entries.wrapping_add(1);
    }

    /// Adds the completion of an entry if its driver asked for one.
    fn complete_entry(&mut self, sending: &Sending) {
        if !sending.is_signaled {
            return self.store_progress(Owner::EthernetSend(sending.queue));
        }
        let Some(queue) = self.objects.ethernet.send_queues.get(sending.queue) else { return };
        let entry = queue.success(sending.queue, sending.index, sending.opcode);
        let completion_queue = queue.context.completion_queue;
        let owner = Owner::EthernetSend(sending.queue);
        if !self.push_completion(completion_queue, entry, owner) {
            self.stop_send_queue(sending.queue);
            self.report_broken_queue(completion_queue);
        }
    }

    /// Adds the completion of an entry that failed, and moves its queue to the error state. The
    /// entries behind it are flushed if the driver asked for that.
    fn fail_entry(&mut self, sending: &Sending, syndrome: Syndrome) {
        let Some(queue) = self.objects.ethernet.send_queues.get_mut(sending.queue) else { return };
        queue.set_state(QueueState::Error);
        // A counter or entry that cannot be read has no successor.
        let is_readable = syndrome != Syndrome::LocalQueuePairOperation;
        let flushes = queue.context.flushes_in_error && is_readable;
        let entry = queue.failure(sending.queue, sending.index, sending.opcode, syndrome);
        let completion_queue = queue.context.completion_queue;
        if !flushes {
            self.stop_send_queue(sending.queue);
        }
        let owner = Owner::EthernetSend(sending.queue);
        if !self.push_completion(completion_queue, entry, owner) {
            self.stop_send_queue(sending.queue);
            self.report_broken_queue(completion_queue);
        }
    }

    /// Moves a send queue to the error state and polls it no longer.
    fn stop_send_queue(&mut self, number: u32) {
        let ethernet = &mut self.objects.ethernet;
        if let Some(queue) = ethernet.send_queues.get_mut(number) {
            queue.set_state(QueueState::Error);
        }
        ethernet.rotation.set(number, false);
        self.store_progress(Owner::EthernetSend(number));
    }
}

/// Assembles the frame of an entry. Returns false if the frame must be dropped.
fn gather(
    request: &FrameRequest<'_>,
    (map, regions, domain): (&Map, &Regions, u32),
    frame: &mut Frame,
) -> Result<bool, Syndrome> {
    let segment = &request.ethernet;
    // An inserted tag is a part of the frame.
    let tag = segment.vlan().map_or(0, |_| TAG_BYTES);
    let len_max = limits::FRAME_BYTES_MAX.saturating_sub(tag);
    frame.head.extend_from_slice(request.headers);
    let mut len = request.headers.len();
    for part in request.payload {
        match part.map_err(|_| Syndrome::LocalQueuePairOperation)? {
            Payload::Inline(bytes) if frame.body.is_empty() => {
                frame.head.extend_from_slice(bytes);
                len = len.saturating_add(bytes.len());
            }
            Payload::Inline(_) => return Err(Syndrome::LocalQueuePairOperation),
            Payload::Memory(data) => {
                len = len.saturating_add(usize::try_from(data.len()).unwrap_or(usize::MAX));
                if len > len_max {
                    return Err(Syndrome::LocalLength);
                }
                let range = (data.address, u64::from(data.len()));
                let resolved =
                    regions.resolve(data.key, domain, range, Rights::LOCAL_READ, &mut frame.body);
                resolved.map_err(|_| Syndrome::LocalProtection)?;
            }
        }
    }
    frame.len = len;
    if len < limits::FRAME_BYTES_MIN {
        return Ok(false);
    }
    fill_head(map, frame).ok_or(Syndrome::LocalProtection)?;
    insert_tag(segment, frame);
    let asked = offload::Request {
        checksum_l3: segment.checksums & CHECKSUM_L3 != 0,
        checksum_l4: segment.checksums & CHECKSUM_L4 != 0,
        segment_size: request.is_segmented.then_some(segment.segment_size & SEGMENT_SIZE),
    };
    match offload::prepare(&mut frame.head, frame.len, &asked) {
        Some(offload) => frame.offload = offload,
        None => return Ok(false),
    }
    Ok(true)
}

/// Moves the first bytes of the body to the head. Returns `None` if they are not granted.
fn fill_head(map: &Map, frame: &mut Frame) -> Option<()> {
    let have = frame.head.len();
    let wanted = limits::HEAD_BYTES.min(frame.len).saturating_sub(have);
    if wanted == 0 {
        return Some(());
    }
    frame.head.resize(have.saturating_add(wanted), 0);
    Cursor::new(&frame.body).read(map, frame.head.get_mut(have..)?).ok()?;
    drop_front(&mut frame.body, wanted);
    Some(())
}

/// Removes the first `bytes` of a list of spans.
fn drop_front(spans: &mut Vec<Span>, bytes: usize) {
    let mut bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let whole = spans.iter().take_while(|span| match bytes.checked_sub(span.len) {
        Some(left) => {
            bytes = left;
            true
        }
        None => false,
    });
    let whole = whole.count();
    spans.drain(..whole);
    if let Some(first) = spans.first_mut() {
        first.addr = first.addr.wrapping_add(u64::from(bytes));
        first.len = first.len.saturating_sub(bytes);
    }
}

/// Inserts the VLAN tag that an entry asks for.
fn insert_tag(segment: &EthernetSegment, frame: &mut Frame) {
    let Some(control) = segment.vlan() else { return };
    let is_service = segment.inline_len & INSERT_SERVICE_TAG != 0;
    let protocol = if is_service { TYPE_VLAN_SERVICE } else { TYPE_VLAN };
    let [a, b] = protocol.to_be_bytes();
    let [c, d] = control.to_be_bytes();
    const ADDRESSES: usize = 12;
    frame.head.splice(ADDRESSES..ADDRESSES, [a, b, c, d]);
    frame.len = frame.len.saturating_add(TAG_BYTES);
}
