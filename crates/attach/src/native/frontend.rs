//! A native device: one memory file with rings and buffers, and the conversation that grants them.
//!
//! It sets up any device type from a [`DevicePlan`]; [`super::NetPort`] and [`super::VsockPort`]
//! define the content of buffers. The memory file is sealed, has the rings and one buffer for each
//! descriptor, and is granted as a single region. [`Frontend::wait`] sleeps until a queue has work,
//! and reconnects if the backend is gone ([`super::Reconnect`]).
//!
//! Required of a backend is VIRTIO_F_VERSION_1 alone; with `reconnect` also a record of chains in
//! flight, and, of each successor, all features that the first backend negotiated. A reconnection
//! keeps rings, buffers and the configuration space that was read at the attach. The new backend
//! serves the chains that the old one had not used: frames that the old one had forwarded may be
//! forwarded twice, and the caller gets each buffer back once.
//!
//! The size of the memory is fixed at the attach, by the ring sizes and buffers of the plan; a plan
//! that the backend or the kernel refuses is a [`NativeError`] and leaves nothing attached. Tests,
//! benchmarks and examples call it through the two ports. The module calls no callback and has no
//! thread: the caller polls or waits. It interprets no features but those of the ring. Not
//! thread-safe.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use causeway_memory::limits::PAGE_BYTES;
use causeway_memory::{Map, Mapping, Region};
use causeway_ring::driver::{Driver, Layout};
use causeway_ring::{Doorbell, Notifier};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::addresses::{GUEST_BASE, USER_BASE, addresses};
use super::client::Client;
use super::driver_queue::DriverQueue;
use super::error::NativeError;
use super::reconnect::{Reconnect, ReconnectState};
use crate::vhost_user::FrontendReq;
use crate::vhost_user::message::{RegionSpec, emit_table};
use crate::vhost_user::server::features;

/// Entries of each descriptor's indirect table.
const TABLE_ENTRIES: u16 = 64;

/// The direction of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The backend writes the buffers.
    Receive,
    /// The backend reads the buffers.
    Send,
}

/// One queue of a device.
#[derive(Debug, Clone, Copy)]
pub struct QueuePlan {
    /// The direction.
    pub role: Role,
    /// Ring size and number of buffers; a power of two, or the attach fails.
    pub size: u16,
    /// Bytes of each buffer.
    pub slot_bytes: u32,
}

/// A device to attach.
#[derive(Debug, Clone)]
pub struct DevicePlan {
    /// Requested features besides those of the ring; features that are not offered are left out.
    /// Rings are packed if VIRTIO_F_RING_PACKED is included.
    pub features: u64,
    /// The queues, in the order of the device type.
    pub queues: Vec<QueuePlan>,
    /// Bytes of the configuration space to read.
    pub config_bytes: u32,
}

/// An attached device: memory, queues with buffers, and the conversation that keeps it attached.
#[derive(Debug)]
pub struct Frontend {
    /// The conversation with the backend.
    client: Client,
    /// The memory file, mapped in this process.
    map: Arc<Map>,
    /// The queues, in the order of the plan.
    queues: Vec<DriverQueue>,
    /// Negotiated features.
    features: u64,
    /// The configuration space at the attach.
    config: Vec<u8>,
    /// The granted region and its file, for another grant.
    granted: (RegionSpec, OwnedFd),
    /// State for a reconnection; `None` if the port ends with its first backend.
    reconnect_state: Option<ReconnectState>,
}

/// Creates a non-blocking eventfd.
fn event() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Rounds up to a multiple of a page.
fn page_up(at: u64) -> u64 {
    at.checked_next_multiple_of(PAGE_BYTES as u64).unwrap_or(u64::MAX)
}

/// Returns the layout and first buffer of each queue, and the total length in bytes.
fn arrange_memory(queues: &[QueuePlan]) -> (Vec<(Layout, u64)>, u64) {
    let mut at = GUEST_BASE;
    let mut places = Vec::new();
    for queue in queues {
        let table_entries = if queue.role == Role::Send { TABLE_ENTRIES } else { 0 };
        let layout = Layout { base: at, size: queue.size, table_entries };
        let slots = page_up(layout.end());
        places.push((layout, slots));
        let bytes = u64::from(queue.slot_bytes).saturating_mul(u64::from(queue.size));
        at = page_up(slots.saturating_add(bytes));
    }
    (places, at.saturating_sub(GUEST_BASE))
}

