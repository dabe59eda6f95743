//! From ports and links out of the host: frames for peers.
//!
//! # Budget
//! A frame goes to its link's carrier with where its bytes lie, and is copied there, once: also where
//! it is cut before. What pieces have of their own is their headers; their checksums are completed in
//! that copy.

use causeway_fabric::carrier::{Carrier, Outgoing};
use causeway_fabric::limits::HOPS_MAX;
use causeway_fabric::{Context, Port};
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

/// Gives a frame to a carrier; cut, if that carries no unfinished ones.
fn give(
    from: &From<'_>,
    (hops, flood): (u8, Option<u64>),
    carrier: &mut dyn Carrier,
) -> Result<(), DropReason> {
    let job = &*from.job;
    let todo = if carrier.takes_offloads() { Plan::Pass } else { plan(&job.offload, 0) };
    let offload = match todo {
        Plan::Pass => job.offload,
        Plan::Complete(place) => Offload::Checksum(place),
        // Its pieces would have one number: links that carry numbers carry frames whole.
        Plan::Cut { place, gso, .. } => return give_pieces(from, hops, carrier, (place, gso)),
    };
    let (head, body) = (job.head(), from.rest());
    push(carrier, &Outgoing { offload: &offload, head, body, len: job.len, hops, flood })
}

fn give_pieces(
    from: &From<'_>,
    hops: u8,
    carrier: &mut dyn Carrier,
    (place, gso): (ChecksumPlace, Gso),
) -> Result<(), DropReason> {
    let job = &*from.job;
    let mut segmenter =
        Segmenter::new(job.head(), &job.frame, place, gso, job.len).ok_or(DropReason::BadHeader)?;
    let mut body = from.all();
    skip(&mut body, usize::from(gso.header_len));
    let mut result = Ok(());
    while let Some(piece) = segmenter.next_piece() {
        let (offload, head, len) = (&piece.offload(), &*piece.headers, piece.len());
        let pushed = push(carrier, &Outgoing { offload, head, body, len, hops, flood: None });
        skip(&mut body, piece.payload.len());
        result = result.and(pushed);
        if matches!(result, Err(DropReason::SenderFault)) {
            break;
        }
    }
    result
}

/// Sends frames out of the host at `to`. Those that cannot leave are counted at the port that they
/// came from.
pub(crate) fn depart(
    directory: &mut Directory,
    source: Source<'_>,
    (from, to): (Place, Place),
    frames: &mut [Taken],
    now_ns: u64,
) {
    if !directory.taps.is_empty() {
        directory.taps.show(to, Direction::Out, source, frames, now_ns);
    }
    for Taken { chain, at, job, hops, flood, .. } in frames {
        let sent = if *hops >= HOPS_MAX {
            Err(DropReason::TooManyHops)
        } else {
            match directory.uplinks.carrier(to) {
                None => Err(DropReason::LinkDown),
                Some(carrier) => {
                    let from = From { source, chain, at: *at, job };
                    give(&from, (*hops, *flood), carrier)
                }
            }
        };
        if let Err(why) = sent {
            directory.dropped(from, why);
        }
    }
}

/// As [`depart`], for frames of a guest.
pub(crate) fn depart_from_port(
    directory: &mut Directory,
    cx: &Context<'_>,
    (from, to): (Place, Place),
    frames: &mut [Taken],
) {
    let map = directory.get(from).and_then(|me| cx.ports.get(me.id)).and_then(Port::map);
    if let Some(map) = map {
        depart(directory, Source::Guest(map), (from, to), frames, cx.now_ns);
    }
}
