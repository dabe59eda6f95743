//! Every bound of the engine, in one place.

use causeway_channel::shared::Most;

pub use causeway_wire::mx::limits::*;

/// Large messages of one partner that a library half pulls at a time, in bytes, and how many
/// however long they are. Four times what is asked for at a time (`BLOCKS_ASKED`), so that the
/// library has time to take what came; and no more, so that it is taken out of a cache.
pub const PULL_AHEAD_BYTES: u64 = 4 << 20;
/// See [`PULL_AHEAD_BYTES`].
pub const PULLS_AHEAD_MIN: usize = 2;
/// Bits of a context id (`MX_CONTEXT_ID_BITS_MAX`).
pub const CONTEXT_BITS_MAX: u8 = 16;
/// Requests of one endpoint at a time.
pub const REQUESTS_MAX: usize = 1 << 20;
/// How high the number of a partner may be.
pub const PEER_NUMBERS_MAX: usize = 1 << 16;
/// Messages that no receive was posted for, of one endpoint, unless it asks for another bound; then
/// their senders wait. Of one sender are never more than what is left for others.
pub const UNEXPECTED_MAX: usize = 1 << 16;
/// What is kept of these messages, in bytes.
pub const UNEXPECTED_BYTES_MAX: usize = 64 << 20;
/// Messages that are kept of each sender, however many others have sent.
pub const UNEXPECTED_OF_ONE_MIN: usize = 16;
/// The same in bytes.
pub const UNEXPECTED_BYTES_OF_ONE_MIN: usize = 64 << 10;
/// As many as any endpoint may ask for; numbers of messages have 32 bits.
pub const UNEXPECTED_ASKED_MAX: usize = 1 << 22;
/// Sends to one partner that are handed over before what it pulls has its turn.
pub const SENDS_PER_TURN: u32 = 16;
/// What is fed in such a turn, in bytes.
pub const STREAM_BYTES_PER_TURN: u32 = 16_384;
/// Arrivals that are taken by one call.
pub const ARRIVALS_PER_CALL: usize = 64;
/// Most channels of an endpoint that are all glanced at; of more each is looked at in turn.
pub const LINKS_GLANCED_AT_MAX: usize = 8;
/// Longest message that goes through a channel whole; longer ones are pulled. In bytes.
pub const CHANNEL_EAGER_BYTES_MAX: usize = 8192;
/// From so many short messages of one partner on that nothing was sent to, they are a stream.
pub const STREAM_MESSAGES_MIN: u32 = 16;
/// What a pulled message is cut into on its way through a channel, in bytes: both sides copy at the
/// same time, in what stays in a first cache.
pub const CHANNEL_CHUNK_BYTES: usize = 4096;
/// How much of one message is fed at a time, in bytes; some 20 us.
pub const CHANNEL_FEED_BYTES_MAX: usize = 256 << 10;
/// How often it is looked at a time whether the other side has put or taken the next of these: less
/// than such a piece takes.
pub const CHANNEL_LOOKS_AT_ONCE: u32 = 32;
/// How often that, before more of the channel is filled: the other side may not be running.
pub const CHANNEL_PACED_LOOKS: u32 = 32;
/// Shortest message that is read out of its sender's memory, where that is possible, in bytes; and
/// how many bytes of it at a time.
pub const DIRECT_BYTES_MIN: usize = 32 << 10;
/// See [`DIRECT_BYTES_MIN`].
pub const DIRECT_STEP_BYTES: usize = 1 << 20;
/// Shortest message that its sender helps to copy, in bytes.
pub const SHARED_BYTES_MIN: usize = 64 << 10;
/// What of such a message is counted, in bytes; and how many of these a side takes at a time, least
/// and most: a call of the kernel for each, and at the end one side waits for the other's last.
pub const SHARED_PART_BYTES: usize = 4096;
/// See [`SHARED_PART_BYTES`].
pub const SHARED_PARTS_AT_ONCE: Most = Most { least: 16, most: 256 };
/// How often a sender that helps looks whether its receiver goes on, before it helps no more.
pub const HELP_LOOKS_MAX: u32 = 512;
/// How long a process that was seen to live is taken to, by who writes into it, in ns: what one
/// part takes.
pub const HELP_LIVES_NS: u64 = 50_000;
/// How long a receiver that gives a message up waits for a sender that is copying into it, in ns:
/// some ten thousand times what it takes. It may be stopped, or a liar. For each partner anew.
pub const HELP_ENDS_NS: u64 = 2_000_000_000;
/// How many such messages that were alone go the faster way until the slower one is tried again.
pub const RACE_AGAIN: u32 = 128;
/// In how many places such a message lies at most.
pub const DIRECT_PLACES_MAX: usize = 8;
/// Channels of one endpoint.
pub const CHANNELS_MAX: usize = 4096;
/// Pulls of one partner that are to be turned down and for which there is no room to say so.
pub const FAILS_MAX: usize = 1024;
/// Messages of a partner of another host that the library half cannot take and sets aside, and
/// their bytes: more than the ring holds.
pub const ASIDE_MAX: usize = 1024;
/// See [`ASIDE_MAX`].
pub const ASIDE_BYTES_MAX: usize = 1 << 20;
/// Such messages of all partners, and their bytes.
pub const ASIDE_ALL_MAX: usize = 1 << 16;
/// See [`ASIDE_ALL_MAX`].
pub const ASIDE_ALL_BYTES_MAX: usize = 64 << 20;

/// Events that are taken from the rings after the NIC side is gone: as many as a ring holds.
pub const EVENTS_AFTER_END_MAX: usize = causeway_channel::mx_rings::ENTRIES;
