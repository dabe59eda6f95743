//! Limits and timing constants of the links' I/O.
//!
//! Constants only, fixed at compile time; none can be configured. Times are in ns unless the name
//! or the type names another unit, lengths in bytes. Limits of the core are in [`crate::limits`].
//!
//! | constants | read by | thread |
//! |---|---|---|
//! | batches to send | the carriers, `udp_batch` | the dispatcher of the sending group |
//! | queues of streams | `stream::connection` | both dispatchers |
//! | received frames | `bare`, `raw::batch`, `stream::link` | dispatcher of the shard of links |
//! | notices and claims of addresses | `service`, `addresses` | the dispatcher of the shard of links |
//! | connects, keepalive, accepts | `stream::link`, `stream::attempt`, `stream::listener` | the same |
//! | keys, certificates | `open`, `tls`, `stream::link`, `view` | the same |
//! | interfaces | `raw::batch`, `raw::link` | the same; `raw::carrier` in the sending group's |
//! | reopening, names | `pending`, `names` | the same |

use std::time::Duration;

/// Requested size of the send and the receive buffer of a `raw` link's socket, in bytes; 4 MiB.
pub const SOCKET_BYTES: usize = 4 << 20;
/// Most bytes of one send call. A full batch is sent.
pub const SEND_BYTES: usize = 65_000;
/// Sockets from which a VXLAN socket's links send, so that flows have different source ports. A
/// batch leaves from one socket: more sockets would mean more system calls.
pub const VXLAN_SENDERS: usize = 4;
/// Batches that are sent datagram by datagram after GSO failed, before it is tried again.
pub const GSO_RETRY_BATCHES: u32 = 1_024;
/// Longest frame in a UDP datagram of its own, with 8 bytes before it, in bytes. A longer frame is
/// refused with `TooBig` and counted.
pub const BARE_FRAME_MAX: usize = 65_499;
/// Shortest frame, in bytes: an Ethernet header. A shorter received frame is dropped and counted.
pub const FRAME_MIN: usize = 14;
/// Longest key file, in bytes. The link does not open with a longer file.
pub const KEY_FILE_BYTES_MAX: u64 = 4096;
/// Notices of groups processed in one turn. The rest waits for the next turn.
pub const NOTICES_PER_TURN_MAX: usize = 64;
/// Shortest time between two requests for claims that found a directory full; 1 s.
pub const REPEAT_CLAIMS_NS: u64 = 1_000_000_000;
/// Retry interval for address changes that a group's mailbox had no room for; 10 ms.
pub const RESEND_CHANGES_NS: u64 = 10_000_000;

