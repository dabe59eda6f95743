//! One frame that a guest sends: its headers, copied once and checked.

use causeway_memory::Map;
use causeway_ring::Chain;
use causeway_wire::frame::{Frame, HEADERS_MAX};
use causeway_wire::virtio::{VIRTIO_F_VERSION_1, has};
use causeway_wire::virtio_net::{HEADER_LEN, Header, Offload, VIRTIO_NET_F_MRG_RXBUF};

use crate::counters::DropReason;
use crate::limits::FRAME_BYTES_MAX;

/// Length of the virtio-net header without `num_buffers`, in bytes: of drivers that follow
/// neither version 1 nor mergeable buffers (virtio 1.3, 5.1.6.1).
const HEADER_LEN_LEGACY: usize = 10;

/// The virtio-net header and all headers of a frame, in bytes.
pub(crate) const FIRST_BYTES_MAX: usize = HEADER_LEN + HEADERS_MAX;

/// Length of the virtio-net header that a driver uses, in bytes.
pub(crate) fn header_len(features: u64) -> usize {
    let full = has(features, VIRTIO_F_VERSION_1) || has(features, VIRTIO_NET_F_MRG_RXBUF);
    if full { HEADER_LEN } else { HEADER_LEN_LEGACY }
}

/// A frame that was taken from its sender's ring.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub chain: Chain,
    pub job: Job,
}

/// A checked frame. Its first bytes are private, the rest stays in the sender's memory.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// The virtio-net header and the frame's first bytes, as they were read in one go.
    bytes: [u8; FIRST_BYTES_MAX],
    head_at: usize,
    head_len: usize,
    /// Length of the frame, in bytes.
    pub len: usize,
    /// Where in the chain the bytes behind [`Self::head`] start.
    pub rest_at: u64,
    /// What the first bytes say.
    pub frame: Frame,
    /// What is left to do.
    pub offload: Offload,
}

impl Default for Job {
    fn default() -> Self {
        let (frame, offload) = (Frame::default(), Offload::default());
        let bytes = [0; FIRST_BYTES_MAX];
        Self { bytes, head_at: 0, head_len: 0, len: 0, rest_at: 0, frame, offload }
    }
}

impl Job {
    /// Copies the first bytes of a chain and checks them against what the driver negotiated. In
    /// place, because it happens for every frame.
    ///
    /// # Errors
    /// Why the frame is refused, and its length. Then this job is none.
    pub fn read(
        &mut self,
        map: &Map,
        chain: &Chain,
        features: u64,
    ) -> Result<(), (DropReason, usize)> {
        let header_len = header_len(features);
        let bytes = usize::try_from(chain.readable_bytes()).unwrap_or(usize::MAX);
        let len = bytes.saturating_sub(header_len);
        if len > FRAME_BYTES_MAX {
            return Err((DropReason::TooBig, len));
        }
        let runt = |_| (DropReason::Runt, len);
        if bytes < header_len {
            return Err((DropReason::Runt, len));
        }
        (self.head_at, self.head_len) = (header_len, len.min(HEADERS_MAX));
        let first = header_len.saturating_add(self.head_len);
        let first = self.bytes.get_mut(..first).unwrap_or(&mut []);
        chain.reader().read(map, first).map_err(|_| (DropReason::SenderFault, len))?;
        let mut header = [0; HEADER_LEN];
        for (to, from) in header.iter_mut().zip(first.iter().take(header_len)) {
            *to = *from;
        }
        let header = Header::parse(&header).map_err(runt)?;
        self.frame = Frame::parse(self.head()).map_err(runt)?;
        self.offload = Offload::check(&header, features, &self.frame, len)
            .map_err(|_| (DropReason::BadHeader, len))?;
        self.rest_at = header_len.saturating_add(self.head_len) as u64;
        self.len = len;
        Ok(())
    }

    /// The frame's first bytes, all headers among them.
    pub fn head(&self) -> &[u8] {
        let bytes = self.bytes.get(self.head_at..).unwrap_or(&[]);
        bytes.get(..self.head_len).unwrap_or(&[])
    }

    /// Whether the frame, or each piece of it, fits an MTU.
    pub fn fits(&self, mtu: u16) -> bool {
        let payload = self.offload.piece_len(self.len).saturating_sub(self.frame.header_len);
        payload <= usize::from(mtu)
    }
}
