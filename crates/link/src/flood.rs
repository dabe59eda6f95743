//! Flood sequence numbers: copies of a flooded frame are recognised by a number.
//!
//! Where transit links (by which frames of other links may leave) of several daemons form a loop, a
//! flooded frame would circulate. So the first daemon that sends it into links appends an
//! unpredictable number, and each daemon accepts the first copy of a number and drops all others
//! (`ethernet::flood_sequence`). This needs no spanning tree and no agreement, holds while links
//! come and go, and the first copy to arrive has taken the shortest path. Only tunnels carry the
//! number; other links carry neither numbers nor hop counts (`ethernet::duplicates` detects copies
//! there).
//!
//! This module encodes and decodes the number ([`NUMBER_LEN`] (8) bytes behind the frame); it does
//! not detect duplicates. A frame that would exceed [`FRAME_BYTES_MAX`] (65,557) with its number
//! leaves without it, so a loop can deliver the frame more than once. `TunnelCarrier` of
//! [`crate::io::tunnels`] calls [`pack`] in the thread of the sending group; its receive side calls
//! [`arrival`], which also counts this hop, in the shard of links; `ethernet` does not send a frame
//! that crossed `HOPS_MAX` (8) links into a further link.

use causeway_fabric::carrier::{MemoryLost, Outgoing, ReceivedFrame};
use causeway_wire::tunnel::record::{FLOODED, NUMBER_LEN, emit_metadata};

use crate::limits::FRAME_BYTES_MAX;
use crate::pack::{Batch, Packer, PushError};
use crate::tx_path::WaitingFrame;
use crate::unpack::{Sink, UnpackedFrame};

/// Packs a frame of network `vni` with its flood sequence number, if the frame has one and both fit
/// [`FRAME_BYTES_MAX`] (65,557 bytes); otherwise without a number.
///
/// # Errors
/// As [`Packer::push`].
pub fn pack(
    packer: &mut Packer,
    vni: u32,
    frame: &Outgoing<'_>,
    send: impl FnMut(&Batch),
) -> Result<(), PushError<MemoryLost>> {
    let metadata = frame.offload.to_header(0);
    // Offsets grow, so one reader passes over the frame once.
    let mut reader = frame.reader();
    let long = frame.len.saturating_add(NUMBER_LEN);
    let Some(number) = frame.flood.filter(|_| long <= FRAME_BYTES_MAX) else {
        let read = |_: usize, into: &mut [u8]| reader.read(into);
        return packer.push(vni, frame.hops, &metadata, frame.len, read, send);
    };
    let number = number.to_be_bytes();
    let read = |offset: usize, into: &mut [u8]| {
        let left = frame.len.saturating_sub(offset).min(into.len());
        let (of_frame, of_number) = into.split_at_mut_checked(left).ok_or(MemoryLost)?;
        reader.read(of_frame)?;
        let from = offset.saturating_add(left).saturating_sub(frame.len);
        let bytes = number.get(from..).and_then(|bytes| bytes.get(..of_number.len()));
        of_number.copy_from_slice(bytes.ok_or(MemoryLost)?);
        Ok(())
    };
    packer.push(vni, frame.hops | FLOODED, &metadata, long, read, send)
}

/// Returns a copy of a frame that waits for the session of a dormant tunnel, as [`pack`] sends it.
///
/// # Errors
/// The sender's memory was withdrawn.
pub fn keep(vni: u32, frame: &Outgoing<'_>) -> Result<WaitingFrame, MemoryLost> {
    let metadata = frame.offload.to_header(0);
    let mut bytes = vec![0; frame.len];
    frame.reader().read(&mut bytes)?;
    let long = frame.len.saturating_add(NUMBER_LEN);
    let number = frame.flood.filter(|_| long <= FRAME_BYTES_MAX);
    bytes.extend(number.iter().flat_map(|number| number.to_be_bytes()));
    let hops = if number.is_some() { frame.hops | FLOODED } else { frame.hops };
    Ok(WaitingFrame { vni, hops, metadata, is_segment: false, bytes })
}

/// Returns a frame received by a tunnel in the form that its group expects. `None` for a flooded
/// frame that is too short for its number: the caller drops it without a counter.
pub fn arrival(sink: &Sink, frame: &UnpackedFrame) -> Option<ReceivedFrame> {
    let offload = emit_metadata(&frame.metadata);
    let hops = (frame.hops & !FLOODED).saturating_add(1);
    let mut at = frame.at.clone();
    let mut flood = None;
    if frame.hops & FLOODED != 0 {
        let (_, number) = sink.frame(frame).split_last_chunk::<NUMBER_LEN>()?;
        flood = Some(u64::from_be_bytes(*number));
        at.end = at.end.saturating_sub(NUMBER_LEN);
    }
    Some(ReceivedFrame { at, offload, hops, flood })
}
