//! Every bound of the links' I/O, in one place.

/// Flows that are received from in one system call.
pub const RECEIVE_BUFFERS: usize = 8;
/// Room for what comes from one flow in one call, in bytes: the kernel puts at most that together.
pub const RECEIVE_BYTES: usize = 65_536;
/// What a socket holds in each direction, in bytes; 4 MiB.
pub const SOCKET_BYTES: usize = 4 << 20;
/// Most bytes that are sent in one system call.
pub const SEND_BYTES: usize = 65_000;
/// The longest frame that fits one UDP datagram of its own, with 8 bytes before it.
pub const BARE_FRAME_MAX: usize = 65_499;
/// The shortest frame: an Ethernet header.
pub const FRAME_MIN: usize = 14;
/// Length of an Ethernet header, which an MTU does not count, in bytes.
pub const ETHERNET_HEADER: usize = 14;
/// Longest file that is read for a key, in bytes.
pub const KEY_FILE_BYTES_MAX: u64 = 4096;
/// Notices from groups that are taken in one go.
pub const NOTICES_PER_TURN_MAX: usize = 64;
