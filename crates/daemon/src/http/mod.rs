//! The subset of HTTP/1.1 that the control socket needs: one request per connection.
//!
//! [`request`] reads, [`reply`] writes, [`server`] accepts connections and enforces limits.
//! [`crate::api`] interprets the requests.

pub mod reply;
pub mod request;
pub mod server;

pub use reply::HttpReply;
pub use request::HttpRequest;
