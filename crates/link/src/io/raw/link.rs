//! The receive side of a `raw` link on an interface, which may disappear and return.
//!
//! The shard of links calls [`RawLink::serve`] when the socket is readable or polled. Frames are
//! read from the receive ring, or by system calls without one ([`PacketReceiver`]), filtered by
//! destination address, collected in a `FrameBatch`, and passed to the group's mailbox. Frames to
//! other addresses, looped frames, runts, frames longer than the buffer or that the host had no
//! room to queue, and frames with offloads that virtio cannot express are dropped, each with a
//! counter.
//!
//! An error of the interface (ENETDOWN, ENODEV, ENXIO) closes socket and ring; [`RawLink::tick`]
//! opens the interface again every [`RAW_AGAIN_NS`] (1 s). Only the removal or downing of the
//! interface sets the link down, and learnt addresses are then forgotten; a lost carrier signal or
//! silent hosts do not. The interface is opened by name: another interface of the same name is used
//! as well. Each change is logged, the end of the interface at a limited rate.

use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use causeway_fabric::carrier::LinkStatus;
use causeway_fabric::socket_buffers::{set_receive_buffer, set_send_buffer};
use causeway_fabric::{Context, LogLimit, Progress, ServiceWatch, SourceProgress, cost};
use causeway_host::net::receiver::PacketReceiver;
use causeway_host::net::rx_ring::Slots;
use causeway_host::net::socket::{InterfaceError, PacketSocket};
use causeway_wire::ethernet::{self, is_group};

use super::super::inbox::LinkInbox;
use super::super::limits::{RAW_ADDRESS_NS, RAW_AGAIN_NS, RAW_FRAME_ROOM, SOCKET_BYTES};
use super::super::stats::Loss;
use super::batch::FrameBatch;
use super::carrier::RawCarrier;
use super::{SharedInterface, lock};

/// A `raw` link.
#[derive(Debug)]
pub struct RawLink {
    inbox: LinkInbox,
    /// Name of the interface.
    interface: String,
    /// Source value of the socket.
    source: u32,
    /// `None` while the interface is down or gone.
    socket: Option<(Arc<PacketSocket>, ServiceWatch)>,
    /// Receives the frames, by a ring where the kernel permits.
    inlet: PacketReceiver,
    /// State shared with the link's carriers.
    shared: SharedInterface,
    /// Addresses of running ports: a frame from one of them is a loop.
    ours: HashSet<u64>,
    /// Whether the group has joined the link, so that its state is reported.
    started: bool,
    /// When the interface is opened again.
    again_ns: Option<u64>,
    /// When the next ageing period begins.
    age_ns: u64,
    /// Why the link is down.
    reason: String,
    log: LogLimit,
    /// How often the link came up.
    pub ups: u64,
    /// Frames to addresses that are not ours.
    pub not_ours: u64,
    /// Frames from an address of a running port.
    pub looped: u64,
    /// Frames with offloads that virtio cannot express.
    unreadable: u64,
    /// Frames longer than a slot of the ring that the host had no room to queue.
    pub unqueued: u64,
}

impl RawLink {
    /// Opens a link on an interface, which may be down.
    ///
    /// # Errors
    /// The interface does not exist, or the daemon may not use it.
    pub fn open(
        cx: &Context<'_>,
        inbox: LinkInbox,
        interface: &str,
        source: u32,
    ) -> Result<Self, InterfaceError> {
        let mut link = Self {
            inbox,
            interface: interface.to_owned(),
            source,
            socket: None,
            inlet: PacketReceiver::default(),
            shared: SharedInterface::default(),
            ours: HashSet::new(),
            started: false,
            again_ns: None,
            age_ns: 0,
            reason: String::new(),
            log: LogLimit::default(),
            ups: 0,
            not_ours: 0,
            looped: 0,
            unreadable: 0,
            unqueued: 0,
        };
        match link.bind(cx) {
            Err(InterfaceError::Down(_)) | Ok(()) => Ok(link),
            Err(error) => Err(error),
        }
    }

    /// Returns the link's carrier.
    pub fn carrier(&self) -> RawCarrier {
        RawCarrier::new(self.shared.clone(), self.inbox.stats.clone())
    }

    /// Returns why the link is down; `None` if it is up.
    pub fn down_reason(&self) -> Option<&str> {
        self.socket.is_none().then_some(&*self.reason)
    }

    /// Returns the interface's MTU, in bytes.
    pub fn mtu(&self) -> Option<usize> {
        self.socket.as_ref().map(|(socket, _)| socket.mtu())
    }

    /// Returns the number of frames that the host could not pass on.
    pub fn unreadable(&self) -> u64 {
        self.unreadable.saturating_add(self.inlet.lost)
    }

    /// Adds the address of a running port, or removes it.
    pub fn announce(&mut self, mac: [u8; 6], here: bool) {
        let number = ethernet::number(mac);
        if here {
            self.ours.insert(number);
        } else {
            self.ours.remove(&number);
        }
    }

