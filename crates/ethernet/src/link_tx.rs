//! Link transmit path: frames of ports and links to the carriers of other links.
//!
//! `crate::receivers` calls [`send_from_port`] for frames of guests, `crate::link_rx` calls
//! [`send_to_link`] for frames of links. The module hands each frame to the carrier of the bundle's
//! active link with a reference to its bytes, cut into segments if the carrier takes no offloads.
//! `crate::service` flushes the carriers at the end of the turn. All of it runs in the thread of
//! the group's dispatcher.
//!
//! The module does not choose the link, and it neither encapsulates nor sends: the carrier does. It
//! does not wait: a frame that the carrier refuses, a frame for a bundle without an active link and
//! a frame that has crossed [`HOPS_MAX`] (8) links and does not go to a station are dropped and
//! counted at the ingress. A frame of which some segments are refused counts once. If the turn
//! ends, the caller keeps the remaining frames, and the remaining segments of a frame of which none
//! was refused.
//!
//! # Budget
//! The carrier copies a frame once, also a frame that is cut into segments. Only the headers of
//! segments are built here; their checksums are completed in the carrier's copy.

use causeway_fabric::carrier::{Carrier, Outgoing};
use causeway_fabric::limits::HOPS_MAX;
use causeway_fabric::{Context, Port, Slice, cost};
use causeway_wire::pcapng::Direction;
use causeway_wire::virtio_net::{ChecksumPlace, Gso, Offload};

use crate::counters::DropReason;
use crate::deliver::SourceFrame;
use crate::frame_store::{FrameStore, skip};
use crate::headers::RxFrame;
use crate::offload::segment::Segmenter;
use crate::offload::{OffloadPlan, plan};
use crate::port::Switch;
use crate::route::SwitchIndex;
use crate::uplink::push;

/// Pushes a frame to a carrier, cut from segment `done` on if the carrier takes no offloads.
/// Returns `false` if the turn ended before the last segment.
fn push_frame(
    from: &SourceFrame<'_>,
    (hops, flood): (u8, Option<u64>),
    carrier: &mut dyn Carrier,
    done: &mut usize,
    slice: &mut Slice,
) -> Result<bool, DropReason> {
    let headers = &*from.headers;
    let todo = if carrier.takes_offloads() { OffloadPlan::Pass } else { plan(&headers.offload, 0) };
    let offload = match todo {
        OffloadPlan::Pass => headers.offload,
        OffloadPlan::Complete(place) => Offload::Checksum(place),
        // Segments would share one flood number: links that carry numbers carry frames uncut.
        OffloadPlan::Cut { place, gso, .. } => {
            return push_segments(from, hops, carrier, (place, gso), done, slice);
        }
    };
    let (head, body) = (headers.head(), from.rest());
    push(carrier, &Outgoing { offload: &offload, head, body, len: headers.len, hops, flood })?;
    // Two copies: the carrier's, and the kernel's or the cipher's.
    let frame_ns = cost::CHAIN_NS.saturating_add(carrier.frame_ns());
    slice.charge(frame_ns.saturating_add(cost::bytes(headers.len).saturating_mul(2)));
    Ok(true)
}

/// Cuts a frame and pushes its segments from `done` on. Returns `false` if the turn ended before
/// the last segment.
fn push_segments(
    from: &SourceFrame<'_>,
    hops: u8,
    carrier: &mut dyn Carrier,
    (place, gso): (ChecksumPlace, Gso),
    done: &mut usize,
    slice: &mut Slice,
) -> Result<bool, DropReason> {
    let headers = &*from.headers;
    let mut segmenter = Segmenter::new(headers.head(), &headers.frame, place, gso, headers.len)
        .ok_or(DropReason::BadHeader)?;
    segmenter.skip(*done);
    let mut body = from.all();
    let given = usize::from(gso.size).saturating_mul(*done);
    skip(&mut body, usize::from(gso.header_len).saturating_add(given));
    let mut result = Ok(());
    while let Some(piece) = segmenter.next_segment() {
        let (offload, head, len) = (&piece.offload(), &*piece.headers, piece.len());
        let pushed = push(carrier, &Outgoing { offload, head, body, len, hops, flood: None });
        skip(&mut body, piece.payload.len());
        result = result.and(pushed);
        if matches!(result, Err(DropReason::SenderFault)) {
            break;
        }
        *done = done.saturating_add(1);
        let piece_ns = cost::PIECE_NS.saturating_add(carrier.frame_ns());
        slice.charge(piece_ns.saturating_add(cost::bytes(len).saturating_mul(2)));
        if slice.is_over() && segmenter.has_more() {
            // The next turn would not know of a refusal: the rest of the frame is dropped with it.
            return result.map(|()| false);
        }
    }
    result.map(|()| true)
}

/// Sends frames to the link bundle at `to`, the first from segment `done` on. A frame that cannot
/// leave is counted at its ingress. Returns the number of frames that were sent or dropped; the
/// others are beyond the turn's time.
pub(crate) fn send_to_link(
    switch: &mut Switch,
    source: FrameStore<'_>,
    (from, to): (SwitchIndex, SwitchIndex),
    frames: &mut [RxFrame],
    done: &mut usize,
    (now_ns, slice): (u64, &mut Slice),
) -> usize {
    if *done == 0 && !switch.mirrors.is_empty() {
        switch.mirrors.copy_frames(to, Direction::Out, source, frames, now_ns);
    }
    for (committed, RxFrame { chain, at, headers, hops, flood, .. }) in
        frames.iter_mut().enumerate()
    {
        if committed > 0 && slice.is_over() {
            return committed;
        }
        if flood.is_some() && switch.uplinks.is_dormant(to) && !switch.wakes(to, headers.head()) {
            switch.uplinks.count_withheld(to);
            *done = 0;
            continue;
        }
        let sent = if *hops >= HOPS_MAX && !switch.uplinks.is_station(to) {
            Err(DropReason::TooManyHops)
        } else {
            match switch.uplinks.carrier(to) {
                None => Err(DropReason::LinkDown),
                Some(carrier) => {
                    let from = SourceFrame { source, chain, at: *at, headers };
                    push_frame(&from, (*hops, *flood), carrier, done, slice)
                }
            }
        };
        match sent {
            Ok(true) => {}
            Ok(false) => return committed,
            Err(why) => switch.count_drop(from, why),
        }
        *done = 0;
    }
    frames.len()
}

/// As [`send_to_link`], for frames of a guest.
pub(crate) fn send_from_port(
    switch: &mut Switch,
    cx: &mut Context<'_>,
    egress: (SwitchIndex, SwitchIndex),
    frames: &mut [RxFrame],
    done: &mut usize,
) -> usize {
    let map = switch.get(egress.0).and_then(|me| cx.ports.get(me.id)).and_then(Port::map);
    match map {
        Some(map) => {
            let time = (cx.now_ns, &mut *cx.slice);
            send_to_link(switch, FrameStore::Guest(map), egress, frames, done, time)
        }
        None => frames.len(),
    }
}
