//! Links of the kinds `tcp` and `tls`: one connection per link, with VNET/U's framing.
//!
//! The side without `listen` connects and reconnects with growing pauses (`CONNECT_AGAIN_NS_MIN`
//! (0.5 s) to `CONNECT_AGAIN_NS_MAX` (5 s)) and never gives up; the side with `listen` accepts
//! connections from the peer's address only. With TLS a newer connection replaces the older
//! connection once its peer is authenticated; without TLS the older connection stays while it
//! answers.
//!
//! `ethernet` calls [`connection::StreamCarrier`] to send; the shard of links calls [`StreamLink`]
//! to receive, for timers, and to resume writing when a full socket has room again. Frames keep
//! their order and are not lost while the connection lives, except that a slow peer's full queue
//! refuses new frames, and a full mailbox of the receiving group drops received frames. Frames that
//! are queued when a connection ends are lost. `tcp` has neither authentication nor encryption.
//! Streams carry neither offloads nor flood numbers.
//!
//! | module | purpose |
//! |---|---|
//! | [`connection`] | one connection, and the carrier that writes to it |
//! | [`link`] | the connections of a link |
//! | `attempt` | connecting, and the TLS handshake |
//! | [`listener`] | accepting |

mod attempt;
pub mod connection;
pub mod link;
pub mod listener;

pub use link::StreamLink;
pub use listener::StreamListener;
