//! The incomplete transport checksum of a frame, and its adjustment for segments.
//!
//! virtio 1.3, 5.1.6.2: the field holds the sum over the pseudo-header. `segment` adjusts it for
//! the length of each segment. The module does not compute the final sum over the data
//! (`causeway_wire` does) and verifies no checksum. A field outside `head` reads as 0 and is not
//! written.

use causeway_wire::virtio_net::ChecksumPlace;

/// Returns the incomplete checksum: the sum over the pseudo-header.
pub(super) fn partial(head: &[u8], place: ChecksumPlace) -> u16 {
    u16::from_be_bytes(super::get(head, place.field()))
}

/// Writes the incomplete checksum `partial` after the counted length changed from `old` to `new`.
///
/// The sum is adjusted, not recomputed: behind an IPv6 routing header, the pseudo-header has
/// another destination than the IPv6 header.
pub(super) fn set_partial(head: &mut [u8], place: ChecksumPlace, partial: u16, old: u16, new: u16) {
    let adjusted = !causeway_wire::checksum::update(!partial, old, new);
    super::put(head, place.field(), adjusted.to_be_bytes());
}
