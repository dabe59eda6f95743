//! Links as an operator writes them, in the file or to the control socket, and the defaults of
//! values that are not given.
//!
//! [`LinkDraft`] holds the given values of a link, [`HostPort`] parses hosts, and [`derived_mac`]
//! and [`derived_nic_name`] make the address and the NIC name of a port without one. The daemon
//! makes a specification ([`crate::LinkSpec`]) of a draft before a service gets it; a draft with a
//! problem goes no further. It runs in the threads of the daemon's start, of the control socket and
//! of VNET sessions. The module opens and stores nothing, and resolves names only by the resolver
//! of its caller.

pub mod host;
pub mod link;
pub mod mac;
pub mod nic_name;
mod of_spec;

pub use host::{HostPort, Resolver};
pub use link::{LinkDraft, LinkKindName};
pub use mac::derived_mac;
pub use nic_name::derived_nic_name;
