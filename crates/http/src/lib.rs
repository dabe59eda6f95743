//! The subset of HTTP/1.1 that the control socket, the metrics and the web page need: one request
//! for each connection, and a reply that closes it.
//!
//! [`request`] reads, [`reply`] writes, [`slots`] shares a bounded number of connections among
//! clients, [`acceptor`] accepts them, and [`tcp`] serves a TCP address with them. causewayd serves
//! its control socket with the first four, and its metrics with [`tcp`]; `causeway web` serves its
//! page with [`tcp`]. The VNET language has its slots and its acceptor from here too. A request
//! then goes to a handler of the caller, which interprets path and body.
//!
//! A malformed request is answered with 400, one that is late (5 s) with 408, one that is too large
//! with 413 or 431. Calls block the thread of their connection; servers start a thread for each.
//! The crate opens no socket of its own accord and knows no path.
//!
//! Not supported: keep-alive, pipelining, chunked bodies (status 411) and TLS.
//!
//! # Example
//! ```
//! use std::io::Write as _;
//! use std::net::Shutdown;
//! use std::os::unix::net::UnixStream;
//! use std::time::{Duration, Instant};
//!
//! use causeway_http::{RequestLimits, request};
//!
//! let (mut client, mut server) = UnixStream::pair()?;
//! client.write_all(b"GET /v1/info HTTP/1.1\r\nHost: causewayd\r\n\r\n")?;
//! client.shutdown(Shutdown::Write)?;
//! let limits = RequestLimits { bytes: 1024, file_bytes: 1024, file_paths: &[] };
//! let found = request::read(&mut server, &limits, Instant::now() + Duration::from_secs(1));
//! let request = found.expect("the request is well-formed").expect("the client sent one");
//! assert_eq!((request.path.as_str(), request.host.as_deref()), ("/v1/info", Some("causewayd")));
//! # Ok::<(), std::io::Error>(())
//! ```

#![forbid(unsafe_code)]

pub mod acceptor;
pub mod connection;
pub mod limits;
pub mod reply;
pub mod request;
pub mod slots;
pub mod tcp;

pub use acceptor::Acceptor;
pub use connection::HttpConnection;
pub use reply::{HttpReply, ReplyBody};
pub use request::{HttpRequest, RequestLimits};
pub use slots::{ConnectionSlot, ConnectionSlots, SlotLimits};
pub use tcp::{HttpServer, ServerOptions};
