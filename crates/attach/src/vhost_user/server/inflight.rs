//! The in-flight buffer: memory that the frontend keeps across a restart of the backend.
//!
//! The backend creates it, zeroed, when the frontend requests it (GET_INFLIGHT_FD), and maps it
//! when the frontend sends it (SET_INFLIGHT_FD). A successor of this process gets it back and finds
//! the chains that were popped and not used ([`causeway_ring::Inflight`]).
//!
//! The module only maps and divides the buffer; the ring reads and writes the records, and checks
//! their content. A buffer that is too short, has more queues or larger rings than the device
//! allows, has records shorter than a queue's ring, or records of the other ring format, ends the
//! attachment. A file that shrinks later harms its own guest only: its records read as zeros, so
//! that queues break or a successor misses chains in flight ([`InflightBuffer::is_poisoned`]). A
//! queue without a record runs without one. `backend` calls the module in the dispatcher's thread;
//! a further SET_INFLIGHT_FD replaces the buffer, and ends the attachment while a queue runs.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use causeway_host::ReceivedFd;
use causeway_memory::{Mapping, View};
use causeway_ring::{Inflight, RingError};

use super::super::fault::Reason;
use super::super::message::InflightSpec;
use super::model::Model;
use crate::vhost_user::codes::FrontendReq;

/// The mapped buffer of all queues.
#[derive(Debug)]
pub(super) struct InflightBuffer {
    /// The mapped file.
    mapping: Arc<Mapping>,
    /// Number of records.
    queues: usize,
    /// Ring size that each record has room for.
    ring_size: u16,
    /// Whether the records are those of packed rings.
    packed: bool,
}

/// Returns the bytes of one queue's record.
fn part(ring_size: u16, packed: bool) -> usize {
    if packed { Inflight::packed_bytes(ring_size) } else { Inflight::bytes(ring_size) }
}

/// Checks the requested shape. Returns the length of the buffer, in bytes.
fn check(
    request: FrontendReq,
    spec: &InflightSpec,
    model: &Model,
    packed: bool,
) -> Result<u64, Reason> {
    let wrong = |what| Reason::Inflight { request, what };
    let queues = usize::from(spec.queues);
    if queues == 0 || queues > model.queues {
        return Err(wrong("the number of queues is not one that the device has"));
    }
    let fits = spec.ring_size.is_power_of_two() || packed && spec.ring_size > 0;
    if !fits || spec.ring_size > model.ring_size_max {
        return Err(wrong("the ring size is no power of two, or too large"));
    }
    Ok((part(spec.ring_size, packed) as u64).saturating_mul(queues as u64))
}

impl InflightBuffer {
    /// Creates a buffer of the requested shape, for packed or split rings.
    pub(super) fn create(
        spec: &InflightSpec,
        model: &Model,
        packed: bool,
    ) -> Result<(InflightSpec, OwnedFd), Reason> {
        let len = check(FrontendReq::GET_INFLIGHT_FD, spec, model, packed)?;
        let file = causeway_memory::create("causeway-inflight", len)
            .map_err(|errno| Reason::InflightMapping(errno.into()))?;
        Ok((InflightSpec { len, offset: 0, ..*spec }, file))
    }

    /// Maps the buffer that the frontend kept.
    pub(super) fn adopt(
        spec: &InflightSpec,
        file: &ReceivedFd,
        model: &Model,
        packed: bool,
    ) -> Result<Self, Reason> {
        let request = FrontendReq::SET_INFLIGHT_FD;
        let needed = check(request, spec, model, packed)?;
        if spec.len < needed {
            return Err(Reason::Inflight { request, what: "the buffer is too short" });
        }
        let mapping = Mapping::new(file.as_fd(), spec.offset, needed)?;
        Ok(Self {
            mapping: Arc::new(mapping),
            queues: usize::from(spec.queues),
            ring_size: spec.ring_size,
            packed,
        })
    }

    /// Returns whether the buffer's file shrank.
    pub(super) fn is_poisoned(&self) -> bool {
        self.mapping.is_poisoned()
    }

    /// Returns the record of queue `index`, if the buffer contains it.
    pub(super) fn of(
        &self,
        index: usize,
        size: u16,
        packed: bool,
    ) -> Option<Result<Inflight, RingError>> {
        if index >= self.queues {
            return None;
        }
        if size > self.ring_size || packed != self.packed {
            return Some(Err(RingError::Inflight));
        }
        let bytes = part(self.ring_size, packed);
        let view = View::new(Arc::clone(&self.mapping), index.saturating_mul(bytes), bytes);
        let take = if packed { Inflight::packed } else { Inflight::new };
        Some(view.map_err(RingError::Lost).and_then(|view| take(view, size)))
    }
}
