//! Receive work queue entries: data segments until the end mark.

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
