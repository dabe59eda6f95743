//! Frames of links that did not fit in their turn: the remaining segments or receivers.
//!
//! The counterpart of [`crate::resume`] for links: the frames are kept as copies, since their
//! buffer is reused. While a frame waits here, all later frames of links wait behind it and the
//! mailbox is not read, so the order of frames is kept.

use causeway_fabric::Context;

use crate::job::Taken;
use crate::resume::Rest;
use crate::route::Place;
use crate::service::Ethernet;

/// A link's frame that is not delivered, or only in part.
#[derive(Debug)]
pub(crate) struct Late {
    /// The switch index of its ingress.
    from: Place,
    bytes: Box<[u8]>,
    frame: Taken,
    rest: Rest,
    /// Segments that its first receiver has.
    done: usize,
}

impl Ethernet {
    /// Keeps frames of a link for the next turn; `done` segments of the first are delivered.
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

    /// Continues with the frames that the last turn left. Returns whether none is left.
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
