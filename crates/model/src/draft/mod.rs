//! Links and routes as an operator writes them, in the file or to the control socket, and how what is
//! left out is filled in.

pub mod link;
pub mod mac;
pub mod place;
pub mod route;

pub use link::{LinkDraft, LinkWord};
pub use mac::derived_mac;
pub use place::{Place, Resolver};
pub use route::RouteDraft;
