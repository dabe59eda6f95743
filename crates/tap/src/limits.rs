//! Bounds of the TAP service. None can be configured. Frames of an interface beyond the limits of
//! batches wait in the kernel's transmit queue of the interface (`txqueuelen`, 1,000 frames by
//! default), and the kernel drops what the queue has no room for. Longer and shorter frames are
//! dropped and counted. Times with *estimated* are charged to a turn.
//!
//! `receive`, `port` and `service` read the constants in the thread of the TAP shard, `carrier` in
//! that of the forwarding service.

use causeway_host::net::tap::TAP_HEADER_BYTES;

/// Longest frame, in bytes: a segment of 64 KiB with headers. A longer frame is refused as too big
/// and counted.
pub const FRAME_BYTES_MAX: usize = 65536 + 256;
/// Room for a frame that is read, with its header, in bytes. The last byte stays free: a longer
/// frame fills the room, and is dropped.
pub const READ_ROOM: usize = FRAME_BYTES_MAX + TAP_HEADER_BYTES + 1;
/// Shortest frame, in bytes: an Ethernet header. A shorter frame is dropped as a runt.
pub const FRAME_BYTES_MIN: usize = 14;
/// Bytes of a frame beside the payload that the MTU bounds: an Ethernet header and a VLAN tag.
pub const HEADERS_BYTES_MAX: usize = 18;
/// Most frames in one batch to the service that forwards the group's frames. A full batch is sent
/// at once.
pub const BATCH_FRAMES_MAX: usize = 64;
/// Bytes of a batch: at least three frames of 64 KiB. A batch without room for a frame is sent at
/// once.
pub const BATCH_BYTES: usize = 3 * READ_ROOM;
/// Most batches of a port that the forwarding service has. The buffers stay allocated: about 600
/// KiB for each port that was busy once.
pub const BATCHES_MAX: usize = 3;
/// Pause of a port with batches that wait for room, in nanoseconds: 20 us.
pub const ROOM_PAUSE_NS: u64 = 20_000;
/// Pause between two attempts to open a missing interface, in nanoseconds: 1 s.
pub const OPEN_AGAIN_NS: u64 = 1_000_000_000;
/// Estimated time of a write to an interface, in nanoseconds: the kernel's network stack receives
/// the frame during the call.
pub const WRITE_NS: u64 = 2_000;
/// Estimated time of a read from an interface without its bytes, in nanoseconds.
pub const READ_NS: u64 = 500;
/// Estimated time of an attempt to open an interface, in nanoseconds.
pub const OPEN_NS: u64 = 50_000;
