//! Delivery of guest frames to their receivers: a port, a link, or several of both.
//!
//! `send_batch` in `crate::forward` calls this module with resolved egresses; `crate::resume` calls
//! it for frames of earlier turns, and `crate::link_rx` for one copy of a link's frame
//! ([`Ethernet::copy_to_port`]), all in the thread of the group's dispatcher. Copies are made by
//! `crate::batch` and the carriers behind `crate::link_tx`.
//!
//! Frames for a single receive queue without buffers become pending (`crate::pending`). A receiver
//! whose guest does not run the device drops them as `ReceiverDown`. A frame for several receivers
//! does not wait: a receiver without buffers, or with pending frames, misses it, and the drop is
//! counted there. Frames beyond the time of the turn are left for the sender's next turn
//! (`crate::resume`), and later frames of the same transmit queue wait behind them. Frames of links
//! are delivered in `crate::link_rx`. Switch indices are defined in `crate::port`.

use causeway_fabric::{Context, cost};

use crate::batch::{Delivery, Egress};
use crate::counters::DropReason;
use crate::forward::{Ingress, deliver_to_queue};
use crate::headers::RxFrame;
use crate::link_tx::send_from_port;
use crate::pending_queue::TransmitQueue;
use crate::resume::Remainder;
use crate::route::SwitchIndex;
use crate::service::Ethernet;
use crate::uplink::is_link;

impl Ethernet {
    /// Delivers frames to the single receive queue `to` (switch index of the port, queue number).
    /// Frames without buffers become pending.
    pub(crate) fn deliver_from_guest(
        &mut self,
        cx: &mut Context<'_>,
        sender: TransmitQueue,
        mut delivery: Delivery<'_>,
        to: (u32, usize),
    ) {
        let (mut committed, mut shortage) = (0, None);
        if self.has_unfinished(sender) {
            return self.postpone(sender, delivery.frames, delivery.done, &Remainder::One(to));
        }
        // Pending frames go first, so that the order is kept.
        if !self.switch.has_pending(to.0, to.1) {
            let Self { switch, scratch, .. } = self;
            let ingress = Ingress::Port(sender.0);
            let outcome = deliver_to_queue(switch, scratch, cx, ingress, to, &mut delivery);
            (committed, shortage) = (outcome.committed, outcome.shortage);
            if outcome.out_of_time {
                let rest = delivery.frames.get_mut(committed..).unwrap_or(&mut []);
                return self.postpone(sender, rest, delivery.done, &Remainder::One(to));
            }
        }
        let Delivery { frames, mut done, .. } = delivery;
        for rx in frames.get_mut(committed..).unwrap_or(&mut []) {
            if self.enqueue_pending(cx, sender, rx, std::mem::take(&mut done), to, shortage) {
                // One wake-up of the receiver serves all of them.
                shortage = None;
                self.turn.keep_frame();
            }
        }
    }

    /// Sends frames to a link, the first from segment `done` on.
    pub(crate) fn send_guest_frames(
        &mut self,
        cx: &mut Context<'_>,
        sender: TransmitQueue,
        frames: &mut [RxFrame],
        to: SwitchIndex,
        mut done: usize,
    ) {
        let committed = match self.has_unfinished(sender) {
            true => 0,
            false => send_from_port(&mut self.switch, cx, (sender.0, to), frames, &mut done),
        };
        let rest = frames.get_mut(committed..).unwrap_or(&mut []);
        self.postpone(sender, rest, done, &Remainder::Link(to));
    }

    /// Delivers frames to the receivers of `egress`. If there are several, a receiver without
    /// buffers misses the frame. Each copy beyond the first is subtracted from `left`.
    pub(crate) fn deliver_to_all(
        &mut self,
        cx: &mut Context<'_>,
        sender: TransmitQueue,
        batch: &mut [RxFrame],
        egress: Egress,
        left: &mut usize,
    ) {
        let mut targets = std::mem::take(&mut self.targets);
        self.switch.list_targets(sender.0, egress, &mut targets);
        for rx in batch {
            // A flooded frame costs as much as a unicast frame for each receiver.
            *left = left.saturating_sub(targets.len().saturating_sub(1));
            self.switch.assign_flood_number(rx, egress, &targets);
            if rx.flood.is_some() && self.switch.uplinks.any_transit() {
                self.switch.note_own_flood(cx, sender.0, rx);
            }
            match targets.as_slice() {
                [only] if !is_link(*only) => match self.switch.receive_queue(*only, &rx.headers) {
                    Some(queue) => {
                        self.deliver_from_guest(cx, sender, Delivery::single(rx), (*only, queue));
                        continue;
                    }
                    None => self.switch.count_drop(*only, DropReason::ReceiverDown),
                },
                [] => {
                    let routed = matches!(egress, Egress::Set(_));
                    let unknown = DropReason::UnknownDestination;
                    let why = if routed { DropReason::NoRoute } else { unknown };
                    self.switch.count_drop(sender.0, why);
                }
                many => self.copy_to_each(cx, sender, rx, many, 0),
            }
            rx.flood = None;
        }
        self.targets = targets;
    }

    /// Copies a frame to each of `targets`, to the first from segment `done` on.
    pub(crate) fn copy_to_each(
        &mut self,
        cx: &mut Context<'_>,
        sender: TransmitQueue,
        rx: &mut RxFrame,
        targets: &[SwitchIndex],
        mut done: usize,
    ) {
        let mut left = targets;
        while let Some((&to, others)) = left.split_first() {
            let late = self.has_unfinished(sender) || (left.len() < targets.len() && cx.is_over());
            if late || !self.copy_to(cx, sender.0, rx, to, &mut done) {
                let (rest, one) = (Remainder::Many(left.to_vec()), std::slice::from_mut(rx));
                return self.postpone(sender, one, done, &rest);
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
        from: SwitchIndex,
        rx: &mut RxFrame,
        to: SwitchIndex,
        done: &mut usize,
    ) -> bool {
        if is_link(to) {
            let rx = std::slice::from_mut(rx);
            return send_from_port(&mut self.switch, cx, (from, to), rx, done) > 0;
        }
        self.copy_to_port(cx, Ingress::Port(from), rx, to, done)
    }

    /// Copies a flooded or routed frame to one port, from segment `done` on, if the port has
    /// buffers. Returns `false` if the turn ended before the last segment.
    pub(crate) fn copy_to_port(
        &mut self,
        cx: &mut Context<'_>,
        ingress: Ingress<'_>,
        rx: &mut RxFrame,
        to: SwitchIndex,
        done: &mut usize,
    ) -> bool {
        cx.charge(cost::CHAIN_NS.saturating_add(cost::bytes(rx.headers.len)));
        let why = match self.switch.receive_queue(to, &rx.headers) {
            None => Some(DropReason::ReceiverDown),
            Some(queue) if self.switch.has_pending(to, queue) => Some(DropReason::NoBuffer),
            Some(queue) => {
                let mut delivery = Delivery { done: *done, ..Delivery::single(rx) };
                let Self { switch, scratch, .. } = self;
                let to = (to, queue);
                let outcome = deliver_to_queue(switch, scratch, cx, ingress, to, &mut delivery);
                *done = delivery.done;
                if outcome.out_of_time {
                    return false;
                }
                outcome.shortage.map(|_| DropReason::NoBuffer)
            }
        };
        if let Some(why) = why {
            self.switch.count_drop(to, why);
        }
        true
    }
}
