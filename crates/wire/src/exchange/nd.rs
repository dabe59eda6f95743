//! Addresses in IPv6 neighbour discovery (RFC 4861): the options for the link-layer address of the
//! source and of the target, in router solicitations and advertisements, neighbour solicitations
//! and advertisements, and redirects.
//!
//! The walk ends at an option of length 0, at an option that the given bytes do not hold, and at
//! the end of the packet by its own length. An option of another length than 8 bytes holds no
//! Ethernet address and is not changed. `super` calls the module for each ICMPv6 packet with a hop
//! limit of 255 of a port with `guest_mac`, in the dispatcher's turn.

use super::{MacExchange, put_u16, u16_at, updated};
use crate::ipv6::HEADER_LEN;

/// Protocol number of ICMPv6.
pub(super) const NEXT_ICMPV6: u8 = 58;

/// Offset of the checksum in a message, in bytes.
const CHECKSUM: usize = 2;
/// Option: link-layer address of the source.
const OPTION_SOURCE: u8 = 1;
/// Option: link-layer address of the target.
const OPTION_TARGET: u8 = 2;
/// Offset of the payload length in an IPv6 header, in bytes.
const PAYLOAD_LEN: usize = 4;

/// Returns the offset of the options in a message of this type, in bytes.
const fn options_at(kind: u8) -> Option<usize> {
    match kind {
        // Router solicitation.
        133 => Some(8),
        // Router advertisement.
        134 => Some(16),
        // Neighbour solicitation and advertisement.
        135 | 136 => Some(24),
        // Redirect.
        137 => Some(40),
        _ => None,
    }
}

/// Exchanges the addresses in the IPv6 packet at offset `at`, which holds an ICMPv6 message.
pub(super) fn exchange(pair: &MacExchange, bytes: &mut [u8], at: usize, incomplete: Option<usize>) {
    let Some(len) = u16_at(bytes, at.saturating_add(PAYLOAD_LEN)) else { return };
    let message_at = at.saturating_add(HEADER_LEN);
    let end = message_at.saturating_add(usize::from(len)).min(bytes.len());
    let Some(message) = bytes.get_mut(message_at..end) else { return };
    let Some([kind, code, ..]) = message.first_chunk::<4>() else { return };
    let Some(mut option_at) = options_at(*kind).filter(|_| *code == 0) else { return };
    let mut sum = u16_at(message, CHECKSUM).unwrap_or(0);
    let mut is_changed = false;
    while let Some(option) = message.get(option_at..).and_then(|rest| rest.first_chunk::<8>()) {
        let [kind, blocks, ..] = *option;
        if blocks == 0 {
            break;
        }
        if matches!(kind, OPTION_SOURCE | OPTION_TARGET)
            && blocks == 1
            && let Some((old, new)) = pair.field(message, option_at.saturating_add(2))
        {
            sum = updated(sum, old, new);
            is_changed = true;
        }
        option_at = option_at.saturating_add(usize::from(blocks).saturating_mul(8));
    }
    let is_complete = incomplete != Some(message_at.saturating_add(CHECKSUM));
    if is_changed && is_complete {
        // 0xffff and 0 are equal in ones' complement; senders write 0.
        put_u16(message, CHECKSUM, if sum == 0xffff { 0 } else { sum });
    }
}
