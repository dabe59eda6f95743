//! Limits and timing constants of the core: all modules of this crate but [`crate::io`], which own
//! no socket, clock or thread.
//!
//! Constants only, fixed at compile time; none can be configured, and the ends of a tunnel do not
//! negotiate them. Both ends should have the same values: an end drops, for example, a frame above
//! its own [`FRAME_BYTES_MAX`]. Times are in ns, lengths in bytes. Limits of the sockets around the
//! core are in [`crate::io::limits`].
//!
//! | constants | read by | thread in causewayd |
//! |---|---|---|
//! | frames and datagrams to send | [`crate::pack`] | the dispatcher of the sending group |
//! | longest frame, datagrams of a session | senders and receivers, [`crate::session`] | both |
//! | sessions, handshakes, cookies | [`crate::tunnel`], [`crate::handshake_guard`], [`crate::replay`] | the dispatcher of the shard of links |
//! | reassembly | [`crate::reassembly`] | the same |
//! | heartbeats, path length, loss | [`crate::health`] | the same |
//! | networks, announcements, tunnels | [`crate::tunnel`], [`crate::tunnel_set`] | the same |
//! | streams | [`crate::framing`] | both |
//! | packets and segment sizes of VXLAN | [`crate::partial_offload`], [`crate::mss`] | both |

/// Longest Ethernet frame that a tunnel carries, in bytes: 65535 of IP with the longest header. The
/// sender refuses a longer frame, the receiver drops its fragments as `Oversized`.
pub const FRAME_BYTES_MAX: usize = 65_557;
/// Longest payload of a UDP datagram, in bytes. Lengths of paths are clamped to it.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;
/// UDP payload that every IPv6 path carries, in bytes: 1280 less IPv6 and UDP headers. IPv4 paths
/// may carry less.
pub const DATAGRAM_BYTES_SAFE: usize = 1_232;
/// Shortest datagram length that a tunnel falls back to, in bytes of UDP payload: 576, which every
/// IPv4 host accepts, less IPv4 and UDP headers.
pub const DATAGRAM_BYTES_MIN: usize = 548;
/// Most datagrams in one batch: the kernel's limit for UDP GSO. A full batch is sent.
pub const BATCH_DATAGRAMS_MAX: usize = 64;
/// Most bytes in one batch: the limit of one send. A full batch is sent.
pub const BATCH_BYTES_MAX: usize = 65_000;
/// Frames up to this length, in bytes, start a new datagram rather than being fragmented.
pub const WHOLE_BYTES_MAX: usize = 256;
/// Shortest fragment that is not the last of its frame, in bytes.
pub const FRAGMENT_BYTES_MIN: usize = 64;

/// Datagrams that a session seals before a new handshake: 2^48.
pub const SESSION_DATAGRAMS_REKEY: u64 = 1 << 48;
/// Most datagrams that a session seals: 2^60. The session then refuses to seal, and frames are
/// dropped until a handshake succeeds; the handshake has begun at [`SESSION_DATAGRAMS_REKEY`].
pub const SESSION_DATAGRAMS_MAX: u64 = 1 << 60;
/// Width of the replay window, in datagrams. A datagram that is older than the window is dropped
/// and counted as `Replayed`, also if it never arrived before.
pub const REPLAY_WINDOW: u64 = 2_048;

/// Most incomplete frames per tunnel. The first fragment of a further frame drops the oldest
/// incomplete frame, counted as `Crowded`.
pub const FRAGMENTED_FRAMES_MAX: usize = 64;
/// Most bytes of incomplete frames per tunnel, counted by their whole lengths. A further frame
/// drops the oldest ones until it fits, counted as `Crowded`.
pub const FRAGMENTED_BYTES_MAX: usize = 2 << 20;
/// Most disjoint ranges of one incomplete frame. A fragment that would be a further range drops the
/// frame that it belongs to, counted as `Crowded`.
pub const FRAGMENTED_RANGES_MAX: usize = 64;
/// Buffers kept for the next incomplete frames, per tunnel. A further buffer displaces one of them.
pub const FRAGMENTED_SPARE_MAX: usize = 4;
/// Time after which an incomplete frame is dropped, counted as `Incomplete`; 1 s.
pub const FRAGMENTED_NS_MAX: u64 = 1_000_000_000;

/// Time between the end of an on-demand tunnel's session and its own next handshake, at least:
/// 100 ms. Frames wait meanwhile.
pub const WAKE_PAUSE_NS: u64 = 100_000_000;

