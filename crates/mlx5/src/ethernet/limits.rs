//! Bounds of the Ethernet side, per function.
//!
//! A command beyond a number of objects or destinations fails with *limit exceeded*, a flow table
//! or receive queue table beyond its size with *bad parameter*; neither changes anything. A longer
//! frame of a send queue completes with an error, a shorter frame is dropped and counted, and so
//! are pieces beyond the number of deliveries; a search beyond its limit ends. The modules of
//! `ethernet` read the constants in the dispatcher's turn; those of all queues are in
//! `crate::limits`.
//!
//! `transmit` and `send_queue` read the limits of frames and entries of a call, `receive` and
//! `frame` those of deliveries, `flow` and `command` those of flow tables and their searches.

/// Bytes of a frame that are copied to private memory before the frame is forwarded: all headers,
/// with tags, options and IPv6 extension headers.
pub const HEAD_BYTES: usize = 256;
/// Maximum length of a frame, in bytes, before a tag that the entry asks for is inserted: an IP
/// packet of 64 KiB that the receiver cuts, and its Ethernet header with two tags.
pub const FRAME_BYTES_MAX: usize = 65_535 + 22;
/// Minimum length of a frame, in bytes: an Ethernet header.
pub const FRAME_BYTES_MIN: usize = 14;
/// Bytes of the frame check sequence, which the MTU of the virtual port includes and frames here do
/// not have.
pub const CHECK_SEQUENCE_BYTES: usize = 4;
/// Entries without a frame that one call of [`super::next_frame`] takes at most. The call also ends
/// after as many looks at empty send queues as there are polled send queues.
pub const ENTRIES_PER_CALL_MAX: u32 = 64;
/// Pieces of a frame that all its receivers and their interfaces get together at most; the others
/// are dropped and counted.
pub const DELIVERIES_PER_FRAME_MAX: u32 = 4096;
/// Frames of a send queue before the next queue has its turn.
pub const BURST: u8 = 16;
/// Bytes that are copied and summed at a time; they stay in the first-level cache.
pub const CHUNK_BYTES: usize = 4096;

/// Maximum number of receive queues in a table (RQT): 2^7, as the capability states, and room for
/// drivers that ask for more.
pub const TABLE_ENTRIES_MAX: usize = 1 << 10;
/// Maximum number of flow tables, and of flow groups.
pub const FLOW_TABLES_MAX: usize = 1 << 12;
/// Binary logarithm of the largest flow table.
pub const FLOW_TABLE_LOG_MAX: u8 = 24;
/// Maximum number of groups in a flow table.
pub const FLOW_GROUPS_PER_TABLE_MAX: usize = 64;
/// Maximum number of flow entries in all tables.
pub const FLOW_ENTRIES_MAX: usize = 1 << 14;
/// Maximum number of destinations of a flow entry.
pub const FLOW_DESTINATIONS_MAX: usize = 32;
/// Flow groups that are searched for a frame at most.
pub const FLOW_GROUPS_PER_FRAME_MAX: usize = 256;
/// Flow tables that are searched for a frame at most.
pub const FLOW_TABLES_PER_FRAME_MAX: usize = 64;
/// Transport interfaces that receive a copy of a frame at most.
pub const INTERFACES_PER_FRAME_MAX: usize = 8;
/// Results of searches that are kept for later frames with equal headers. A further result empties
/// the cache.
pub const FLOW_CACHE_MAX: usize = 256;
