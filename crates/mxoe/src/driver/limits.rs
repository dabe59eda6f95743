//! Limits of the driver: queues of frames, and memory of endpoints.
//!
//! Beyond [`FRAMES_WAITING_MAX`] frames are dropped, and the engine retransmits; beyond
//! [`REGION_BYTES_MAX`] and [`REGION_BYTES_OF_ENDPOINT_MAX`]
//! [`Engine::add_region`](crate::driver::Engine::add_region) and `add_spans` return an error.
//! Limits of the protocol are in [`mxoe::limits`](crate::limits); quotas of users are in
//! `causeway_mx::limits`.
//!
//! Readers are the modules of the driver and the owners of an engine: `mx::network` in causewayd
//! (dispatcher's thread) and `causeway_endpoint::bypass` in an application in direct mode (the
//! thread that holds the endpoint). None of the constants can be configured.

use causeway_host::net::rx_ring::Slots;
use causeway_wire::mxoe::FRAME_LEN_MAX;

/// Number of unsent frames. Further frames are dropped and counted as `no_room`.
pub const FRAMES_WAITING_MAX: usize = 1024;
/// Interval in ns of attempts to send after the kernel had no room: 200 us.
pub const FULL_NS: u64 = 200_000;
/// Time in ns without room after which the first waiting frame is dropped and counted as `no_room`:
/// 10 ms. The kernel also reports a lack of room for a frame that the far end of a veth pair cannot
/// receive.
pub const STUCK_NS: u64 = 10_000_000;
/// Maximum length of a region in bytes: 4 GiB, the maximum length of a message. A longer region
/// violates the protocol ([`RegionRefusal::Rule`](crate::driver::RegionRefusal::Rule)): the `mx`
/// service disconnects the process.
pub const REGION_BYTES_MAX: u64 = 4 << 30;
/// Maximum length of all regions of an endpoint in bytes: 10 GiB. This fits the longest message in
/// each direction, and regions of ordinary length. A further region gets
/// [`RegionRefusal::Limit`](crate::driver::RegionRefusal::Limit), an error of the request. The
/// memory belongs to the process and is allocated when used.
pub const REGION_BYTES_OF_ENDPOINT_MAX: u64 = 10 << 30;
/// Number of requests that are processed when an endpoint closes: the capacity of its ring. Further
/// requests, and all after the first deferred request, are discarded.
pub const REQUESTS_AT_CLOSE_MAX: usize = 1024;
/// Most cost of these requests, in requests: a cancel costs as many as the messages that it looks
/// through. The rest is discarded.
pub const COST_AT_CLOSE_MAX: u32 = 4096;
/// Size of a receive buffer for a frame in bytes. A longer frame is dropped as invalid.
pub const FRAME_ROOM: usize = 16_384;
/// Minimum MTU in bytes of an interface for jumbo frames: 8,226, the longest frame (8,240) less its
/// Ethernet header. With a lower MTU the engine requests frames of at most 4,096 bytes of data.
pub const WIDE_MTU: usize = FRAME_LEN_MAX - 14;
/// Returns the receive slots for an interface with this MTU in bytes: below [`WIDE_MTU`] 1,024
/// slots of 8,192 bytes, otherwise 1,036 slots of 9,216 bytes (1,024 of 16,384 where 9,216 does not
/// fit the page size). The kernel drops frames that arrive while all slots are full.
pub fn slots_for(mtu: usize) -> Slots {
    if mtu >= WIDE_MTU { Slots::jumbo() } else { Slots::LONG }
}
/// Number of received frames after which due timers run although more frames wait: about as many as
/// the kernel queues. Frames come first because an acknowledgement among them may stop a timer.
pub const FRAMES_BEFORE_DUE_MAX: usize = 1024;
