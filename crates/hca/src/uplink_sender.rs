//! Frames of an adapter to the service that forwards the group's frames, with back-pressure.
//!
//! Frames go in batches of at most [`UPLINK_BATCH_FRAMES_MAX`] (32) frames and
//! [`UPLINK_BATCH_BYTES_MAX`] (256 KiB), sent when a batch is full and at the end of a call. The
//! caller asks [`UplinkSender::has_room`] before it takes a frame from the adapter's send queue,
//! and leaves the frame there without room. So a flood delays frames of its own adapter only:
//!
//! | there is no room | bound |
//! |---|---|
//! | the forwarding service has the adapter's batches | [`UPLINK_BATCHES_MAX`] (2) of each adapter |
//! | the inbox of the forwarding service is half full; the other half is for links | 128 batches |
//! | the inbox of the adapter that received the last frames is half full | [`CROWDED_FRAMES`] (256) frames |
//!
//! A batch that found no room in the inbox is sent before all others. While frames or such a batch
//! wait, the port is called again until there is room ([`crate::call`]). A frame that cannot be
//! read from guest memory is dropped, and counted as a frame of the uplink. [`crate::switch`] calls
//! the module in the dispatcher's thread of the adapters' shard; no call waits.

use causeway_fabric::carrier::{
    BufferPool, LinkId, Message, OFFLOAD_BYTES, PooledBuffer, ReceivedFrame, ReceivedFrames,
};
use causeway_fabric::mailbox::Sender;
use causeway_mlx5::ethernet::FrameRef;

use crate::inbound::InboundFrame;
use crate::limits::{
    CROWDED_FRAMES, FRAME_BYTES_MAX, UPLINK_BATCH_BYTES_MAX, UPLINK_BATCH_FRAMES_MAX,
    UPLINK_BATCHES_MAX,
};

/// Sends the frames of an adapter.
#[derive(Debug)]
pub(crate) struct UplinkSender {
    /// Identifier in the forwarding service.
    id: LinkId,
    to: Sender<Message>,
    /// Buffers of batches; the only handle, so that it counts the batches under way.
    pool: BufferPool,
    /// Frames that were not sent yet: their bytes one after another, and their places.
    batch: Option<PooledBuffer>,
    used: usize,
    frames: Vec<ReceivedFrame>,
    /// The other adapters have received the frames of the batch.
    has_reached_adapters: bool,
    /// Batch that found no room in the inbox.
    refused: Option<Message>,
    /// Inbox of a receiver that had no room for more frames of adapters.
    crowded: Option<Sender<InboundFrame>>,
    /// Frames, or the batch that found no room, wait for room.
    is_blocked: bool,
    /// Times at which frames began to wait for room.
    pub waits: u64,
}

impl UplinkSender {
    /// Returns the sender of the station `id` to the inbox of the forwarding service.
    pub(crate) fn new(id: LinkId, to: Sender<Message>) -> Self {
        Self {
            id,
            to,
            pool: BufferPool::default(),
            batch: None,
            used: 0,
            frames: Vec::new(),
            has_reached_adapters: false,
            refused: None,
            crowded: None,
            is_blocked: false,
            waits: 0,
        }
    }

    /// Returns whether any frame of the adapter has room now. Without room the caller calls
    /// [`Self::wait`].
    pub(crate) fn has_room(&mut self) -> bool {
        let has_room = self.find_room();
        self.is_blocked &= !has_room;
        has_room
    }

    /// Records whether something waits for room: frames in the adapter's send queues, or the batch
    /// that found no room. An adapter without either is not blocked, and need not be called again.
    pub(crate) fn wait(&mut self, has_frames: bool) {
        let is_blocked = has_frames || self.refused.is_some();
        if is_blocked && !self.is_blocked {
            self.waits = self.waits.wrapping_add(1);
        }
        self.is_blocked = is_blocked;
    }

