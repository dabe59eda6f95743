//! Replays a frontend's recorded vhost-user state to a new causewayd.
//!
//! [`crate::relay`] calls [`replay`], in its thread, when it has connected to a causewayd, before
//! it forwards further messages. The order is that of a frontend that reconnects: features, memory,
//! the inflight region, the socket for requests of the backend, the virtio status, and then each
//! queue. A running split ring continues at the used index in
//! guest memory; the chains that were popped and not completed are in the inflight region
//! ([`crate::inflight`]). If the index cannot be read, and in packed or stopped rings, the queue
//! continues at the recorded start index; the inflight region of a packed ring has the present
//! position.
//!
//! Each message is acknowledged before the next is sent; the first refusal or invalid reply ends
//! the replay, and the frontend is then disconnected. If causewayd ends meanwhile, the relay
//! replays everything to the next. The next causewayd must offer all features that the guest and
//! the frontend have negotiated. The module reads two bytes of each running split ring, and writes
//! nothing to guest memory.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_attach::vhost_user::FrontendReq as R;
use causeway_attach::vhost_user::message::{
    RegionSpec, RingEvent, RingValue, emit_region, emit_table,
};
use causeway_memory::{Mapping, View};

use crate::inner::{DaemonStream, ExchangeError};
use crate::record::{EventFd, Record, RegionFile, Ring};

/// VIRTIO_F_RING_PACKED (virtio 1.3, section 6).
pub const RING_PACKED: u64 = 1 << 34;
/// Offset of the index in a used ring (virtio 1.3, section 2.7.8).
const USED_INDEX: usize = 2;

/// Sends all state of `record` at the beginning of connection `inner`.
///
/// # Errors
/// causewayd ended or refused a message, or the frontend left.
pub fn replay(
    record: &Record,
    inner: &mut DaemonStream,
    frontend: BorrowedFd<'_>,
) -> Result<(), ExchangeError> {
    if record.is_new() {
        return inner.begin_new(frontend);
    }
    let offered = inner.begin(record.protocol.unwrap_or(0), frontend)?;
    let mut send = |request, payload: &[u8], fds: &[BorrowedFd<'_>]| {
        inner.send_checked(request, payload, fds, frontend)
    };
    if let Some(features) = record.features {
        if features & !offered != 0 {
            return Err(ExchangeError::Lacking("features that the guest has negotiated"));
        }
        send(R::SET_FEATURES, &features.to_ne_bytes(), &[])?;
    }
    if !record.table.is_empty() {
        let specs: Vec<RegionSpec> = record.table.iter().map(|(spec, _)| *spec).collect();
        let files: Vec<BorrowedFd<'_>> = record.table.iter().map(|(_, f)| f.as_fd()).collect();
        send(R::SET_MEM_TABLE, &emit_table(&specs), &files)?;
    }
    for (spec, file) in &record.added {
        send(R::ADD_MEM_REG, &emit_region(spec), &[file.as_fd()])?;
    }
    if let Some(inflight) = &record.inflight {
        send(R::SET_INFLIGHT_FD, &inflight.spec.emit(), &[inflight.file.as_fd()])?;
    }
    if let Some(channel) = &record.requests {
        send(R::SET_BACKEND_REQ_FD, &[], &[channel.as_fd()])?;
    }
    // Before the queues: a status of zero stops running queues.
    if let Some(status) = record.status {
        send(R::SET_STATUS, &status.to_ne_bytes(), &[])?;
    }
    for (index, ring) in (0_u32..).zip(&record.rings) {
        replay_ring(record, index, ring, &mut send)?;
    }
    Ok(())
}

/// Sends the state of one queue; a running queue starts with its doorbell.
fn replay_ring(
    record: &Record,
    index: u32,
    ring: &Ring,
    send: &mut impl FnMut(R, &[u8], &[BorrowedFd<'_>]) -> Result<(), ExchangeError>,
) -> Result<(), ExchangeError> {
    let value = |value| RingValue { index, value }.emit();
    if let Some(size) = ring.size {
        send(R::SET_VRING_NUM, &value(size), &[])?;
    }
    if let Some(base) = base(record, ring) {
        send(R::SET_VRING_BASE, &value(base), &[])?;
    }
    if let Some(addresses) = &ring.addresses {
        send(R::SET_VRING_ADDR, &addresses.emit(), &[])?;
    }
    let mut event = |request, event: &EventFd| match event {
        None => Ok(()),
        Some(None) => send(request, &RingEvent::emit(index, false), &[]),
        Some(Some(fd)) => send(request, &RingEvent::emit(index, true), &[fd.as_fd()]),
    };
    event(R::SET_VRING_ERR, &ring.error)?;
    event(R::SET_VRING_CALL, &ring.call)?;
    event(R::SET_VRING_KICK, &ring.kick)?;
    match ring.enabled {
        Some(enabled) => send(R::SET_VRING_ENABLE, &value(enabled), &[]),
        None => Ok(()),
    }
}

/// Returns the index at which a queue continues.
fn base(record: &Record, ring: &Ring) -> Option<u32> {
    let packed = record.features.unwrap_or(0) & RING_PACKED != 0;
    if packed || ring.kick.is_none() {
        return ring.base;
    }
    let used = ring.addresses.and_then(|at| used_index(record.regions(), at.used));
    used.map(u32::from).or(ring.base)
}

/// Returns the index of the used ring at the frontend's address `used`.
fn used_index<'a>(mut regions: impl Iterator<Item = &'a RegionFile>, used: u64) -> Option<u16> {
    const LEN: u64 = 4;
    let (spec, file) = regions.find(|(spec, _)| {
        let at = used.checked_sub(spec.user).and_then(|at| at.checked_add(LEN));
        at.is_some_and(|end| end <= spec.len)
    })?;
    let offset = spec.offset.checked_add(used.checked_sub(spec.user)?)?;
    let mapping = Arc::new(Mapping::new(file.as_fd(), offset, LEN).ok()?);
    let view = View::new(mapping, 0, usize::try_from(LEN).ok()?).ok()?;
    let index = view.load(USED_INDEX, Ordering::Acquire).ok()?;
    (!view.is_poisoned()).then_some(index)
}
