//! Every bound of this crate, in one place.

/// Most connections of one port.
pub const CONNECTIONS_PER_PORT_MAX: usize = 16_384;
/// Most connections in all.
pub const CONNECTIONS_MAX: usize = 262_144;
/// Connections that have ended whose ends are remembered, in each group: late packets of one may
/// come while another has its numbers.
pub const ENDED_MAX: usize = 4096;
/// Resets waiting for one port's receive buffers; then its transmit ring waits.
pub const RESETS_WAITING_MAX: usize = 256;
/// Most data in one packet, in bytes; Linux sends, and its own host side takes, as much.
pub const PACKET_BYTES_MAX: u32 = 64 << 10;
/// What a pack of data copied aside costs of [`STAGED_BYTES_MAX`] beside its data, in bytes...
pub const STAGED_PACK_BYTES: usize = 256;
/// ... and each message in it.
pub const STAGED_PIECE_BYTES: usize = 16;
/// Most bytes in a pack: what is delivered of it is freed as a whole.
pub const PACK_BYTES: usize = 64 << 10;
/// Bytes of one sender copied aside for receivers without room, beside what its descriptors hold.
/// Sixteen streams with the buffers of Linux (256 KiB) fit, whose receivers are all paused.
pub const STAGED_BYTES_MAX: usize = 4 << 20;
/// What Linux counts for a packet beside its bytes: `SKB_TRUESIZE(0)` on 64-bit machines.
pub const SKB_OVERHEAD_BYTES: u32 = 576;
/// Runs in which the unread packets of a connection are counted.
pub const UNREAD_RUNS_MAX: usize = 64;
/// How often a receiver whose packets are held back is asked for its credit; 1 ms. Linux before
/// 6.7 does not tell of what a stream's reader took before three quarters of the buffer are read.
pub const ASK_SOON_NS: u64 = 1_000_000;
/// The same once it was asked [`ASKS_SOON`] times in vain; 100 ms.
pub const ASK_LATER_NS: u64 = 100_000_000;
/// See [`ASK_LATER_NS`].
pub const ASKS_SOON: u8 = 20;
/// How many receivers are asked before others have their turn.
pub const ASKS_PER_TURN: usize = 64;
/// The same while a stopped transmit ring has its descriptors copied out: what an ordinary
/// ring of 128 packets holds, twice.
pub const SAVED_BYTES_MAX: usize = 16 << 20;
/// Largest ring, in descriptors; bounds what chains that wait take up. Linux and QEMU use 128.
pub const RING_SIZE_MAX: u16 = causeway_model::port::VSOCK_RING_SIZE_MAX;
/// Of a sender's transmit ring, one in this many descriptors may be held for one receiver...
pub const HELD_PART_ONE: u16 = 4;
/// ... and one in this many for all receivers together.
pub const HELD_PART_ALL: u16 = 2;
/// How often a receiver is looked at while a sender stands still for it; 100 ms.
pub const STALL_LOOK_NS: u64 = 100_000_000;
/// How long a sender stands still for a running receiver before the receiver must have made
/// progress; 1 s.
pub const STALL_WINDOW_NS: u64 = 1_000_000_000;
/// Progress in that time is this many bytes taken...
pub const STALL_BYTES_MIN: u64 = 1 << 20;
/// ... or this many packets taken: a guest with a tenth of a processor takes hundreds...
pub const STALL_PACKETS_MIN: u64 = 64;
/// ... or this many packets consumed by its applications, as far as credit shows it.
pub const STALL_RETURNED_MIN: u64 = 8;
/// How long a sender stands still for a receiver that moves no index of any queue; 10 s. Its VM
/// may be paused, or wait for a processor.
pub const SILENT_NS_MAX: u64 = 10_000_000_000;
/// How long a connect may stay unanswered; 30 s, far above any guest's own limit (Linux: 2 s).
pub const REQUEST_NS_MAX: u64 = 30_000_000_000;
/// How long a connection may stay open after both directions were shut; Linux itself waits 8 s.
pub const LINGER_NS_MAX: u64 = 10_000_000_000;
/// How long what a guest sent before it left may wait for a process that reads slowly; 5 min.
pub const DRAIN_NS_MAX: u64 = 300_000_000_000;
/// Receive space that we grant to a guest on a connection with the host, in bytes.
pub const HOST_BUFFER_BYTES: u32 = 256 << 10;
/// The same for messages, and the largest message between a guest and a process. It fits a Unix
/// socket of the default size, which is 208 KiB.
pub const HOST_MESSAGE_BYTES: u32 = 128 << 10;
/// Most connections of one port with host processes; each takes two file descriptors...
pub const HOST_CONNECTIONS_PER_PORT_MAX: usize = 1024;
/// ... and of all ports together.
pub const HOST_CONNECTIONS_MAX: usize = 16_384;
/// Host processes that have connected and not yet said `CONNECT <port>`, per port.
pub const HANDSHAKES_MAX: usize = 64;
/// How many of them are let in or turned away before others have their turn.
pub const HANDSHAKES_PER_TURN: usize = 4;
/// Host processes that one port's host socket takes in a second, and as many at once: each costs
/// the dispatcher some 20 to 50 us, which other ports lose.
pub const HOST_CONNECTS_PER_SECOND: u64 = 512;
/// How long a host socket is not watched to which more came; 100 ms. They wait in its backlog.
pub const DOOR_SHUT_NS: u64 = 100_000_000;
/// How long a host process may take to write its `CONNECT <port>` line; 5 s.
pub const HANDSHAKE_NS_MAX: u64 = 5_000_000_000;
/// Longest `CONNECT <port>` line, in bytes.
pub const HANDSHAKE_BYTES_MAX: usize = 32;
/// System calls of a connect to a host process, by what they cost: a socket, its path, its watch.
pub const CONNECT_CALLS: u64 = 5;
/// First source port of connections that host processes make...
pub const HOST_PORT_FIRST: u32 = 1024;
/// ... and last: `OK <port>` with its end of line has at most the nine bytes that
/// systemd-ssh-proxy reads.
pub const HOST_PORT_LAST: u32 = 65_535;
/// Receive buffers filled for one connection before the next has its turn.
pub const TURN_BUFFERS: usize = 16;
