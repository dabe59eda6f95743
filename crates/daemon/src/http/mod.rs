//! Just enough HTTP/1.1 for one request per connection over a Unix socket.
//!
//! [`request`] reads, [`reply`] writes, [`server`] accepts and keeps the bounds.
//! What the requests mean is the business of [`crate::api`].

pub mod reply;
pub mod request;
pub mod server;

pub use reply::Reply;
pub use request::Request;
