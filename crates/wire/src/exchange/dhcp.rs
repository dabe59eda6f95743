//! The client's hardware address (`chaddr`) in DHCP for IPv4 (RFC 2131), in both directions.
//!
//! A server sends its answer to the address in `chaddr` while the client has no IP address, and the
//! client accepts an answer with its own address only: without the exchange no clone of a snapshot
//! would get an answer by unicast. Options are not changed, the client identifier (option 61)
//! included: a server that finds a client identifier does not use `chaddr` to tell clients apart
//! (RFC 2131, 4.2), so clones need different client identifiers, or none. `super` calls the module
//! for each UDP datagram over IPv4 of a port with `guest_mac`, in the dispatcher's turn; only
//! datagrams between the ports 67 and 68 are changed; a packet that is cut off keeps its content.

use super::{MacExchange, put_u16, u16_at, updated};
use crate::{ipv4, udp};

/// Ports of server and client.
const PORTS: [u16; 2] = [67, 68];
/// Hardware type 1 (Ethernet) and its length, behind the operation.
const ETHERNET: [u8; 2] = [1, 6];
/// Offset of `chaddr` in a message, in bytes.
const ADDRESS: usize = 28;

/// Returns whether the IPv4 packet at offset `at` may be DHCP: the bytes may end before the UDP
/// header.
pub(super) fn may_be(bytes: &[u8], at: usize) -> bool {
    udp_at(bytes, at).is_some_and(|udp| {
        u16_at(bytes, udp.saturating_add(2)).is_none_or(|port| PORTS.contains(&port))
    })
}

/// Returns the offset of the UDP header of the IPv4 packet at offset `at`.
fn udp_at(bytes: &[u8], at: usize) -> Option<usize> {
    let header = ipv4::Header::parse(bytes.get(at..)?).ok()?;
    Some(at.saturating_add(header.header_len()))
}

/// Exchanges the address in the IPv4 packet at offset `at`, which holds a UDP datagram.
pub(super) fn exchange(pair: &MacExchange, bytes: &mut [u8], at: usize, incomplete: Option<usize>) {
    let Some(udp) = udp_at(bytes, at) else { return };
    let ports = [0, 2].map(|from| u16_at(bytes, udp.saturating_add(from)));
    if !ports.iter().all(|port| port.is_some_and(|port| PORTS.contains(&port))) {
        return;
    }
    let message_at = udp.saturating_add(udp::HEADER_LEN);
    let Some(message) = bytes.get_mut(message_at..) else { return };
    if message.get(1..3) != Some(&ETHERNET) {
        return;
    }
    let Some((old, new)) = pair.field(message, ADDRESS) else { return };
    let sum_at = udp.saturating_add(udp::CHECKSUM_OFFSET);
    let sum = u16_at(bytes, sum_at).unwrap_or(0);
    // 0: the sender computed no checksum.
    if sum != 0 && incomplete != Some(sum_at) {
        let new = updated(sum, old, new);
        put_u16(bytes, sum_at, if new == 0 { 0xffff } else { new });
    }
}
