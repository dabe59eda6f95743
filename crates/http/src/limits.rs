//! Limits of every HTTP server of Causeway: counts and times, each a constant.
//!
//! Each server states the sizes of its requests and the number of its connections itself
//! ([`crate::RequestLimits`], [`crate::ServerOptions`]). The constants cannot be configured.
//!
//! The modules of this crate apply them; [`crate::tcp`] and the server of the control socket in
//! causewayd set the time limits of requests and replies, in the thread of each connection. At a
//! limit of requests or times, a request is refused or its connection closed; none ends the server.

use std::time::Duration;

/// Most headers of a request. More get 431.
pub const REQUEST_HEADERS_MAX: usize = 64;
/// Time for which a waiting connection keeps its slot when slots run out, or when its client has
/// too many waiting connections. Then a new connection may take the slot.
pub const CONNECTION_GRACE: Duration = Duration::from_millis(250);
/// Time from the start of a connection's thread to the last byte of its request. A later request
/// gets 408 and has no effect.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);
/// Time in which each write of a reply must make progress, also of the VNET server. Then the
/// connection is closed; the command has its effect.
pub const REPLY_TIME_MAX: Duration = Duration::from_secs(5);
/// Time for which the rest of a refused request is read, so that the client can read the reply.
pub const DRAIN_TIME_MAX: Duration = Duration::from_millis(500);
/// Pause after `accept` failed, as for lack of descriptors or memory.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Most notes of a reply; the number of the others is sent.
pub const NOTES_MAX: usize = 8;
