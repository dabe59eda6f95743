//! Limits of the engine and of discovery: capacities, quotas and times.
//!
//! Each table, queue and retry of the crate has its limit here or in [`causeway_wire::mx::limits`];
//! limits of the driver (frames and regions) are in [`driver::limits`](crate::driver::limits). The
//! limits are not configurable, except that a [`NicConfig`](crate::NicConfig) may replace
//! [`GIVE_UP_NS`]. At a limit of the host side's requests, a request is deferred; at a limit of
//! received packets, a packet is dropped, not acknowledged, and retransmitted by the peer. Times
//! are in ns.
//!
//! | constants | read by | at the limit |
//! |---|---|---|
//! | sends, connects, waiting events of an endpoint | `request`, `connect`, `endpoint` | the request is deferred and stays in the ring |
//! | messages in flight, window | `transmit` | messages wait in the queue of the peer |
//! | kept messages of a peer | `receive_order`, `pending_bytes` | the packet is dropped and retransmitted |
//! | offers, pulls, blocks | `offers`, `pull`, `request_window` | an offer is not acknowledged; pulls wait in order |
//! | pulled bytes | `send_windows`, `pull_reply` | blocks are sent at intervals |
//! | NICs, discovery | `nic_table`, `discovery` | a further NIC is not added, and its frames are dropped |
//! | removed peers | `peer` | the oldest is forgotten |
//! | timeouts | `transmit`, `peer`, `pull`, `connect` | the packet is repeated, at [`GIVE_UP_NS`] the operation fails |
//!
//! All run in the thread that owns the engine: the dispatcher of causewayd, or in direct mode the
//! thread of the application that holds the endpoint.

pub use causeway_wire::mx::limits::*;

/// Limits of a window: a number that grows with arrivals and shrinks after a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLimits {
    /// Number at the start.
    pub initial: usize,
    /// Minimum after losses.
    pub least: usize,
    /// Maximum.
    pub most: usize,
}

/// Limits of a wait that grows with each attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitLimits {
    /// Shortest wait in ns.
    pub least_ns: u64,
    /// Longest wait in ns.
    pub most_ns: u64,
}

/// Number of NICs that a NIC knows. A further NIC is not added.
pub const KNOWN_NICS_MAX: usize = 1024;
/// Number of addresses of removed peers whose sequence generation an endpoint keeps. The oldest is
/// forgotten.
pub const PAST_PEERS_MAX: usize = 1024;
/// Number of pending connects of an endpoint. A further connect is deferred.
pub const CONNECTS_MAX: usize = 256;
/// Number of packets of a NIC that wait for NICs of the same daemon. Further packets are dropped,
/// and the engine repeats them.
pub const LOCAL_FRAMES_MAX: usize = 1024;
/// Bytes of the eager sends of an endpoint that have not ended. A further send is deferred.
pub const SEND_BYTES_MAX: usize = 16 << 20;
/// Number of unacknowledged messages to a peer: as many as the peer keeps out of order. Further
/// messages wait.
pub const IN_FLIGHT_MAX: usize = 255;
/// How far ahead of the next expected number the engine keeps a message of a peer. A packet further
/// ahead is dropped.
pub const EARLY_MAX: usize = 255;
/// Bytes of messages that an endpoint keeps because they are out of order or the host side has no
/// room. A remote NIC may use half of the bytes that other NICs leave free, so that others always
/// have a share; [`PENDING_BYTES_OF_NIC_MIN`] of each NIC may exceed the sum.
pub const PENDING_BYTES_MAX: usize = 8 << 20;
/// Bytes that each remote NIC has in any case, beyond [`PENDING_BYTES_MAX`] if necessary: one
/// message of medium length.
pub const PENDING_BYTES_OF_NIC_MIN: usize = MEDIUM_BYTES_MAX;
/// Share of [`PENDING_BYTES_MAX`] that a peer has beyond its next message. A packet beyond it is
/// dropped.
pub const PENDING_BYTES_OF_PEER_MAX: usize = 1 << 20;
/// Number of large messages that are offered to an endpoint and not pulled. A further offer is not
/// acknowledged.
pub const OFFERS_MAX: usize = 4096;
/// Share of [`OFFERS_MAX`] that a peer has: as many as an endpoint has windows. A further offer is
/// not acknowledged.
pub const OFFERS_OF_PEER_MAX: usize = 256;
/// Number of large messages that are pulled from a peer at the same time. Further pulls wait.
pub const PULLS_OF_PEER_MAX: usize = 8;
/// Requested blocks of a peer that have not arrived completely. The initial number is that of MX; the
/// maximum is 1 MiB, a quarter of the frames that the host buffers for a socket.
pub const BLOCKS_REQUESTED: WindowLimits = WindowLimits { initial: 4, least: 2, most: 32 };
/// Span of the requested blocks of a pull, from the first incomplete block to the last requested
/// block. Later blocks wait.
pub const BLOCKS_SPAN_MAX: usize = 64;
/// Number of requests without an answer after which a pull no longer asks for jumbo frames, before the
/// first jumbo frame of a peer.
pub const JUMBO_TRIES_MAX: u32 = 2;
/// As [`JUMBO_TRIES_MAX`], after the first jumbo frame of a peer: the path MTU of a network seldom
/// changes.
pub const JUMBO_PROVEN_TRIES_MAX: u32 = 8;
/// Pause without jumbo frames. The pause doubles.
pub const JUMBO_PAUSE: WaitLimits =
    WaitLimits { least_ns: 10_000_000_000, most_ns: 640_000_000_000 };
