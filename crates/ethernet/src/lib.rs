//! Ethernet between the ports of a group: the local half of VNET/P.
//!
//! A frame's headers are copied once into private memory and checked (`job`); source and
//! destination decide where it goes (`forward`); its bytes are copied straight into the
//! receivers' buffers (`deliver`); where a receiver has none it waits, bounded (`hold`).
//!
//! The parts that decide are plain functions and tables over private bytes: [`table`] knows
//! who is where, [`offload`] what is to be done with a frame that its receiver does not take
//! as it is, [`features`] what a port offers, [`counters`] what happened. The routes, captures and
//! traffic matrices of all groups are configured through one controller (`control`), which asks the
//! shards (`request`).

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

mod arrive;
mod backlog;
mod capture;
mod control;
pub mod counters;
mod deliver;
mod depart;
mod echo;
pub mod features;
mod flood;
mod forward;
mod hold;
mod job;
mod lane;
mod late;
pub mod limits;
mod offer;
pub mod offload;
mod port;
mod refused;
mod request;
mod resume;
pub mod route;
mod run;
mod segment;
mod service;
mod source;
pub mod table;
mod tap;
mod trace;
pub mod traffic;
mod uplink;

pub use service::Ethernet;

use causeway_fabric::Registration;
use causeway_fabric::carrier::FORWARDS_FRAMES;

/// The kinds of ports of the service.
const KINDS: &[&causeway_model::Kind] = &[&causeway_model::port::NET];

/// Adds the service to a fabric.
pub const SERVICE: Registration = Registration::new(service::NAME, || Box::new(Ethernet::new()))
    .with_kinds(KINDS)
    .with_controller(|| Box::<control::EthernetController>::default())
    .with_capabilities(&[FORWARDS_FRAMES]);
