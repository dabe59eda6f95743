//! Addresses in ARP (RFC 826) and RARP (RFC 903) packets for Ethernet and IPv4: sender and target
//! hardware address. VMMs send RARP after a migration or restore, with the address of the device.
//!
//! A packet of other lengths or types, or one that is cut off, keeps its content. The operation is
//! not checked, and neither are the IP addresses. `super` calls the module for each ARP or RARP
//! frame of a port with `guest_mac`, in the dispatcher's turn.

use super::MacExchange;

/// EtherType of RARP.
pub const TYPE_RARP: u16 = 0x8035;

/// Hardware type 1 (Ethernet), protocol type IPv4, and their lengths.
const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
/// Offset of the sender's hardware address, in bytes.
const SENDER: usize = 8;
/// Offset of the target's hardware address, in bytes.
const TARGET: usize = 18;
/// Length of the packet, in bytes.
const LEN: usize = 28;

/// Exchanges the addresses in the packet at offset `at`.
pub(super) fn exchange(pair: &MacExchange, bytes: &mut [u8], at: usize) {
    let Some(packet) = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..LEN)) else { return };
    if packet.starts_with(&ETHERNET_IPV4) {
        pair.field(packet, SENDER);
        pair.field(packet, TARGET);
    }
}