    /// Returns whether frames wait for room.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    fn find_room(&mut self) -> bool {
        if let Some(batch) = self.refused.take() {
            self.send(batch);
        }
        if self.crowded.as_ref().is_some_and(|inbox| inbox.waiting() >= CROWDED_FRAMES) {
            return false;
        }
        self.crowded = None;
        let is_full = self.frames.len() >= UPLINK_BATCH_FRAMES_MAX
            || self.used.saturating_add(FRAME_BYTES_MAX) > UPLINK_BATCH_BYTES_MAX;
        if is_full {
            self.flush();
        }
        self.refused.is_none() && (self.batch.is_some() || self.pool.in_use() < UPLINK_BATCHES_MAX)
    }

    /// Appends a frame, for which [`Self::has_room`] was true. `receiver` is the inbox of the
    /// adapter that the frame is for, if it is for one of the group. The other adapters have
    /// received either all frames of a batch or none (`has_reached_adapters`).
    pub(crate) fn push(
        &mut self,
        frame: &FrameRef<'_>,
        receiver: Option<&Sender<InboundFrame>>,
        has_reached_adapters: bool,
    ) {
        if self.has_reached_adapters != has_reached_adapters {
            // One buffer more than `UPLINK_BATCHES_MAX` for this frame; the next waits for room.
            self.flush();
            self.has_reached_adapters = has_reached_adapters;
        }
        if let Some(inbox) = receiver
            && inbox.waiting() >= CROWDED_FRAMES
        {
            self.crowded = Some(inbox.clone());
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

    /// Sends the frames of the open batch.
    pub(crate) fn flush(&mut self) {
        if self.refused.is_some() || self.frames.is_empty() {
            return;
        }
        let Some(bytes) = self.batch.take() else { return };
        let frames = std::mem::take(&mut self.frames);
        self.used = 0;
        let received = ReceivedFrames { link: self.id, bytes, frames };
        self.send(match self.has_reached_adapters {
            true => Message::StationFrames(received),
            false => Message::ReceivedFrames(received),
        });
    }

    fn send(&mut self, batch: Message) {
        self.refused = self.to.push_bulk(batch).err();
    }

    /// Frees the buffers that no batch uses.
    pub(crate) fn free_buffers(&self) {
        self.pool.clear();
    }
}

#[cfg(test)]
mod tests {
    use causeway_fabric::mailbox::{Mailbox, mailbox};
    use causeway_mlx5::ethernet::Body;
    use causeway_wire::virtio_net::Offload;

    use super::*;

    /// Sends at most `count` frames of `len` bytes whose first byte is `tag`. Returns the number
    /// that found room.
    fn send(sender: &mut UplinkSender, tag: u8, len: usize, count: usize) -> usize {
        let bytes = vec![tag; len];
        let frame =
            FrameRef { offload: &Offload::None, head: &bytes, body: Body::Private(&[]), len };
        let mut sent = 0;
        while sent < count && sender.has_room() {
            sender.push(&frame, None, false);
            sent += 1;
        }
        if sent < count {
            sender.wait(true);
        }
        sender.flush();
        sent
    }

    /// Takes a message, and returns the first byte of each frame.
    fn take(inbox: &Mailbox<Message>) -> Vec<u8> {
        let Some(Message::ReceivedFrames(batch)) = inbox.next() else { return Vec::new() };
        batch.frames.iter().map(|frame| batch.bytes[frame.at.start]).collect()
    }

    #[test]
    fn uplink_sends_no_batch_without_frames() {
        let (to, inbox) = mailbox(8).unwrap();
        let mut sender = UplinkSender::new(LinkId(1), to);
        sender.flush();
        assert!(sender.has_room(), "room alone makes no batch");
        sender.flush();
        assert!(inbox.next().is_none());
        assert_eq!(send(&mut sender, 1, 60, 1), 1);
        sender.flush();
        assert_eq!((take(&inbox), take(&inbox)), (vec![1], vec![]));
    }

    #[test]
    fn uplink_leaves_frames_to_their_sender_while_its_batches_are_under_way() {
        let (to, inbox) = mailbox(100).unwrap();
        let mut flood = UplinkSender::new(LinkId(1), to.clone());
        let mut slow = UplinkSender::new(LinkId(2), to);
        let most = UPLINK_BATCHES_MAX * UPLINK_BATCH_FRAMES_MAX;
        assert_eq!(send(&mut flood, 1, 60, 10_000), most);
        assert_eq!((send(&mut flood, 1, 60, 1), flood.waits, flood.is_blocked()), (0, 1, true));
        assert_eq!((send(&mut slow, 2, 60, 1), slow.is_blocked()), (1, false));
        assert_eq!(take(&inbox).len(), UPLINK_BATCH_FRAMES_MAX);
        assert_eq!(send(&mut flood, 1, 60, 10_000), UPLINK_BATCH_FRAMES_MAX);
        assert_eq!((take(&inbox).len(), take(&inbox)), (UPLINK_BATCH_FRAMES_MAX, vec![2]));
        // Segments of 64 KiB fill a batch by their bytes.
        while inbox.next().is_some() {}
        let sent = send(&mut flood, 1, FRAME_BYTES_MAX, 10_000);
        assert_eq!(sent, UPLINK_BATCHES_MAX * (UPLINK_BATCH_BYTES_MAX / FRAME_BYTES_MAX));
    }

    /// A sender whose batches are under way is not blocked before its next frame.
    #[test]
    fn uplink_without_frames_does_not_wait_for_room() {
        let (to, inbox) = mailbox(100).unwrap();
        let mut sender = UplinkSender::new(LinkId(1), to);
        for _ in 0..UPLINK_BATCHES_MAX {
            assert_eq!(send(&mut sender, 1, 60, 1), 1);
        }
        assert!(!sender.has_room());
        sender.wait(false);
        assert_eq!((sender.is_blocked(), sender.waits), (false, 0));
        sender.wait(true);
        sender.wait(true);
        assert_eq!((sender.is_blocked(), sender.waits), (true, 1));
        drop(inbox.next());
        assert!(sender.has_room() && !sender.is_blocked());
        // A batch that found no room waits without a frame behind it.
        let (to, inbox) = mailbox(2).unwrap();
        let mut first = UplinkSender::new(LinkId(1), to.clone());
        let mut second = UplinkSender::new(LinkId(2), to);
        assert_eq!((send(&mut first, 1, 60, 1), send(&mut second, 2, 60, 1)), (1, 1));
        assert!(!second.has_room());
        second.wait(false);
        assert_eq!((second.is_blocked(), second.waits), (true, 1));
        assert_eq!(take(&inbox), [1]);
        assert!(second.has_room() && !second.is_blocked());
        assert_eq!(take(&inbox), [2]);
    }

    #[test]
    fn uplink_keeps_half_of_the_inbox_for_links_and_loses_no_batch() {
        let (to, inbox) = mailbox(4).unwrap();
        let mut senders: Vec<_> =
            (0..4).map(|number| UplinkSender::new(LinkId(number), to.clone())).collect();
        for (number, sender) in (0..).zip(&mut senders) {
            assert_eq!(send(sender, number, 60, 1), 1);
        }
        let link = |to: &Sender<Message>| to.push(Message::AddressAdded(LinkId(9), Vec::new()));
        assert!(link(&to).is_ok() && link(&to).is_ok() && link(&to).is_err());
        assert!(!senders[2].has_room() && !senders[3].has_room());
        assert_eq!((take(&inbox), take(&inbox)), (vec![0], vec![1]));
        while inbox.next().is_some() {}
        for sender in &mut senders {
            assert!(sender.has_room());
        }
        assert_eq!((take(&inbox), take(&inbox), take(&inbox)), (vec![2], vec![3], vec![]));
    }

    #[test]
    fn uplink_frames_for_a_crowded_receiver_wait_at_their_sender() {
        let (to, _inbox) = mailbox(100).unwrap();
        let (receiver, crowd) = mailbox(2 * CROWDED_FRAMES).unwrap();
        let mut sender = UplinkSender::new(LinkId(1), to);
        let bytes = [0; 60];
        let frame =
            FrameRef { offload: &Offload::None, head: &bytes, body: Body::Private(&[]), len: 60 };
        let pool = BufferPool::default();
        let inbound = || InboundFrame::new(pool.take(60), 60, Offload::None);
        for _ in 0..CROWDED_FRAMES {
            assert!(sender.has_room());
            receiver.push(inbound()).unwrap();
        }
        sender.push(&frame, Some(&receiver), false);
        assert!(!sender.has_room());
        crowd.next().unwrap();
        assert!(sender.has_room());
    }
}
