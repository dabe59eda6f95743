//! Ports, groups, and the dispatch loop that drives them.
//!
//! The fabric knows the ports ([`port`]), the thread that serves each shard ([`mod@fabric`],
//! [`shard`]), and when each ring is polled ([`pace`]). It knows no service: a service registers
//! itself ([`registration`]) with the part that each shard has ([`service::Service`]) and the part
//! that answers the operator's commands ([`controller::Controller`]). Services ask each other and
//! their own shards typed requests ([`causeway_model::Ask`]).
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
pub mod carrier;
mod charged;
pub mod controller;
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
pub mod pace;
pub mod port;
pub mod rate;
pub mod registration;
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

pub use controller::{Controller, NoCommands, Object};
pub use fabric::{Fabric, Handle, Options, Turned};
pub use loglimit::LogLimit;
pub use pace::Pacing;
pub use port::{GroupId, Port, PortId, Ports};
pub use registration::{Capability, Maker, Registration};
pub use registry::Control;
pub use rules::{End, Rules};
pub use service::{Context, Progress, Served, Service, ServiceWatch};
pub use shard::{Shard, ShardKey};
pub use slice::{Slice, cost};
pub use wakes::Wakes;
