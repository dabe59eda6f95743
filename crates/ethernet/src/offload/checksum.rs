//! Completing a checksum in software.

use causeway_wire::checksum::Sum;
use causeway_wire::virtio_net::ChecksumPlace;

/// Where in a frame the checksum stands.
fn field(place: ChecksumPlace) -> usize {
    usize::from(place.start).saturating_add(usize::from(place.offset))
}

/// Completes the checksum of a private frame that was checked with its header.
pub fn complete(frame: &mut [u8], place: ChecksumPlace) {
    complete_split(frame, &[], place);
}

/// As [`complete`], for a frame in two parts of which the first holds the checksum.
///
/// The field's own value, the sum over the pseudo-header, is part of what is summed. Zero is
/// written as its other form, 0xffff: to UDP it would mean "none", to the others both are one.
pub fn complete_split(head: &mut [u8], rest: &[u8], place: ChecksumPlace) {
    let mut sum = Sum::new();
    sum.add(head.get(usize::from(place.start)..).unwrap_or(&[]));
    sum.add(rest);
    super::put(head, field(place), sum.finish_nonzero().to_be_bytes());
}

/// The incomplete checksum: the sum over the pseudo-header.
pub(super) fn partial(head: &[u8], place: ChecksumPlace) -> u16 {
    u16::from_be_bytes(super::get(head, field(place)))
}

/// Writes the incomplete checksum `partial` after the length that it counts, `old`, became `new`.
///
/// Adjusted rather than made anew: behind an IPv6 routing header the pseudo-header has another
/// destination than the header does.
pub(super) fn set_partial(head: &mut [u8], place: ChecksumPlace, partial: u16, old: u16, new: u16) {
    let adjusted = !causeway_wire::checksum::update(!partial, old, new);
    super::put(head, field(place), adjusted.to_be_bytes());
}
