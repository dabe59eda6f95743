//! The control socket's part of HTTP/1.1; `causeway_http` has the messages.
//!
//! [`server`] accepts connections, enforces limits, and starts a thread for each. A request then
//! goes to [`crate::api`], which interprets it. A malformed request is answered with 400, one with
//! a chunked body with 411, one that is late (5 s) with 408, one that is too large (64 KiB, 8 MiB
//! with a file) with 413 or 431, a connection of a user without access with 403, and one beyond the
//! limits (64) that finds no waiting connection to evict with 503. Every connection is closed after
//! its reply. The subset serves `curl --unix-socket` and `causeway`, not browsers: `causeway web`
//! is the page for these.

pub mod server;

use causeway_http::RequestLimits;
pub use causeway_http::{HttpReply, HttpRequest, ReplyBody, request};

use crate::limits::{FILE_REQUEST_BYTES_MAX, REQUEST_BYTES_MAX};

/// The sizes of requests at the control socket and for metrics.
pub const REQUEST_LIMITS: RequestLimits = RequestLimits {
    bytes: REQUEST_BYTES_MAX,
    file_bytes: FILE_REQUEST_BYTES_MAX,
    file_paths: &["/v1/apply", "/v1/config/diff", "/v1/forwarder", "/v1/vnet"],
};
