//! The path between the adapters of a group and the service that forwards the group's frames.
//!
//! Each adapter is a station of that service (`fabric::station`): its [`AdapterCarrier`] takes
//! frames for it to the adapters' shard, and [`Uplink`] takes frames of the adapters to the inbox of
//! the service, with the offloads that they request. Both copy: the two services may run in
//! different threads, and neither reads the other's guest memory. Frames between two adapters pass
//! here while the service filters or observes them; else [`crate::switch`] delivers them with one
//! copy.
//!
//! A full mailbox drops: at most [`INBOX_FRAMES_MAX`] (1,024) frames wait for the adapters, and
//! [`Carrier::push`] refuses further ones, which the forwarding service counts. Frames of the
//! adapters go in batches of at most [`UPLINK_BATCH_FRAMES_MAX`] (64) frames and
//! [`UPLINK_BATCH_BYTES_MAX`] (256 KiB), sent when a batch is full and at the end of a call; if the
//! forwarding service's inbox is full, the batch is dropped and counted in [`Uplink::dropped`]. A
//! frame that cannot be read from guest memory is dropped without a count. A multicast frame takes a
//! place of the mailbox for each adapter that receives it.
//!
//! Carriers are called by the forwarding service's thread, [`Uplink`] by the adapters' shard
//! ([`crate::switch`], [`crate::service`]); `crate::control` joins the two.

use causeway_fabric::Context;
use causeway_fabric::carrier::{
    BufferPool, Carrier, LinkId, Membership, Message, OFFLOAD_BYTES, Outgoing, PooledBuffer,
    ReceivedFrame, ReceivedFrames, Refusal,
};
use causeway_fabric::mailbox::{Mailbox, Sender};
use causeway_fabric::station::Station;
use causeway_mlx5::ethernet::FrameRef;
use causeway_model::{CommandError, Mac};
use causeway_verbs::AdapterId;
use causeway_wire::virtio_net::Offload;

use crate::adapter_port::AdapterPort;
use crate::limits::{
    FRAME_BYTES_MAX, INBOX_FRAMES_MAX, UPLINK_BATCH_BYTES_MAX, UPLINK_BATCH_FRAMES_MAX,
};
use crate::policy::GroupPolicy;

/// Source value of the mailbox with frames for the adapters; sources of ports have lower values.
pub(crate) const INBOX: u32 = 1 << 16;

/// A frame for an adapter.
#[derive(Debug)]
pub(crate) struct InboundFrame {
    /// The adapter.
    pub adapter: AdapterId,
    bytes: PooledBuffer,
    len: usize,
    /// Offloads that the receiver has to complete.
    pub offload: Offload,
}

impl InboundFrame {
    /// Returns the bytes of the frame.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Takes frames of the forwarding service to an adapter.
#[derive(Debug)]
struct AdapterCarrier {
    adapter: AdapterId,
    to: Sender<InboundFrame>,
    pool: BufferPool,
}

impl Carrier for AdapterCarrier {
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal> {
        if frame.len > FRAME_BYTES_MAX {
            return Err(Refusal::TooBig);
        }
        let mut bytes = self.pool.take(frame.len);
        let room = bytes.get_mut(..frame.len).ok_or(Refusal::TooBig)?;
        frame.reader().read(room).map_err(|_| Refusal::Lost)?;
        let (adapter, len, offload) = (self.adapter, frame.len, *frame.offload);
        let inbound = InboundFrame { adapter, bytes, len, offload };
        self.to.push(inbound).map_err(|_| Refusal::NoRoom)
    }

    fn flush(&mut self) -> u64 {
        0
    }

    fn takes_offloads(&self) -> bool {
        true
    }

