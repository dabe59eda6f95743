//! Delivery of guest frames to their receivers: a port, a link, or several of both.
//!
//! Frames for a receiver without buffers become pending ([`crate::pending`]); frames beyond the
//! turn's time are left for the sender's next turn ([`crate::resume`]). The egress is resolved by
//! `forward`, the copy is made by `deliver`.

use causeway_fabric::{Context, cost};

use crate::backlog::Sender;
use crate::counters::DropReason;
use crate::depart::depart_from_port;
use crate::forward::{Origin, attempt};
use crate::job::Taken;
use crate::resume::Rest;
use crate::route::Place;
use crate::run::{Offer, Way};
use crate::service::Ethernet;
use crate::uplink::is_link;

impl Ethernet {
    /// Delivers frames to a single receive queue. Frames without buffers become pending.
    pub(crate) fn offer(
        &mut self,
        cx: &mut Context<'_>,
        sender: Sender,
        mut offer: Offer<'_>,
        to: (u32, usize),
    ) {
        let (mut settled, mut short) = (0, None);
        if self.is_behind(sender) {
            return self.postpone_all(sender, offer.frames, offer.done, &Rest::One(to));
        }
        // Pending frames go first, so that the order is kept.
        if !self.directory.waits(to.0, to.1) {
            let Self { directory, scratch, .. } = self;
            let origin = Origin::Port(sender.0);
            let attempt = attempt(directory, scratch, cx, origin, to, &mut offer);
            (settled, short) = (attempt.settled, attempt.short);
            if attempt.yielded {
                let rest = offer.frames.get_mut(settled..).unwrap_or(&mut []);
                return self.postpone_all(sender, rest, offer.done, &Rest::One(to));
            }
        }
        let Offer { frames, mut done, .. } = offer;
        for taken in frames.get_mut(settled..).unwrap_or(&mut []) {
            if self.hold(cx, sender, taken, std::mem::take(&mut done), to, short) {
                // One wake-up of the receiver serves all of them.
                short = None;
                self.ahead = self.ahead.saturating_sub(1);
            }
        }
    }

    /// Sends frames to a link, the first from segment `done` on.
    pub(crate) fn offer_to_link(
        &mut self,
        cx: &mut Context<'_>,
        sender: Sender,
        frames: &mut [Taken],
        to: Place,
        mut done: usize,
    ) {
        let settled = match self.is_behind(sender) {
            true => 0,
            false => depart_from_port(&mut self.directory, cx, (sender.0, to), frames, &mut done),
        };
        let rest = frames.get_mut(settled..).unwrap_or(&mut []);
        self.postpone_all(sender, rest, done, &Rest::Link(to));
    }

    /// Delivers frames to several receivers. A receiver without buffers misses the frame.
    pub(crate) fn offer_all(
        &mut self,
        cx: &mut Context<'_>,
        sender: Sender,
        run: &mut [Taken],
        way: Way,
        left: &mut usize,
    ) {
        let mut targets = std::mem::take(&mut self.targets);
        self.directory.list_targets(sender.0, way, &mut targets);
        for taken in run {
            // A flooded frame costs as much as a unicast frame for each receiver.
            *left = left.saturating_sub(targets.len().saturating_sub(1));
            self.directory.number(taken, way, &targets);
            if taken.flood.is_some() && self.directory.uplinks.any_transit() {
                self.directory.note_own(cx, sender.0, taken);
            }
            match targets.as_slice() {
                [only] if !is_link(*only) => {
                    match self.directory.receive_queue(*only, &taken.job) {
                        Some(queue) => {
                            self.offer(cx, sender, Offer::of_one(taken), (*only, queue));
                            continue;
                        }
                        None => self.directory.dropped(*only, DropReason::ReceiverDown),
                    }
                }
                [] => {
                    let routed = matches!(way, Way::Set(_));
                    let unknown = DropReason::UnknownDestination;
                    let why = if routed { DropReason::NoRoute } else { unknown };
                    self.directory.dropped(sender.0, why);
                }
                many => self.copy_to_each(cx, sender, taken, many, 0),
            }
            taken.flood = None;
        }
        self.targets = targets;
    }

    /// Copies a frame to each of `targets`, to the first from segment `done` on.
    pub(crate) fn copy_to_each(
        &mut self,
        cx: &mut Context<'_>,
        sender: Sender,
        taken: &mut Taken,
        targets: &[Place],
        mut done: usize,
    ) {
        let mut left = targets;
        while let Some((&to, others)) = left.split_first() {
            let late = self.is_behind(sender) || (left.len() < targets.len() && cx.is_over());
            if late || !self.copy_to(cx, sender.0, taken, to, &mut done) {
                let (rest, one) = (Rest::Many(left.to_vec()), std::slice::from_mut(taken));
                return self.postpone_all(sender, one, done, &rest);
            }
            done = 0;
            left = others;
        }
    }

    /// Copies a frame to one of several receivers. Returns `false` if the turn ended before the
    /// last segment.
    fn copy_to(
        &mut self,
        cx: &mut Context<'_>,
        from: Place,
        taken: &mut Taken,
        to: Place,
        done: &mut usize,
    ) -> bool {
        if is_link(to) {
            let taken = std::slice::from_mut(taken);
            return depart_from_port(&mut self.directory, cx, (from, to), taken, done) > 0;
        }
        self.copy_to_port(cx, Origin::Port(from), taken, to, done)
    }

    /// Copies a flooded frame to one port, from segment `done` on, if the port has buffers. Returns
    /// `false` if the turn ended before the last segment.
    pub(crate) fn copy_to_port(
        &mut self,
        cx: &mut Context<'_>,
        origin: Origin<'_>,
        taken: &mut Taken,
        to: Place,
        done: &mut usize,
    ) -> bool {
        cx.charge(cost::CHAIN_NS.saturating_add(cost::bytes(taken.job.len)));
        let why = match self.directory.receive_queue(to, &taken.job) {
            None => Some(DropReason::ReceiverDown),
            Some(queue) if self.directory.waits(to, queue) => Some(DropReason::NoBuffer),
            Some(queue) => {
                let mut offer = Offer { done: *done, ..Offer::of_one(taken) };
                let Self { directory, scratch, .. } = self;
                let to = (to, queue);
                let attempt = attempt(directory, scratch, cx, origin, to, &mut offer);
                *done = offer.done;
                if attempt.yielded {
                    return false;
                }
                attempt.short.map(|_| DropReason::NoBuffer)
            }
        };
        if let Some(why) = why {
            self.directory.dropped(to, why);
        }
        true
    }
}
