//! Where the threads that send find a tunnel's session of the day.
//!
//! The tunnel puts a new [`Path`] here when the session, the peer's address or the length of
//! datagrams changes. A sender looks at one number before each batch, and takes the lock only
//! when it has changed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::session::Session;

/// How to send to a peer, for now.
#[derive(Debug, Clone)]
pub struct Path {
    /// What seals.
    pub session: Arc<Session>,
    /// The peer's address.
    pub to: SocketAddr,
    /// Length of the longest datagram that gets there, in bytes of UDP payload.
    pub datagram: usize,
}

/// The way out of one tunnel, shared by all who send on it.
#[derive(Debug, Default)]
pub struct Outlet {
    version: AtomicU64,
    frames: AtomicU32,
    /// So much is lost that segments are cut before they leave.
    lossy: AtomicBool,
    path: Mutex<Option<Arc<Path>>>,
}

impl Outlet {
    /// Changes whenever the path does.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The path; None while the tunnel has no session or no address.
    pub fn path(&self) -> Option<Arc<Path>> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether segments of TCP are to be cut before they leave: of one that goes in many datagrams all
    /// is lost with one of them.
    #[inline]
    pub fn is_lossy(&self) -> bool {
        self.lossy.load(Ordering::Relaxed)
    }

    /// Says whether segments are to be cut.
    pub fn set_lossy(&self, lossy: bool) {
        self.lossy.store(lossy, Ordering::Relaxed);
    }

    /// A number for a frame that goes in pieces.
    pub fn next_frame(&self) -> u32 {
        self.frames.fetch_add(1, Ordering::Relaxed)
    }

    /// Changes the path.
    pub fn set(&self, path: Option<Path>) {
        let mut held = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        *held = path.map(Arc::new);
        self.version.fetch_add(1, Ordering::Release);
    }
}
