//! Links of the kinds `tcp` and `tls`: one connection per link, with VNET/U's framing.
//!
//! The side without `listen` connects and reconnects with growing pauses; the side with `listen`
//! accepts connections from the peer's address only. With TLS a newer connection replaces the older
//! connection once its peer is authenticated.
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
