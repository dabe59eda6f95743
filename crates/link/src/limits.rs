//! Every bound of this crate, in one place.

/// Longest Ethernet frame that a tunnel carries, in bytes: 65535 of IP with the longest header.
pub const FRAME_BYTES_MAX: usize = 65_557;
/// Longest payload of a UDP datagram, in bytes.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;
/// A datagram's payload that every path of IPv6 carries, in bytes: 1280 less IPv6 and UDP headers. Paths
/// of IPv4 may carry less.
pub const DATAGRAM_BYTES_SAFE: usize = 1_232;
/// The shortest datagrams that a tunnel cuts to, in bytes of payload: what every host of IPv4 takes, 576,
/// less IPv4 and UDP headers.
pub const DATAGRAM_BYTES_MIN: usize = 548;
/// Most datagrams in one batch: what the kernel cuts one send into.
pub const BATCH_DATAGRAMS_MAX: usize = 64;
/// Most bytes in one batch: what one send takes.
pub const BATCH_BYTES_MAX: usize = 65_000;
/// A frame that goes whole into the next datagram rather than in pieces, in bytes at most.
pub const WHOLE_BYTES_MAX: usize = 256;
/// Fewest bytes of a frame worth a fragment that is not its last.
pub const FRAGMENT_BYTES_MIN: usize = 64;

/// Datagrams that a session seals before it asks for a successor: 2^48.
pub const SESSION_DATAGRAMS_REKEY: u64 = 1 << 48;
/// Datagrams that a session seals at all: 2^60.
pub const SESSION_DATAGRAMS_MAX: u64 = 1 << 60;
/// How far behind the newest a datagram may come and still count, in datagrams.
pub const REPLAY_WINDOW: u64 = 2_048;

/// Frames that may be incomplete at a time, per tunnel.
pub const FRAGMENTED_FRAMES_MAX: usize = 64;
/// Bytes that incomplete frames may take up, per tunnel.
pub const FRAGMENTED_BYTES_MAX: usize = 2 << 20;
/// Pieces without their neighbours that one incomplete frame may have.
pub const FRAGMENTED_RANGES_MAX: usize = 64;
/// Buffers kept for the next incomplete frames, per tunnel.
pub const FRAGMENTED_SPARE_MAX: usize = 4;
/// How long a frame may stay incomplete; 1 s.
pub const FRAGMENTED_NS_MAX: u64 = 1_000_000_000;

/// How long a session is used before its initiator asks for the next; 2 min.
pub const REKEY_NS: u64 = 120_000_000_000;
/// How much longer the other end waits before it asks instead; 15 s.
pub const REKEY_LATE_NS: u64 = 15_000_000_000;
/// How long a session is used at all; 5 min.
pub const SESSION_NS_MAX: u64 = 300_000_000_000;
/// How long datagrams of a replaced session are still taken; 10 s.
pub const SESSION_GRACE_NS: u64 = 10_000_000_000;
/// How long an answered initiation waits for its first datagram; 10 s.
pub const CONFIRM_NS_MAX: u64 = 10_000_000_000;
/// How long an initiation waits for its answer before it is made anew; twice that each time...
pub const INITIATION_NS_MIN: u64 = 500_000_000;
/// ... and at most this.
pub const INITIATION_NS_MAX: u64 = 5_000_000_000;
/// Added to that, at most, so that two ends do not keep step.
pub const INITIATION_JITTER_NS: u64 = 250_000_000;
/// How long a peer that was heard at one address is not believed to be at another by an initiation, whose
/// sender may be a clone of it; three heartbeats, 1.5 s.
pub const HEARD_NS: u64 = 3 * HEARTBEAT_NS;
/// For how long a clone, or a clock that went back, is shown and not logged again; 1 min.
pub const TROUBLE_NS: u64 = 60_000_000_000;
/// Of an end's initiations in a row, how many go before the other end's.
pub const CROSSED_MAX: u32 = 3;

/// Initiations per second that are looked at without a cookie, from all sources; as many at once.
pub const INITIATIONS_ALL: u64 = 50;
/// The same from one address without a cookie, and from one address and port with one.
pub const INITIATIONS_SOURCE: u64 = 5;
/// The same from one address with a cookie, whatever its ports: many peers may be behind one
/// translator.
pub const INITIATIONS_ADDRESS: u64 = 50;
/// The same with a cookie from where peers are known to be, of all: two of each of 1,000 links.
pub const INITIATIONS_KNOWN: u64 = 2_000;
/// The same with a cookie, from all sources.
pub const INITIATIONS_PROVEN: u64 = 200;
/// Places in which sources are counted; those that share one share its bound.
pub const SOURCES: usize = 1_024;
/// How long a secret for cookies is used; the one before it is still good. 2 min.
pub const COOKIE_NS: u64 = 120_000_000_000;

