//! A flag that processes raise for their service.
//!
//! After each call the service disconnects the processes that are to end, and watches sockets with
//! unsent messages. Most calls pass messages between rings and concern no process, so the service
//! looks at its processes only if one of them raised the flag (`mx::client`: a message was sent, a
//! socket could not be watched, or the process is to end). Raising the flag again before the
//! service looks has no further effect. Used on the dispatcher's thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The flag of a service, shared by its processes.
#[derive(Debug, Clone, Default)]
pub struct Attention(Arc<AtomicBool>);

impl Attention {
    /// Raises the flag.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the flag was raised since the last call, and lowers it.
    pub fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}
