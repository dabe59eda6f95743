//! From ports and links out of the host: frames for peers.
//!
//! # Budget
//! A frame that a link carries as it is goes to the link's carrier with where its bytes lie, and
//! is copied there, once. One that must be finished first is copied here before, whole.

use causeway_fabric::carrier::{Body, Carrier, Outgoing};
use causeway_fabric::limits::HOPS_MAX;
use causeway_fabric::{Context, Port};
use causeway_wire::pcapng::Direction;
use causeway_wire::virtio_net::{ChecksumPlace, Gso, HEADER_LEN, Offload};

use crate::counters::DropReason;
use crate::deliver::{From, Scratch, Trouble};
use crate::job::Taken;
use crate::offload::segment::Segmenter;
use crate::offload::{Plan, checksum, plan};
use crate::port::Directory;
use crate::route::Place;
use crate::source::Source;
use crate::uplink::push;

impl Scratch {
    /// Gives a frame to a carrier; finished and cut, if that carries no unfinished ones.
    pub fn depart(
        &mut self,
        from: &From<'_>,
        (hops, flood): (u8, Option<u64>),
        carrier: &mut dyn Carrier,
    ) -> Result<(), DropReason> {
        let job = &*from.job;
        let todo = if carrier.takes_offloads() { Plan::Pass } else { plan(&job.offload, 0) };
        match todo {
            Plan::Pass => {
                let (offload, head, body) = (&job.offload, job.head(), from.rest());
                push(carrier, &Outgoing { offload, head, body, len: job.len, hops, flood })
            }
            Plan::Complete(place) => self.depart_complete(from, (hops, flood), carrier, place),
            // Its pieces would have one number: links that carry numbers carry frames whole.
            Plan::Cut { place, gso, .. } => self.depart_cut(from, hops, carrier, (place, gso)),
        }
    }

    fn depart_complete(
        &mut self,
        from: &From<'_>,
        (hops, flood): (u8, Option<u64>),
        carrier: &mut dyn Carrier,
        place: ChecksumPlace,
    ) -> Result<(), DropReason> {
        let mut frame = self.whole(from).map_err(drop_reason)?;
        let bytes = frame.get_mut(HEADER_LEN..).unwrap_or(&mut []);
        checksum::complete(bytes, place);
        let (offload, len) = (&Offload::None, bytes.len());
        let pushed = push(
            carrier,
            &Outgoing { offload, head: &[], body: Body::Private(bytes), len, hops, flood },
        );
        self.keep(frame);
        pushed
    }

    fn depart_cut(
        &mut self,
        from: &From<'_>,
        hops: u8,
        carrier: &mut dyn Carrier,
        (place, gso): (ChecksumPlace, Gso),
    ) -> Result<(), DropReason> {
        let job = &*from.job;
        let mut segmenter = Segmenter::new(job.head(), &job.frame, place, gso, job.len)
            .ok_or(DropReason::BadHeader)?;
        let frame = self.whole(from).map_err(drop_reason)?;
        let bytes = frame.get(HEADER_LEN..).unwrap_or(&[]);
        let mut result = Ok(());
        while let Some(mut piece) = segmenter.next_piece() {
            let payload = bytes.get(piece.payload.clone()).unwrap_or(&[]);
            piece.complete(payload);
            let (offload, len) = (&Offload::None, piece.len());
            let body = Body::Private(payload);
            let pushed = push(
                carrier,
                &Outgoing { offload, head: piece.headers, body, len, hops, flood: None },
            );
            result = result.and(pushed);
        }
        self.keep(frame);
        result
    }
}

fn drop_reason(trouble: Trouble) -> DropReason {
    match trouble {
        Trouble::Drop(why) => why,
        Trouble::Short(_) | Trouble::Fault(_) => DropReason::SenderFault,
    }
}

/// Sends frames out of the host at `to`. Those that cannot leave are counted at the port that they
/// came from.
pub(crate) fn depart(
    directory: &mut Directory,
    scratch: &mut Scratch,
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
                    scratch.depart(&from, (*hops, *flood), carrier)
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
    scratch: &mut Scratch,
    cx: &Context<'_>,
    (from, to): (Place, Place),
    frames: &mut [Taken],
) {
    let map = directory.get(from).and_then(|me| cx.ports.get(me.id)).and_then(Port::map);
    if let Some(map) = map {
        depart(directory, scratch, Source::Guest(map), (from, to), frames, cx.now_ns);
    }
}
