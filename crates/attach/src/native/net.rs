//! A native Ethernet port: frames with their virtio_net_hdr (virtio 1.3, section 5.1).

use std::path::Path;
use std::time::Duration;

use super::client::Client;
use super::error::NativeError;
use super::frontend::{Frontend, Plan, QueuePlan, Role};
use super::revive::Reconnect;

/// Length of `virtio_net_hdr_v1`, in bytes.
pub const NET_HEADER_BYTES: usize = 12;
/// Longest frame that a native port sends or takes, in bytes: the largest segment with its
/// Ethernet header and VLAN tag.
const FRAME_BYTES_MAX: u32 = 65_553;
/// Where the header says how many buffers a frame fills.
const NUM_BUFFERS: std::ops::Range<usize> = 10..12;

/// Feature bits of a net device that the frontend side cares about.
pub mod net_features {
    /// The driver takes packets with a partial checksum.
    pub const GUEST_CSUM: u64 = 1 << 1;
    /// The device gives its MAC address.
    pub const MAC: u64 = 1 << 5;
    /// The driver takes a frame in several buffers.
    pub const MRG_RXBUF: u64 = 1 << 15;
    /// The rings are packed.
    pub const RING_PACKED: u64 = crate::vhost_user::server::features::RING_PACKED;
}

/// How to attach a net port.
#[derive(Debug, Clone)]
pub struct NetOptions {
    /// Queue pairs.
    pub pairs: u16,
    /// Size of every ring; a power of two.
    pub ring_size: u16,
    /// Bytes of a receive buffer. Smaller ones than a frame need MRG_RXBUF.
    pub receive_bytes: u32,
    /// Feature bits wanted, those of offloads and of the rings' format among them.
    pub features: u64,
    /// Cut what is sent into descriptors of this many bytes.
    pub piece_bytes: Option<u32>,
    /// For how long to look for another backend when this one is gone; none: not at all. Only a
    /// port that was attached by its path finds one.
    pub reconnect: Option<Duration>,
}

