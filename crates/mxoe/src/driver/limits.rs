//! Every bound of this crate, in one place.

use causeway_host::net::rx_ring::Slots;
use causeway_wire::mxoe::FRAME_LEN_MAX;

/// Frames that wait for the host to have room for them; then they are lost.
pub const FRAMES_WAITING_MAX: usize = 1024;
/// How long they wait until it is asked again; 200 us.
pub const FULL_NS: u64 = 200_000;
/// How long the first of them waits before it is lost, so that others go on; 10 ms. Hosts say that
/// there is no room also of a frame that is too long for the other end of a cable.
pub const STUCK_NS: u64 = 10_000_000;
/// Longest region, in bytes; 4 GiB, as long as the longest message.
pub const REGION_BYTES_MAX: u64 = 4 << 30;
/// All regions of one endpoint, in bytes; 10 GiB: the longest message each way, and what others of
/// common length share. Memory is the process's, and is there when used.
pub const REGION_BYTES_OF_ENDPOINT_MAX: u64 = 10 << 30;
/// Requests that are taken from a ring whose endpoint is closed: as many as there can be.
pub const REQUESTS_AT_CLOSE_MAX: usize = 1024;
/// Room for one frame from the interface, in bytes.
pub const FRAME_ROOM: usize = 16_384;
/// Least MTU of an interface by which two frames of what is pulled go in one, in bytes.
pub const WIDE_MTU: usize = FRAME_LEN_MAX - 14;
/// What frames of an interface of that MTU come into.
pub fn slots_for(mtu: usize) -> Slots {
    if mtu >= WIDE_MTU { Slots::jumbo() } else { Slots::LONG }
}
/// Frames that are looked at before it is done what is due: about as many as the host
/// keeps.
pub const FRAMES_BEFORE_DUE_MAX: usize = 1024;