/// Age of a session at which its initiator begins a new handshake; 2 min.
pub const REKEY_NS: u64 = 120_000_000_000;
/// Additional time after which the responder begins it instead; 15 s.
pub const REKEY_LATE_NS: u64 = 15_000_000_000;
/// Age at which a session is discarded; 5 min. Without a successor the tunnel has no path, and
/// frames to it are dropped.
pub const SESSION_NS_MAX: u64 = 300_000_000_000;
/// Time for which datagrams of a replaced session are accepted; 10 s. Later ones are dropped.
pub const SESSION_GRACE_NS: u64 = 10_000_000_000;
/// Time for which the responder waits for the first datagram of a new session; 10 s. The new
/// session is then discarded, and the current one stays.
pub const CONFIRM_NS_MAX: u64 = 10_000_000_000;
/// First retransmission timeout of an initiation; 500 ms, doubled each time. Retransmissions do not
/// end while the tunnel has an address of the peer.
pub const INITIATION_NS_MIN: u64 = 500_000_000;
/// Longest retransmission timeout of an initiation; 5 s.
pub const INITIATION_NS_MAX: u64 = 5_000_000_000;
/// Most random time added to the timeout, so that two ends do not initiate in step; 250 ms.
pub const INITIATION_JITTER_NS: u64 = 250_000_000;
/// Time after its last datagram during which initiations from other addresses are refused for a
/// peer, because their sender may be a clone; three heartbeats, 1.5 s.
pub const HEARD_NS: u64 = 3 * HEARTBEAT_NS;
/// Time for which a clone or a clock that went back is shown and not logged again; 1 min.
pub const HANDSHAKE_FAULT_NS: u64 = 60_000_000_000;
/// Consecutive crossed initiations of the end with precedence before it yields.
pub const CROSSED_MAX: u32 = 3;

/// Initiations per second without a cookie that are decrypted, from all sources; also the burst. An
/// initiation without a cookie beyond this or the next limit is answered with a cookie; one with a
/// cookie beyond its limits is dropped, counted as `Rate`.
pub const INITIATIONS_ALL: u64 = 50;
/// The same from one address without a cookie, and from one address and port with a cookie.
pub const INITIATIONS_SOURCE: u64 = 5;
/// The same with a cookie from one address where no peer is known to be, for all its ports: many
/// peers may be behind one NAT.
pub const INITIATIONS_ADDRESS: u64 = 50;
/// The same with a cookie from known peer addresses, in total: two for each of 1,000 links.
pub const INITIATIONS_KNOWN: u64 = 2_000;
/// The same with a cookie, from all addresses where no peer is known to be.
pub const INITIATIONS_PROVEN: u64 = 200;
/// Entries of the tables of rate limits; sources that share an entry share its limit.
pub const SOURCES: usize = 1_024;
/// Lifetime of a cookie secret; its predecessor stays valid. 2 min.
pub const COOKIE_NS: u64 = 120_000_000_000;

/// Time for which the peer of a dormant tunnel may take to answer a handshake; 5 s. Then the tunnel
/// is down, and frames that wait for the session are dropped.
pub const WAKE_NS_MAX: u64 = 5_000_000_000;
/// Time for which an on-demand tunnel stays awake without traffic, after its start, a handshake of
/// the peer, a flooded frame or an announcement; 10 s, or the idle time if that is shorter.
pub const LINGER_NS: u64 = 10_000_000_000;
/// Most frames of a tunnel that wait for its session. A further frame is dropped, counted as
/// `no_room` at the link.
pub const WAITING_FRAMES_MAX: usize = 64;
/// Most bytes of these frames; 128 KiB.
pub const WAITING_BYTES_MAX: usize = 128 << 10;
/// The same for all tunnels of an underlay socket; 8 MiB.
pub const WAITING_BYTES_ALL: usize = 8 << 20;

