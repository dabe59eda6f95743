//! A native Ethernet port: frames with their virtio_net_hdr (virtio 1.3, 5.1).
//!
//! A process attaches a [`NetPort`] to the socket of a port, and sends and receives frames over one
//! or several queue pairs; the backend of the port is the `ethernet` service, or any vhost-user net
//! backend. Sent frames are visible to the backend after [`NetPort::flush`].
//!
//! It computes no checksum and cuts no segment: the header is sent and received as it is, so a
//! caller that negotiates offloads must handle them. A frame to send has at most
//! [`FRAME_BYTES_MAX`] (65,553) bytes, or [`NativeError::Long`] is returned. A full ring returns
//! `false`, an empty ring `None`, a queue pair that does not exist [`NativeError::Options`]. Frames
//! of different queue pairs have no order. A received buffer that is shorter than a header is an
//! empty frame with a zeroed header; a frame for which the backend used fewer buffers than it
//! states is cut. The port uses no control queue and ignores link status. After a reconnection,
//! which the waits make if [`NetOptions::reconnect`] is set, frames in flight may be sent twice. A
//! port is owned by one thread at a time, and only [`NetPort::attach`], [`NetPort::over`],
//! [`NetPort::wait`] and [`NetPort::wait_room`] block.

use std::path::Path;
use std::time::Duration;

use super::client::Client;
use super::error::NativeError;
use super::frontend::{DevicePlan, Frontend, QueuePlan, Role};
use super::reconnect::Reconnect;

/// Length of `virtio_net_hdr_v1`, in bytes.
pub const NET_HEADER_BYTES: usize = 12;
/// Longest frame that a native port sends, in bytes: the largest segment with its Ethernet header
/// and VLAN tag.
const FRAME_BYTES_MAX: u32 = 65_553;
/// Position of `num_buffers` in the header.
const NUM_BUFFERS: std::ops::Range<usize> = 10..12;

/// Feature bits of a net device that the frontend uses.
pub mod net_features {
    /// The driver accepts packets with a partial checksum.
    pub const GUEST_CSUM: u64 = 1 << 1;
    /// The device has a MAC address.
    pub const MAC: u64 = 1 << 5;
    /// The driver accepts a frame in several buffers.
    pub const MRG_RXBUF: u64 = 1 << 15;
    /// The rings are packed.
    pub const RING_PACKED: u64 = crate::vhost_user::server::features::RING_PACKED;
}

/// Options of a net port.
#[derive(Debug, Clone)]
pub struct NetOptions {
    /// Number of queue pairs.
    pub pairs: u16,
    /// Size of every ring, in descriptors; a power of two.
    pub ring_size: u16,
    /// Bytes of a receive buffer, header included. Without MRG_RXBUF the backend drops frames that
    /// are longer.
    pub receive_bytes: u32,
    /// Requested feature bits, those of offloads and of the ring format included.
    pub features: u64,
    /// Cuts sent frames into descriptors of this many bytes.
    pub descriptor_bytes: Option<u32>,
    /// Time for which the port searches for a new backend after a disconnect; `None`: not at all.
    /// Only a port that was attached by path can reconnect.
    pub reconnect: Option<Duration>,
}

impl Default for NetOptions {
    fn default() -> Self {
        Self {
            pairs: 1,
            ring_size: 256,
            receive_bytes: 4096,
            features: net_features::MRG_RXBUF | net_features::MAC,
            descriptor_bytes: None,
            reconnect: None,
        }
    }
}

/// An attached Ethernet port.
#[derive(Debug)]
pub struct NetPort {
    frontend: Frontend,
    options: NetOptions,
}

impl NetPort {
    /// Attaches to the port whose socket is at `path`.
    ///
    /// # Errors
    /// Returns an error if the connection or the conversation fails, if the backend lacks
    /// VIRTIO_F_VERSION_1 or the number of queue pairs, or with [`NetOptions::reconnect`] a record
    /// of chains in flight, if the ring size is invalid, or if receive buffers have no room behind
    /// a header (12 bytes). Other features that the backend lacks are left out.
    pub fn attach(path: &Path, options: NetOptions) -> Result<Self, NativeError> {
        let reconnect = options.reconnect.map(|within| Reconnect::new(path, within));
        Self::over_for(Client::connect(path)?, options, reconnect.as_ref())
    }

