//! Reassembly of fragmented frames, in bounded memory and time.
//!
//! [`crate::tunnel::Tunnel`] passes every fragment record of an accepted datagram here. Fragments
//! may arrive in any order. A fragment that contradicts earlier fragments of its frame, or would be
//! its 65th disjoint range, drops the frame, so a frame never consists of bytes that do not belong
//! together; an identical copy of a received fragment has no effect, but a copy that arrives after
//! its frame was completed begins an incomplete frame, which times out. When the limits on frames
//! or bytes are reached, the oldest incomplete frame is dropped and counted. Lost fragments are not
//! requested again.
//!
//! Limits per tunnel: [`FRAGMENTED_FRAMES_MAX`] (64) frames, [`FRAGMENTED_BYTES_MAX`] (2 MiB)
//! bytes, [`FRAGMENTED_RANGES_MAX`] (64) disjoint ranges of a frame, and [`FRAGMENTED_NS_MAX`] (1
//! s) from the first fragment to the last. The caller runs the timeout by [`Reassembler::expire`],
//! and must use a returned frame before the next call: its buffer is reused. Frames are completed
//! in the order of their last fragments, not in the order of sending. The module does not check the
//! frame's bytes. It belongs to the thread of the tunnel (in the daemon, the shard of links).

use std::collections::VecDeque;
use std::ops::Range;

use causeway_wire::ecn::Ecn;
use causeway_wire::tunnel::record::METADATA_LEN;

use crate::limits::{
    FRAGMENTED_BYTES_MAX, FRAGMENTED_FRAMES_MAX, FRAGMENTED_NS_MAX, FRAGMENTED_RANGES_MAX,
    FRAGMENTED_SPARE_MAX, FRAME_BYTES_MAX,
};
use crate::refusal::{Refusal, RefusalCounters};

/// A received fragment of a frame.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedFragment<'a> {
    /// The virtual network.
    pub vni: u32,
    /// The sender's number of the frame ([`crate::tx_path::TunnelTxPath::next_frame`]).
    pub id: u32,
    /// Offset of `bytes` in metadata and frame, in bytes.
    pub offset: usize,
    /// Length of metadata and frame, in bytes.
    pub total: usize,
    /// Whether the frame has no metadata.
    pub bare: bool,
    /// Daemons that forwarded the frame so far.
    pub hops: u8,
    /// The ECN field of the outer header.
    pub ecn: Ecn,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// An incomplete frame.
#[derive(Debug)]
struct IncompleteFrame {
    vni: u32,
    /// The sender's number of the frame.
    id: u32,
    /// Whether the frame has no metadata.
    bare: bool,
    /// Daemons that forwarded the frame so far.
    hops: u8,
    /// When the first fragment arrived.
    since: u64,
    /// Combined from the outer headers of all fragments.
    ecn: Ecn,
    /// Metadata and frame, in their full length.
    bytes: Vec<u8>,
    /// Received ranges: sorted, not touching each other.
    have: Vec<Range<usize>>,
}

/// Incomplete frames of one tunnel, oldest first.
#[derive(Debug, Default)]
pub struct Reassembler {
    pending: VecDeque<IncompleteFrame>,
    /// Total length of all incomplete frames, in bytes.
    pending_bytes: usize,
    /// Buffers for the next frames. The last is the frame that [`Reassembler::add`] returned last.
    spare: Vec<Vec<u8>>,
}

impl Reassembler {
    /// Adds a fragment received at `now`. With the last fragment of a frame, returns the frame's
    /// bytes (metadata, if any, and frame) and the ECN field combined from its outer headers.
    /// Counts frames that are dropped to make room in `refusals`.
    ///
    /// # Errors
    /// The reason why the fragment was dropped; the caller counts it. If the fragment contradicts
    /// its frame ([`Refusal::Overlap`]) or the frame has no room for another range
    /// ([`Refusal::Crowded`]), the frame is dropped too, without a count of its own; a fragment
    /// with an impossible length leaves the frame as it is.
    pub fn add(
        &mut self,
        now: u64,
        fragment: &ReceivedFragment<'_>,
        refusals: &mut RefusalCounters,
    ) -> Result<Option<(&[u8], Ecn)>, Refusal> {
        let range = range_of(fragment)?;
        let same = |p: &IncompleteFrame| p.id == fragment.id && p.vni == fragment.vni;
        // Newest first: the fragments of a frame mostly arrive in a row.
        let at = match self.pending.iter().rposition(same) {
            Some(at) => at,
            None => self.open(now, fragment, refusals),
        };
        let Some(pending) = self.pending.get_mut(at) else { return Ok(None) };
        match pending.add(fragment, range) {
            Ok(false) => Ok(None),
            Ok(true) => {
                let ecn = pending.ecn;
                self.close(at);
                Ok(self.spare.last().map(|bytes| (bytes.as_slice(), ecn)))
            }
            Err(refusal) => {
                self.close(at);
                Err(refusal)
            }
        }
    }

