//! The TX path of a tunnel: session, peer address and datagram length for the threads that send.
//!
//! The tunnel publishes a new [`Path`] when the session, the peer's address or the datagram length
//! changes. A sender compares one version number before each frame and takes the lock only when the
//! number has changed. Any number of threads may read (in the daemon, the dispatchers of the groups
//! that send); only the thread of the tunnel writes (the dispatcher of the shard of links). A
//! sender may use the old path for frames that it has begun to pack: the peer accepts the replaced
//! session for [`SESSION_GRACE_NS`](crate::limits::SESSION_GRACE_NS) (10 s).
//!
//! No frame passes through this module while there is a path: [`crate::pack::Packer`] reads the
//! path and seals by itself. The packer refuses frames without a path (no session, or no address of
//! the peer; [`crate::pack::PushError::NoPath`]). The module does not wake senders when a path
//! appears. A tunnel that is down, but has a session, still has a path.
//!
//! An on-demand tunnel ([`crate::tunnel::OnDemand`]) has no path while it is dormant. Its senders
//! leave their first frames here ([`TunnelTxPath::wait`]), at most [`WAITING_FRAMES_MAX`] (64) and
//! [`WAITING_BYTES_MAX`] (128 KiB), and request a handshake; the tunnel sends the frames with its
//! new session, or drops and counts them if the peer does not answer. Senders also note their
//! traffic here ([`TunnelTxPath::note_traffic`]), because the tunnel does not see their frames.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_wire::virtio_net::Header as Metadata;

use crate::limits::{WAITING_BYTES_ALL, WAITING_BYTES_MAX, WAITING_FRAMES_MAX};
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

/// A frame, or a datagram of the stream protocol, that waits for the session of a dormant tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingFrame {
    /// The virtual network.
    pub vni: u32,
    /// Number of daemons that forwarded the frame so far, and its flag `FLOODED`.
    pub hops: u8,
    /// The frame's offloads.
    pub metadata: Metadata,
    /// Whether it is a datagram of the stream protocol; such a datagram has no hops and no offloads.
    pub is_segment: bool,
    /// The bytes, with the flood sequence number behind them if the flag is set.
    pub bytes: Vec<u8>,
}

/// Why a frame does not wait for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitRefusal {
    /// The tunnel has a path meanwhile: the sender pushes the frame again.
    Open,
    /// The tunnel is not on demand, or its peer does not answer.
    Down,
    /// Too many frames or bytes wait.
    Full,
}

/// The path, and the frames that wait for one.
#[derive(Debug, Default)]
struct Shared {
    /// `None` without a session or a peer address.
    path: Option<Arc<Path>>,
    /// In order.
    waiting: Vec<WaitingFrame>,
    /// Their bytes.
    bytes: usize,
}

/// The part of a TX path that only an on-demand tunnel has.
#[derive(Debug)]
struct DemandTxPath {
    /// A sender requested a handshake, and none was completed or given up since.
    is_requested: AtomicBool,
    /// A sender sent traffic since the tunnel looked.
    has_traffic: AtomicBool,
    /// The peer does not answer: frames are refused.
    is_unanswered: AtomicBool,
    /// Waiting frames that were dropped because the peer did not answer.
    expired: AtomicU64,
    /// Bytes that wait at all tunnels of the socket.
    all_bytes: Arc<AtomicUsize>,
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
    shared: Mutex<Shared>,
    /// `None` for a tunnel that is always awake.
    demand: Option<DemandTxPath>,
}

impl TunnelTxPath {
    /// Returns the TX path of an on-demand tunnel. `all_bytes` counts the bytes that wait at all
    /// tunnels of the socket.
    pub fn on_demand(all_bytes: Arc<AtomicUsize>) -> Self {
        let demand = DemandTxPath {
            is_requested: AtomicBool::new(false),
            has_traffic: AtomicBool::new(false),
            is_unanswered: AtomicBool::new(false),
            expired: AtomicU64::new(0),
            all_bytes,
        };
        Self {
            version: AtomicU64::default(),
            frames: AtomicU32::default(),
            lossy: AtomicBool::default(),
            shared: Mutex::default(),
            demand: Some(demand),
        }
    }

