//! Results of serving a queue or a source, by which a shard decides when to serve it again.
//!
//! [`Service::serve`](crate::Service::serve) and
//! [`Service::serve_source`](crate::Service::serve_source) return them to [`crate::shard`], in the
//! dispatcher's thread. The values only report: the rate of chains and the mode
//! ([`crate::dispatch_mode`]) decide whether an empty queue is polled. A service that returns
//! [`Progress::Worked`] without work is called again in every turn, and its dispatcher does not
//! sleep. A queue for which it returns [`Progress::Parked`] without having armed the doorbell is
//! not served again until [`Context::wake`](crate::Context::wake).

/// Result of serving a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The queue had work, and may have more: it is served again soon.
    Worked,
    /// The queue was empty: the shard polls it while [`Context::polls`](crate::Context::polls)
    /// returns true, then arms its doorbell and parks it. A source is armed by its service
    /// ([`Service::serve_source`](crate::Service::serve_source)).
    Idle,
    /// The queue is not served again until the service calls
    /// [`Context::wake`](crate::Context::wake) or the guest rings. The fabric does not arm the
    /// doorbell: a service that expects the guest to ring has armed it.
    Parked,
}

/// Result of serving a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceProgress {
    /// As for a queue; a [`Progress::Parked`] source is served again when its file descriptor
    /// becomes ready, or after [`Context::wake_source`](crate::Context::wake_source).
    pub progress: Progress,
    /// Frames that the source yielded; their rate decides whether the source is polled or parked.
    pub count: u32,
}
