//! Telling a new causewayd all that a frontend had told the last one.
//!
//! The order is that of a frontend which connects again: features, memory, the
//! record of chains in flight, and then each queue. A split ring goes on at the
//! used index that stands in guest memory, from which the record in flight takes
//! over; a packed one where it last stopped, for its record knows the rest.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_attach::vhost_user::FrontendReq as R;
use causeway_attach::vhost_user::message::{
    RegionSpec, RingEvent, RingValue, emit_region, emit_table,
};
use causeway_memory::{Mapping, View};

use crate::inner::{Inner, Trouble};
use crate::record::{Event, Record, Region, Ring};

/// VIRTIO_F_RING_PACKED (virtio 1.3, section 6).
pub const RING_PACKED: u64 = 1 << 34;
/// Where the index is in a used ring (virtio 1.3, 2.7.8).
const USED_INDEX: usize = 2;

/// Tells causewayd, at the beginning of `inner`, all of `record`.
///
/// # Errors
/// causewayd went away, or does not take it; the frontend left.
pub fn replay(record: &Record, inner: &mut Inner, frontend: BorrowedFd<'_>) -> Result<(), Trouble> {
    let offered = inner.begin(record.protocol.unwrap_or(0), frontend)?;
    let mut tell = |request, payload: &[u8], fds: &[BorrowedFd<'_>]| {
        inner.tell(request, payload, fds, frontend)
    };
    if record.owner {
        tell(R::SET_OWNER, &[], &[])?;
    }
    if let Some(features) = record.features {
        if features & !offered != 0 {
            return Err(Trouble::Lacking("features that the guest was told of"));
        }
        tell(R::SET_FEATURES, &features.to_ne_bytes(), &[])?;
    }
    if !record.table.is_empty() {
        let specs: Vec<RegionSpec> = record.table.iter().map(|(spec, _)| *spec).collect();
        let files: Vec<BorrowedFd<'_>> = record.table.iter().map(|(_, f)| f.as_fd()).collect();
        tell(R::SET_MEM_TABLE, &emit_table(&specs), &files)?;
    }
    for (spec, file) in &record.added {
        tell(R::ADD_MEM_REG, &emit_region(spec), &[file.as_fd()])?;
    }
    if let Some(inflight) = &record.inflight {
        tell(R::SET_INFLIGHT_FD, &inflight.spec.emit(), &[inflight.file.as_fd()])?;
    }
    if let Some(channel) = &record.requests {
        tell(R::SET_BACKEND_REQ_FD, &[], &[channel.as_fd()])?;
    }
    // Before the queues: a status of zero stops those that run.
    if let Some(status) = record.status {
        tell(R::SET_STATUS, &status.to_ne_bytes(), &[])?;
    }
    for (index, ring) in (0_u32..).zip(&record.rings) {
        replay_ring(record, index, ring, &mut tell)?;
    }
    Ok(())
}

fn replay_ring(
    record: &Record,
    index: u32,
    ring: &Ring,
    tell: &mut impl FnMut(R, &[u8], &[BorrowedFd<'_>]) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let value = |value| RingValue { index, value }.emit();
    if let Some(size) = ring.size {
        tell(R::SET_VRING_NUM, &value(size), &[])?;
    }
    if let Some(base) = base(record, ring) {
        tell(R::SET_VRING_BASE, &value(base), &[])?;
    }
    if let Some(addresses) = &ring.addresses {
        tell(R::SET_VRING_ADDR, &addresses.emit(), &[])?;
    }
    let mut event = |request, event: &Event| match event {
        None => Ok(()),
        Some(None) => tell(request, &RingEvent::emit(index, false), &[]),
        Some(Some(fd)) => tell(request, &RingEvent::emit(index, true), &[fd.as_fd()]),
    };
    event(R::SET_VRING_ERR, &ring.error)?;
    event(R::SET_VRING_CALL, &ring.call)?;
    event(R::SET_VRING_KICK, &ring.kick)?;
    match ring.enabled {
        Some(enabled) => tell(R::SET_VRING_ENABLE, &value(enabled), &[]),
        None => Ok(()),
    }
}

/// Where a queue goes on.
fn base(record: &Record, ring: &Ring) -> Option<u32> {
    let packed = record.features.unwrap_or(0) & RING_PACKED != 0;
    if packed || ring.kick.is_none() {
        return ring.base;
    }
    let used = ring.addresses.and_then(|at| used_index(record.regions(), at.used));
    used.map(u32::from).or(ring.base)
}

/// The index in the used ring at the frontend's address `used`.
fn used_index<'a>(mut regions: impl Iterator<Item = &'a Region>, used: u64) -> Option<u16> {
    const LEN: u64 = 4;
    let (spec, file) = regions.find(|(spec, _)| {
        let at = used.checked_sub(spec.user).and_then(|at| at.checked_add(LEN));
        at.is_some_and(|end| end <= spec.len)
    })?;
    let offset = spec.offset.checked_add(used.checked_sub(spec.user)?)?;
    let mapping = Arc::new(Mapping::new(file.as_fd(), offset, LEN).ok()?);
    let view = View::new(mapping, 0, usize::try_from(LEN).ok()?).ok()?;
    let index = view.load(USED_INDEX, Ordering::Acquire).ok()?;
    (!view.poisoned()).then_some(index)
}
