//! Links as an operator writes them, in the file or to the control socket, and the defaults of
//! values that are not given.
//!
//! A draft becomes a specification ([`crate::LinkSpec`]) before it reaches a service.

pub mod host;
pub mod link;
pub mod mac;

pub use host::{HostPort, Resolver};
pub use link::{LinkDraft, LinkKindName};
pub use mac::derived_mac;
