//! Batches: consecutive frames of a turn that share one egress.
//!
//! `crate::classify` and `crate::link_rx` cut frames into [`EgressBatches`]. `deliver_to_queue` in
//! `crate::forward` calls [`Scratch::deliver_all`] for the frames of a batch that go to one receive
//! queue: on the fast path (`crate::fast_path`) as far as it applies, then one by one through
//! `crate::deliver`, in their order.
//!
//! The module resolves no egress, returns no chain to its sender and keeps no frame. It stops at
//! the first frame without receive buffers ([`CopyOutcome::shortage`]) or time
//! ([`CopyOutcome::out_of_time`]); the caller must enqueue or postpone the frames from
//! [`CopyOutcome::committed`] on. All of it runs in the dispatcher's thread of the group.

use causeway_fabric::Slice;

use crate::counters::DropReason;
use crate::deliver::{DeliveryError, Scratch, SourceFrame, TargetQueue};
use crate::frame_store::FrameStore;
use crate::headers::RxFrame;
use crate::route::{SetId, SwitchIndex};

/// The egress of a frame: the result of classification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Egress {
    /// Nothing is left to do: the frame was dropped and counted, or consumed by the daemon.
    #[default]
    Done,
    /// Every other port and station of the group, and every link that is up and may have the frame.
    All,
    /// As [`Self::All`], of ports and stations only those that learn.
    Learners,
    /// One receive queue: the port's switch index, and the queue.
    To(u32, usize),
    /// The links at this switch index.
    Link(SwitchIndex),
    /// The switch indices of a route set.
    Set(SetId),
}

/// Consecutive frames with one egress.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EgressBatch {
    /// The destination that all frames of the batch share.
    pub egress: Egress,
    /// Number of frames.
    pub count: usize,
    /// As [`Delivery::longest`].
    pub longest: usize,
}

/// The batches of the popped frames, in ring order.
#[derive(Debug, Default)]
pub(crate) struct EgressBatches(pub Vec<EgressBatch>);

impl EgressBatches {
    /// Appends a batch, or extends the last batch if the egress is the same.
    #[inline]
    pub fn push(&mut self, batch: EgressBatch) {
        match self.0.last_mut() {
            _ if batch.count == 0 => {}
            Some(last) if last.egress == batch.egress => {
                last.count = last.count.wrapping_add(batch.count);
                last.longest = last.longest.max(batch.longest);
            }
            _ => self.0.push(batch),
        }
    }
}

/// Frames that are to be delivered to one receive queue.
#[derive(Debug)]
pub(crate) struct Delivery<'a> {
    /// The frames, in the order of delivery.
    pub frames: &'a mut [RxFrame],
    /// Length of the longest frame, in bytes, if every frame is plain (no offload, no VLAN tag);
    /// `usize::MAX` if that is not known.
    pub longest: usize,
    /// Segments of the first frame that were delivered in an earlier turn.
    pub done: usize,
}

impl<'a> Delivery<'a> {
    /// Returns the delivery of a single frame, about which nothing is known.
    pub fn single(frame: &'a mut RxFrame) -> Self {
        Self { frames: std::slice::from_mut(frame), longest: usize::MAX, done: 0 }
    }
}

/// The result of [`Scratch::deliver_all`].
#[derive(Debug, Default)]
pub(crate) struct CopyOutcome {
    /// Frames that were delivered or dropped, including `sender_faults`. All drops but those are
    /// counted.
    pub committed: usize,
    /// Buffers that the receiver has, if they were too few for the next frame.
    pub shortage: Option<u16>,
    /// Whether the turn ended before all segments of the next frame were delivered.
    pub out_of_time: bool,
    /// The rule that the receiver's guest broke.
    pub fault: Option<String>,
    /// Frames among `committed` whose bytes could not be read from the sender's memory; the caller
    /// counts them as drops of the sender.
    pub sender_faults: usize,
}

impl Scratch {
    /// Delivers frames in order until the receiver runs out of buffers or the turn ends.
    ///
    /// The used entries are pushed but not published. A rule that the receiver breaks is reported
    /// in [`CopyOutcome::fault`]; the rest of the frames is then dropped and counted as
    /// [`DropReason::ReceiverDown`].
    pub fn deliver_all(
        &mut self,
        from: FrameStore<'_>,
        to: &mut TargetQueue<'_>,
        Delivery { frames, longest, done }: &mut Delivery<'_>,
        slice: &mut Slice,
    ) -> CopyOutcome {
        let mut outcome = CopyOutcome::default();
        let (mut open, mut ahead) = (true, false);
        loop {
            let rest = frames.get_mut(outcome.committed..).unwrap_or(&mut []);
            if *done == 0 && outcome.fault.is_none() {
                match self.deliver_plain(&mut open, from, to, rest, *longest) {
                    Ok(count) => outcome.committed = outcome.committed.saturating_add(count),
                    Err(reason) => outcome.fault = Some(reason),
                }
            }
            let rest = frames.get_mut(outcome.committed..).unwrap_or(&mut []);
            let left = rest.len();
            let Some(RxFrame { chain, at, headers, .. }) = rest.first_mut() else { return outcome };
            if !std::mem::replace(&mut ahead, true) {
                to.ring.prefetch(to.map, u16::try_from(left).unwrap_or(u16::MAX));
            }
            let delivered = match outcome.fault {
                // Used entries of earlier frames were written, but a broken ring is not published.
                Some(_) => Err(DeliveryError::Drop(DropReason::ReceiverDown)),
                None if !headers.fits_mtu(to.mtu) => Err(DeliveryError::Drop(DropReason::TooBig)),
                None => {
                    let from = SourceFrame { source: from, chain, at: *at, headers };
                    self.deliver(from, to, done, slice)
                }
            };
            match delivered {
                Ok(()) => {}
                Err(DeliveryError::Short(had)) => {
                    outcome.shortage = Some(had);
                    return outcome;
                }
                Err(DeliveryError::Yield) => {
                    outcome.out_of_time = true;
                    return outcome;
                }
                Err(DeliveryError::Drop(DropReason::SenderFault)) => {
                    outcome.sender_faults = outcome.sender_faults.saturating_add(1);
                }
                Err(DeliveryError::Drop(why)) => to.counters.count_drop(why),
                Err(DeliveryError::Fault(reason)) => {
                    to.counters.count_drop(DropReason::ReceiverDown);
                    outcome.fault = Some(reason);
                }
            }
            *done = 0;
            outcome.committed = outcome.committed.saturating_add(1);
        }
    }
}
