//! Hashes that select a receive queue for a flow: Toeplitz, and the exclusive or of the fields.
//!
//! All frames of a flow have the same hash and so reach the same receive queue, in order, while the
//! driver changes neither key nor fields nor table; fragments hash without ports, so that they may
//! reach another queue. The key and the fields are the driver's ([`ReceiveInterface`]). The hash
//! covers addresses of the IP version that the transport interface selects, and ports of its
//! transport protocol; a frame of another version or without IP has the hash of no bytes. Drivers
//! read the hash from completions. `super::interface` calls [`HashMemo::hash`] for each frame to a
//! table, in the dispatcher's turn; the last result is kept. No call fails.

use causeway_wire::mlx5::steering::{
    HASH_DESTINATION_IP, HASH_DESTINATION_PORT, HASH_KEY_LEN, HASH_SOURCE_IP, HASH_SOURCE_PORT,
    HashFunction, MatchHeaders, ReceiveInterface,
};
use causeway_wire::{tcp, udp};

/// Longest input: two IPv6 addresses and two ports.
const INPUT_MAX: usize = 36;
/// [`Hash::covered`]: source and destination address of IPv4.
const COVERS_IPV4: u8 = 0b0101;
/// [`Hash::covered`]: source and destination address of IPv6.
const COVERS_IPV6: u8 = 0b1010;
/// [`Hash::covered`]: both ports of TCP.
const COVERS_TCP: u8 = 0b0101 << 4;
/// [`Hash::covered`]: both ports of UDP.
const COVERS_UDP: u8 = 0b1010 << 4;

/// The hash of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Hash {
    /// The hash; its remainder selects the entry of the table.
    pub value: u32,
    /// Fields that the hash covers, as completions report them; 0 if there is no hash.
    pub covered: u8,
}

/// The fields that a hash covers, as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Input {
    bytes: [u8; INPUT_MAX],
    len: usize,
    covered: u8,
}

impl Input {
    fn push(&mut self, field: &[u8]) {
        let place = self.bytes.get_mut(self.len..).unwrap_or_default();
        for (to, from) in place.iter_mut().zip(field) {
            *to = *from;
        }
        self.len = self.len.saturating_add(field.len()).min(INPUT_MAX);
    }

    /// Appends the selected ones of two fields; the smaller field first if `is_symmetric`.
    fn push_pair(&mut self, (first, second): (&[u8], &[u8]), selected: [bool; 2], symmetric: bool) {
        let swaps = symmetric && selected == [true, true] && first > second;
        let (first, second) = if swaps { (second, first) } else { (first, second) };
        if selected[0] {
            self.push(first);
        }
        if selected[1] {
            self.push(second);
        }
    }

