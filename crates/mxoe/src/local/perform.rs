//! One step between two NICs of a daemon.
//!
//! [`perform`] takes the [`Nic`] that queued the work, and the [`Nic`] that the work concerns
//! ([`LocalWork::to`]), which the caller finds. A work for an endpoint that is closed, or for a
//! peer of another session, has no effect, except that messages which the receiver refuses end
//! their peer, and that a pull ends with `BadRdmaWindow`. A work that is cut at a limit queues its
//! rest again, at the end of the queue of `own`.
//!
//! [`route`] and [`deliver`] are the fast path for eager messages: the request goes from ring to
//! ring without a queue. [`deliver`] returns false where the message must take the queue of its
//! peer; the caller passes the request to [`Nic::request`] then, in the same turn, so that order
//! holds.
//!
//! Called by `mx::exchange` of `causeway-mx` ([`perform`], at most 64 works and about 256 KiB in a
//! turn)
//! and by [`driver::Engine`](crate::driver::Engine) ([`route`], [`deliver`]), on the thread that
//! owns both NICs. After it the owner ends the turn of both:
//! [`TxPath::commit`](crate::driver::TxPath::commit).

use causeway_wire::mx::{Handle, PeerId, Request, Status};

use super::endpoint::{Delivery, PullPiece};
use super::queue::{LocalEnds, LocalWork, Step};
use super::{LOCAL_MESSAGES_MAX, LOCAL_PIECE_BYTES};
use crate::peer::MessageContent;
use crate::receive_order::PacketContent;
use crate::{CopyFault, DropReason, Nic, Outside};

/// A NIC with its surroundings.
pub struct LocalSide<'a> {
    /// The NIC.
    pub nic: &'a mut Nic,
    /// Its surroundings.
    pub out: &'a mut dyn Outside,
}

impl std::fmt::Debug for LocalSide<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalSide").field("nic", &self.nic).finish_non_exhaustive()
    }
}

/// The NIC that queued a work, and the NIC that the work concerns.
struct Pair<'a> {
    now: u64,
    own: LocalSide<'a>,
    /// `None` if both are the same.
    other: Option<LocalSide<'a>>,
}

impl Pair<'_> {
    fn own(&mut self) -> (&mut Nic, (u64, &mut dyn Outside)) {
        (self.own.nic, (self.now, self.own.out))
    }

    fn other(&mut self) -> (&mut Nic, (u64, &mut dyn Outside)) {
        let side = self.other.as_mut().unwrap_or(&mut self.own);
        (side.nic, (self.now, side.out))
    }
}

/// Returns the route of a request that [`deliver`] may perform at once: an eager message to a local
/// peer for which no earlier message waits.
#[inline]
pub fn route(nic: &Nic, endpoint: u8, request: &Request<'_>) -> Option<LocalEnds> {
    match request {
        Request::Eager { peer, .. } => nic.local_route(endpoint, *peer),
        _ => None,
    }
}

/// Performs a request with a [`route`]: gives the message to the host side of its receiver, whose
/// NIC is `other`, or `own` if `other` is `None`. Returns false without an effect on the sender if
/// there is no room, or the receiver refuses it; the caller must pass the request to
/// [`Nic::request`] then.
#[inline]
pub fn deliver<'a>(
    now: u64,
    route: &LocalEnds,
    request: &Request<'_>,
    own: LocalSide<'a>,
    other: Option<LocalSide<'a>>,
) -> bool {
    let Request::Eager { peer, token, match_info, data } = *request else { return false };
    let mut pair = Pair { now, own, other };
    let content = PacketContent::Whole(match_info, data);
    let (other, (_, out)) = pair.other();
    let delivery = other.local_deliver(now, route, &content, out);
    if delivery != Delivery::Done {
        return false;
    }
    let (own, (_, out)) = pair.own();
    own.local_sent(now, (route.from.0.endpoint, peer), token, data.len(), out);
    true
}

/// Performs a work of `own` that concerns `other`, or `own` itself if `other` is `None`. Returns
/// the number of copied bytes.
///
/// # Errors
/// The reason why a packet was dropped.
pub fn perform<'a>(
    now: u64,
    work: LocalWork,
    own: LocalSide<'a>,
    other: Option<LocalSide<'a>>,
) -> Result<u64, DropReason> {
    let mut pair = Pair { now, own, other };
    match work.0 {
        Step::Frame { bytes, .. } => {
            let (nic, (now, out)) = pair.other();
            nic.receive_by(now, &bytes, true, out).map(|()| 0)
        }
        Step::Send { endpoint, peer, .. } => Ok(send(&mut pair, endpoint, peer)),
        Step::Pull { endpoint, handle, .. } => Ok(pull(&mut pair, endpoint, handle)),
        Step::Room(ends) => {
            let (nic, at) = pair.other();
            nic.with_peer(at, &ends, |endpoint, ctx, peer| endpoint.pump_local(ctx, peer));
            Ok(0)
        }
        Step::Gone(ends, status) => {
            let (nic, at) = pair.other();
            nic.with_peer(at, &ends, |endpoint, ctx, peer| endpoint.end_peer(ctx, peer, status));
            Ok(0)
        }
    }
}

