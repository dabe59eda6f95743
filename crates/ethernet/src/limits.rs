//! Every bound of this crate, in one place.

/// Longest frame, in bytes: a payload of 65535 behind a header with two VLAN tags.
pub const FRAME_BYTES_MAX: usize = 65_557;
/// Bytes of Ethernet header and tags that an MTU does not count.
pub const LINK_HEADER_BYTES_MAX: usize = 22;
/// Most addresses that one group learns.
pub const LEARNT_PER_GROUP_MAX: usize = 4096;
/// Most addresses that one port may have learnt.
pub const LEARNT_PER_PORT_MAX: usize = 1024;
/// A learnt address is forgotten after this time without a frame from it: 300 s, the default of
/// IEEE 802.1Q.
pub const LEARNT_AGE_NS: u64 = 300_000_000_000;
/// A full table is searched for aged addresses no more often than this: 1 s.
pub const SWEEP_INTERVAL_NS: u64 = 1_000_000_000;
/// Longest time that a frame waits for a receiver's buffers: 100 ms.
pub const HELD_NS_MAX: u64 = 100_000_000;
/// Of a sender's ring, this fraction may wait for one receiver.
pub const HELD_PER_RECEIVER_DIVISOR: u16 = 4;
/// Of a sender's ring, this fraction may wait for all receivers together.
pub const HELD_PER_SENDER_DIVISOR: u16 = 2;
/// Most frames that wait for one receive queue, from all senders.
pub const HELD_PER_QUEUE_MAX: usize = 1024;

/// Most descriptors of a frame that may wait: Linux guests use at most 47.
pub const HELD_SPANS_MAX: usize = 48;
/// Frames of a link wait as those of a ring of this size do.
pub const HELD_PER_LINK_SIZE: u16 = 1024;
/// Most bytes of frames of links that wait for one receive queue; 4 MiB.
pub const HELD_BYTES_MAX: usize = 4 << 20;
/// Turns that a port sits out after one in which all that it sent broke a rule: who floods with
/// nonsense takes a small part of the time that others have.
pub const TURNS_OUT: u8 = 31;
/// Most receive buffers that one frame is spread over: a driver whose buffers are 64 bytes long gets
/// the longest frame.
pub const MERGED_BUFFERS_MAX: usize = 1025;
/// Most frames taken from a ring before the first is looked at.
pub const BATCH_FRAMES: usize = 32;
/// First bytes of a frame that are copied to be looked at; more where it asks for more.
pub const HEAD_BYTES: usize = 64;

const _: () = assert!(LEARNT_PER_PORT_MAX <= LEARNT_PER_GROUP_MAX);
const _: () = assert!(FRAME_BYTES_MAX == 65_535 + LINK_HEADER_BYTES_MAX);
const _: () = assert!(HEAD_BYTES >= LINK_HEADER_BYTES_MAX);

/// Most pairs of addresses whose routes are remembered.
pub const ROUTE_CACHE_MAX: usize = 8192;
/// Most sets of places that such pairs lead to.
pub const ROUTE_SETS_MAX: usize = 1024;
/// Most pairs of the traffic matrix of one group.
pub const TRAFFIC_PAIRS_MAX: usize = 4096;
/// Over how long rates are taken: 1 s.
pub const TRAFFIC_WINDOW_NS: u64 = 1_000_000_000;
/// A pair that has been silent for this time gives way to others: 60 s.
pub const TRAFFIC_SILENT_NS: u64 = 60_000_000_000;
/// The matrix is searched for silent pairs no more often than this: 1 s.
pub const TRAFFIC_SWEEP_NS: u64 = 1_000_000_000;
/// Most links of one group.
pub const LINKS_PER_GROUP_MAX: usize = 1024;
/// Deliveries of frames of links in one go: a broadcast is as many as it has receivers. Those in
/// whose midst the bound is reached, [`ARRIVALS_AT_ONCE`] frames, are finished.
pub const ARRIVALS_PER_TURN_MAX: usize = 256;
/// Frames of links that are sorted together.
pub const ARRIVALS_AT_ONCE: usize = 64;
/// Most addresses behind one peer, and behind all peers of a group.
pub const LEARNT_PER_PEER_MAX: usize = 16_384;
/// See [`LEARNT_PER_PEER_MAX`].
pub const LEARNT_FAR_MAX: usize = 65_536;
/// Most captures of one group at a time.
pub const CAPTURES_MAX: usize = 16;
/// Most captures of all groups, among them those that ended and can be fetched from.
pub const RECORDINGS_MAX: usize = 64;
/// Time after the last fetch at which a capture ends; 30 s.
pub const CAPTURE_IDLE: std::time::Duration = std::time::Duration::from_secs(30);
/// Bytes of a capture that one fetch returns at most; 1 MiB.
pub const CAPTURE_FETCH_BYTES: usize = 1 << 20;
/// Bytes of a capture that wait to be fetched; frames beyond are counted as dropped. 8 MiB.
pub const CAPTURE_BYTES_MAX: usize = 8 << 20;

/// Frames for many that are remembered of each way in: 40 KiB for a peer that sends so many.
pub const FLOODS_PER_PLACE: usize = 1_024;
/// First bytes of such a frame by which it is known.
pub const FLOOD_BYTES: usize = 2_048;

/// Frames for many that are remembered by their content, a power of two: 96 KiB for a group that has
/// links for transit...
pub const ECHO_PLACES: usize = 4_096;
/// ... and for how long a copy by another way is known; 500 ms. Longer than any round, and shorter
/// than it takes hosts to say again what nobody answered.
pub const ECHO_NS: u64 = 500_000_000;
/// Equal frames for many that one link may bring within [`ECHO_NS`]; a loop brings more. Hosts repeat
/// a request about once a second, and a flood of equal frames is no use to any host.
pub const REPEATS_MAX: u8 = 16;

/// Time between the hellos of a daemon that forwards between a segment and other links: 300 ms. A
/// segment without a forwarder gets one within [`HELLO_HOLD_NS`].
pub const HELLO_NS: u64 = 300_000_000;
/// Least time between hellos that are sent because something changed: 20 ms.
pub const HELLO_SOON_NS: u64 = 20_000_000;
/// How long a daemon counts that was heard once: four hellos, of which three may be lost.
pub const HELLO_HOLD_NS: u64 = 1_200_000_000;
/// How long a link to a segment stands by before it forwards: 700 ms, two hellos of the others.
pub const HELLO_LISTEN_NS: u64 = 700_000_000;
/// Attachments of others that are known by their hellos; of more the others are not known.
pub const ATTACHMENTS_MAX: usize = 256;
