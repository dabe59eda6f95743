//! `GET /v1/traffic/GROUP`: the traffic matrix of a group, an entry for each pair of sender and
//! receiver address, the busiest first.
//!
//! An entry has the frames, the RDMA messages and the bytes of both since the pair entered the
//! matrix, and bytes per second over the last window of about 1 s (`window_seconds` in the reply).
//! The `ethernet` service counts the frames that it accepts, the `hca` service RDMA messages and
//! frames between adapters; each keeps at most 4,096 pairs (`TRAFFIC_PAIRS_MAX`). A pair stays until the
//! matrix is full and a new pair appears: then all pairs without frames for 60 s
//! (`TRAFFIC_SILENT_NS`) leave it, checked at most once a second, and start from zero when they
//! return. Frames of pairs that still do not fit are only in `uncounted_frames_total`. MX messages
//! and socket packets are not in the matrix. The request resets no counter; an unknown group is 404.
//!
//! `super::answer` dispatches here on the thread of a connection; `causeway traffic` prints the
//! reply.

use causeway_model::commands::traffic::Show;

use super::{ApiCall, no_path, parse_name};
use crate::http::HttpReply;

/// Answers `/v1/traffic`; `rest` holds the path segments after it.
pub(super) fn traffic(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    match (rest, call.method()) {
        ([group], "GET") => call.ask(Show(parse_name(group)?), 200),
        ([_], _) => Err(HttpReply::method_not_allowed("GET")),
        _ => Err(no_path(call.request)),
    }
}
