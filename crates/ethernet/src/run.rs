//! Runs: frames that follow each other and go one way. Those to one receive queue are offered to it
//! together: the short way as far as it goes, the long way for the others, in their order.

use causeway_fabric::Slice;

use crate::counters::DropReason;
use crate::deliver::{From, Scratch, To, Trouble};
use crate::job::Taken;
use crate::route::{Place, SetId};
use crate::source::Source;

/// What is to become of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Way {
    /// Nothing: it was dropped and counted.
    #[default]
    Done,
    /// It goes to every other port of the group.
    All,
    /// It goes to every other port of the group that learns.
    Learners,
    /// It goes to one receive queue: the port's place, and the queue.
    To(u32, usize),
    /// It leaves the host, by the links at this place.
    Link(Place),
    /// It goes where routes say.
    Set(SetId),
}

/// Frames on one way that follow each other.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Run {
    pub way: Way,
    pub count: usize,
    /// See [`Offer::longest`].
    pub longest: usize,
}

/// The runs of a batch, in its order.
#[derive(Debug, Default)]
pub(crate) struct Runs(pub Vec<Run>);

impl Runs {
    /// Notes that some more frames go one way.
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

/// Frames for one receive queue.
#[derive(Debug)]
pub(crate) struct Offer<'a> {
    pub frames: &'a mut [Taken],
    /// Length of the longest in bytes, where all ask for nothing and have no tags; where that is
    /// not known, the greatest number.
    pub longest: usize,
    /// How many pieces of the first were delivered before.
    pub done: usize,
}

impl<'a> Offer<'a> {
    /// Of a frame of which nothing is known.
    pub fn of_one(frame: &'a mut Taken) -> Self {
        Self { frames: std::slice::from_mut(frame), longest: usize::MAX, done: 0 }
    }
}

/// What became of an offer.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// How many frames were delivered, or dropped and counted.
    pub settled: usize,
    /// Why it ended before the last: the receiver has too few buffers, it has this many.
    pub short: Option<u16>,
    /// The turn's time is over before all pieces of the first frame that is left were delivered.
    pub yielded: bool,
    /// What the receiver's guest did wrong.
    pub fault: Option<String>,
    /// How many of the frames cannot be reached in their sender's memory.
    pub sender_faults: usize,
}

impl Scratch {
    /// Delivers frames until the receiver is short of buffers.
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
                // What it got before is lost too, but was written.
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
