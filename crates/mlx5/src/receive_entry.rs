//! Receive work queue entries: data segments until the end mark, or the end of the entry.
//!
//! `work_queues`, `receive_pool` and `ethernet::receive_queue` pass a private copy of an entry,
//! without the link of a pool, in the dispatcher's thread. No entry is malformed: an entry without
//! segments has room for no bytes. Keys and addresses are checked by the engine when a message
//! arrives; the number of segments is bounded by the entry's length, at most 2,048 bytes
//! ([`crate::limits::RECEIVE_ENTRY_BYTES_MAX`]).

use causeway_verbs::work::{ReceiveWork, Segment, Token};
use causeway_wire::mlx5::work_request::{DataSegment, receive_segments};

/// Decodes the segments of an entry into `work`, and resets its token.
#[inline]
pub(crate) fn parse(entry: &[u8], work: &mut ReceiveWork) {
    work.segments.clear();
    work.token = Token::default();
    work.segments.extend(receive_segments(entry).map(|segment| decode(&segment)));
}

/// Returns a segment in the engine's form.
#[inline]
pub(crate) fn decode(segment: &DataSegment) -> Segment {
    Segment { key: segment.key, address: segment.address, len: segment.len() }
}
