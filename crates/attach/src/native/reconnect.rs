//! Reconnection of a native port to a new backend: memory and rings stay, the conversation starts
//! again.
//!
//! [`super::Frontend`] prepares the state when it attaches, and reconnects when the backend is
//! gone. The port and its first backend agree on a record of chains in flight, so that a new
//! backend finds the chains that the last backend had popped. Rings continue at the used index that
//! the last backend left.
//!
//! A call, in the thread of the application, tries every [`CONNECT_PAUSE_MS`] (10 ms) until the
//! time of [`Reconnect`] is over, and blocks meanwhile; then it returns the error of the last try.
//! A successor that lacks a negotiated feature, refuses a request, or leaves one without a reply
//! for 5 s ends the tries at once with an error. A try that has begun is completed, also beyond the
//! time. Packed rings cannot be continued, so the port uses split rings. Chains in flight stay with
//! the backend: the new one serves them from the record, those that the old one had half served for
//! the second time.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_memory::Map;

use super::addresses::addresses;
use super::client::Client;
use super::driver_queue::DriverQueue;
use super::error::NativeError;
use crate::limits::CONNECT_PAUSE_MS;
use crate::vhost_user::fault::Reason;
use crate::vhost_user::message::{InflightSpec, RegionSpec};

/// Offset of the index in a used ring (virtio 1.3, 2.7.8).
const USED_INDEX: usize = 2;

/// How a port finds its backend again.
#[derive(Debug, Clone)]
pub struct Reconnect {
    /// Path of the port's socket.
    path: PathBuf,
    /// Time after which attempts end.
    within: Duration,
}

impl Reconnect {
    /// Reconnects to the socket at `path`, with attempts for `within`.
    pub fn new(path: &Path, within: Duration) -> Self {
        Self { path: path.to_owned(), within }
    }
}

/// The state that a new backend needs.
#[derive(Debug)]
pub(super) struct ReconnectState {
    /// Path and time of attempts.
    reconnect: Reconnect,
    /// The port's memory file.
    file: OwnedFd,
    /// The grant of the memory file.
    region: RegionSpec,
    /// Shape and file of the record of chains in flight.
    inflight: (InflightSpec, OwnedFd),
}

impl ReconnectState {
    /// Agrees with the first backend on a record of chains in flight.
    pub(super) fn prepare(
        client: &mut Client,
        reconnect: &Reconnect,
        file: OwnedFd,
        region: RegionSpec,
        (queues, ring_size): (usize, u16),
    ) -> Result<Self, NativeError> {
        let queues = u16::try_from(queues).map_err(|_| NativeError::Options("too many queues"))?;
        let spec = InflightSpec { len: 0, offset: 0, queues, ring_size, padded: false };
        let inflight = client.make_inflight(&spec)?;
        client.keep_inflight(&inflight.0, inflight.1.as_fd())?;
        Ok(Self { reconnect: reconnect.clone(), file, region, inflight })
    }

    /// Attaches the port to a new backend in place of the last backend.
    pub(super) fn reconnect(
        &self,
        features: u64,
        queues: &[DriverQueue],
        map: &Map,
    ) -> Result<Client, NativeError> {
        let since = Instant::now();
        loop {
            match self.attach(features, queues, map) {
                Err(
                    NativeError::Connect { .. }
                    | NativeError::Gone
                    | NativeError::Conversation(Reason::Socket(_) | Reason::Truncated),
                ) if since.elapsed() < self.reconnect.within => {
                    std::thread::sleep(Duration::from_millis(CONNECT_PAUSE_MS));
                }
                result => return result,
            }
        }
    }

    /// Tries once to attach to a new backend.
    fn attach(
        &self,
        features: u64,
        queues: &[DriverQueue],
        map: &Map,
    ) -> Result<Client, NativeError> {
        let mut client = Client::connect(&self.reconnect.path)?;
        if features & !client.offered() != 0 {
            return Err(NativeError::Lacking("the features that the port was attached with"));
        }
        client.set_features(features)?;
        client.grant(&self.region, self.file.as_fd())?;
        client.keep_inflight(&self.inflight.0, self.inflight.1.as_fd())?;
        for (index, queue) in (0_u32..).zip(queues) {
            let layout = queue.layout();
            let (used, len) = layout.used();
            let base = map.view(used, len)?.load(USED_INDEX, Ordering::Acquire)?;
            let (kick, call) = queue.events();
            client.start_queue(layout.size, base, &addresses(index, layout), kick, call)?;
        }
        client.driver_ok()?;
        Ok(client)
    }
}