    /// Returns the version, which changes with every change of the path.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the path; `None` while the tunnel has no session or no peer address.
    pub fn path(&self) -> Option<Arc<Path>> {
        self.shared().path.clone()
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

    /// Publishes a path, or its absence. Senders may then request a handshake again.
    pub fn set(&self, path: Option<Path>) {
        self.shared().path = path.map(Arc::new);
        if let Some(demand) = &self.demand {
            demand.is_requested.store(false, Ordering::Release);
        }
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Returns whether the tunnel may be dormant.
    #[inline]
    pub const fn is_on_demand(&self) -> bool {
        self.demand.is_some()
    }

    /// Notes traffic that keeps the tunnel awake. No effect on a tunnel that is always awake.
    #[inline]
    pub fn note_traffic(&self) {
        // A load first: the cache line stays shared while the flag is set.
        if let Some(demand) = &self.demand
            && !demand.has_traffic.load(Ordering::Relaxed)
        {
            demand.has_traffic.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether a sender noted traffic since the last call.
    pub fn take_traffic(&self) -> bool {
        let demand = self.demand.as_ref();
        demand.is_some_and(|demand| demand.has_traffic.swap(false, Ordering::Relaxed))
    }

    /// Keeps a frame until the tunnel has a session.
    ///
    /// # Errors
    /// [`WaitRefusal`]; the frame is lost.
    pub fn wait(&self, frame: WaitingFrame) -> Result<(), WaitRefusal> {
        let Some(demand) = &self.demand else { return Err(WaitRefusal::Down) };
        let mut shared = self.shared();
        if shared.path.is_some() {
            return Err(WaitRefusal::Open);
        }
        if demand.is_unanswered.load(Ordering::Relaxed) {
            return Err(WaitRefusal::Down);
        }
        let len = frame.bytes.len();
        let bytes = shared.bytes.saturating_add(len);
        let all = demand.all_bytes.load(Ordering::Relaxed).saturating_add(len);
        let is_full = shared.waiting.len() >= WAITING_FRAMES_MAX || bytes > WAITING_BYTES_MAX;
        if is_full || all > WAITING_BYTES_ALL {
            return Err(WaitRefusal::Full);
        }
        demand.all_bytes.fetch_add(len, Ordering::Relaxed);
        shared.bytes = bytes;
        shared.waiting.push(frame);
        Ok(())
    }

    /// Returns true if the caller has to request a handshake from the thread of the tunnel, because
    /// no sender has done so yet.
    pub fn begin_request(&self) -> bool {
        let demand = self.demand.as_ref();
        demand.is_some_and(|demand| !demand.is_requested.swap(true, Ordering::AcqRel))
    }

    /// Undoes [`Self::begin_request`]: the request could not be sent.
    pub fn cancel_request(&self) {
        if let Some(demand) = &self.demand {
            demand.is_requested.store(false, Ordering::Release);
        }
    }

    /// Returns whether frames wait.
    pub fn has_waiting(&self) -> bool {
        self.demand.is_some() && !self.shared().waiting.is_empty()
    }

    /// Removes the frames that wait.
    pub fn take_waiting(&self) -> Vec<WaitingFrame> {
        let Some(demand) = &self.demand else { return Vec::new() };
        let mut shared = self.shared();
        let bytes = std::mem::take(&mut shared.bytes);
        demand.all_bytes.fetch_sub(bytes, Ordering::Relaxed);
        std::mem::take(&mut shared.waiting)
    }

    /// Sets whether the peer does not answer. If so, drops the frames that wait, and refuses
    /// further ones.
    pub fn set_unanswered(&self, is_unanswered: bool) {
        let Some(demand) = &self.demand else { return };
        demand.is_unanswered.store(is_unanswered, Ordering::Relaxed);
        if is_unanswered {
            let count = self.take_waiting().len() as u64;
            demand.expired.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Counts waiting frames that were lost otherwise.
    pub fn count_expired(&self, count: u64) {
        if let Some(demand) = &self.demand {
            demand.expired.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Returns the number of frames that wait, and of those that were dropped because the peer did
    /// not answer.
    pub fn waiting(&self) -> (usize, u64) {
        let expired = self.demand.as_ref().map_or(0, |d| d.expired.load(Ordering::Relaxed));
        let waiting = if self.demand.is_some() { self.shared().waiting.len() } else { 0 };
        (waiting, expired)
    }
}

impl Drop for TunnelTxPath {
    fn drop(&mut self) {
        self.take_waiting();
    }
}
