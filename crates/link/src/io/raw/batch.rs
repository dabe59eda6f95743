//! Frames received from an interface, in one buffer.
//!
//! [`super::link`], in the shard of links, receives each frame into [`FrameBatch::room`], and keeps
//! it if the link accepts it; [`FrameBatch::put`] passes all kept frames to the group's mailbox. A
//! buffer has [`RAW_BYTES`] (132 KiB) and room for at least two frames of [`RAW_FRAME_ROOM`] (66
//! KiB); a full buffer is passed on and replaced, and all its frames are dropped if the mailbox is
//! full (`LinkInbox`). The module restores the VLAN tag that the kernel removed, and converts the
//! kernel's virtio-net header to the format of the group. It does not filter by address. A frame
//! shorter than [`FRAME_MIN`] (14 bytes) or longer than the room is not returned: [`super::link`]
//! counts the drop.

use causeway_fabric::carrier::{OFFLOAD_BYTES, PooledBuffer, ReceivedFrame, ReceivedFrames};
use causeway_host::net::socket::{ReceivedPacket, VNET_HEADER_BYTES};
use causeway_wire::virtio_net::Header;

use super::super::inbox::LinkInbox;
use super::super::limits::{FRAME_MIN, RAW_BYTES, RAW_FRAME_ROOM, TAG_BYTES, TAGGED_HEADER};

/// Frames received in a row, in one buffer.
pub(super) struct FrameBatch {
    /// The buffer.
    pub bytes: PooledBuffer,
    /// End of the last kept frame.
    used: usize,
    /// Kept frames, by their ranges in `bytes`.
    frames: Vec<ReceivedFrame>,
}

impl FrameBatch {
    pub fn new(inbox: &LinkInbox) -> Self {
        Self { bytes: inbox.pool.take(RAW_BYTES), used: 0, frames: Vec::new() }
    }

    /// Returns the room for the next frame and its header.
    pub fn room(&mut self) -> &mut [u8] {
        let end = self.used.saturating_add(RAW_FRAME_ROOM);
        self.bytes.get_mut(self.used..end).unwrap_or(&mut [])
    }

    /// Returns the range and the offloads of a received frame, after restoring its VLAN tag. `None`
    /// if the frame is too short or too long.
    pub fn frame(
        &mut self,
        packet: ReceivedPacket,
    ) -> Option<(std::ops::Range<usize>, [u8; OFFLOAD_BYTES])> {
        let start = self.used.saturating_add(VNET_HEADER_BYTES);
        let frame = start..self.used.checked_add(packet.len)?;
        if frame.len() < FRAME_MIN || packet.len > RAW_FRAME_ROOM {
            return None;
        }
        let before: [u8; VNET_HEADER_BYTES] = *self.bytes.get(self.used..)?.first_chunk()?;
        let mut header = Header::from_host(&before);
        let Some((kind, value)) = packet.tag else { return Some((frame, emit(&header))) };
        // The kernel strips the VLAN tag: insert it behind the addresses; the rest stays in place.
        let tagged = start.saturating_sub(TAG_BYTES)..frame.end;
        let bytes = self.bytes.get_mut(tagged.clone())?;
        bytes.copy_within(TAG_BYTES..TAGGED_HEADER, 0);
        let [a, b] = kind.to_be_bytes();
        let [c, d] = value.to_be_bytes();
        bytes
            .get_mut(TAGGED_HEADER.saturating_sub(TAG_BYTES)..TAGGED_HEADER)?
            .copy_from_slice(&[a, b, c, d]);
        if header.flags != 0 {
            header.csum_start = header.csum_start.saturating_add(TAG_BYTES as u16);
        }
        if header.gso_type != 0 {
            header.hdr_len = header.hdr_len.saturating_add(TAG_BYTES as u16);
        }
        Some((tagged, emit(&header)))
    }

    /// Keeps the frame that was received last.
    pub fn keep(
        &mut self,
        at: std::ops::Range<usize>,
        offload: [u8; OFFLOAD_BYTES],
        inbox: &LinkInbox,
    ) {
        self.used = at.end;
        self.frames.push(ReceivedFrame { at, offload, hops: 1, flood: None });
        if self.bytes.len().saturating_sub(self.used) < RAW_FRAME_ROOM {
            std::mem::replace(self, Self::new(inbox)).put(inbox);
        }
    }

    /// Passes the kept frames to the link's group.
    pub fn put(self, inbox: &LinkInbox) {
        let Self { bytes, frames, .. } = self;
        inbox.deliver(ReceivedFrames { link: inbox.id, bytes, frames });
    }
}

/// Encodes offloads as the group expects them.
fn emit(header: &Header) -> [u8; OFFLOAD_BYTES] {
    let full = header.emit();
    full.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_fabric::carrier::LinkId;
    use causeway_fabric::mailbox::mailbox;
    use causeway_wire::virtio_net::HDR_F_NEEDS_CSUM;

    fn inbox() -> LinkInbox {
        let (to, _) = mailbox(1).unwrap();
        let name = "l".parse().unwrap();
        LinkInbox {
            id: LinkId(1),
            name,
            to,
            segments: None,
            stats: Default::default(),
            pool: Default::default(),
        }
    }

    #[test]
    fn raw_vlan_tag_is_restored() {
        let mut batch = FrameBatch::new(&inbox());
        let offload = Header {
            flags: HDR_F_NEEDS_CSUM,
            gso_type: 1,
            hdr_len: 54,
            gso_size: 1460,
            csum_start: 34,
            csum_offset: 16,
            num_buffers: 0,
        };
        let frame: Vec<u8> = (0..60).collect();
        let bytes = [&offload.to_host()[..], &frame].concat();
        batch.room()[..bytes.len()].copy_from_slice(&bytes);
        let packet = ReceivedPacket { len: bytes.len(), tag: Some((0x8100, 0x2005)) };
        let (at, offloads) = batch.frame(packet).unwrap();
        let tagged = [&frame[..12], &[0x81, 0, 0x20, 5], &frame[12..]].concat();
        assert_eq!(batch.bytes[at], tagged);
        let moved = Header { hdr_len: 58, csum_start: 38, ..offload };
        assert_eq!(offloads, emit(&moved));
    }

    #[test]
    fn hostile_lengths_make_no_frames() {
        let mut batch = FrameBatch::new(&inbox());
        for len in [0, VNET_HEADER_BYTES, VNET_HEADER_BYTES + 13, RAW_FRAME_ROOM + 1, usize::MAX] {
            assert_eq!(batch.frame(ReceivedPacket { len, tag: None }), None, "{len}");
        }
    }
}