/// First pause before a stream reconnects, in ns; 500 ms. Doubled each time.
pub const CONNECT_AGAIN_NS_MIN: u64 = 500_000_000;
/// Longest such pause; 5 s. A connection that lasts as long resets the pause.
pub const CONNECT_AGAIN_NS_MAX: u64 = 5_000_000_000;
/// Timeout of a connection attempt, and of its TLS handshake; 5 s.
pub const CONNECT_NS_MAX: u64 = 5_000_000_000;
/// Concurrent connection attempts of one link, so that a stalled attempt does not block others;
/// with [`ACCEPTS_PER_SECOND_MAX`] each has at least 400 ms. A further attempt closes the oldest.
pub const ATTEMPTS_MAX: usize = 8;
/// How long a TLS client waits after the handshake for data or a refusal of the peer; 1 s.
pub const FIRST_WORD_NS_MAX: u64 = 1_000_000_000;
/// Idle time before TCP keepalive probes; 5 s.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// Interval of keepalive probes; 1 s.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Unanswered keepalive probes after which a connection fails. It is then made again.
pub const KEEPALIVE_TRIES: u32 = 3;
/// TCP user timeout: how long sent bytes may stay unacknowledged, in ms; 8 s. Then the connection
/// fails, and is made again.
pub const UNTAKEN_MS_MAX: u32 = 8_000;
/// Unsent bytes that the kernel buffers per connection: new frames wait behind them.
pub const UNSENT_BYTES_MAX: u32 = 128 << 10;
/// Queueing delay for a connection, by its delivery rate; 100 ms, as for a ring.
pub const BACKLOG_MS_MAX: u64 = 100;
/// Connections accepted from a listener in one turn. The rest waits in the kernel's queue.
pub const ACCEPTS_PER_TURN_MAX: usize = 16;
/// Connections per second accepted from one peer, and the burst: more than a peer that reconnects
/// after [`CONNECT_AGAIN_NS_MIN`] makes. A further connection is closed at once and counted.
pub const ACCEPTS_PER_SECOND_MAX: u64 = 20;
/// Sealed bytes that TLS buffers for a socket.
pub const SEALED_BYTES_MAX: usize = 128 << 10;
/// Received frames up to this total length are copied rather than passed on in their buffer, in
/// bytes.
pub const COPIED_BYTES_MAX: usize = 16 << 10;
/// Interval at which certificate files are checked for changes, in addition to each connection; 1
/// h.
pub const RENEW_NS: u64 = 3_600_000_000_000;
/// Days before its expiry from which a certificate is logged and shown.
pub const EXPIRY_DAYS: i64 = 14;
/// Time between two log lines about an expiring certificate; 1 day.
pub const EXPIRY_LOG_NS: u64 = 86_400_000_000_000;
/// Longest certificate file, in bytes; 1 MiB. A longer file is faulty: a link does not open with
/// it, and an open link keeps the certificates that it has.
pub const CERTIFICATE_BYTES_MAX: u64 = 1 << 20;

/// Room for one frame from an interface, with its header, in bytes: the longest segment. A longer
/// frame is dropped and counted.
pub const RAW_FRAME_ROOM: usize = 66 << 10;
/// Buffer for one receive turn of an interface, in bytes.
pub const RAW_BYTES: usize = 132 << 10;
/// Most addresses learnt from frames that left by an interface, in one period of
/// [`RAW_ADDRESS_NS`]. Frames from further addresses leave, and the answers to them are filtered.
pub const RAW_ADDRESSES_MAX: usize = 4_096;
/// Ageing time of a learnt address (between once and twice this time); 300 s, as in bridges.
pub const RAW_ADDRESS_NS: u64 = 300_000_000_000;
/// Interval at which a missing interface is tried again; 1 s.
pub const RAW_AGAIN_NS: u64 = 1_000_000_000;
/// Length of a VLAN tag, in bytes.
pub const TAG_BYTES: usize = 4;
/// Length of the addresses and a tag, in bytes.
pub const TAGGED_HEADER: usize = 16;

/// Delay between closing and reopening a link, in ns; 10 ms: its group drops the socket meanwhile.
pub const REOPEN_NS: u64 = 10_000_000;
/// First pause before an unopened link is tried again, in ns; 1 s. Doubled each time.
pub const OPEN_AGAIN_NS_MIN: u64 = 1_000_000_000;
/// Longest such pause; 30 s.
pub const OPEN_AGAIN_NS_MAX: u64 = 30_000_000_000;
/// Links opened again in one tick: each takes system calls, on the dispatcher. Further links are
/// due in the next tick.
pub const OPENS_PER_TICK_MAX: usize = 8;
/// First pause before the name of a silent peer is resolved again, in ns; 5 s. Doubled each time.
pub const LOOKUP_NS_MIN: u64 = 5_000_000_000;
/// Longest such pause; 5 min. Kinds without liveness detection keep to it.
pub const LOOKUP_NS_MAX: u64 = 300_000_000_000;
/// Most queued lookups of the process: one per link. A further lookup fails at once, and is tried
/// again after the pause.
pub const LOOKUPS_WAITING_MAX: usize = causeway_model::limits::LINKS_MAX;
/// Threads that resolve names: as many slow names do not delay others.
pub const RESOLVER_THREADS: usize = 4;

/// Time after which the addresses of this host are read again for the cluster, though no shard
/// counted a change: a shard that opened since does not count.
pub const ADDRESSES_READ: std::time::Duration = std::time::Duration::from_secs(1);
