//! Every limit of this crate.
//!
//! Units are in the description or the name: `_NS` nanoseconds, `_BYTES` bytes. The values are
//! fixed at compile time. At the limits of frames a slow peer loses frames and a slow group makes
//! the peer wait; at the limit of connections a connection is refused. The modules of this crate
//! read them in the dispatcher of the shard, and those of frames to the peer also in the thread of
//! the forwarding service. No call waits.

use std::time::Duration;

/// Bytes of Ethernet header and two VLAN tags that an MTU does not count.
pub const LINK_HEADER_BYTES_MAX: usize = 22;
/// Bytes of frames that wait for a slow peer; 1 MiB, about 700 full frames. Further frames are
/// dropped. The send buffers of Unix sockets and both buffers of UDP sockets get this size, as far
/// as the host allows.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Queued bytes at which frames are sent before the end of the turn.
pub const SEND_BYTES: usize = 65_000;
/// Receive buffer of a stream; 128 KiB, more than the longest frame with its length.
pub const STREAM_BYTES: usize = 128 << 10;
/// Buffer for the datagrams of one batch. Without room for the longest frame, the batch ends.
pub const BATCH_BYTES: usize = 128 << 10;
/// Most datagrams of one batch. Further datagrams wait in the socket.
pub const BATCH_DATAGRAMS_MAX: usize = 64;
/// Most batches of one port on the way to the forwarding service. Until one is processed, further
/// frames wait in the socket.
pub const BATCHES_MAX: usize = 2;
/// Shortest pause between two attempts to connect; 100 ms.
pub const CONNECT_PAUSE_NS: u64 = 100_000_000;
/// Longest pause between two attempts to connect; 1 s.
pub const CONNECT_PAUSE_NS_MAX: u64 = 1_000_000_000;
/// Time in which a TCP connection must be established; 5 s. The attempt has failed then, and is
/// repeated.
pub const CONNECT_NS_MAX: u64 = 5_000_000_000;
/// Time after which frames are offered again to a datagram socket without room; 1 ms. The kernel
/// does not report room in the queue of another process's datagram socket.
pub const RETRY_NS: u64 = 1_000_000;
/// Shortest time between two checks whether the peer of a datagram port is gone; 100 ms.
pub const PROBE_NS: u64 = 100_000_000;
/// TCP connections that a port accepts a second. A further connection is closed and counted.
pub const ACCEPTS_PER_SECOND: u64 = 32;
/// Idle time after which TCP asks whether the peer is there.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// Time between further questions.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Unanswered questions after which a TCP connection is closed.
pub const KEEPALIVE_TRIES: u32 = 3;
/// Time in milliseconds for which a TCP peer may leave sent bytes unacknowledged; the kernel then
/// ends the connection.
pub const UNTAKEN_MS_MAX: u32 = 30_000;

const _: () = assert!(STREAM_BYTES > 65_535 + LINK_HEADER_BYTES_MAX + 4);
const _: () = assert!(BATCH_BYTES > 65_535 + LINK_HEADER_BYTES_MAX);
