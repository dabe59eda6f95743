//! Limits of the driver: queues of frames, and memory of endpoints.
//!
//! Beyond [`FRAMES_WAITING_MAX`] frames are dropped, and the engine retransmits; beyond
//! [`REGION_BYTES_OF_ENDPOINT_MAX`] [`Engine::add_region`](crate::driver::Engine::add_region)
//! returns an error. Limits of the protocol are in [`mxoe::limits`](crate::limits); quotas of users
//! are in `causeway_mx::limits`.

use causeway_host::net::rx_ring::Slots;
use causeway_wire::mxoe::FRAME_LEN_MAX;

/// Number of unsent frames. Further frames are dropped.
pub const FRAMES_WAITING_MAX: usize = 1024;
/// Interval in ns of attempts to send after the kernel had no room: 200 us.
pub const FULL_NS: u64 = 200_000;
/// Time in ns without room after which the first waiting frame is dropped: 10 ms. The kernel also
/// reports a lack of room for a frame that the far end of a veth pair cannot receive.
pub const STUCK_NS: u64 = 10_000_000;
/// Maximum length of a region in bytes: 4 GiB, the maximum length of a message.
pub const REGION_BYTES_MAX: u64 = 4 << 30;
/// Maximum length of all regions of an endpoint in bytes: 10 GiB. This fits the longest message in
/// each direction, and regions of ordinary length. The memory belongs to the process and is
/// allocated when used.
pub const REGION_BYTES_OF_ENDPOINT_MAX: u64 = 10 << 30;
/// Number of requests that are processed when an endpoint closes: the capacity of its ring.
pub const REQUESTS_AT_CLOSE_MAX: usize = 1024;
/// Size of a receive buffer for a frame in bytes.
pub const FRAME_ROOM: usize = 16_384;
/// Minimum MTU in bytes of an interface for jumbo frames.
pub const WIDE_MTU: usize = FRAME_LEN_MAX - 14;
/// Returns the receive slots for an interface with this MTU.
pub fn slots_for(mtu: usize) -> Slots {
    if mtu >= WIDE_MTU { Slots::jumbo() } else { Slots::LONG }
}
/// Number of received frames after which due timers run: about as many as the kernel queues.
pub const FRAMES_BEFORE_DUE_MAX: usize = 1024;
