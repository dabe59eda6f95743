//! Limits of the engine and of discovery.

pub use causeway_wire::mx::limits::*;

/// NICs that one NIC knows.
pub const HOSTS_MAX: usize = 1024;
/// Peers that are gone, of which one endpoint still knows how far their numbers were used.
pub const PAST_PARTNERS_MAX: usize = 1024;
/// Connects of one endpoint at a time.
pub const CONNECTS_MAX: usize = 256;
/// Bytes of the sends of one endpoint that have not ended and are not pulled.
pub const SEND_BYTES_MAX: usize = 16 << 20;
/// Messages to one peer that it was not heard to have: as many as it keeps early ones.
pub const IN_FLIGHT_MAX: usize = 255;
/// Messages that came before the one that is next, of one peer: how far ahead they are at most.
pub const EARLY_MAX: usize = 255;
/// Bytes of messages that one endpoint keeps because they are early or not taken by the library.
/// One NIC has at most as much of it as it leaves free, so that there is always some for others.
pub const PARKED_BYTES_MAX: usize = 8 << 20;
/// What every NIC has of it, however little is left: one message of medium length.
pub const PARKED_BYTES_OF_HOST_MIN: usize = MEDIUM_BYTES_MAX;
/// The part of them that one peer has beyond its next message.
pub const PARKED_BYTES_OF_PARTNER_MAX: usize = 1 << 20;
/// Large messages that are offered to one endpoint and not pulled.
pub const OFFERS_MAX: usize = 4096;
/// The part of them that one peer has: as many windows as there are.
pub const OFFERS_OF_PARTNER_MAX: usize = 256;
/// Large messages pulled from one peer at a time.
pub const PULLS_OF_PARTNER_MAX: usize = 8;
/// Blocks of one peer that are asked for and not all there: at first (as many as MX has), at
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
/// What a peer may have of a message that is pulled from us, beyond twice its length, in bytes;
/// and how long it waits for each block that it wants besides, in ns.
pub const PULLED_AGAIN_BYTES: u64 = 256 << 10;
/// See [`PULLED_AGAIN_BYTES`].
pub const PULLED_AGAIN_NS: u64 = 4_000_000;
/// Events that wait for a host side before its requests wait too.
pub const OUTBOX_MAX: usize = 1024;
/// Messages that are looked through for one that is given up, in the time of any other request.
pub const LOOKED_THROUGH_AT_ONCE: usize = 64;

/// Packets in flight to one peer: at first, at least after loss, and at most.
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
/// How often in a row, and for how long in ns, a peer may lack what it had, or have numbers of
/// another generation, before it is asked whether that is so: late packets do.
pub const CONTRADICTIONS: (u32, u64) = (4, 1_000_000_000);
/// Packets of a message that do not belong to what came of it before, until that is thrown away:
/// more than a message has.
pub const STRANGE_PACKETS_MAX: u8 = 8;
/// How long a peer has to be heard of again that is said to be gone, by a refusal or by a
/// connect of another session, in ns: anybody may say so. Three round trips where those are longer,
/// up to the longest wait until a message is sent again.
pub const DOUBT_NS: u64 = 20_000_000;
/// How long nothing is sent to a peer that began anew with numbers that were in use before, in
/// ns: longer than packets are on their way.
pub const QUIET_NS: u64 = 60_000_000;
/// How often a peer that has not pulled what it is offered is asked whether it is there, in ns.
pub const PROBE_NS: u64 = 2_000_000_000;
/// The same of one that the library waits for: what waits for it is told within two seconds that it
/// is gone, where its host says so. A host that says nothing is waited for as ever
/// ([`GIVE_UP_NS`]).
pub const WATCH_NS: u64 = 500_000_000;
/// A peer that is not heard of for so long is gone, in ns: MX's 1000 times half a second.
pub const GIVE_UP_NS: u64 = 500_000_000_000;
/// Buffers that are kept for messages to come, and the bytes of each, by class.
pub const SPARE_BUFFERS: [(usize, usize); 3] =
    [(SMALL_BYTES_MAX, 1024), (4096, 256), (MEDIUM_BYTES_MAX, 128)];

// Discovery.

/// Announcements in a row, and the time between them in ns: Open-MX's.
pub const ANNOUNCE_BURST: u32 = 8;
/// See [`ANNOUNCE_BURST`].
pub const ANNOUNCE_NS: u64 = 1_000_000_000;
/// Least time between two announcements, however many NICs are heard of, in ns.
pub const ANNOUNCE_GAP_NS: u64 = 100_000_000;
/// Time between announcements afterwards, in ns: Open-MX's.
pub const ANNOUNCE_RARELY_NS: u64 = 180_000_000_000;
/// Least and most time between two questions for a name, in ns: who is asked may not know us yet;
/// the most is Open-MX's.
pub const ASK_NAME_NS: (u64, u64) = (100_000_000, 5_000_000_000);
/// How long a NIC that announced itself may be silent when it is asked for its name, in ns.
pub const HOST_NAMELESS_NS: u64 = 30_000_000_000;
/// NICs that announced themselves and have not answered yet.
pub const HOST_NAMELESS_MAX: usize = 256;
/// A NIC that was not heard of for so long is asked for its name again, in ns: three
/// announcements were lost.
pub const HOST_STALE_NS: u64 = 600_000_000_000;
/// Longest name of a NIC, in bytes.
pub const NAME_BYTES_MAX: usize = causeway_wire::mxoe::NAME_LEN_MAX;
