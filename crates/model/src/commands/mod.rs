//! Commands of single services: one module for each noun of the operator, one type for each
//! command.
//!
//! A service answers these types ([`crate::TypedRequest`]). The control plane carries them as
//! [`crate::Command::Service`] and lists none of them.

pub mod captures;
pub mod links;
pub mod peers;
pub mod routes;
pub mod traffic;