/// Time between heartbeats; 500 ms.
pub const HEARTBEAT_NS: u64 = 500_000_000;
/// Consecutive unanswered heartbeats after which a peer is down, if it sends no frames either. Each
/// waits for its answer as long as the measured round trip requires.
pub const HEARTBEATS_MISSED: u64 = 3;
/// Longest wait for the answer to a heartbeat, for any round trip; 15 s. The heartbeat then counts
/// as lost.
pub const ANSWER_NS_MAX: u64 = 15_000_000_000;
/// Lost heartbeats of the last [`HEARTBEATS_KEPT`] (32) that make a path poor; a quarter (8).
/// `ethernet` then prefers other paths.
pub const HEARTBEATS_POOR: usize = HEARTBEATS_KEPT / 4;
/// Consecutive answered heartbeats that make a path good again; 2 s. Doubled for each further time
/// within [`FLAP_NS`] that the path was poor.
pub const HEARTBEATS_GOOD: usize = 4;
/// Upper limit of that doubling; 16 s.
pub const HEARTBEATS_GOOD_MAX: usize = HEARTBEATS_KEPT;
/// Time for which a path has to be good so that its past no longer counts; 1 min.
pub const FLAP_NS: u64 = 60_000_000_000;
/// Heartbeats over which loss is counted.
pub const HEARTBEATS_KEPT: usize = 32;
/// Time between heartbeats padded to the datagram length in use; 2 s.
pub const LENGTH_CHECK_NS: u64 = 2_000_000_000;
/// Consecutive unanswered padded heartbeats after which datagrams are shortened to
/// [`DATAGRAM_BYTES_SAFE`] (1,232), and from there or below to [`DATAGRAM_BYTES_MIN`] (548).
pub const LENGTH_CHECKS_MISSED: u32 = 3;
/// Time between the probe bursts of one search for the longest datagram; 1 s.
pub const PROBE_BURST_NS: u64 = 1_000_000_000;
/// Time from the first burst until an answered length replaces a longer unanswered length in use; 2
/// s.
pub const SHORTER_NS: u64 = 2_000_000_000;
/// Probe bursts of one search.
pub const PROBE_BURSTS: u32 = 3;
/// Time until the next search, if longer datagrams might reach the peer; 1 min.
pub const SEARCH_NS: u64 = 60_000_000_000;

pub use causeway_directory::limits::ADDRESSES_MAX;
/// Most virtual networks of one tunnel. For a further network `Tunnel::carry` returns false: the
/// service logs an error, and received frames of this network are dropped, counted as `Vni`. A daemon
/// has no more links.
pub const VNIS_MAX: usize = 4_096;
/// Intervals at which an announcement is repeated: 100 ms, then 300 ms later.
pub const REPEAT_ANNOUNCEMENT_NS: [u64; 2] = [100_000_000, 300_000_000];
/// Shortest time between two requests for all addresses, or between two replies; 1 s.
pub const SYNC_NS: u64 = 1_000_000_000;

/// Most tunnels of one underlay socket. `TunnelSet::add` fails for a further tunnel, so that the
/// link cannot be opened; a daemon has no more links.
pub const TUNNELS_MAX: usize = 4_096;
/// Smallest frame buffer of a [`crate::Sink`], in bytes.
pub const SINK_BYTES_MIN: usize = 128 << 10;

/// Receive buffer of a stream, in bytes: the longest frame and as much again.
pub const STREAM_BYTES: usize = 128 << 10;
/// Most bytes queued for a stream; further frames are dropped. The queue of a stream may have the
/// bytes that its connection delivers in 100 ms (`io::limits::BACKLOG_MS_MAX`), but at least
/// [`BACKLOG_BYTES_MIN`] and at most this value; before the first measurement it may have this
/// value.
pub const BACKLOG_BYTES_MAX: usize = 1 << 20;
/// Lower bound of the queue limit of a stream, in bytes: the longest frame and as much again. So
/// even the slowest stream takes the longest frame.
pub const BACKLOG_BYTES_MIN: usize = 128 << 10;

/// Longest IP packet on an ordinary Ethernet, in bytes: a longer TCP packet is uncut.
pub const PACKET_BYTES_ETHERNET: usize = 1_500;
/// Longest inner packet of VXLAN over IPv4 on an ordinary Ethernet, in bytes.
pub const PACKET_BYTES_VXLAN: usize = 1_450;

/// Entries of the table of TCP segment sizes of one VXLAN socket, a power of two; 32 KiB. A further
/// flow displaces the entry that it shares.
pub const MSS_FLOWS: usize = 4_096;
/// Smallest segment size that is believed, in bytes: Linux has the same limit. A smaller size in a
/// SYN is not recorded.
pub const MSS_MIN: u16 = 48;

/// Fewest datagrams that a delivery report covers. With fewer new datagrams no report is sent, and
/// they count in the next report.
pub const DELIVERED_MIN: u64 = 256;
/// Fewest datagrams over which loss is computed. Reports are summed until they cover so many.
pub const LOSS_SAMPLE: u64 = 2_000;
/// Loss of 10,000 datagrams from which segments are cut: 0.2 %, at which one of twelve 64 KiB
/// segments would be lost.
pub const LOSSY_OF_10000: u64 = 20;
/// Loss of 10,000 datagrams up to which a path is clean: 0.05 %.
pub const CLEAN_OF_10000: u64 = 5;
/// Time for which a path has to be clean before segments cross uncut again; 10 s.
pub const CLEAN_NS: u64 = 10_000_000_000;