    fn longest(&self) -> usize {
        FRAME_BYTES_MAX
    }
}

/// The connection of a shard of adapters with the forwarding service.
#[derive(Debug)]
pub(crate) struct Uplink {
    /// Inbox of the forwarding service.
    to: Sender<Message>,
    /// Frames for the adapters, and the end that carriers write to.
    pub inbox: Mailbox<InboundFrame>,
    sender: Sender<InboundFrame>,
    /// The group's policy.
    pub policy: GroupPolicy,
    pool: BufferPool,
    /// Frames of one adapter that were not sent yet: their bytes one after another, and their places.
    batch: Option<PooledBuffer>,
    used: usize,
    frames: Vec<ReceivedFrame>,
    /// The other adapters have received the frames of the batch.
    has_reached_adapters: bool,
    /// Frames that were dropped because the forwarding service's inbox was full.
    pub dropped: u64,
}

impl Uplink {
    /// Creates the uplink of a group's adapters to the service with the inbox `to`.
    ///
    /// # Errors
    /// The host has no descriptor for the mailbox.
    pub(crate) fn open(cx: &mut Context<'_>, to: Sender<Message>) -> Result<Self, CommandError> {
        let host = |e: std::io::Error| CommandError::Host(format!("mailbox of adapters: {e}"));
        let (sender, inbox) = cx.mailbox(INBOX_FRAMES_MAX, INBOX).map_err(host)?;
        let (pool, policy) = (BufferPool::default(), GroupPolicy::default());
        let (batch, frames, used, dropped) = (None, Vec::new(), 0, 0);
        let has_reached_adapters = false;
        Ok(Self {
            to,
            inbox,
            sender,
            policy,
            pool,
            batch,
            used,
            frames,
            has_reached_adapters,
            dropped,
        })
    }

    /// Returns the membership of a port in the forwarding service.
    pub(crate) fn membership(&self, id: LinkId, port: &AdapterPort) -> Membership {
        let (to, pool) = (self.sender.clone(), self.pool.clone());
        let station = Station { address: Mac(port.mac), policy: self.policy.cell() };
        Membership {
            id,
            name: port.name.clone(),
            peer: String::from("a guest of this host"),
            metric: 0,
            transit: false,
            segment: false,
            notices: None,
            station: Some(station),
            carrier: Box::new(AdapterCarrier { adapter: port.adapter, to, pool }),
        }
    }

    /// Appends a frame to the batch for the forwarding service. All frames of a batch are those of
    /// one adapter, and the other adapters have received either all or none of them.
    pub(crate) fn push(&mut self, from: LinkId, frame: &FrameRef<'_>, has_reached_adapters: bool) {
        if self.has_reached_adapters != has_reached_adapters {
            self.flush(from);
            self.has_reached_adapters = has_reached_adapters;
        }
        let fits = |used: usize| used.saturating_add(frame.len) <= UPLINK_BATCH_BYTES_MAX;
        if self.frames.len() >= UPLINK_BATCH_FRAMES_MAX || !fits(self.used) {
            self.flush(from);
        }
        let batch = self.batch.get_or_insert_with(|| self.pool.take(UPLINK_BATCH_BYTES_MAX));
        let at = self.used..self.used.saturating_add(frame.len);
        let Some(room) = batch.get_mut(at.clone()) else { return };
        if frame.read(room).is_err() {
            return;
        }
        let header = frame.offload.to_header(0).emit();
        let offload: [u8; OFFLOAD_BYTES] = header.first_chunk().copied().unwrap_or_default();
        self.used = at.end;
        self.frames.push(ReceivedFrame { at, offload, hops: 0, flood: None });
    }

    /// Sends the batch, of frames of the adapter `link`, to the forwarding service.
    pub(crate) fn flush(&mut self, link: LinkId) {
        if self.frames.is_empty() {
            return;
        }
        let Some(bytes) = self.batch.take() else { return };
        let frames = std::mem::take(&mut self.frames);
        let count = frames.len() as u64;
        self.used = 0;
        let received = ReceivedFrames { link, bytes, frames };
        let message = match self.has_reached_adapters {
            true => Message::StationFrames(received),
            false => Message::ReceivedFrames(received),
        };
        if self.to.push(message).is_err() {
            self.dropped = self.dropped.saturating_add(count);
        }
    }
}
