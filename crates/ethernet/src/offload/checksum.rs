//! The incomplete checksum that a sender leaves, and how pieces of its frame have theirs.

use causeway_wire::virtio_net::ChecksumPlace;

/// The incomplete checksum: the sum over the pseudo-header.
pub(super) fn partial(head: &[u8], place: ChecksumPlace) -> u16 {
    u16::from_be_bytes(super::get(head, place.field()))
}

/// Writes the incomplete checksum `partial` after the length that it counts, `old`, became `new`.
///
/// Adjusted rather than made anew: behind an IPv6 routing header the pseudo-header has another
/// destination than the header does.
pub(super) fn set_partial(head: &mut [u8], place: ChecksumPlace, partial: u16, old: u16, new: u16) {
    let adjusted = !causeway_wire::checksum::update(!partial, old, new);
    super::put(head, place.field(), adjusted.to_be_bytes());
}
