//! The path between the adapters of a group and the service that forwards the group's frames.
//!
//! That service sees the adapters of a group as one link: [`AdapterCarrier`] takes its frames to
//! the adapters' shard, and [`Uplink`] takes frames of the adapters to its inbox, with the offloads
//! that they request. Both copy: the two services may run in different threads, and neither reads
//! the other's guest memory. Frames between two adapters do not pass here; [`crate::switch`]
//! delivers them with one copy.
//!
//! A full mailbox drops: at most [`INBOX_FRAMES_MAX`] (1,024) frames wait for the adapters, and
//! [`Carrier::push`] refuses further ones, which the forwarding service counts. Frames of the
//! adapters go in batches of at most [`UPLINK_BATCH_FRAMES_MAX`] (64) frames and
//! [`UPLINK_BATCH_BYTES_MAX`] (256 KiB), sent when a batch is full and at the end of a call; if the
//! forwarding service's inbox is full, the batch is dropped and counted in [`Uplink::dropped`]. A
//! frame that cannot be read from guest memory is dropped without a count. Only frames are dropped:
//! the link's state and the addresses of the adapters are sent as critical messages, for which the
//! inbox has four times the room (`fabric::mailbox`); beyond it they are lost too, without a retry.
//!
//! Carriers are called by the forwarding service's thread, [`Uplink`] by the adapters' shard
//! ([`crate::switch`], [`crate::service`]); `crate::control` joins the two.

use causeway_fabric::Context;
use causeway_fabric::carrier::{
    BufferPool, Carrier, LinkId, LinkStatus, Membership, Message, OFFLOAD_BYTES, Outgoing,
    PooledBuffer, ReceivedFrame, ReceivedFrames, Refusal,
};
use causeway_fabric::mailbox::{Mailbox, Sender};
use causeway_mlx5::ethernet::FrameRef;
use causeway_model::{CommandError, Mac, Name};
use causeway_wire::virtio_net::Offload;

use crate::limits::{
    FRAME_BYTES_MAX, INBOX_FRAMES_MAX, UPLINK_BATCH_BYTES_MAX, UPLINK_BATCH_FRAMES_MAX,
};

/// Source value of the mailbox with frames for the adapters; sources of ports have lower values.
pub(crate) const INBOX: u32 = 1 << 16;

/// A frame for the adapters.
#[derive(Debug)]
pub(crate) struct InboundFrame {
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

/// Takes frames of the forwarding service to the adapters.
#[derive(Debug)]
struct AdapterCarrier {
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
        let inbound = InboundFrame { bytes, len: frame.len, offload: *frame.offload };
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
    id: LinkId,
    /// Inbox of the forwarding service.
    to: Sender<Message>,
    /// Frames for the adapters.
    pub inbox: Mailbox<InboundFrame>,
    pool: BufferPool,
    /// Frames that were not sent yet: their bytes one after another, and their places.
    batch: Option<PooledBuffer>,
    used: usize,
    frames: Vec<ReceivedFrame>,
    /// Frames that were dropped because the forwarding service's inbox was full.
    pub dropped: u64,
}

impl Uplink {
    /// Creates the uplink of a group's adapters, and the membership by which the forwarding service
    /// reaches it.
    ///
    /// # Errors
    /// The host has no descriptor for the mailbox.
    pub(crate) fn open(
        cx: &mut Context<'_>,
        id: LinkId,
        name: Name,
        to: Sender<Message>,
    ) -> Result<(Self, Membership), CommandError> {
        let host = |e: std::io::Error| CommandError::Host(format!("mailbox of adapters: {e}"));
        let (sender, inbox) = cx.mailbox(INBOX_FRAMES_MAX, INBOX).map_err(host)?;
        let pool = BufferPool::default();
        let carrier = Box::new(AdapterCarrier { to: sender, pool: pool.clone() });
        let peer = String::from("adapters of this host");
        let membership = Membership {
            id,
            name,
            peer,
            metric: 0,
            transit: true,
            segment: false,
            notices: None,
            carrier,
        };
        let (batch, frames) = (None, Vec::new());
        Ok((Self { id, to, inbox, pool, batch, used: 0, frames, dropped: 0 }, membership))
    }

    /// Reports that the link is up, after the forwarding service joined it.
    pub(crate) fn start(&mut self) {
        let status = LinkStatus { up: true, poor: false, rtt_ns: None };
        let _ = self.to.push_critical(Message::LinkStatus(self.id, status));
    }

    /// Advertises the address of an adapter, or withdraws it.
    pub(crate) fn advertise(&mut self, mac: Mac, exists: bool) {
        let message = if exists { Message::AddressAdded } else { Message::AddressRemoved };
        let _ = self.to.push_critical(message(self.id, vec![mac]));
    }

    /// Appends a frame to the batch for the forwarding service.
    pub(crate) fn push(&mut self, frame: &FrameRef<'_>) {
        let fits = |used: usize| used.saturating_add(frame.len) <= UPLINK_BATCH_BYTES_MAX;
        if self.frames.len() >= UPLINK_BATCH_FRAMES_MAX || !fits(self.used) {
            self.flush();
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
        self.frames.push(ReceivedFrame { at, offload, hops: 1, flood: None });
    }

    /// Sends the batch to the forwarding service.
    pub(crate) fn flush(&mut self) {
        let Some(bytes) = self.batch.take() else { return };
        let frames = std::mem::take(&mut self.frames);
        let count = frames.len() as u64;
        self.used = 0;
        let message = Message::ReceivedFrames(ReceivedFrames { link: self.id, bytes, frames });
        if self.to.push(message).is_err() {
            self.dropped = self.dropped.saturating_add(count);
        }
    }
}
