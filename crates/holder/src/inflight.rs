//! The record of chains in flight, kept here for frontends that keep none.
//!
//! causewayd makes the memory file and writes in it which chains it has taken;
//! the holder only keeps the file, and hands it to the next causewayd. The part
//! of a queue is cleared when its driver begins anew, as a frontend does by
//! asking for a new file.

use std::io;

use causeway_attach::vhost_user::message::InflightSpec;
use causeway_host::ReceivedFd;
use rustix::fs::FallocateFlags;

/// The file and what is in it.
#[derive(Debug)]
pub struct Inflight {
    /// Its description.
    pub spec: InflightSpec,
    /// The memory file.
    pub file: ReceivedFd,
    /// The holder asked for it, not the frontend.
    ours: bool,
    /// For packed rings; the parts differ in length.
    packed: bool,
}

impl Inflight {
    /// One that the frontend keeps.
    pub fn theirs(spec: InflightSpec, file: ReceivedFd) -> Self {
        Self { spec, file, ours: false, packed: false }
    }

    /// One that the holder asked for.
    pub fn ours(spec: InflightSpec, file: ReceivedFd, packed: bool) -> Self {
        Self { spec, file, ours: true, packed }
    }

    /// Whether it does for rings that are, or are not, packed.
    pub fn suits(&self, packed: bool) -> bool {
        !self.ours || self.packed == packed
    }

    /// Clears the part of queue `index`. What a frontend keeps is the frontend's affair.
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
