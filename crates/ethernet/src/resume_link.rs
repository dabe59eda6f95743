//! Frames of links that did not fit in their turn: the remaining segments or receivers.
//!
//! The counterpart of `crate::resume` for links: the frames are kept as copies, since their buffer
//! is reused. `crate::link_rx` postpones frames here when the time of a turn is used up, and
//! resumes them at the beginning of the next turn, in the thread of the group's dispatcher.
//!
//! While a frame waits here, all later frames of links wait behind it and the mailbox is not read,
//! so the order of frames is kept and the bound of the mailbox applies to the frames that follow.
//! At most the frames of one batch (64) wait. They have no deadline: a frame for a receiver that
//! left is dropped when the frame is resumed, and the frames of a link that left are still
//! delivered to ports.

use causeway_fabric::Context;

use crate::headers::RxFrame;
use crate::resume::Remainder;
use crate::route::SwitchIndex;
use crate::service::Ethernet;

/// A link's frame that is not delivered, or only in part.
#[derive(Debug)]
pub(crate) struct LateFrame {
    /// The switch index of its ingress.
    from: SwitchIndex,
    /// The whole frame.
    bytes: Box<[u8]>,
    frame: RxFrame,
    /// The receivers that do not have the frame yet.
    rest: Remainder,
    /// Segments that its first receiver has.
    done: usize,
}

impl Ethernet {
    /// Keeps frames of a link for the next turn; `done` segments of the first are delivered.
    pub(crate) fn postpone_link_frames(
        &mut self,
        (from, bytes): (SwitchIndex, &[u8]),
        batch: &[RxFrame],
        mut done: usize,
        rest: &Remainder,
    ) {
        for rx in batch {
            let end = rx.at.saturating_add(rx.headers.len);
            let bytes = bytes.get(rx.at..end).unwrap_or(&[]).into();
            let RxFrame { hops, flood, .. } = *rx;
            let frame = RxFrame { headers: rx.headers.clone(), hops, flood, ..RxFrame::default() };
            let done = std::mem::take(&mut done);
            self.links.push_late(LateFrame { from, bytes, frame, rest: rest.clone(), done });
        }
    }

    /// Continues with the frames that the last turn left. Returns whether none is left.
    pub(crate) fn resume_link_frames(&mut self, cx: &mut Context<'_>) -> bool {
        let mut list = self.links.take_late();
        while let Some(LateFrame { from, bytes, mut frame, rest, done }) = list.pop_front() {
            let (of, frame) = ((from, &*bytes), std::slice::from_mut(&mut frame));
            match rest {
                Remainder::One(to) => self.deliver_link_frames(cx, of, frame, to, done),
                Remainder::Link(to) => self.forward_to_link(cx, of, frame, to, done),
                Remainder::Many(targets) => {
                    self.deliver_link_frame_to_each(cx, of, frame, &targets, done)
                }
            }
            if self.links.has_late() || cx.is_over() {
                break;
            }
        }
        self.links.append_late(list);
        !self.links.has_late()
    }
}
