//! Limits on which both sides of an MX endpoint rely.
//!
//! The NIC side (`mxoe`, in causewayd, or in the application in direct mode) enforces them on the
//! host side (`message`, in the application's process): a request beyond a limit waits or ends with
//! an error status; a malformed or too long ring entry closes the endpoint. The limits of one
//! implementation (queues, timers) are in its crate. Constants only; a change needs both sides.
//!
//! A correct host side stays below a number of objects by waiting: its request is deferred at
//! [`SENDS_MAX`], a connect waits at [`PARTNERS_MAX`] until a number is free or the connect times
//! out, and a further region at [`REGIONS_MAX`] is refused with an error. The host side runs in the
//! application's thread that holds the endpoint, the NIC side in a dispatcher's turn or, in direct
//! mode, in the same thread.

use crate::mxoe;

/// Longest *tiny* message, in bytes: it crosses inside the event.
pub const TINY_BYTES_MAX: usize = mxoe::TINY_LEN_MAX;
/// Longest *small* message, in bytes: it crosses in one packet.
pub const SMALL_BYTES_MAX: usize = mxoe::SMALL_LEN_MAX;
/// Longest *medium* message, in bytes: it crosses in several packets. A receiver pulls messages
/// that are longer (*large*).
pub const MEDIUM_BYTES_MAX: usize = mxoe::MEDIUM_LEN_MAX;
/// Endpoints of one NIC: 0 to 254; 255 marks raw packets ([`mxoe::ENDPOINT_RAW`]).
pub const ENDPOINTS_MAX: usize = mxoe::ENDPOINT_RAW as usize;
/// Segments of one message (`MX_MAX_SEGMENTS`).
pub const SEGMENTS_MAX: usize = 256;
/// Registered regions of one endpoint.
pub const REGIONS_MAX: usize = 256;
/// Peers of one endpoint that are connected or not yet forgotten. One remote NIC accounts for at
/// most 255 of them, so it cannot exhaust the table.
pub const PARTNERS_MAX: usize = 2048;
/// Sends of one endpoint that have not ended.
pub const SENDS_MAX: usize = 16_384;
/// Sends of one endpoint that the host side completed early and the peer has not confirmed
/// (Open-MX's `ZOMBIE_SEND`). The limit holds once for sends that are requests, and once for
/// unreported sends ([`Token::UNREPORTED`](super::Token::UNREPORTED)).
pub const EARLY_SENDS_MAX: usize = 512;