    /// Returns the fields of a frame that an interface selects.
    fn of(interface: &ReceiveInterface, headers: &MatchHeaders) -> Self {
        let mut input = Self { bytes: [0; INPUT_MAX], len: 0, covered: 0 };
        let version = if interface.hash_ipv6 { 6 } else { 4 };
        if headers.ip_version != version {
            return input;
        }
        let selects = |field: u32| interface.hash_fields & field != 0;
        let symmetric = interface.is_symmetric;
        // An IPv4 address is the last part of its field.
        let skip = if version == 4 { 12 } else { 0 };
        let source = headers.source_ip.get(skip..).unwrap_or(&[]);
        let destination = headers.destination_ip.get(skip..).unwrap_or(&[]);
        let selected = [selects(HASH_SOURCE_IP), selects(HASH_DESTINATION_IP)];
        if selected != [false, false] {
            input.push_pair((source, destination), selected, symmetric);
            input.covered = if version == 4 { COVERS_IPV4 } else { COVERS_IPV6 };
        }
        let selected = [selects(HASH_SOURCE_PORT), selects(HASH_DESTINATION_PORT)];
        let (protocol, source, destination, covered) = if interface.hash_udp {
            (udp::PROTOCOL, headers.udp_source, headers.udp_destination, COVERS_UDP)
        } else {
            (tcp::PROTOCOL, headers.tcp_source, headers.tcp_destination, COVERS_TCP)
        };
        let has_ports = headers.protocol == protocol && !headers.is_fragment;
        if has_ports && selected != [false, false] {
            let ports = (source.to_be_bytes(), destination.to_be_bytes());
            input.push_pair((&ports.0, &ports.1), selected, symmetric);
            input.covered |= covered;
        }
        input
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// The last hash of an adapter, with all that the hash depends on: most frames are of the flow of
/// the frame before.
#[derive(Debug, Clone)]
pub(crate) struct HashMemo {
    function: u8,
    key: [u8; HASH_KEY_LEN],
    input: Input,
    hash: Hash,
}

impl Default for HashMemo {
    fn default() -> Self {
        let input = Input { bytes: [0; INPUT_MAX], len: 0, covered: 0 };
        let function = HashFunction::None.raw();
        Self { function, key: [0; HASH_KEY_LEN], input, hash: Hash::default() }
    }
}

impl HashMemo {
    /// Returns the same as [`hash`].
    #[inline]
    pub fn hash(
        &mut self,
        interface: &ReceiveInterface,
        key: &[u8; HASH_KEY_LEN],
        headers: &MatchHeaders,
    ) -> Hash {
        let input = Input::of(interface, headers);
        if self.function != interface.hash || self.input != input || self.key != *key {
            let hash = hash(interface.hash, key, &input);
            *self = Self { function: interface.hash, key: *key, input, hash };
        }
        self.hash
    }
}

/// Returns the hash of a frame with the fields `input`. `function` is the code of a
/// [`HashFunction`].
fn hash(function: u8, key: &[u8; HASH_KEY_LEN], input: &Input) -> Hash {
    let value = match HashFunction::from_raw(function) {
        Some(HashFunction::Toeplitz) => toeplitz(key, input.bytes()),
        Some(HashFunction::Xor) => xor(input.bytes()),
        Some(HashFunction::None) | None => return Hash::default(),
    };
    Hash { value, covered: input.covered }
}

/// Returns the Toeplitz hash: for each set bit of the input, the 32 bits of the key at its
/// position.
fn toeplitz(key: &[u8; HASH_KEY_LEN], input: &[u8]) -> u32 {
    let (first, rest) = key.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
    let mut window = u64::from_be_bytes(*first);
    let mut rest = rest.iter();
    let mut hash = 0_u64;
    for byte in input {
        for bit in (0..8).rev() {
            // All ones if the bit is set.
            let mask = u64::from(byte >> bit & 1).wrapping_neg();
            hash ^= window & mask;
            window <<= 1;
        }
        window |= u64::from(rest.next().copied().unwrap_or(0));
    }
    (hash >> 32) as u32
}

/// Returns the inverted exclusive or of all bytes, in 8 bits.
fn xor(input: &[u8]) -> u32 {
    u32::from(!input.iter().fold(0_u8, |sum, byte| sum ^ byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key and values of Microsoft's "Verifying the RSS Hash Calculation".
    const KEY: [u8; HASH_KEY_LEN] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn hash(interface: &ReceiveInterface, key: &[u8; HASH_KEY_LEN], of: &MatchHeaders) -> Hash {
        HashMemo::default().hash(interface, key, of)
    }

    fn interface(hash_fields: u32) -> ReceiveInterface {
        ReceiveInterface { hash: HashFunction::Toeplitz.raw(), hash_fields, ..Default::default() }
    }

    fn v4() -> MatchHeaders {
        let mut headers = MatchHeaders {
            ip_version: 4,
            protocol: tcp::PROTOCOL,
            tcp_source: 2794,
            tcp_destination: 1766,
            ..Default::default()
        };
        headers.source_ip[12..].copy_from_slice(&[66, 9, 149, 187]);
        headers.destination_ip[12..].copy_from_slice(&[161, 142, 100, 80]);
        headers
    }

    #[test]
    fn ethernet_toeplitz_hash_equals_published_values() {
        assert_eq!(hash(&interface(3), &KEY, &v4()).value, 0x323e_8fc2);
        assert_eq!(hash(&interface(15), &KEY, &v4()), Hash { value: 0x51cc_c178, covered: 0x55 });
        let mut v6 = MatchHeaders {
            ip_version: 6,
            source_ip: "3ffe:2501:200:1fff::7".parse::<std::net::Ipv6Addr>().unwrap().octets(),
            destination_ip: "3ffe:2501:200:3::1".parse::<std::net::Ipv6Addr>().unwrap().octets(),
            ..v4()
        };
        let interface = ReceiveInterface { hash_ipv6: true, ..interface(15) };
        assert_eq!(hash(&interface, &KEY, &v6), Hash { value: 0x4020_7d3d, covered: 0x5a });
        v6.is_fragment = true;
        assert_eq!(hash(&interface, &KEY, &v6), Hash { value: 0x2cc1_8cd5, covered: 0x0a });
    }

    #[test]
    fn ethernet_hash_follows_key_function_and_fields() {
        let mut memo = HashMemo::default();
        let mut other_key = KEY;
        other_key[0] ^= 1;
        let xor = ReceiveInterface { hash: HashFunction::Xor.raw(), ..interface(15) };
        let none = ReceiveInterface { hash: 7, ..interface(15) };
        let port = MatchHeaders { tcp_source: 1, ..v4() };
        let all = [(interface(15), KEY), (interface(3), KEY), (interface(15), other_key)];
        for (context, key) in all.into_iter().chain([(xor, KEY), (none, KEY)]) {
            for headers in [v4(), port, v4(), v4()] {
                let fresh = hash(&context, &key, &headers);
                assert_eq!(memo.hash(&context, &key, &headers), fresh);
            }
        }
    }

    #[test]
    fn ethernet_symmetric_hash_is_equal_in_both_directions() {
        let there = v4();
        let back = MatchHeaders {
            source_ip: there.destination_ip,
            destination_ip: there.source_ip,
            tcp_source: there.tcp_destination,
            tcp_destination: there.tcp_source,
            ..there
        };
        let plain = interface(15);
        assert_ne!(hash(&plain, &KEY, &there), hash(&plain, &KEY, &back));
        let symmetric = ReceiveInterface { is_symmetric: true, ..plain };
        assert_eq!(hash(&symmetric, &KEY, &there), hash(&symmetric, &KEY, &back));
        let other = MatchHeaders { ip_version: 6, ..there };
        assert_eq!(hash(&plain, &KEY, &other), Hash::default());
    }
}
