//! Batches: consecutive frames of a turn that share one egress.
//!
//! The classifier (`forward`) cuts popped frames into batches. All frames of a batch for one
//! receive queue are delivered together: on the fast path (`fast_path`) as far as it applies, then
//! one by one through `deliver`, in their order. The module resolves no egress and returns no chain
//! to its sender.

use causeway_fabric::Slice;

use crate::counters::DropReason;
use crate::deliver::{From, Scratch, To, Trouble};
use crate::job::Taken;
use crate::route::{Place, SetId};
use crate::source::Source;

/// The egress of a frame: the result of classification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Way {
    /// Nothing is left to do: the frame was dropped and counted, or consumed by the daemon.
    #[default]
    Done,
    /// Every other port of the group, and every link that is up.
    All,
    /// Every other port of the group that learns, and every link that is up.
    Learners,
    /// One receive queue: the port's switch index, and the queue.
    To(u32, usize),
    /// The links at this switch index.
    Link(Place),
    /// The switch indices of a route set.
    Set(SetId),
}

/// Consecutive frames with one egress.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Run {
    pub way: Way,
    pub count: usize,
    /// As [`Delivery::longest`].
    pub longest: usize,
}

/// The batches of the popped frames, in ring order.
#[derive(Debug, Default)]
pub(crate) struct Runs(pub Vec<Run>);

impl Runs {
    /// Appends a batch, or extends the last batch if the egress is the same.
    #[inline]
    pub fn push(&mut self, run: Run) {
        match self.0.last_mut() {
            _ if run.count == 0 => {}
            Some(last) if last.way == run.way => {
                last.count = last.count.wrapping_add(run.count);
                last.longest = last.longest.max(run.longest);
            }
            _ => self.0.push(run),
        }
    }
}

/// Frames that are to be delivered to one receive queue.
#[derive(Debug)]
pub(crate) struct Offer<'a> {
    pub frames: &'a mut [Taken],
    /// Length of the longest frame, in bytes, if every frame is plain (no offload, no VLAN tag);
    /// `usize::MAX` if that is not known.
    pub longest: usize,
    /// Segments of the first frame that were delivered in an earlier turn.
    pub done: usize,
}

impl<'a> Offer<'a> {
    /// Returns the delivery of a single frame, about which nothing is known.
    pub fn of_one(frame: &'a mut Taken) -> Self {
        Self { frames: std::slice::from_mut(frame), longest: usize::MAX, done: 0 }
    }
}

/// The result of [`Scratch::deliver_all`].
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Frames that were delivered, or dropped and counted.
    pub settled: usize,
    /// Buffers that the receiver has, if they were too few for the next frame.
    pub short: Option<u16>,
    /// Whether the turn ended before all segments of the next frame were delivered.
    pub yielded: bool,
    /// The rule that the receiver's guest broke.
    pub fault: Option<String>,
    /// Frames whose bytes could not be read from the sender's memory.
    pub sender_faults: usize,
}

impl Scratch {
    /// Delivers frames in order until the receiver runs out of buffers or the turn ends.
    ///
    /// The used entries are pushed but not published. A rule that the receiver breaks is reported
    /// in [`CopyOutcome::fault`]; the rest of the frames is then dropped.
    pub fn deliver_all(
        &mut self,
        from: Source<'_>,
        to: &mut To<'_>,
        Offer { frames, longest, done }: &mut Offer<'_>,
        slice: &mut Slice,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let (mut open, mut ahead) = (true, false);
        loop {
            let rest = frames.get_mut(outcome.settled..).unwrap_or(&mut []);
            if *done == 0 && outcome.fault.is_none() {
                match self.run(&mut open, from, to, rest, *longest) {
                    Ok(count) => outcome.settled = outcome.settled.saturating_add(count),
                    Err(reason) => outcome.fault = Some(reason),
                }
            }
            let rest = frames.get_mut(outcome.settled..).unwrap_or(&mut []);
            let left = rest.len();
            let Some(Taken { chain, at, job, .. }) = rest.first_mut() else { return outcome };
            if !std::mem::replace(&mut ahead, true) {
                to.ring.look_ahead(to.map, u16::try_from(left).unwrap_or(u16::MAX));
            }
            let delivered = match outcome.fault {
                // Used entries of earlier frames were written, but a broken ring is not published.
                Some(_) => Err(Trouble::Drop(DropReason::ReceiverDown)),
                None if !job.fits(to.mtu) => Err(Trouble::Drop(DropReason::TooBig)),
                None => {
                    let from = From { source: from, chain, at: *at, job };
                    self.deliver(from, to, done, slice)
                }
            };
            match delivered {
                Ok(()) => {}
                Err(Trouble::Short(had)) => {
                    outcome.short = Some(had);
                    return outcome;
                }
                Err(Trouble::Yield) => {
                    outcome.yielded = true;
                    return outcome;
                }
                Err(Trouble::Drop(DropReason::SenderFault)) => {
                    outcome.sender_faults = outcome.sender_faults.saturating_add(1);
                }
                Err(Trouble::Drop(why)) => to.counters.dropped(why),
                Err(Trouble::Fault(reason)) => {
                    to.counters.dropped(DropReason::ReceiverDown);
                    outcome.fault = Some(reason);
                }
            }
            *done = 0;
            outcome.settled = outcome.settled.saturating_add(1);
        }
    }
}