/// Time between heartbeats; 500 ms.
pub const HEARTBEAT_NS: u64 = 500_000_000;
/// Heartbeats in a row without answer after which a peer is down, if it sends no frames either. Each
/// waits for its answer as long as the measured round trip takes.
pub const HEARTBEATS_MISSED: u64 = 3;
/// How long an answer may take at most, whatever was measured; 15 s.
pub const ANSWER_NS_MAX: u64 = 15_000_000_000;
/// Of the last [`HEARTBEATS_KEPT`] heartbeats, how many are lost on a poor path; a quarter.
pub const HEARTBEATS_POOR: usize = HEARTBEATS_KEPT / 4;
/// Heartbeats that have to be answered in a row before a path is good again; 2 s. Twice as many for
/// each further time within [`FLAP_NS`] that it was poor...
pub const HEARTBEATS_GOOD: usize = 4;
/// ... and at most this; 16 s.
pub const HEARTBEATS_GOOD_MAX: usize = HEARTBEATS_KEPT;
/// For how long a path has to be good so that its past no longer counts; 1 min.
pub const FLAP_NS: u64 = 60_000_000_000;
/// Heartbeats over which loss is counted.
pub const HEARTBEATS_KEPT: usize = 32;
/// Time between looks whether the longest datagrams still get there; 2 s.
pub const LENGTH_CHECK_NS: u64 = 2_000_000_000;
/// Such looks in a row without answer after which datagrams become short.
pub const LENGTH_CHECKS_MISSED: u32 = 3;
/// Time between the volleys of one search for the longest datagram; 1 s.
pub const VOLLEY_NS: u64 = 1_000_000_000;
/// Time from the first volley until a length counts that was answered, where the one in use was not; 2 s.
pub const SHORTER_NS: u64 = 2_000_000_000;
/// Volleys of one search.
pub const VOLLEYS: u32 = 3;
/// Time until the next search, where longer datagrams may yet get there; 1 min.
pub const SEARCH_NS: u64 = 60_000_000_000;

pub use causeway_directory::limits::ADDRESSES_MAX;
/// Most virtual networks of one tunnel.
pub const VNIS_MAX: usize = 4_096;
/// When an announcement is said again, after the first time: 100 ms, then 300 ms later.
pub const SAID_AGAIN_NS: [u64; 2] = [100_000_000, 300_000_000];
/// Shortest time between two questions for all addresses, or between two answers; 1 s.
pub const SYNC_NS: u64 = 1_000_000_000;

/// Most tunnels of one underlay socket.
pub const TUNNELS_MAX: usize = 4_096;
/// Room that a [`crate::Sink`] has for frames at least, in bytes.
pub const SINK_BYTES_MIN: usize = 128 << 10;

/// Room for what came on a stream and is not taken yet, in bytes: the longest frame and as much again.
pub const STREAM_BYTES: usize = 128 << 10;
/// What waits for a stream to take it, in bytes; frames that come then are dropped.
pub const BACKLOG_BYTES_MAX: usize = 1 << 20;
/// The same of the slowest stream, in bytes: the longest frame and as much again.
pub const BACKLOG_BYTES_MIN: usize = 128 << 10;

/// The longest IP packet on an ordinary Ethernet, in bytes: a longer one of TCP came uncut.
pub const PACKET_BYTES_ETHERNET: usize = 1_500;
/// What VXLAN over IPv4 leaves of that, in bytes: to what such packets are cut.
pub const PACKET_BYTES_VXLAN: usize = 1_450;

/// Flows of TCP whose segment sizes are known, of one VXLAN socket, a power of two; 32 KiB.
pub const MSS_FLOWS: usize = 4_096;
/// The smallest segment size that is believed, in bytes: Linux has the same bound for its own.
pub const MSS_MIN: u16 = 48;

/// Fewest datagrams of which a peer reports how many came.
pub const DELIVERED_MIN: u64 = 256;
/// Datagrams over which loss is measured at least.
pub const LOSS_SAMPLE: u64 = 2_000;
/// Lost of 10,000 from which on segments are cut: 0.2 %, at which one of twelve segments of 64 KiB would
/// be lost for one of its datagrams.
pub const LOSSY_OF_10000: u64 = 20;
/// Lost of 10,000 up to which a path is clean: 0.05 %.
pub const CLEAN_OF_10000: u64 = 5;
/// How long a path has to be clean before segments cross whole again; 10 s.
pub const CLEAN_NS: u64 = 10_000_000_000;
