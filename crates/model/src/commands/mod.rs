//! Commands of single services: one module for each noun of the operator, one type for each
//! command.
//!
//! A service answers these types ([`crate::TypedRequest`]). The control plane carries them as
//! [`crate::Command::Service`] and lists none of them. A refused command is answered with a
//! [`crate::CommandError`] and changes nothing, except as `crate::command` states; a daemon without
//! the service refuses the command as invalid. The API and the VNET language share the types; their
//! JSON forms are in the daemon. The sender's thread runs the service's controller, one command at
//! a time in the daemon, and waits for the shards that the command concerns. Commands of the fabric
//! itself (ports, groups, rules) are [`crate::Command`].

pub mod captures;
pub mod cluster;
pub mod connections;
pub mod forwards;
pub mod hca;
pub mod links;
pub mod nics;
pub mod peers;
pub mod routes;
pub mod trace;
pub mod traffic;
