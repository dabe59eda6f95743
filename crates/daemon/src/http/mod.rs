//! The subset of HTTP/1.1 that the control socket and the metrics need: one request per connection,
//! with a JSON body in both directions; metrics are text.
//!
//! [`request`] reads, [`reply`] writes, [`server`] accepts connections and enforces limits. A
//! request then goes to [`crate::api`], which interprets it. A malformed request is answered with
//! 400, one that is late (5 s) with 408, one that is too large (64 KiB, 8 MiB with a file) with 413
//! or 431, one of a user without access with 403, and a connection beyond the limits (64) that
//! finds no waiting connection to evict with 503; then the connection is closed.
//!
//! Not supported: keep-alive, pipelining, chunked bodies (status 411), TLS and queries (ignored).
//! TCP is for metrics alone ([`crate::metrics::listener`]). The subset serves `curl --unix-socket` and `causeway`, not browsers.

pub mod connection;
pub mod reply;
pub mod request;
pub mod server;

pub use connection::HttpConnection;
pub use reply::{HttpReply, ReplyBody};
pub use request::HttpRequest;
