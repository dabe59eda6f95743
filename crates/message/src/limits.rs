//! Every bound of the engine, in one place.

use causeway_channel::shared::Most;

pub use causeway_wire::mx::limits::*;

// The backend half.

/// Boards that one board knows.
pub const HOSTS_MAX: usize = 1024;
/// Partners that are gone, of which one endpoint still knows how far their numbers were used.
pub const PAST_PARTNERS_MAX: usize = 1024;
/// Connects of one endpoint at a time.
pub const CONNECTS_MAX: usize = 256;
/// Bytes of the sends of one endpoint that have not ended and are not pulled.
pub const SEND_BYTES_MAX: usize = 16 << 20;
/// Messages to one partner that it was not heard to have: as many as it keeps early ones.
pub const IN_FLIGHT_MAX: usize = 255;
/// Messages that came before the one that is next, of one partner: how far ahead they are at most.
pub const EARLY_MAX: usize = 255;
/// Bytes of messages that one endpoint keeps because they are early or not taken by the library.
/// One board has at most as much of it as it leaves free, so that there is always some for others.
pub const PARKED_BYTES_MAX: usize = 8 << 20;
/// What every board has of it, however little is left: one message of medium length.
pub const PARKED_BYTES_OF_HOST_MIN: usize = MEDIUM_BYTES_MAX;
/// The part of them that one partner has beyond its next message.
pub const PARKED_BYTES_OF_PARTNER_MAX: usize = 1 << 20;
/// Large messages that are offered to one endpoint and not pulled.
pub const OFFERS_MAX: usize = 4096;
/// The part of them that one partner has: as many windows as there are.
pub const OFFERS_OF_PARTNER_MAX: usize = 256;
/// Large messages pulled from one partner at a time.
pub const PULLS_OF_PARTNER_MAX: usize = 8;
/// Blocks of one partner that are asked for and not all there: at first (as many as MX has), at
/// least after loss, and at most: 1 MiB, a quarter of what the host keeps of frames that nobody
/// has looked at.
pub const BLOCKS_ASKED: (usize, usize, usize) = (4, 2, 32);
/// Blocks of one pull from the first that is not all there to the last that was asked for.
pub const BLOCKS_SPAN_MAX: usize = 64;
/// How often in a row nothing may come of a pull that asks for two frames in one, until it asks for
/// the common ones; and the same where such came before: what crosses the network seldom changes.
pub const WIDE_TRIES_MAX: (u32, u32) = (2, 8);
/// How long they are not asked for then, in ns: at first, and at most, for it doubles.
pub const WIDE_AGAIN_NS: (u64, u64) = (10_000_000_000, 640_000_000_000);
/// Large messages of one partner that a library half pulls at a time, in bytes, and how many
/// however long they are. Four times what is asked for at a time ([`BLOCKS_ASKED`]), so that the
/// library has time to take what came; and no more, so that it is taken out of a cache.
pub const PULL_AHEAD_BYTES: u64 = 4 << 20;
/// See [`PULL_AHEAD_BYTES`].
pub const PULLS_AHEAD_MIN: usize = 2;
/// What a partner may have of a message that is pulled from us, beyond twice its length, in bytes;
/// and how long it waits for each block that it wants besides, in ns.
pub const PULLED_AGAIN_BYTES: u64 = 256 << 10;
/// See [`PULLED_AGAIN_BYTES`].
pub const PULLED_AGAIN_NS: u64 = 4_000_000;
/// Events that wait for a library half before its requests wait too.
pub const OUTBOX_MAX: usize = 1024;
/// Messages that are looked through for one that is given up, in the time of any other request.
pub const LOOKED_THROUGH_AT_ONCE: usize = 64;

/// Packets in flight to one partner: at first, at least after loss, and at most.
pub const WINDOW_PACKETS: (usize, usize, usize) = (32, 8, 512);

