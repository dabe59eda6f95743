//! Bounds of the Ethernet service: every table, queue and time-out of the crate.
//!
//! The constants are fixed at compile time; none of them depends on the configuration. The module
//! only names the values: each module that uses a constant enforces it and documents the behaviour
//! at the bound. Bounds of rings are in `causeway_ring::limits`, bounds of turns, hops and
//! mailboxes in `causeway_fabric::limits`.
//!
//! | constants | read by | at the bound |
//! |---|---|---|
//! | frames, headers | `headers`, `deliver` | the frame is dropped and counted by a reason |
//! | learnt addresses | `table` | the address is not learnt, and frames to it are flooded |
//! | waiting frames | `pending_queue`, `pending` | the frame is dropped and counted as `NoBuffer` |
//! | penalty | `forward` | the port's transmit queues are skipped for a number of calls |
//! | route cache | `route` | the cache is emptied and filled again |
//! | links | `uplink` | the link is refused with an error to the operator |
//! | arrivals, batches | `link_inbox`, `link_rx`, `forward` | the rest waits for the next turn |
//! | captures | `mirror`, `control::captures` | the capture is refused; without fetches it ends |
//! | floods, duplicates | `flood_sequence`, `duplicates` | the oldest entry is displaced: a late copy passes |
//! | hellos, attachments | `standby` | hellos of further attachments are ignored |
//!
//! All run in the dispatcher's thread of the group, except `control`: in the thread of the request,
//! and at ticks in a thread of the fabric.

/// Longest frame, in bytes: a payload of 65,535 behind a header with two VLAN tags. A longer frame
/// is dropped and counted.
pub const FRAME_BYTES_MAX: usize = 65_557;
/// Bytes of Ethernet header and VLAN tags that an MTU does not count. Other constants derive from
/// it.
pub const LINK_HEADER_BYTES_MAX: usize = 22;
/// Most addresses that one group learns from its ports. Frames to further addresses are flooded.
pub const LEARNT_PER_GROUP_MAX: usize = 4096;
/// Most addresses that one port learns. Frames to further addresses are flooded.
pub const LEARNT_PER_PORT_MAX: usize = 1024;
/// Age at which a learnt address without frames is no longer found: 300 s, the default of IEEE
/// 802.1Q.
pub const LEARNT_AGE_NS: u64 = 300_000_000_000;
/// Shortest time between two searches of a full address table for aged entries: 1 s.
pub const SWEEP_INTERVAL_NS: u64 = 1_000_000_000;
/// Longest time that a frame waits for receive buffers: 100 ms. Then the frame is dropped.
pub const PENDING_NS_MAX: u64 = 100_000_000;
/// A sender may leave this fraction of its ring waiting for one receiver (1/4). A further frame for
/// the receiver is dropped.
pub const PENDING_PER_RECEIVER_DIVISOR: u16 = 4;
/// A sender may leave this fraction of its ring waiting for all receivers together (1/2). A further
/// frame is dropped.
pub const PENDING_PER_SENDER_DIVISOR: u16 = 2;
/// Most frames that wait for one receive queue, from all senders. A further frame is dropped. As
/// many unused copies of chains are kept.
pub const PENDING_PER_QUEUE_MAX: usize = 1024;

/// Most descriptors of a frame that may wait. Linux guests use at most 47. A frame with more is
/// dropped instead of waiting.
pub const PENDING_SPANS_MAX: usize = 48;
/// Ring size that stands for a link when the fractions of a ring are applied to frames of links.
pub const PENDING_PER_LINK_SIZE: u16 = 1024;
/// Most bytes of frames from links that wait for one receive queue: 4 MiB. A further frame of a
/// link is dropped.
pub const PENDING_BYTES_MAX: usize = 4 << 20;
/// Calls for transmit queues of a port that pop nothing after a call in which every frame broke a
/// rule. A flood of invalid frames then costs a small part of the dispatcher's time.
pub const PENALTY_TURNS: u8 = 31;
/// Most receive buffers that one frame is spread over. A driver with buffers of 64 bytes still
/// receives the longest frame. A frame that needs more is dropped as `BufferTooSmall`.
pub const MERGED_BUFFERS_MAX: usize = 1025;
/// Most frames that are popped from a ring before the first is read.
pub const BATCH_FRAMES: usize = 32;
/// First bytes of a frame that are copied into private memory; more in the cases that
/// `crate::headers` states.
pub const HEAD_BYTES: usize = 64;

