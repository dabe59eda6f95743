//! Every bound of the crate: capacities, quotas, sizes of steps, and numbers of polls.
//!
//! The constants are not configurable, except the maximum of unexpected messages
//! ([`Library::set_unexpected_max`](crate::library::Library::set_unexpected_max)). Limits on which
//! both sides of an endpoint rely are re-exported from `causeway_wire::mx::limits`; limits of the
//! NIC side are in `causeway_mxoe::limits`. Each constant's module enforces it and defines the
//! behaviour at the limit: in general a request waits, and nothing is dropped.
//!
//! | constants | read by (in `library`) | at the limit |
//! |---|---|---|
//! | requests, contexts | `request`, `contexts` | the call fails (`NoResources` for requests), and starts nothing |
//! | unexpected messages | `unexpected` | the message and all later ones of its sender stay in the transport |
//! | pending messages of the rings | `rings::pending` | no event is taken from the ring until the application takes messages |
//! | pulls, turns, steps | `rings::pull_schedule`, `send`, `progress`, `channels::transport` | the rest waits for its turn |
//! | channels | `channels` | the channel is refused, and its connect fails |
//! | refusals of pulls | `channels::read_schedule` | the peer loses its channel |
//! | direct reads, cooperative copies | `channels::direct_read`, `channels::cooperative_copy` | the message goes through the channel, or the receiver copies alone |
//!
//! All run in the process of the application, in the thread that holds the lock of the endpoint.

use causeway_channel::cooperative_copy::ShareSize;

pub use causeway_wire::mx::limits::*;