/// How long a message is at most not acknowledged, in ns: MX's.
pub const ACK_DELAY_NS: u64 = 15_625_000;
/// How many messages are at most not acknowledged.
pub const UNACKED_MAX: u32 = 4;
/// Least and most time before a message is sent again, in ns: above what an acknowledgement may
/// be delayed, and MX's.
pub const RESEND_NS: (u64, u64) = (20_000_000, 500_000_000);
/// Least and most time before a block is asked for again, in ns; the most is MX's.
pub const ASK_AGAIN_NS: (u64, u64) = (4_000_000, 1_000_000_000);
/// Least and most time before a connect is tried again, in ns; the most is MX's.
pub const CONNECT_AGAIN_NS: (u64, u64) = (20_000_000, 500_000_000);
/// Acknowledgements in a row that say nothing new, until a message is taken for lost.
pub const DUPLICATE_ACKS: u32 = 3;
/// How often in a row, and for how long in ns, a partner may lack what it had, or have numbers of
/// another generation, before it is asked whether that is so: late packets do.
pub const CONTRADICTIONS: (u32, u64) = (4, 1_000_000_000);
/// Packets of a message that do not belong to what came of it before, until that is thrown away:
/// more than a message has.
pub const STRANGE_PACKETS_MAX: u8 = 8;
/// How long a partner has to be heard of again that is said to be gone, by a refusal or by a
/// connect of another session, in ns: anybody may say so. Three round trips where those are longer,
/// up to the longest wait until a message is sent again.
pub const DOUBT_NS: u64 = 20_000_000;
/// How long nothing is sent to a partner that began anew with numbers that were in use before, in
/// ns: longer than packets are on their way.
pub const QUIET_NS: u64 = 60_000_000;
/// How often a partner that has not pulled what it is offered is asked whether it is there, in ns.
pub const PROBE_NS: u64 = 2_000_000_000;
/// The same of one that the library waits for: what waits for it is told within two seconds that it
/// is gone, where its host says so. A host that says nothing is waited for as ever
/// ([`GIVE_UP_NS`]).
pub const WATCH_NS: u64 = 500_000_000;
/// A partner that is not heard of for so long is gone, in ns: MX's 1000 times half a second.
pub const GIVE_UP_NS: u64 = 500_000_000_000;
/// Buffers that are kept for messages to come, and the bytes of each, by class.
pub const SPARE_BUFFERS: [(usize, usize); 3] =
    [(SMALL_BYTES_MAX, 1024), (4096, 256), (MEDIUM_BYTES_MAX, 128)];
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

// Discovery.

/// Announcements in a row, and the time between them in ns: Open-MX's.
pub const ANNOUNCE_BURST: u32 = 8;
/// See [`ANNOUNCE_BURST`].
pub const ANNOUNCE_NS: u64 = 1_000_000_000;
/// Least time between two announcements, however many boards are heard of, in ns.
pub const ANNOUNCE_GAP_NS: u64 = 100_000_000;
/// Time between announcements afterwards, in ns: Open-MX's.
pub const ANNOUNCE_RARELY_NS: u64 = 180_000_000_000;
/// Least and most time between two questions for a name, in ns: who is asked may not know us yet;
/// the most is Open-MX's.
pub const ASK_NAME_NS: (u64, u64) = (100_000_000, 5_000_000_000);
/// How long a board that announced itself may be silent when it is asked for its name, in ns.
pub const HOST_NAMELESS_NS: u64 = 30_000_000_000;
/// Boards that announced themselves and have not answered yet.
pub const HOST_NAMELESS_MAX: usize = 256;
/// A board that was not heard of for so long is asked for its name again, in ns: three
/// announcements were lost.
pub const HOST_STALE_NS: u64 = 600_000_000_000;
/// Longest name of a board, in bytes.
pub const NAME_BYTES_MAX: usize = causeway_wire::mxoe::NAME_LEN_MAX;
