//! Links of the kinds `tcp` and `tls`: one link is one connection, with VNET/U's framing on it.
//!
//! The side without `listen` connects, again and again with growing pauses; the side with it takes
//! connections from the peer's address alone. A newer connection takes the place of an older one,
//! once TLS, if there is any, found the peer to be who it should be.
//!
//! | module | idea |
//! |---|---|
//! | [`pipe`] | one connection, and the carrier that writes to it |
//! | [`link`] | connections of a link come and go |
//! | `attempt` | a connection comes about |
//! | [`listener`] | connections are taken |

mod attempt;
pub mod link;
pub mod listener;
pub mod pipe;

pub use link::StreamLink;
pub use listener::Listener;
