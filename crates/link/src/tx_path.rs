//! The TX path of a tunnel: session, peer address and datagram length for the threads that send.
//!
//! The tunnel publishes a new [`Path`] when the session, the peer's address or the datagram length
//! changes. A sender compares one version number before each frame and takes the lock only when the
//! number has changed. Any number of threads may read (in the daemon, the dispatchers of the groups
//! that send); only the thread of the tunnel writes (the dispatcher of the shard of links). A
//! sender may use the old path for frames that it has begun to pack: the peer accepts the replaced
//! session for [`SESSION_GRACE_NS`](crate::limits::SESSION_GRACE_NS) (10 s).
//!
//! No frame passes through this module: [`crate::pack::Packer`] reads the path and seals by itself.
//! The module neither wakes senders when a path appears nor queues frames while there is none (no
//! session, or no address of the peer); the packer refuses such frames
//! ([`crate::pack::PushError::NoPath`]). A tunnel that is down, but has a session, still has a
//! path.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::session::TunnelSession;

/// Parameters for sending to a peer, valid until the version changes.
#[derive(Debug, Clone)]
pub struct Path {
    /// The session that seals.
    pub session: Arc<TunnelSession>,
    /// The peer's address.
    pub to: SocketAddr,
    /// Longest datagram that reaches the peer, in bytes of UDP payload.
    pub datagram: usize,
}

/// TX path of one tunnel, shared by all threads that send on it.
#[derive(Debug, Default)]
pub struct TunnelTxPath {
    /// Changes with each change of the path.
    version: AtomicU64,
    /// Number of the next fragmented frame; wraps at 2^32.
    frames: AtomicU32,
    /// Whether loss is so high that senders cut TCP segments.
    lossy: AtomicBool,
    /// The path; `None` without a session or a peer address.
    path: Mutex<Option<Arc<Path>>>,
}

impl TunnelTxPath {
    /// Returns the version, which changes with every change of the path.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the path; `None` while the tunnel has no session or no peer address.
    pub fn path(&self) -> Option<Arc<Path>> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether senders have to cut TCP segments: the loss of any datagram of a fragmented
    /// segment loses the whole segment.
    #[inline]
    pub fn is_lossy(&self) -> bool {
        self.lossy.load(Ordering::Relaxed)
    }

    /// Sets whether senders have to cut TCP segments.
    pub fn set_lossy(&self, lossy: bool) {
        self.lossy.store(lossy, Ordering::Relaxed);
    }

    /// Returns a number for a frame that is sent in fragments, unique among the tunnel's senders
    /// until 2^32 frames were numbered.
    pub fn next_frame(&self) -> u32 {
        self.frames.fetch_add(1, Ordering::Relaxed)
    }

    /// Publishes a path, or its absence.
    pub fn set(&self, path: Option<Path>) {
        let mut held = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        *held = path.map(Arc::new);
        self.version.fetch_add(1, Ordering::Release);
    }
}