    /// Attaches over an established conversation.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn over(client: Client, options: NetOptions) -> Result<Self, NativeError> {
        Self::over_for(client, options, None)
    }

    /// As [`Self::over`], with the path for reconnections.
    fn over_for(
        mut client: Client,
        options: NetOptions,
        reconnect: Option<&Reconnect>,
    ) -> Result<Self, NativeError> {
        if options.pairs > 1 && pair_count(&mut client)? < u64::from(options.pairs) {
            return Err(NativeError::Lacking("as many queue pairs"));
        }
        let header = NET_HEADER_BYTES as u32;
        if options.receive_bytes <= header {
            return Err(NativeError::Options("receive buffers must hold more than a header"));
        }
        let size = options.ring_size;
        let send_bytes = FRAME_BYTES_MAX.saturating_add(header);
        let pair = [
            QueuePlan { role: Role::Receive, size, slot_bytes: options.receive_bytes },
            QueuePlan { role: Role::Send, size, slot_bytes: send_bytes },
        ];
        let queues = pair.repeat(usize::from(options.pairs));
        let plan = DevicePlan { features: options.features, queues, config_bytes: 12 };
        Ok(Self { frontend: Frontend::attach_for(client, &plan, reconnect)?, options })
    }

    /// Returns the device of the port.
    pub fn frontend(&mut self) -> &mut Frontend {
        &mut self.frontend
    }

    /// Returns the MAC address that the backend assigned, if any.
    pub fn mac(&self) -> Option<[u8; 6]> {
        let given = self.frontend.features() & net_features::MAC != 0;
        self.frontend.config().first_chunk().copied().filter(|_| given)
    }

    /// Queues a frame on queue pair `pair` for the next [`Self::flush`]; returns `false` if the
    /// ring is full. `header` is the frame's virtio_net_hdr.
    ///
    /// # Errors
    /// Returns an error if the frame has more than 65,553 bytes or the ring is broken.
    #[inline]
    pub fn queue(
        &mut self,
        pair: u16,
        header: &[u8; NET_HEADER_BYTES],
        frame: &[u8],
    ) -> Result<bool, NativeError> {
        let piece = self.options.descriptor_bytes;
        let (map, lane) = self.frontend.driver_queue(sender(pair))?;
        lane.send(map, &[header, frame], piece)
    }

    /// As [`Self::queue`], for a header and frame of `len` bytes together that the next buffer
    /// still holds from an earlier send. For generators that repeat a frame.
    ///
    /// Buffers are reused in the order that keeps them in the cache, so as many buffers as are ever
    /// in flight must be filled first.
    ///
    /// # Errors
    /// Returns an error if the ring is broken.
    #[inline]
    pub fn queue_as_is(&mut self, pair: u16, len: u32) -> Result<bool, NativeError> {
        let piece = self.options.descriptor_bytes;
        let (map, lane) = self.frontend.driver_queue(sender(pair))?;
        lane.send_as_is(map, len, piece)
    }

    /// As [`Self::queue_as_is`], for as many frames as there is room for, at most `most`. Returns
    /// their number.
    ///
    /// # Errors
    /// Returns an error if the ring is broken.
    pub fn queue_each_as_is(&mut self, pair: u16, len: u32, most: u16) -> Result<u16, NativeError> {
        if self.options.descriptor_bytes.is_none() {
            return Ok(self.frontend.driver_queue(sender(pair))?.1.send_each_as_is(len, most)?);
        }
        let mut count = 0_u16;
        while count < most && self.queue_as_is(pair, len)? {
            count = count.wrapping_add(1);
        }
        Ok(count)
    }

    /// Receives the frames of queue pair `pair` until none is there, or without MRG_RXBUF at most a
    /// ring full, and returns their buffers unread. Returns the number of frames. For sinks, which
    /// call it until it returns 0, or wait.
    ///
    /// # Errors
    /// Returns an error if the ring is broken.
    pub fn discard_all(&mut self, pair: u16) -> Result<usize, NativeError> {
        if self.frontend.features() & net_features::MRG_RXBUF == 0 {
            return Ok(self.frontend.driver_queue(receiver(pair))?.1.discard()?);
        }
        let mut count = 0_usize;
        while self.discard(pair)?.is_some() {
            count = count.wrapping_add(1);
        }
        Ok(count)
    }

    /// Receives the next frame of queue pair `pair` and returns its buffers unread. Returns the
    /// frame's length, or `None` if there is no frame. For sinks.
    ///
    /// # Errors
    /// Returns an error if the ring is broken.
    #[inline]
    pub fn discard(&mut self, pair: u16) -> Result<Option<usize>, NativeError> {
        let merged = self.frontend.features() & net_features::MRG_RXBUF != 0;
        let (map, lane) = self.frontend.driver_queue(receiver(pair))?;
        let Some((head, written)) = lane.next_written()? else { return Ok(None) };
        let mut left = 1;
        if merged && written >= NET_HEADER_BYTES as u32 {
            let mut count = [1, 0];
            lane.read(map, head, NUM_BUFFERS.start as u32, &mut count)?;
            left = u16::from_le_bytes(count);
        }
        lane.give_back(head)?;
        let mut len = (written as usize).saturating_sub(NET_HEADER_BYTES);
        for _ in 1..left {
            let Some((head, written)) = lane.next_written()? else { break };
            lane.give_back(head)?;
            len = len.saturating_add(written as usize);
        }
        Ok(Some(len))
    }

    /// Publishes all queued frames of queue pair `pair` to the backend.
    ///
    /// # Errors
    /// Returns an error if the ring is broken.
    #[inline]
    pub fn flush(&mut self, pair: u16) -> Result<(), NativeError> {
        Ok(self.frontend.driver_queue(sender(pair))?.1.flush()?)
    }

    /// Sends one frame without offloads on the first queue pair; returns `false` if the ring is
    /// full.
    ///
    /// # Errors
    /// Returns an error if the frame has more than 65,553 bytes or the ring is broken.
    pub fn send(&mut self, frame: &[u8]) -> Result<bool, NativeError> {
        let sent = self.queue(0, &[0; NET_HEADER_BYTES], frame)?;
        self.flush(0)?;
        Ok(sent)
    }

    /// Receives the next frame of queue pair `pair` into `frame`, and returns its header, or `None`
    /// if there is no frame.
    ///
    /// # Errors
    /// Returns an error if the ring is broken.
    #[inline]
    pub fn receive(
        &mut self,
        pair: u16,
        frame: &mut Vec<u8>,
    ) -> Result<Option<[u8; NET_HEADER_BYTES]>, NativeError> {
        let merged = self.frontend.features() & net_features::MRG_RXBUF != 0;
        let (map, lane) = self.frontend.driver_queue(receiver(pair))?;
        let Some((head, written)) = lane.next_written()? else {
            frame.clear();
            return Ok(None);
        };
        let mut header = [0; NET_HEADER_BYTES];
        let payload = written.checked_sub(NET_HEADER_BYTES as u32);
        // Not cleared first: the bytes are overwritten anyway.
        frame.resize(payload.unwrap_or(0) as usize, 0);
        if payload.is_some() {
            lane.read(map, head, 0, &mut header)?;
            lane.read(map, head, NET_HEADER_BYTES as u32, frame)?;
        }
        lane.give_back(head)?;
        let [low, high] =
            header.get(NUM_BUFFERS).and_then(<[u8]>::first_chunk).map_or([1, 0], |b| *b);
        let buffers = if merged { u16::from_le_bytes([low, high]) } else { 1 };
        for _ in 1..buffers {
            let Some((head, written)) = lane.next_written()? else { break };
            let at = frame.len();
            frame.resize(at.saturating_add(written as usize), 0);
            lane.read(map, head, 0, frame.get_mut(at..).unwrap_or_default())?;
            lane.give_back(head)?;
        }
        Ok(Some(header))
    }

    /// Waits for a frame on any queue pair, as [`Frontend::wait`]. Returns `false` after `timeout`.
    ///
    /// # Errors
    /// Returns an error if the backend is gone and the port cannot reconnect, or a ring is broken.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, NativeError> {
        let receivers: Vec<_> = (0..self.options.pairs).map(receiver).collect();
        self.frontend.wait(&receivers, &[], timeout)
    }

    /// Waits until queue pair `pair` has room to send, as [`Frontend::wait`]. Returns `false` after
    /// `timeout`.
    ///
    /// # Errors
    /// Returns an error if the backend is gone and the port cannot reconnect, or a ring is broken.
    pub fn wait_room(&mut self, pair: u16, timeout: Option<Duration>) -> Result<bool, NativeError> {
        self.frontend.wait(&[], &[sender(pair)], timeout)
    }

    /// Returns whether the backend has used everything that was sent on queue pair `pair`.
    ///
    /// # Errors
    /// Returns an error if the ring is broken.
    pub fn is_idle(&mut self, pair: u16) -> Result<bool, NativeError> {
        Ok(self.frontend.driver_queue(sender(pair))?.1.is_idle()?)
    }
}

/// Returns the number of queue pairs that the backend serves: from its configuration space, or else
/// from GET_QUEUE_NUM, which counts queues or pairs.
fn pair_count(client: &mut Client) -> Result<u64, NativeError> {
    let config = client.config(12)?.unwrap_or_default();
    // max_virtqueue_pairs (virtio 1.3, 5.1.4).
    match config.get(8..10) {
        Some(&[low, high]) if (low, high) != (0, 0) => Ok(u16::from_le_bytes([low, high]).into()),
        _ => client.queue_count(),
    }
}

/// Returns the receive queue of a pair.
fn receiver(pair: u16) -> usize {
    usize::from(pair).saturating_mul(2)
}

/// Returns the transmit queue of a pair.
fn sender(pair: u16) -> usize {
    receiver(pair).saturating_add(1)
}
