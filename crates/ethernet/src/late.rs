//! Frames of links that did not fit in their turn: the rest of their pieces, or of their receivers.
//!
//! As [`crate::resume`], for frames that a link brought: they are kept as copies. While one waits,
//! all frames of links wait behind it, and nothing more is taken from the mailbox.

use causeway_fabric::Context;

use crate::job::Taken;
use crate::resume::Rest;
use crate::route::Place;
use crate::service::Ethernet;

/// A frame that is not delivered, or not wholly.
#[derive(Debug)]
pub(crate) struct Late {
    /// The links that brought it.
    from: Place,
    bytes: Box<[u8]>,
    frame: Taken,
    rest: Rest,
    /// Pieces that its first receiver has.
    done: usize,
}

impl Ethernet {
    /// Keeps frames of a link for the next turn; `done` pieces of the first are delivered.
    pub(crate) fn keep_late(
        &mut self,
        (from, bytes): (Place, &[u8]),
        run: &[Taken],
        mut done: usize,
        rest: &Rest,
    ) {
        for taken in run {
            let end = taken.at.saturating_add(taken.job.len);
            let bytes = bytes.get(taken.at..end).unwrap_or(&[]).into();
            let Taken { hops, flood, .. } = *taken;
            let frame = Taken { job: taken.job.clone(), hops, flood, ..Taken::default() };
            let done = std::mem::take(&mut done);
            self.late.push_back(Late { from, bytes, frame, rest: rest.clone(), done });
        }
    }

    /// Goes on with what the last turn left. Returns whether all of it is done.
    pub(crate) fn resume_late(&mut self, cx: &mut Context<'_>) -> bool {
        let mut list = std::mem::take(&mut self.late);
        while let Some(Late { from, bytes, mut frame, rest, done }) = list.pop_front() {
            let (of, frame) = ((from, &*bytes), std::slice::from_mut(&mut frame));
            match rest {
                Rest::One(to) => self.bring_to(cx, of, frame, to, done),
                Rest::Link(to) => self.pass_on(cx, of, frame, to, done),
                Rest::Many(targets) => self.bring_to_each(cx, of, frame, &targets, done),
            }
            if !self.late.is_empty() || cx.is_over() {
                break;
            }
        }
        self.late.append(&mut list);
        self.late.is_empty()
    }
}