impl Frontend {
    /// Attaches the device `plan` over `client`, and posts its receive buffers.
    ///
    /// # Errors
    /// Returns an error if the backend lacks VIRTIO_F_VERSION_1, if a ring size is invalid, if the
    /// memory cannot be created, or if the conversation fails.
    pub fn attach(client: Client, plan: &DevicePlan) -> Result<Self, NativeError> {
        Self::attach_for(client, plan, None)
    }

    /// As [`Self::attach`]. With `reconnect`, the port survives a restart of its backend; its rings
    /// are then split, even if the plan requests packed rings.
    ///
    /// # Errors
    /// As [`Self::attach`]; with `reconnect` also if the backend keeps no record of chains in
    /// flight.
    pub fn attach_for(
        mut client: Client,
        plan: &DevicePlan,
        reconnect: Option<&Reconnect>,
    ) -> Result<Self, NativeError> {
        let mut features = (plan.features | features::RING) & client.offered();
        if reconnect.is_some() {
            features &= !features::RING_PACKED;
        }
        if features & features::VERSION_1 == 0 {
            return Err(NativeError::Lacking("VIRTIO_F_VERSION_1"));
        }
        let config = match plan.config_bytes {
            0 => None,
            bytes => client.config(bytes)?,
        };
        client.set_features(features)?;
        let (places, len) = arrange_memory(&plan.queues);
        let file = causeway_memory::create("causeway-port", len)?;
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, len)?);
        let map = Map::new(vec![Region { guest: GUEST_BASE, user: USER_BASE, mapping }])?;
        let region = RegionSpec { guest: GUEST_BASE, len, user: USER_BASE, offset: 0 };
        client.grant(&region, file.as_fd())?;
        let granted = (region, rustix::io::fcntl_dupfd_cloexec(&file, 0)?);
        let largest = plan.queues.iter().map(|queue| queue.size).max().unwrap_or(1);
        let shape = (plan.queues.len(), largest);
        let reconnect_state = reconnect
            .map(|reconnect| ReconnectState::prepare(&mut client, reconnect, file, region, shape))
            .transpose()?;
        let mut queues = Vec::new();
        for (index, (queue, (layout, slots))) in (0_u32..).zip(plan.queues.iter().zip(places)) {
            let mut started =
                start_queue(&mut client, index, queue, layout, slots, features, &map)?;
            if queue.role == Role::Receive {
                started.post_all()?;
            }
            queues.push(started);
        }
        client.driver_ok()?;
        let config = config.unwrap_or_default();
        Ok(Self { client, map: Arc::new(map), queues, features, config, granted, reconnect_state })
    }

    /// Stops queue `index`, as a paused VM does. Returns the position for [`Self::resume`].
    ///
    /// # Errors
    /// Returns an error if the conversation fails, which a queue that does not exist ends as well.
    pub fn pause(&mut self, index: usize) -> Result<u16, NativeError> {
        self.client.stop_queue(number(index)?)
    }

    /// Starts queue `index` again at position `base`, with its present ring.
    ///
    /// # Errors
    /// Returns an error if the queue does not exist, or if the conversation fails.
    pub fn resume(&mut self, index: usize, base: u16) -> Result<(), NativeError> {
        let queue = self.queues.get(index).ok_or(NativeError::Options("no such queue"))?;
        let layout = queue.layout();
        let addresses = addresses(number(index)?, layout);
        let (kick, call) = queue.events();
        self.client.start_queue(layout.size, base, &addresses, kick, call)
    }

    /// Grants all memory again by a whole table, as a VMM does after a change of its memory layout.
    ///
    /// # Errors
    /// Returns an error if the conversation fails.
    pub fn grant_again(&mut self) -> Result<(), NativeError> {
        let (region, file) = &self.granted;
        let table = emit_table(&[*region]);
        self.client.tell(FrontendReq::SET_MEM_TABLE, &table, &[file.as_fd()])
    }

    /// Returns the negotiated features.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Returns the configuration space; empty if the backend has none.
    pub fn config(&self) -> &[u8] {
        &self.config
    }

    /// Returns the conversation.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Returns the device's memory and queue `index`.
    ///
    /// # Errors
    /// Returns an error if the queue does not exist.
    pub fn driver_queue(&mut self, index: usize) -> Result<(&Map, &mut DriverQueue), NativeError> {
        let queue = self.queues.get_mut(index).ok_or(NativeError::Options("no such queue"))?;
        Ok((&self.map, queue))
    }

    /// Returns whether the backend has closed the connection.
    pub fn is_gone(&self) -> bool {
        self.client.is_gone()
    }

    /// Reconnects to the backend's successor if the backend is gone and the port may reconnect.
    /// Returns whether it did. Blocks for the time of [`Reconnect`] and the last try at most. For
    /// callers that spin; [`Self::wait`] reconnects by itself.
    ///
    /// # Errors
    /// Returns an error if no successor appears in the time of [`Reconnect`], or if it lacks a
    /// feature that was negotiated before.
    pub fn reconnect(&mut self) -> Result<bool, NativeError> {
        if self.reconnect_state.is_none() || !self.client.is_gone() {
            return Ok(false);
        }
        let Some(reconnect_state) = &self.reconnect_state else { return Ok(false) };
        self.client = reconnect_state.reconnect(self.features, &self.queues, &self.map)?;
        Ok(true)
    }

    /// Waits until one of the `receivers` has a written buffer or one of the `senders` has room.
    /// Returns `false` after `timeout` or if a signal interrupts the wait, and `true` after a
    /// reconnection, for which it may block longer. `true` is a hint: a queue may still have
    /// nothing.
    ///
    /// # Errors
    /// Returns an error if the backend is gone and the port cannot reconnect, if a ring is broken,
    /// or if a queue does not exist.
    pub fn wait(
        &mut self,
        receivers: &[usize],
        senders: &[usize],
        timeout: Option<Duration>,
    ) -> Result<bool, NativeError> {
        let watched =
            || receivers.iter().map(|&i| (i, false)).chain(senders.iter().map(|&i| (i, true)));
        let mut there = false;
        for (index, sender) in watched() {
            let (_, queue) = self.driver_queue(index)?;
            there |= queue.arm(sender)?;
        }
        if !there {
            there = match self.sleep(watched().map(|(index, _)| index), timeout) {
                Err(NativeError::Gone) if self.reconnect_state.is_some() => self.reconnect()?,
                slept => slept?,
            };
        }
        for (index, _) in watched() {
            self.driver_queue(index)?.1.disarm()?;
        }
        Ok(there)
    }

    /// Waits for a notification of one of `queues`. Returns `false` after `timeout`.
    fn sleep(
        &self,
        queues: impl Iterator<Item = usize>,
        timeout: Option<Duration>,
    ) -> Result<bool, NativeError> {
        let calls = queues.filter_map(|index| self.queues.get(index)).map(DriverQueue::call);
        let mut fds: Vec<_> = calls.map(|call| PollFd::new(call, PollFlags::IN)).collect();
        fds.push(PollFd::new(&self.client, PollFlags::IN));
        let timeout = timeout.map(Timespec::try_from).transpose().map_err(|_| Errno::INVAL)?;
        let ready = match poll(&mut fds, timeout.as_ref()) {
            Ok(ready) => ready > 0,
            Err(Errno::INTR) => false,
            Err(errno) => return Err(errno.into()),
        };
        match fds.last() {
            Some(client) if !client.revents().is_empty() => Err(NativeError::Gone),
            _ => Ok(ready),
        }
    }
}

/// Creates the ring of one queue, and starts the queue at the backend.
fn start_queue(
    client: &mut Client,
    index: u32,
    queue: &QueuePlan,
    layout: Layout,
    slots: u64,
    features: u64,
    map: &Map,
) -> Result<DriverQueue, NativeError> {
    let event_index = features & features::EVENT_IDX != 0;
    let indirect = features & features::INDIRECT_DESC != 0;
    let make = if features & features::RING_PACKED == 0 { Driver::new } else { Driver::packed };
    let mut driver = make(layout, event_index, indirect, map)?;
    driver.disarm()?;
    let (kick, call) = (event()?, event()?);
    let addresses = addresses(index, &layout);
    client.start_queue(queue.size, driver.base(), &addresses, kick.as_fd(), call.as_fd())?;
    let (kick, call) = (Notifier::new(kick)?, Doorbell::new(call)?);
    Ok(DriverQueue::new(driver, kick, call, slots, queue.slot_bytes))
}

/// Returns a queue number as the protocol encodes it.
fn number(index: usize) -> Result<u32, NativeError> {
    u32::try_from(index).map_err(|_| NativeError::Options("no such queue"))
}
