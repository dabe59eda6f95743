//! Ports, groups, and the dispatch loop that drives them.
//!
//! The fabric knows who is attached ([`port`]), what the operator asked for
//! ([`spec`]), and when to serve which ring ([`dispatch`]). What a frame or a
//! packet *means* is the business of the services above, which plug in by
//! [`service::Service`].
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

mod commands;
pub mod control;
pub mod dispatch;
mod frontend;
pub mod host;
pub mod limits;
mod listen;
mod loglimit;
pub mod port;
pub mod rules;
pub mod service;
pub mod spec;
mod watch;

pub use loglimit::LogLimit;
pub use port::{GroupId, Port, PortId, Ports};
pub use rules::{End, Rules};
pub use service::{Context, Progress, Service, ServiceWatch};
pub use spec::{Mac, Name};