    /// Opens the socket and its receive ring, or schedules the next try.
    fn bind(&mut self, cx: &Context<'_>) -> Result<(), InterfaceError> {
        let opened = PacketSocket::open(&self.interface).and_then(|socket| {
            let watch = cx.watch_source(socket.as_fd(), self.source);
            let watch = watch.map_err(|e| InterfaceError::Host(self.interface.clone(), e))?;
            Ok((Arc::new(socket), watch))
        });
        match opened {
            Ok((socket, watch)) => {
                let ring = self.inlet.open(&socket, Slots::SHORT);
                set_receive_buffer(&socket, SOCKET_BYTES);
                set_send_buffer(&socket, SOCKET_BYTES);
                if let Err(error) = &ring {
                    let (link, interface) = (self.inbox.name.as_str(), self.interface.as_str());
                    log::warn!(link, interface, error:%; "cannot create a receive ring: each frame takes a system call");
                }
                self.again_ns = None;
                self.ups = self.ups.saturating_add(1);
                lock(&self.shared).socket = Some(socket.clone());
                self.socket = Some((socket, watch));
                Ok(())
            }
            Err(error) => {
                self.reason = error.to_string();
                self.again_ns = Some(cx.now_ns.saturating_add(RAW_AGAIN_NS));
                Err(error)
            }
        }
    }

    /// Reports to the group whether the interface is up, once the link was started.
    fn report_standing(&self) {
        if self.started {
            self.inbox.report_standing(LinkStatus {
                up: self.socket.is_some(),
                poor: false,
                is_dormant: false,
                rtt_ns: None,
            });
        }
    }

    /// Reports the link's state to its group from now on.
    pub fn start(&mut self) {
        self.started = true;
        self.report_standing();
    }

    /// Returns when [`Self::tick`] must be called.
    pub fn deadline(&self) -> u64 {
        self.again_ns.unwrap_or(u64::MAX).min(self.inlet.deadline())
    }

    /// Tries a missing interface again, and wakes the source when the receiver must be called.
    pub fn tick(&mut self, cx: &mut Context<'_>) {
        if self.inlet.deadline() <= cx.now_ns {
            cx.wake_source(self.source);
        }
        if self.again_ns.is_some_and(|at| at <= cx.now_ns) && self.bind(cx).is_ok() {
            self.report_standing();
            let (link, interface) = (self.inbox.name.as_str(), self.interface.as_str());
            log::info!(link, interface; "link is up");
            cx.wake_source(self.source);
        }
    }

    /// Closes the socket after an error of the interface, and reports the link as down.
    fn down(&mut self, now_ns: u64, error: &io::Error) {
        self.reason = format!("interface {}: {error}", self.interface);
        self.socket = None;
        self.inlet.close();
        lock(&self.shared).close();
        self.again_ns = Some(now_ns.saturating_add(RAW_AGAIN_NS));
        self.report_standing();
        if let Some(more) = self.log.admit(now_ns) {
            let (link, reason) = (self.inbox.name.as_str(), self.reason.as_str());
            log::warn!(link, reason, suppressed = more; "link is down");
        }
    }

    /// Receives about `budget` frames, until the turn's time is over. `polled`: whether the call is
    /// a poll, or follows a readiness event.
    pub fn serve(&mut self, cx: &mut Context<'_>, budget: usize, polled: bool) -> SourceProgress {
        let now_ns = cx.now_ns;
        let Some(socket) = self.socket.as_ref().map(|(socket, _)| socket.clone()) else {
            return SourceProgress { progress: Progress::Parked, count: 0 };
        };
        if now_ns >= self.age_ns {
            self.age_ns = now_ns.saturating_add(RAW_ADDRESS_NS);
            lock(&self.shared).age();
        }
        let mut batch = FrameBatch::new(&self.inbox);
        let (mut count, mut progress) = (0_u32, Progress::Worked);
        while (count as usize) < budget && !(count > 0 && cx.is_over()) {
            match self.inlet.receive(&socket, batch.room(), now_ns, !polled) {
                Ok(packet) => {
                    count = count.saturating_add(1);
                    cx.charge(cost::CALL_NS.saturating_add(cost::bytes(packet.len)));
                    if let Some((frame, offload)) = batch.frame(packet) {
                        if self.is_for_us(batch.bytes.get(frame.clone()).unwrap_or(&[])) {
                            batch.keep(frame, offload, &self.inbox);
                        }
                    } else {
                        let cut = packet.len > RAW_FRAME_ROOM;
                        self.inbox.stats.add_drops(if cut { Loss::TooBig } else { Loss::Runt }, 1);
                    }
                }
                Err(error) => match rustix::io::Errno::from_io_error(&error) {
                    Some(rustix::io::Errno::AGAIN) => {
                        progress = Progress::Idle;
                        break;
                    }
                    Some(
                        rustix::io::Errno::NETDOWN
                        | rustix::io::Errno::NODEV
                        | rustix::io::Errno::NXIO,
                    ) => {
                        self.down(now_ns, &error);
                        progress = Progress::Parked;
                        break;
                    }
                    Some(rustix::io::Errno::NOBUFS) => {
                        count = count.saturating_add(1);
                        self.unqueued = self.unqueued.saturating_add(1);
                    }
                    // A frame with an offload that virtio cannot express.
                    _ => {
                        count = count.saturating_add(1);
                        self.unreadable = self.unreadable.saturating_add(1);
                    }
                },
            }
        }
        batch.put(&self.inbox);
        SourceProgress { progress, count }
    }

    /// Returns whether the link accepts a frame; counts the frame otherwise.
    fn is_for_us(&mut self, frame: &[u8]) -> bool {
        let Some((destination, from, _)) = ethernet::numbers(frame) else { return false };
        if self.ours.contains(&from) {
            self.looped = self.looped.saturating_add(1);
            return false;
        }
        let ours = is_group(ethernet::address(destination))
            || self.ours.contains(&destination)
            || lock(&self.shared).has(destination);
        self.not_ours = self.not_ours.saturating_add(u64::from(!ours));
        ours
    }
}

impl Drop for RawLink {
    fn drop(&mut self) {
        lock(&self.shared).socket = None;
    }
}
