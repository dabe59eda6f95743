//! Ports, groups, and the dispatch loop that drives them.
//!
//! The fabric knows who is attached ([`port`]), what the operator asked for ([`spec`]), which
//! thread serves whom ([`mod@fabric`], [`shard`]) and when each ring is looked at ([`pace`]). What
//! a frame or a packet *means* is the business of the services above, which plug in by
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

mod balance;
mod bell;
pub mod capture;
pub mod carrier;
mod charged;
mod dispatcher;
pub mod fabric;
mod footprint;
pub mod host;
pub mod keyed;
pub mod limits;
mod listen;
mod load;
mod loglimit;
pub mod mailbox;
pub mod orders;
pub mod pace;
pub mod port;
pub mod rate;
mod registry;
pub mod room;
mod roster;
pub mod rules;
mod schedule;
pub mod service;
pub mod shard;
mod share;
pub mod slice;
pub mod udp;
pub mod wakes;
mod watch;

pub use fabric::{Fabric, Handle, Maker, Options, Turned};
pub use loglimit::LogLimit;
pub use pace::Pacing;
pub use port::{GroupId, Port, PortId, Ports};
pub use rules::{End, Rules};
pub use service::{Context, Progress, Served, Service, ServiceWatch};
pub use shard::Shard;
pub use slice::{Slice, cost};
pub use wakes::Wakes;
