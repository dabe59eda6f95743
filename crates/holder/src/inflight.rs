//! Inflight regions (VHOST_USER_GET_INFLIGHT_FD), kept for frontends that keep none.
//!
//! An inflight region is a memory file in which causewayd records the chains that it has popped and
//! not completed. causewayd creates the file; the holder keeps it and passes it to the next
//! causewayd, which completes each such chain exactly once. The holder clears a queue's part when
//! the driver restarts the queue, as a frontend does by requesting a new region. It does not
//! interpret the entries.
//!
//! [`crate::relay`] requests a region, in its thread, before the first queue starts, and
//! [`crate::record`] keeps it for the replay. A region that the frontend keeps itself is replayed,
//! and never cleared or replaced here. The region is lost with the holder or the frontend's
//! connection. If the driver changed the layout of its rings (split or packed), the holder requests
//! a new region while no queue runs. If a running causewayd returns no valid region, or a clear
//! fails, the frontend is disconnected, because chains would be lost or processed a second time.

use std::io;

use causeway_attach::vhost_user::message::InflightSpec;
use causeway_host::ReceivedFd;
use rustix::fs::FallocateFlags;

/// An inflight region.
#[derive(Debug)]
pub struct Inflight {
    /// Length, offset, queues and ring size, as in the message.
    pub spec: InflightSpec,
    /// The memory file.
    pub file: ReceivedFd,
    /// Whether the holder requested it, rather than the frontend.
    ours: bool,
    /// Whether it is for packed rings, whose parts have another length.
    packed: bool,
}

impl Inflight {
    /// Returns a region that the frontend keeps.
    pub fn theirs(spec: InflightSpec, file: ReceivedFd) -> Self {
        Self { spec, file, ours: false, packed: false }
    }

    /// Returns a region that the holder requested.
    pub fn ours(spec: InflightSpec, file: ReceivedFd, packed: bool) -> Self {
        Self { spec, file, ours: true, packed }
    }

    /// Returns whether the region fits packed rings (`packed`) or split rings.
    pub fn suits(&self, packed: bool) -> bool {
        !self.ours || self.packed == packed
    }

    /// Clears the part of queue `index`. Does nothing for a region that the frontend keeps, or a
    /// queue that the region does not have.
    ///
    /// # Errors
    /// fallocate(2) failed.
    pub fn clear(&self, index: u32) -> io::Result<()> {
        let Some(part) = self.spec.len.checked_div(u64::from(self.spec.queues)) else {
            return Ok(());
        };
        if !self.ours || index >= u32::from(self.spec.queues) {
            return Ok(());
        }
        let at = self.spec.offset.saturating_add(part.saturating_mul(u64::from(index)));
        // A hole reads as zeroes and takes no memory.
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, hole, at, part)?)
    }
}