impl Default for NetOptions {
    fn default() -> Self {
        Self {
            pairs: 1,
            ring_size: 256,
            receive_bytes: 4096,
            features: net_features::MRG_RXBUF | net_features::MAC,
            piece_bytes: None,
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
    pub fn attach(path: &Path, options: NetOptions) -> Result<Self, NativeError> {
        let reconnect = options.reconnect.map(|within| Reconnect::new(path, within));
        Self::over_for(Client::connect(path)?, options, reconnect.as_ref())
    }

    /// Attaches over a conversation that has begun.
    pub fn over(client: Client, options: NetOptions) -> Result<Self, NativeError> {
        Self::over_for(client, options, None)
    }

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
        let plan = Plan { features: options.features, queues, config_bytes: 12 };
        Ok(Self { frontend: Frontend::attach_for(client, &plan, reconnect)?, options })
    }

    /// The device behind the port.
    pub fn frontend(&mut self) -> &mut Frontend {
        &mut self.frontend
    }

    /// The MAC address that the backend gave, if it did.
    pub fn mac(&self) -> Option<[u8; 6]> {
        let given = self.frontend.features() & net_features::MAC != 0;
        self.frontend.config().first_chunk().copied().filter(|_| given)
    }

    /// Adds a frame to what is to be sent by queue pair `pair`; `false` if there is no room.
    /// `header` is the frame's virtio_net_hdr.
    #[inline]
    pub fn queue(
        &mut self,
        pair: u16,
        header: &[u8; NET_HEADER_BYTES],
        frame: &[u8],
    ) -> Result<bool, NativeError> {
        let piece = self.options.piece_bytes;
        let (map, lane) = self.frontend.lane(sender(pair))?;
        lane.send(map, &[header, frame], piece)
    }

    /// As [`Self::queue`], of header and frame that stand in the next buffer from an earlier time,
    /// `len` bytes together: for generators, which send the same again and again. Buffers are used
    /// again in the order that keeps them in the cache, so as many as were ever under way at a
    /// time have to be filled first.
    #[inline]
    pub fn queue_as_is(&mut self, pair: u16, len: u32) -> Result<bool, NativeError> {
        let piece = self.options.piece_bytes;
        let (map, lane) = self.frontend.lane(sender(pair))?;
        lane.send_as_is(map, len, piece)
    }

    /// The same of as many frames as there is room for, at most `most`; says how many.
    pub fn queue_each_as_is(&mut self, pair: u16, len: u32, most: u16) -> Result<u16, NativeError> {
        if self.options.piece_bytes.is_none() {
            return Ok(self.frontend.lane(sender(pair))?.1.send_each_as_is(len, most)?);
        }
        let mut count = 0_u16;
        while count < most && self.queue_as_is(pair, len)? {
            count = count.wrapping_add(1);
        }
        Ok(count)
    }

    /// Takes the frames of queue pair `pair`, at most as many as its ring has, and gives their buffers
    /// back unread: how many. For sinks, which call it until it finds none, or wait.
    pub fn discard_all(&mut self, pair: u16) -> Result<usize, NativeError> {
        if self.frontend.features() & net_features::MRG_RXBUF == 0 {
            return Ok(self.frontend.lane(receiver(pair))?.1.discard()?);
        }
        let mut count = 0_usize;
        while self.discard(pair)?.is_some() {
            count = count.wrapping_add(1);
        }
        Ok(count)
    }

    /// Takes the next frame of queue pair `pair` and gives its buffers back unread: its length,
    /// none if there is no frame. For sinks.
    #[inline]
    pub fn discard(&mut self, pair: u16) -> Result<Option<usize>, NativeError> {
        let merged = self.frontend.features() & net_features::MRG_RXBUF != 0;
        let (map, lane) = self.frontend.lane(receiver(pair))?;
        let Some((head, written)) = lane.next_written()? else { return Ok(None) };
        let mut left = 1;
        if merged && written >= NET_HEADER_BYTES as u32 {
            let mut count = [1, 0];
            lane.read(map, head, NUM_BUFFERS.start as u32, &mut count)?;
            left = u16::from_le_bytes(count);
        }
        lane.give(head)?;
        let mut len = (written as usize).saturating_sub(NET_HEADER_BYTES);
        for _ in 1..left {
            let Some((head, written)) = lane.next_written()? else { break };
            lane.give(head)?;
            len = len.saturating_add(written as usize);
        }
        Ok(Some(len))
    }

    /// Shows the backend all that was queued.
    #[inline]
    pub fn flush(&mut self, pair: u16) -> Result<(), NativeError> {
        Ok(self.frontend.lane(sender(pair))?.1.flush()?)
    }

    /// Sends one frame without offloads by the first queue pair; `false` if there is no room.
    pub fn send(&mut self, frame: &[u8]) -> Result<bool, NativeError> {
        let sent = self.queue(0, &[0; NET_HEADER_BYTES], frame)?;
        self.flush(0)?;
        Ok(sent)
    }

    /// Takes the next frame of queue pair `pair` into `frame`, and gives its header; none if
    /// there is no frame.
    #[inline]
    pub fn receive(
        &mut self,
        pair: u16,
        frame: &mut Vec<u8>,
    ) -> Result<Option<[u8; NET_HEADER_BYTES]>, NativeError> {
        let merged = self.frontend.features() & net_features::MRG_RXBUF != 0;
        let (map, lane) = self.frontend.lane(receiver(pair))?;
        let Some((head, written)) = lane.next_written()? else {
            frame.clear();
            return Ok(None);
        };
        let mut header = [0; NET_HEADER_BYTES];
        let payload = written.checked_sub(NET_HEADER_BYTES as u32);
        // Not cleared first: bytes that are about to be written need no zeros.
        frame.resize(payload.unwrap_or(0) as usize, 0);
        if payload.is_some() {
            lane.read(map, head, 0, &mut header)?;
            lane.read(map, head, NET_HEADER_BYTES as u32, frame)?;
        }
        lane.give(head)?;
        let [low, high] =
            header.get(NUM_BUFFERS).and_then(<[u8]>::first_chunk).map_or([1, 0], |b| *b);
        let buffers = if merged { u16::from_le_bytes([low, high]) } else { 1 };
        for _ in 1..buffers {
            let Some((head, written)) = lane.next_written()? else { break };
            let at = frame.len();
            frame.resize(at.saturating_add(written as usize), 0);
            lane.read(map, head, 0, frame.get_mut(at..).unwrap_or_default())?;
            lane.give(head)?;
        }
        Ok(Some(header))
    }

    /// Waits until a frame is there for any queue pair; `false` when `timeout` passed first.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, NativeError> {
        let receivers: Vec<_> = (0..self.options.pairs).map(receiver).collect();
        self.frontend.wait(&receivers, &[], timeout)
    }

    /// Waits until queue pair `pair` has room to send.
    pub fn wait_room(&mut self, pair: u16, timeout: Option<Duration>) -> Result<bool, NativeError> {
        self.frontend.wait(&[], &[sender(pair)], timeout)
    }

    /// Whether the backend has taken everything sent by queue pair `pair`.
    pub fn is_idle(&mut self, pair: u16) -> Result<bool, NativeError> {
        Ok(self.frontend.lane(sender(pair))?.1.is_idle()?)
    }
}

/// Returns how many queue pairs the backend serves: what its configuration space says, or else the
/// answer to GET_QUEUE_NUM, which is in queues or in pairs.
fn pair_count(client: &mut Client) -> Result<u64, NativeError> {
    let config = client.config(12)?.unwrap_or_default();
    // max_virtqueue_pairs (virtio 1.3, 5.1.4).
    match config.get(8..10) {
        Some(&[low, high]) if (low, high) != (0, 0) => Ok(u16::from_le_bytes([low, high]).into()),
        _ => client.queue_count(),
    }
}

fn receiver(pair: u16) -> usize {
    usize::from(pair).saturating_mul(2)
}

fn sender(pair: u16) -> usize {
    receiver(pair).saturating_add(1)
}
