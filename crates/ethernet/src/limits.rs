//! Every bound of this crate, in one place.

use std::time::Duration;

/// Longest frame, in bytes: a payload of 65535 behind a header with two VLAN tags.
pub const FRAME_BYTES_MAX: usize = 65_557;
/// Bytes of Ethernet header and tags that an MTU does not count.
pub const LINK_HEADER_BYTES_MAX: usize = 22;
/// Most addresses that one group learns.
pub const LEARNT_PER_GROUP_MAX: usize = 4096;
/// Most addresses that one port may have learnt.
pub const LEARNT_PER_PORT_MAX: usize = 1024;
/// A learnt address is forgotten after this time without a frame from it (IEEE 802.1Q's default).
pub const LEARNT_AGE: Duration = Duration::from_secs(300);
/// A full table is searched for aged addresses no more often than this.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

const _: () = assert!(LEARNT_PER_PORT_MAX <= LEARNT_PER_GROUP_MAX);
const _: () = assert!(FRAME_BYTES_MAX == 65_535 + LINK_HEADER_BYTES_MAX);
