//! Link transmit path: frames of ports and links to the carriers of other links.
//!
//! The module hands each frame to its link's carrier with a reference to its bytes. It does not
//! choose the link, and it neither encapsulates nor sends: the carrier does.
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
use crate::deliver::From;
use crate::job::Taken;
use crate::offload::segment::Segmenter;
use crate::offload::{Plan, plan};
use crate::port::Directory;
use crate::route::Place;
use crate::source::{Source, skip};
use crate::uplink::push;

/// Pushes a frame to a carrier, cut from segment `done` on if the carrier takes no offloads.
/// Returns `false` if the turn ended before the last segment.
fn give(
    from: &From<'_>,
    (hops, flood): (u8, Option<u64>),
    carrier: &mut dyn Carrier,
    done: &mut usize,
    slice: &mut Slice,
) -> Result<bool, DropReason> {
    let job = &*from.job;
    let todo = if carrier.takes_offloads() { Plan::Pass } else { plan(&job.offload, 0) };
    let offload = match todo {
        Plan::Pass => job.offload,
        Plan::Complete(place) => Offload::Checksum(place),
        // Segments would share one flood number: links that carry numbers carry frames uncut.
        Plan::Cut { place, gso, .. } => {
            return give_pieces(from, hops, carrier, (place, gso), done, slice);
        }
    };
    let (head, body) = (job.head(), from.rest());
    push(carrier, &Outgoing { offload: &offload, head, body, len: job.len, hops, flood })?;
    // Two copies: this one, and the kernel's or the cipher's.
    slice.charge(cost::CHAIN_NS.saturating_add(cost::bytes(job.len).saturating_mul(2)));
    Ok(true)
}

fn give_pieces(
    from: &From<'_>,
    hops: u8,
    carrier: &mut dyn Carrier,
    (place, gso): (ChecksumPlace, Gso),
    done: &mut usize,
    slice: &mut Slice,
) -> Result<bool, DropReason> {
    let job = &*from.job;
    let mut segmenter =
        Segmenter::new(job.head(), &job.frame, place, gso, job.len).ok_or(DropReason::BadHeader)?;
    segmenter.skip(*done);
    let mut body = from.all();
    let given = usize::from(gso.size).saturating_mul(*done);
    skip(&mut body, usize::from(gso.header_len).saturating_add(given));
    let mut result = Ok(());
    while let Some(piece) = segmenter.next_piece() {
        let (offload, head, len) = (&piece.offload(), &*piece.headers, piece.len());
        let pushed = push(carrier, &Outgoing { offload, head, body, len, hops, flood: None });
        skip(&mut body, piece.payload.len());
        result = result.and(pushed);
        if matches!(result, Err(DropReason::SenderFault)) {
            break;
        }
        *done = done.saturating_add(1);
        slice.charge(cost::PIECE_NS.saturating_add(cost::bytes(len).saturating_mul(2)));
        if slice.is_over() && segmenter.has_more() {
            return Ok(false);
        }
    }
    result.map(|()| true)
}

/// Sends frames to the link bundle at `to`, the first from segment `done` on. A frame that cannot
/// leave is counted at its ingress. Returns the number of frames that were sent or dropped; the
/// others are beyond the turn's time.
pub(crate) fn depart(
    directory: &mut Directory,
    source: Source<'_>,
    (from, to): (Place, Place),
    frames: &mut [Taken],
    done: &mut usize,
    (now_ns, slice): (u64, &mut Slice),
) -> usize {
    if *done == 0 && !directory.taps.is_empty() {
        directory.taps.show(to, Direction::Out, source, frames, now_ns);
    }
    for (settled, Taken { chain, at, job, hops, flood, .. }) in frames.iter_mut().enumerate() {
        if settled > 0 && slice.is_over() {
            return settled;
        }
        let sent = if *hops >= HOPS_MAX {
            Err(DropReason::TooManyHops)
        } else {
            match directory.uplinks.carrier(to) {
                None => Err(DropReason::LinkDown),
                Some(carrier) => {
                    let from = From { source, chain, at: *at, job };
                    give(&from, (*hops, *flood), carrier, done, slice)
                }
            }
        };
        match sent {
            Ok(true) => {}
            Ok(false) => return settled,
            Err(why) => directory.dropped(from, why),
        }
        *done = 0;
    }
    frames.len()
}

/// As [`send_to_link`], for frames of a guest.
pub(crate) fn depart_from_port(
    directory: &mut Directory,
    cx: &mut Context<'_>,
    way: (Place, Place),
    frames: &mut [Taken],
    done: &mut usize,
) -> usize {
    let map = directory.get(way.0).and_then(|me| cx.ports.get(me.id)).and_then(Port::map);
    match map {
        Some(map) => {
            let time = (cx.now_ns, &mut *cx.slice);
            depart(directory, Source::Guest(map), way, frames, done, time)
        }
        None => frames.len(),
    }
}