/// Bytes of large messages that the host side pulls from one peer at a time. Four times the bytes
/// that the NIC side requests at a time (`BLOCKS_REQUESTED`), so that the host side has time to
/// copy; no more, so that the bytes are still in a cache when they are copied.
pub const PULL_AHEAD_BYTES: u64 = 4 << 20;
/// Pulls from one peer that may run at a time even if their bytes exceed [`PULL_AHEAD_BYTES`].
pub const PULLS_AHEAD_MIN: usize = 2;
/// Maximum bits of a context id (`MX_CONTEXT_ID_BITS_MAX`). An endpoint with more is not opened.
pub const CONTEXT_BITS_MAX: u8 = 16;
/// Maximum requests of one endpoint, ended requests that were not collected included. A further
/// call fails with `NoResources`.
pub const REQUESTS_MAX: usize = 1 << 20;
/// Exclusive upper bound of peer numbers ([`PeerId`](causeway_wire::mx::PeerId)). A peer with
/// another number is disconnected.
pub const PEER_NUMBERS_MAX: usize = 1 << 16;
/// Default maximum of unexpected messages of one endpoint; beyond it, senders wait. One sender
/// occupies no more than the free rest, or [`UNEXPECTED_PER_PEER_MIN`] messages.
pub const UNEXPECTED_MAX: usize = 1 << 16;
/// Default maximum of the bytes of unexpected messages.
pub const UNEXPECTED_BYTES_MAX: usize = 64 << 20;
/// Unexpected messages that each sender may have, however many others have sent.
pub const UNEXPECTED_PER_PEER_MIN: usize = 16;
/// Bytes of all these messages of one sender together.
pub const UNEXPECTED_BYTES_PER_PEER_MIN: usize = 64 << 10;
/// Maximum of unexpected messages that an endpoint may request; message numbers have 32 bits. A
/// larger request counts as this number.
pub const UNEXPECTED_LIMIT_MAX: usize = 1 << 22;
/// Sends that are handed to the transport for one peer before a pull of that peer has its turn.
pub const SENDS_PER_TURN: u32 = 16;
/// Bytes that are fed to a pull after [`SENDS_PER_TURN`] sends, before further sends.
pub const STREAM_BYTES_PER_TURN: u32 = 16_384;
/// Events that one call of `progress` handles. The rest waits for the next call.
pub const ARRIVALS_PER_CALL: usize = 64;
/// Maximum number of channels for which `Channels::may_have_event` checks all channels. With more
/// channels, the method returns true without a check.
pub const CHANNELS_POLLED_MAX: usize = 8;
/// Longest message that goes through a channel as a whole, in bytes; a longer message is pulled.
pub const CHANNEL_EAGER_BYTES_MAX: usize = 8192;
/// Short messages from one peer without a reply from which on they count as a stream.
pub const STREAM_MESSAGES_MIN: u32 = 16;
/// Bytes of one chunk of a pulled message in a channel. Sender and receiver copy at the same time,
/// within the L1 cache.
pub const CHANNEL_CHUNK_BYTES: usize = 4096;
/// Maximum bytes of one message that are fed in a row; takes about 20 us. The rest waits for the
/// next call.
pub const CHANNEL_FEED_BYTES_MAX: usize = 256 << 10;
/// Polls in a row for the peer's next or last chunk; they take less time than one chunk.
pub const CHANNEL_POLLS_IN_ROW: u32 = 32;
/// Rounds of [`CHANNEL_POLLS_IN_ROW`] polls without progress before the sender fills more of the
/// channel: the receiver may not be running.
pub const CHANNEL_PACED_ROUNDS: u32 = 32;
/// Shortest message that is read directly from its sender's memory, in bytes. A shorter one is
/// pulled through the channel.
pub const DIRECT_BYTES_MIN: usize = 32 << 10;
/// Bytes of one step of a direct read.
pub const DIRECT_STEP_BYTES: usize = 1 << 20;
/// Shortest message for a cooperative copy, in bytes. A shorter one is copied by its receiver
/// alone.
pub const SHARED_BYTES_MIN: usize = 64 << 10;
/// Unit of a cooperative copy, in bytes.
pub const SHARED_PART_BYTES: usize = 4096;
/// Fewest and most parts that one side claims at a time. Each claim costs a system call, and at the
/// end one side waits for the other side's last claim.
pub const SHARED_PARTS_AT_ONCE: ShareSize = ShareSize { least: 16, most: 256 };
/// Polls of a helping sender without progress of its receiver before the sender stops helping.
pub const HELP_POLLS_MAX: u32 = 512;
/// Age up to which a check that the peer's process lives stays valid, in ns: about the time to copy
/// one part.
pub const HELP_LIVENESS_NS: u64 = 50_000;
/// Longest wait of a receiver that cancels a cooperative copy for the sender's running copy, in ns:
/// about ten thousand times the expected time. The sender may be stopped or hostile: after the time
/// the receiver goes on. The limit holds for each peer separately.
pub const HELP_ENDS_NS: u64 = 2_000_000_000;
/// Messages after which the slower path of large messages (direct read or channel) is measured
/// again.
pub const PATH_RETRY_MESSAGES: u32 = 128;
/// Maximum segments of a message that is read or written directly. A message with more is pulled
/// through the channel.
pub const DIRECT_PLACES_MAX: usize = 8;
/// Maximum channels of one endpoint. A further channel is refused, and its connect fails.
pub const CHANNELS_MAX: usize = 4096;
/// Maximum queued refusals of pulls of one peer. At a further one the channel is closed: the peer
/// invented pulls.
pub const PULL_FAILURES_MAX: usize = 1024;
/// Maximum pending messages of one remote peer; more than a ring holds. With so many, no event is
/// taken from the ring.
pub const PENDING_MAX: usize = 1024;
/// Maximum bytes of pending messages of one remote peer. With so many, no event is taken from the
/// ring.
pub const PENDING_BYTES_MAX: usize = 1 << 20;
/// Maximum pending messages of all remote peers. With so many, no event is taken from the ring.
pub const PENDING_ALL_MAX: usize = 1 << 16;
/// Maximum bytes of pending messages of all remote peers. With so many, no event is taken from the
/// ring.
pub const PENDING_ALL_BYTES_MAX: usize = 64 << 20;

/// Events that are handled after the NIC side is gone: as many as a ring holds. Further events are
/// ignored.
pub const EVENTS_AFTER_END_MAX: usize = causeway_channel::mx_rings::ENTRIES;
