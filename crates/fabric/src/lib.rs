//! Ports, groups, and the dispatch loop that drives them.
//!
//! The fabric knows who is attached ([`port`]), what the operator asked for
//! ([`spec`]), and when to serve which ring ([`dispatch`]). What a frame or a
//! packet *means* is the business of the services above, which plug in by
//! [`service::Service`].

pub mod control;
pub mod limits;
pub mod spec;

pub use spec::{Mac, Name};
