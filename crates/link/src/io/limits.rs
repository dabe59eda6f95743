//! Every bound of the links' I/O, in one place.

use std::time::Duration;

/// What a socket holds in each direction, in bytes; 4 MiB.
pub const SOCKET_BYTES: usize = 4 << 20;
/// Most bytes that are sent in one system call.
pub const SEND_BYTES: usize = 65_000;
/// Sockets from which a VXLAN socket's links send, so that flows have different source ports. A
/// batch is of one of them: more would leave in more system calls.
pub const VXLAN_SENDERS: usize = 4;
/// Batches whose datagrams leave one by one, where the kernel did not send them together, before it
/// is asked to again.
pub const ALONE_BATCHES: u32 = 1_024;
/// The longest frame that fits one UDP datagram of its own, with 8 bytes before it.
pub const BARE_FRAME_MAX: usize = 65_499;
/// The shortest frame: an Ethernet header.
pub const FRAME_MIN: usize = 14;
/// Longest file that is read for a key, in bytes.
pub const KEY_FILE_BYTES_MAX: u64 = 4096;
/// Notices from groups that are taken in one go.
pub const NOTICES_PER_TURN_MAX: usize = 64;
/// Least time between two looks through all that peers told, for what found no room; 1 s.
pub const LOOK_AGAIN_NS: u64 = 1_000_000_000;
/// When groups that had no room for it are told again where addresses are; 10 ms.
pub const TELL_AGAIN_NS: u64 = 10_000_000;

/// Time until a stream's first try to connect again, in nanoseconds; 500 ms. Twice that each time...
pub const CONNECT_AGAIN_NS_MIN: u64 = 500_000_000;
/// ... and at most this; 5 s. A connection that lasts so long begins anew with the least.
pub const CONNECT_AGAIN_NS_MAX: u64 = 5_000_000_000;
/// How long a connection may take to come about, or its TLS handshake; 5 s.
pub const CONNECT_NS_MAX: u64 = 5_000_000_000;
/// Connections of one link that may be under way at a time, so that one which does not come about
/// does not keep another from it; with [`ACCEPTS_PER_SECOND_MAX`] each has 400 ms at least.
pub const ATTEMPTS_MAX: usize = 8;
/// How long a TLS client waits for the peer's first word after the handshake; 1 s.
pub const FIRST_WORD_NS_MAX: u64 = 1_000_000_000;
/// A connection without traffic is tried after so long; 5 s.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// And again after so long, [`KEEPALIVE_TRIES`] times; 1 s.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// How often a connection is tried before it is given up.
pub const KEEPALIVE_TRIES: u32 = 3;
/// How long sent bytes wait for the peer to take them before it is given up, in milliseconds; 8 s.
pub const UNTAKEN_MS_MAX: u32 = 8_000;
/// What the kernel holds of a connection and has not sent, in bytes: frames behind it wait that long.
pub const UNSENT_BYTES_MAX: u32 = 128 << 10;
/// How long frames may wait for a connection, by how fast the peer takes them; 100 ms, as a ring's.
pub const BACKLOG_MS_MAX: u64 = 100;
/// Connections that are taken from a listener in one go.
pub const ACCEPTS_PER_TURN_MAX: usize = 16;
/// Connections a second that are taken from one peer, and as many at once: more than a peer makes
/// that tries again as [`CONNECT_AGAIN_NS_MIN`] says.
pub const ACCEPTS_PER_SECOND_MAX: u64 = 20;
/// What TLS holds for a socket to take, in bytes.
pub const SEALED_BYTES_MAX: usize = 128 << 10;
/// Frames that came together and are copied rather than handed on where they lie, in bytes.
pub const COPIED_BYTES_MAX: usize = 16 << 10;
/// Time between two looks whether files of certificates have changed, beside those at each connection;
/// 1 h.
pub const RENEW_NS: u64 = 3_600_000_000_000;
/// From so many days on before it does is logged and shown that a certificate expires.
pub const EXPIRY_DAYS: i64 = 14;
/// Time between two log lines that a certificate expires; 1 day.
pub const EXPIRY_LOG_NS: u64 = 86_400_000_000_000;
/// Longest file of certificates, in bytes; 1 MiB.
pub const CERTIFICATE_BYTES_MAX: u64 = 1 << 20;

/// Room for one frame from an interface, with what stands before it, in bytes: the longest segment.
pub const RAW_FRAME_ROOM: usize = 66 << 10;
/// Room for what is received from an interface in one go, in bytes.
pub const RAW_BYTES: usize = 132 << 10;
/// Addresses that are noted because their frames left by an interface.
pub const RAW_ADDRESSES_MAX: usize = 4_096;
/// One whose frames have not left for so long, or twice as long, is forgotten; 300 s, as bridges do.
pub const RAW_ADDRESS_NS: u64 = 300_000_000_000;
/// Time between two looks whether an interface is there again; 1 s.
pub const RAW_AGAIN_NS: u64 = 1_000_000_000;
/// Length of a VLAN tag, in bytes.
pub const TAG_BYTES: usize = 4;
/// Length of the addresses and a tag, in bytes.
pub const TAGGED_HEADER: usize = 16;

/// Time between the close of a link that is opened anew and its opening, in nanoseconds; 10 ms: its
/// group lets go of the socket meanwhile.
pub const REOPEN_NS: u64 = 10_000_000;
/// Time until a link that could not be opened is opened again, in nanoseconds; 1 s. Twice that each
/// time...
pub const OPEN_AGAIN_NS_MIN: u64 = 1_000_000_000;
/// ... and at most this; 30 s.
pub const OPEN_AGAIN_NS_MAX: u64 = 30_000_000_000;
/// Links that are opened again in one go: each takes system calls, on the dispatcher.
pub const OPENS_PER_TICK_MAX: usize = 8;
/// Time until the name of a peer that does not answer is resolved again, in nanoseconds; 5 s. Twice
/// that each time...
pub const LOOKUP_NS_MIN: u64 = 5_000_000_000;
/// ... and at most this; 5 min. Kinds that do not show whether the peer is there keep to it.
pub const LOOKUP_NS_MAX: u64 = 300_000_000_000;
/// Lookups that may wait at a time, of the whole process: one for each link.
pub const LOOKUPS_WAITING_MAX: usize = causeway_model::limits::LINKS_MAX;
/// Threads that resolve names: as many names may be slow at a time without delaying others.
pub const RESOLVER_THREADS: usize = 4;
/// Addresses of one name that are tried.
pub const RESOLVED_MAX: usize = 8;