/// Passes messages for a peer until there is no room or a limit is reached. Returns their bytes.
fn send(pair: &mut Pair<'_>, endpoint: u8, peer: PeerId) -> u64 {
    let mut bytes = 0_u64;
    for _ in 0..LOCAL_MESSAGES_MAX {
        let (own, at) = pair.own();
        let taken = own.with(at, endpoint, |endpoint, ctx| endpoint.local_take(ctx, peer));
        let Some(taken) = taken.flatten() else { return bytes };
        let Some(content) = taken.message.content.as_packet() else { return bytes };
        let (other, (now, out)) = pair.other();
        let delivery = other.local_deliver(now, &taken.ends, &content, out);
        let len = match &taken.message.content {
            MessageContent::Eager { data, .. } => data.len() as u64,
            MessageContent::Offer { .. } | MessageContent::Notify { .. } => 0,
        };
        let (own, at) = pair.own();
        let ended = own.with(at, endpoint, |endpoint, ctx| match delivery {
            Delivery::Done => {
                endpoint.local_delivered(ctx, peer, taken.message);
                false
            }
            Delivery::Full => {
                endpoint.local_put_back(peer, taken.message);
                true
            }
            Delivery::Refused(status) => {
                endpoint.local_put_back(peer, taken.message);
                endpoint.end_peer(ctx, peer, status);
                true
            }
        });
        if ended != Some(false) {
            return bytes;
        }
        bytes = bytes.saturating_add(len);
        if bytes >= LOCAL_PIECE_BYTES.into() {
            break;
        }
    }
    let (own, at) = pair.own();
    own.with(at, endpoint, |endpoint, ctx| endpoint.pump_local(ctx, peer));
    bytes
}

/// Copies the next piece of a pull. Returns its bytes.
fn pull(pair: &mut Pair<'_>, endpoint: u8, handle: Handle) -> u64 {
    let (own, at) = pair.own();
    let piece = own.with(at, endpoint, |endpoint, ctx| endpoint.local_piece(ctx, handle));
    let Some(piece) = piece.flatten() else { return 0 };
    match copy(pair, endpoint, &piece) {
        Ok(len) => {
            let (own, at) = pair.own();
            let more =
                own.with(at, endpoint, |endpoint, ctx| endpoint.local_copied(ctx, handle, len));
            if more == Some(true) {
                let to = piece.ends.to.0.nic;
                own.push_local(Step::Pull { to, endpoint, handle });
            }
            len.into()
        }
        Err(status) => {
            let (own, at) = pair.own();
            own.with(at, endpoint, |endpoint, ctx| endpoint.end_pull(ctx, handle, status));
            0
        }
    }
}

/// Copies a piece from the region of the sender into that of the receiver. Returns its length.
fn copy(pair: &mut Pair<'_>, endpoint: u8, piece: &PullPiece) -> Result<u32, Status> {
    let PullPiece { ends, offered, into, done } = piece;
    let sender: &LocalEnds = ends;
    let (other, at) = pair.other();
    let window =
        other.with_peer(at, sender, |endpoint, _, peer| endpoint.local_window(peer, offered));
    let window = window.ok_or(Status::BadRdmaWindow)??;
    let len = into.len.saturating_sub(*done).min(LOCAL_PIECE_BYTES);
    let bytes = usize::try_from(len).map_err(|_| Status::BadRdmaWindow)?;
    let (_, (_, out)) = pair.other();
    let from = window.offset.saturating_add((*done).into());
    let lent = out.lend(sender.to.0.endpoint, window.region, (from, bytes));
    let copied = match &lent {
        Ok(lent) => {
            let (_, (_, out)) = pair.own();
            let to = into.offset.saturating_add((*done).into());
            out.copy_in(endpoint, into.region, to, lent)
        }
        Err(_) => Err(CopyFault::Source),
    };
    match copied {
        Ok(()) => return Ok(len),
        Err(CopyFault::Destination) => {
            let (own, at) = pair.own();
            own.with(at, endpoint, |endpoint, _| {
                crate::context::count(&mut endpoint.counters.region_faults);
            });
        }
        Err(CopyFault::Source) => {
            let (other, at) = pair.other();
            other.with_peer(at, sender, |endpoint, ctx, peer| {
                endpoint.local_fault(ctx, peer, offered);
            });
        }
    }
    Err(Status::BadRdmaWindow)
}
