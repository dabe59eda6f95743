//! A run of frames to one receive queue: the short way as far as it goes, the long way for the
//! others, in their order.

use crate::counters::DropReason;
use crate::deliver::{From, Scratch, To, Trouble};
use crate::job::Taken;
use crate::source::Source;

/// What became of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// How many frames were delivered, or dropped and counted.
    pub settled: usize,
    /// Why it ended before the last: the receiver has too few buffers, it has this many.
    pub short: Option<u16>,
    /// What the receiver's guest did wrong.
    pub fault: Option<String>,
    /// How many of the frames cannot be reached in their sender's memory.
    pub sender_faults: usize,
}

impl Scratch {
    /// Delivers frames, the first of them going on behind `done` pieces, until the receiver is
    /// short of buffers.
    pub fn deliver_all(
        &mut self,
        from: Source<'_>,
        to: &mut To<'_>,
        frames: &mut [Taken],
        done: &mut usize,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let (mut open, mut ahead) = (true, false);
        loop {
            let rest = frames.get_mut(outcome.settled..).unwrap_or(&mut []);
            if *done == 0 && outcome.fault.is_none() {
                match self.run(&mut open, from, to, rest) {
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
                None => self.deliver(From { source: from, chain, at: *at, job }, to, done),
            };
            match delivered {
                Ok(()) => {}
                Err(Trouble::Short(had)) => {
                    outcome.short = Some(had);
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
