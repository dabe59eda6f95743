//! Links and routes as an operator writes them, in the file or to the control socket, and the
//! defaults of values that are not given.
//!
//! The daemon reads a draft from TOML or JSON, and makes a specification of it
//! ([`crate::LinkSpec`], [`crate::RouteSpec`]), which goes to a service; services see no drafts. A
//! draft may be incomplete, and names of hosts in it are unresolved. Ports have no draft type:
//! [`crate::port::read()`] reads them.

pub mod host;
pub mod link;
pub mod mac;
pub mod route;

pub use host::{HostPort, Resolver};
pub use link::{LinkDraft, LinkKindName};
pub use mac::derived_mac;
pub use route::RouteDraft;