/// Bytes that a peer may pull of a message beyond twice its length. Further blocks are sent at
/// intervals of [`PULLED_AGAIN_NS`].
pub const PULLED_AGAIN_BYTES: u64 = 256 << 10;
/// Interval in ns of blocks beyond [`PULLED_AGAIN_BYTES`].
pub const PULLED_AGAIN_NS: u64 = 4_000_000;
/// Number of events waiting for a host side at which its requests are deferred.
pub const OUTBOX_MAX: usize = 1024;
/// Number of messages that a cancel searches at the cost of an ordinary request.
pub const CANCEL_SEARCH_UNIT: usize = 64;

/// Packets in flight to a peer.
pub const WINDOW_PACKETS: WindowLimits = WindowLimits { initial: 32, least: 8, most: 512 };

/// Maximum delay of an acknowledgement in ns, as in MX.
pub const ACK_DELAY_NS: u64 = 15_625_000;
/// Number of messages after which an acknowledgement is due at once.
pub const UNACKED_MAX: u32 = 4;
/// Retransmission timeout. The minimum exceeds [`ACK_DELAY_NS`]; the maximum is that of MX.
pub const RESEND: WaitLimits = WaitLimits { least_ns: 20_000_000, most_ns: 500_000_000 };
/// Time before a block is requested again; the maximum is that of MX.
pub const REREQUEST: WaitLimits = WaitLimits { least_ns: 4_000_000, most_ns: 1_000_000_000 };
/// Time before a connect is repeated; the maximum is that of MX. Connects measure no round trip, so
/// the first wait is twice the minimum: 40 ms.
pub const RECONNECT: WaitLimits = WaitLimits { least_ns: 20_000_000, most_ns: 500_000_000 };
/// Interval in ns (2 ms) at which connects to unknown NICs are compared with the NICs that
/// discovery found.
pub const DISCOVERY_POLL_NS: u64 = 2_000_000;
/// Number of consecutive duplicate acknowledgements after which a message counts as lost (RFC
/// 5681).
pub const DUPLICATE_ACKS: u32 = 3;
/// Number of consecutive acknowledgements with another generation or without acknowledged messages
/// beyond which the engine queries the peer, if they last for [`CONFLICTS_NS`]. Late packets cause a
/// few.
pub const CONFLICTS_TOLERATED: u32 = 4;
/// Minimum duration in ns of such acknowledgements before the engine queries the peer.
pub const CONFLICTS_NS: u64 = 1_000_000_000;
/// Number of packets inconsistent with the received fragments after which a partial message is
/// discarded: more than a message has.
pub const FOREIGN_PACKETS_MAX: u8 = 8;
/// Time in ns that a peer has to answer after a refusal or a connect of another session reported
/// that it is gone. Such a report may be forged. With long round trips: three of them, up to the
/// maximum of [`RESEND`].
pub const DOUBT_NS: u64 = 20_000_000;
/// Time in ns without sends to a restarted peer whose sequence numbers were in use before: longer
/// than the lifetime of a packet in the network.
pub const QUIET_NS: u64 = 60_000_000;
/// Interval in ns of queries to a peer that does not pull an offer.
pub const PROBE_NS: u64 = 2_000_000_000;
/// Interval in ns of queries to a peer that the host side waits for. Operations with the peer fail
/// within two seconds after the peer is gone, if the host of the peer refuses the query; otherwise
/// after [`GIVE_UP_NS`].
pub const WATCH_NS: u64 = 500_000_000;
/// Time in ns without a packet after which a peer is gone: as in MX, 1000 times half a second.
pub const GIVE_UP_NS: u64 = 500_000_000_000;
/// Spare buffers for messages by class: size in bytes, and number. Further buffers are freed.
pub const SPARE_BUFFERS: [(usize, usize); 3] =
    [(SMALL_BYTES_MAX, 1024), (4096, 256), (MEDIUM_BYTES_MAX, 128)];

// Discovery.

/// Number of announcements in the initial burst, as in Open-MX.
pub const ANNOUNCE_BURST: u32 = 8;
/// Interval in ns of the announcements of the initial burst, as in Open-MX.
pub const ANNOUNCE_NS: u64 = 1_000_000_000;
/// Minimum interval in ns of announcements, however many NICs appear.
pub const ANNOUNCE_GAP_NS: u64 = 100_000_000;
/// Interval in ns of announcements after the burst, as in Open-MX.
pub const ANNOUNCE_IDLE_NS: u64 = 180_000_000_000;
/// Interval of name queries to a NIC. The queried NIC may not know this NIC yet; the maximum is that of
/// Open-MX.
pub const NAME_QUERY: WaitLimits = WaitLimits { least_ns: 100_000_000, most_ns: 5_000_000_000 };
/// Time in ns after which a NIC that announced itself and does not answer name queries is
/// forgotten.
pub const NIC_NAMELESS_NS: u64 = 30_000_000_000;
/// Number of NICs that announced themselves and have not answered a name query. A further one is
/// not added.
pub const NIC_NAMELESS_MAX: usize = 256;
/// Time in ns after its latest answer at which a known NIC is queried again. An announced NIC is
/// removed after so long a silence (three lost announcements) and [`NIC_NAMELESS_NS`].
pub const NIC_STALE_NS: u64 = 600_000_000_000;
/// Maximum length of the name of a NIC in bytes. A longer name is ignored.
pub const NAME_BYTES_MAX: usize = causeway_wire::mxoe::NAME_LEN_MAX;
