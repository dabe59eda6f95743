//! The common case of short messages, in fewer instructions: the payload is a single segment of at
//! most 64 KiB ([`STEP_BYTES_MAX`]) within the budget, is not inline, and lies in adjacent pages of
//! the guest on both sides.
//!
//! All other messages, and all errors but those of taking a receive work request, take the ordinary
//! path of `connected.rs`, which checks again and finds the reason. The direct path therefore has
//! no effect before it has checked everything, except that a send has taken its receive work
//! request, which the ordinary path continues with, and that a copy that failed in the middle is
//! done again. It checks the same keys, domains and rights. Requests that waited, and the first
//! message to a responder that is only ready to receive, take the ordinary path. `connected.rs`
//! calls [`Subnet::copy_direct`] once for each new message. All of it runs in the dispatcher's
//! thread that serves the subnet.

use causeway_memory::copy::copy_range;

use crate::adapter_id::AdapterId;
use crate::attributes::State;
use crate::engine::connected::Target;
use crate::engine::state::Requester;
use crate::engine::step::{Origin, Step};
use crate::limits::STEP_BYTES_MAX;
use crate::queues::Queues;
use crate::region::Rights;
use crate::subnet::Subnet;
use crate::work::Operation;

impl<Q: Queues> Subnet<Q> {
    /// Copies a whole message if it is short. Returns the number of copied bytes, 0 if the ordinary
    /// path must copy it.
    #[inline]
    pub(super) fn copy_direct(
        &mut self,
        origin: &Origin,
        requester: &mut Requester,
        (at, target): ((AdapterId, u32), Target),
        (most, now_ns): (u64, u64),
    ) -> Result<u64, Step> {
        let Some((own, len)) = self.own_range(origin, requester, target, most) else {
            return Ok(0);
        };
        // The first message of an early responder is reported by the ordinary path.
        let pair = self.adapter(at.0).and_then(|adapter| adapter.queue_pairs.get(at.1));
        if pair.is_none_or(|pair| pair.state() == State::ReadyToReceive) {
            return Ok(0);
        }
        let bytes = u64::from(len);
        if target == Target::Receive {
            requester.transfer.is_admitted = true;
            requester.transfer.total = bytes;
            self.take_receive(origin, requester, at, now_ns)?;
        }
        if self.copy_ranges(origin, (at, target), (own, len)).is_none() {
            return Ok(0);
        }
        requester.refusal = None;
        let transfer = &mut requester.transfer;
        (transfer.is_admitted, transfer.total, transfer.done) = (true, bytes, bytes);
        Ok(bytes)
    }

    /// Returns the guest address and length of the requester's memory, if it is a single segment in
    /// adjacent pages and the request may be executed at once.
    #[inline]
    fn own_range(
        &self,
        origin: &Origin,
        requester: &Requester,
        target: Target,
        most: u64,
    ) -> Option<(u64, u32)> {
        let work = &requester.work;
        let [segment] = work.segments.as_slice() else { return None };
        let len = u64::from(segment.len);
        let needed = match target {
            Target::Read(_) => Rights::LOCAL_WRITE,
            Target::Write(_) | Target::Receive => Rights::LOCAL_READ,
        };
        let needs_reliable =
            matches!(work.operation, Operation::Read(_) | Operation::SendInvalidate(_));
        let is_refused = needs_reliable && !origin.kind.is_reliable();
        let is_short = len > 0 && len <= most.min(STEP_BYTES_MAX);
        if !is_short || is_refused || work.is_inline || requester.wait.is_some() {
            return None;
        }
        let regions = &self.adapter(origin.id)?.regions;
        let range = (segment.address, len);
        let addr = regions.adjacent(segment.key, origin.attributes.domain, range, needed)?;
        Some((addr, segment.len))
    }

    /// Copies between the requester's memory and adjacent pages of the responder's. Returns `None`
    /// if the responder does not permit it, or has other memory.
    #[inline]
    fn copy_ranges(
        &self,
        origin: &Origin,
        ((there, number), target): ((AdapterId, u32), Target),
        (own_addr, len): (u64, u32),
    ) -> Option<()> {
        let (own, other) = (self.adapter(origin.id)?, self.adapter(there)?);
        let pair = other.queue_pairs.get(number)?;
        let (key, address, domain, needed) = match target {
            Target::Receive => {
                let segment = pair.responder.work.segments.first()?;
                if segment.len < len {
                    return None;
                }
                (segment.key, segment.address, pair.receive_domain(), Rights::LOCAL_WRITE)
            }
            Target::Write(to) => (to.key, to.address, pair.remote_domain(), Rights::REMOTE_WRITE),
            Target::Read(from) => {
                (from.key, from.address, pair.remote_domain(), Rights::REMOTE_READ)
            }
        };
        if target != Target::Receive && !pair.attributes().rights.contains(needed) {
            return None;
        }
        let addr = other.regions.adjacent(key, domain, (address, u64::from(len)), needed)?;
        let own_side = (own.queues.map(), own_addr);
        let other_side = (other.queues.map(), addr);
        match target {
            Target::Read(_) => copy_range(other_side, own_side, len),
            Target::Write(_) | Target::Receive => copy_range(own_side, other_side, len),
        }
        .ok()
    }
}