    /// Drops frames that are incomplete for [`FRAGMENTED_NS_MAX`] (1 s), and counts them.
    pub fn expire(&mut self, now: u64, refusals: &mut RefusalCounters) {
        while self.deadline().is_some_and(|deadline| deadline <= now) {
            self.close(0);
            refusals.count(Refusal::Incomplete);
        }
    }

    /// Returns the time at which [`Reassembler::expire`] has a frame to drop.
    pub fn deadline(&self) -> Option<u64> {
        self.pending.front().map(|oldest| oldest.since.saturating_add(FRAGMENTED_NS_MAX))
    }

    /// Returns the number of incomplete frames and their total length in bytes.
    pub fn held(&self) -> (usize, usize) {
        (self.pending.len(), self.pending_bytes)
    }

    /// Makes room for a new frame and returns its index.
    fn open(
        &mut self,
        now: u64,
        fragment: &ReceivedFragment<'_>,
        refusals: &mut RefusalCounters,
    ) -> usize {
        while self.pending.len() >= FRAGMENTED_FRAMES_MAX
            || self.pending_bytes.saturating_add(fragment.total) > FRAGMENTED_BYTES_MAX
        {
            if self.pending.is_empty() {
                break;
            }
            self.close(0);
            refusals.count(Refusal::Crowded);
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        // Every byte is written before it is read; until then the bytes of an earlier frame stay.
        bytes.resize(fragment.total, 0);
        self.pending_bytes = self.pending_bytes.saturating_add(fragment.total);
        let ReceivedFragment { vni, id, bare, hops, ecn, .. } = *fragment;
        self.pending.push_back(IncompleteFrame {
            vni,
            id,
            bare,
            hops,
            since: now,
            ecn,
            bytes,
            have: Vec::new(),
        });
        self.pending.len().saturating_sub(1)
    }

    /// Removes a complete or dropped frame; its bytes become the last spare buffer.
    fn close(&mut self, at: usize) {
        let Some(pending) = self.pending.remove(at) else { return };
        self.pending_bytes = self.pending_bytes.saturating_sub(pending.bytes.len());
        if self.spare.len() >= FRAGMENTED_SPARE_MAX {
            self.spare.swap_remove(0);
        }
        self.spare.push(pending.bytes);
    }
}

/// Returns the range that a fragment covers, if it lies within a frame of legal length.
fn range_of(fragment: &ReceivedFragment<'_>) -> Result<Range<usize>, Refusal> {
    let first = if fragment.bare { 0 } else { METADATA_LEN };
    if fragment.total > FRAME_BYTES_MAX.saturating_add(first) {
        return Err(Refusal::Oversized);
    }
    let end =
        fragment.offset.checked_add(fragment.bytes.len()).filter(|end| *end <= fragment.total);
    let end = end.ok_or(Refusal::Oversized)?;
    if fragment.bytes.is_empty() || fragment.total < first {
        return Err(Refusal::Truncated);
    }
    Ok(fragment.offset..end)
}

impl IncompleteFrame {
    /// Copies a fragment to its offset. Returns whether the frame is complete.
    fn add(
        &mut self,
        fragment: &ReceivedFragment<'_>,
        range: Range<usize>,
    ) -> Result<bool, Refusal> {
        let same = fragment.total == self.bytes.len()
            && (fragment.bare, fragment.hops) == (self.bare, self.hops);
        if !same {
            return Err(Refusal::Overlap);
        }
        let place = self.bytes.get_mut(range.clone()).ok_or(Refusal::Oversized)?;
        // The first range that ends behind the start of this fragment.
        let at = self.have.partition_point(|have| have.end <= range.start);
        if let Some(next) = self.have.get(at).filter(|next| next.start < range.end) {
            // The network may duplicate a datagram: identical bytes are no contradiction.
            let again =
                next.start <= range.start && range.end <= next.end && *place == *fragment.bytes;
            return if again { Ok(false) } else { Err(Refusal::Overlap) };
        }
        place.copy_from_slice(fragment.bytes);
        self.ecn = self.ecn.join(fragment.ecn);
        self.join(at, range)?;
        Ok(matches!(self.have.as_slice(), [all] if *all == (0..self.bytes.len())))
    }

    /// Records that `range` was received. Inserts it at index `at`, or merges it with the
    /// neighbours that it touches.
    fn join(&mut self, at: usize, range: Range<usize>) -> Result<(), Refusal> {
        let crowded = self.have.len() >= FRAGMENTED_RANGES_MAX;
        let follows = self.have.get(at).filter(|next| next.start == range.end).map(|next| next.end);
        let before = at.checked_sub(1).and_then(|before| self.have.get_mut(before));
        match (before.filter(|before| before.end == range.start), follows) {
            (Some(before), None) => before.end = range.end,
            (Some(before), Some(end)) => {
                before.end = end;
                self.have.remove(at);
            }
            (None, Some(_)) => {
                if let Some(next) = self.have.get_mut(at) {
                    next.start = range.start;
                }
            }
            (None, None) if crowded => return Err(Refusal::Crowded),
            (None, None) => self.have.insert(at, range),
        }
        Ok(())
    }
}