const _: () = assert!(LEARNT_PER_PORT_MAX <= LEARNT_PER_GROUP_MAX);
const _: () = assert!(FRAME_BYTES_MAX == 65_535 + LINK_HEADER_BYTES_MAX);
const _: () = assert!(HEAD_BYTES >= LINK_HEADER_BYTES_MAX);

/// Most address pairs with a cached route. With so many, the cache is emptied before the next
/// batch.
pub const ROUTE_CACHE_MAX: usize = 8192;
/// Most distinct route sets that cached pairs refer to. With so many, the cache is emptied before
/// the next batch.
pub const ROUTE_SETS_MAX: usize = 1024;
/// Most links of one group. A further link is refused; stations do not count.
pub const LINKS_PER_GROUP_MAX: usize = 1024;
/// Deliveries of link frames in one turn. A flooded frame counts once for each receiver. A batch of
/// [`ARRIVALS_AT_ONCE`] frames that reaches the bound is finished.
pub const ARRIVALS_PER_TURN_MAX: usize = 256;
/// Most frames of links that are classified together.
pub const ARRIVALS_AT_ONCE: usize = 64;
/// Most addresses learnt behind one peer. Frames to further addresses are flooded.
pub const LEARNT_PER_PEER_MAX: usize = 16_384;
/// Most addresses learnt behind all peers of a group. Frames to further addresses are flooded.
pub const LEARNT_FAR_MAX: usize = 65_536;
/// Most captures of one group at a time. A further capture is refused.
pub const CAPTURES_MAX: usize = 16;
/// Most captures of all groups, ended captures that can still be fetched included. A further
/// capture is refused.
pub const RECORDINGS_MAX: usize = 64;
/// Time after the last fetch at which a capture ends: 30 s. Its recorded bytes are dropped.
pub const CAPTURE_IDLE: std::time::Duration = std::time::Duration::from_secs(30);

/// Flooded frames that are remembered for each ingress; about 40 KiB for a peer that sends as many.
/// The oldest is displaced, and a late copy of it passes.
pub const FLOODS_PER_PLACE: usize = 1_024;
/// First bytes of a flooded frame that its fingerprint covers.
pub const FLOOD_BYTES: usize = 2_048;

/// Flooded frames that are remembered by content, a power of two: 96 KiB for a group that has
/// transit links. Frames that share a slot displace each other, and a copy of the earlier one
/// passes.
pub const DUPLICATE_SLOTS: usize = 4_096;
/// Time for which an equal frame on another path counts as a copy: 500 ms. It is longer than a
/// round trip over any loop, and shorter than the retry interval of hosts whose request got no
/// answer.
pub const DUPLICATE_NS: u64 = 500_000_000;
/// Equal flooded frames that one link may bring within [`DUPLICATE_NS`]; a loop brings more. Hosts
/// repeat a request about once a second, so legitimate repeats stay below the bound. Further
/// repeats are dropped.
pub const REPEATS_MAX: u8 = 16;

/// Interval between hellos of a daemon that forwards between a network segment and other links: 300
/// ms. A network segment without a forwarder has a new forwarder within [`HELLO_HOLD_NS`] and one
/// interval.
pub const HELLO_NS: u64 = 300_000_000;
/// Shortest time between hellos that are sent because of a change: 20 ms.
pub const HELLO_SOON_NS: u64 = 20_000_000;
/// Time for which a received hello is valid: four hello intervals, three of which may be lost.
pub const HELLO_HOLD_NS: u64 = 1_200_000_000;
/// Time for which a new link to a network segment stands by before it forwards: 700 ms, two hello
/// intervals of the peers.
pub const HELLO_LISTEN_NS: u64 = 700_000_000;
/// Most attachments of peers that are tracked by their far hellos (one that is heard by transit
/// links and by others counts twice), and most by the near hellos of one segment. Hellos of further
/// attachments are ignored.
pub const ATTACHMENTS_MAX: usize = 256;
