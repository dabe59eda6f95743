//! Boards of MX endpoints: the daemon's side of message passing.
//!
//! A port of kind `mx` is a board. Processes attach by its socket ([`causeway_attach::local`]),
//! open endpoints and ask for ways to others. Between two endpoints of one group on this host the
//! daemon makes a channel ([`causeway_channel`]), gives its memory and the doorbells to both,
//! and is off the path from then on. When a process goes, those that had ways to it are told.
//!
//! A board with a network has the backend half of its endpoints too ([`causeway_mxoe`]):
//! each is given rings of its own, and what it sends to other hosts goes through them.
//!
//! Processes are as hostile as guests: each costs at most its own endpoints.

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

mod asks;
mod board;
mod client;
mod control;
mod lent;
pub mod limits;
mod network;
mod process;
mod service;
mod ways;

pub use service::Messages;

use causeway_fabric::Registration;

/// The kinds of ports of the service.
const KINDS: &[&causeway_model::Kind] = &[&causeway_model::port::MX];

/// Adds the service to a fabric.
pub const SERVICE: Registration = Registration::new(service::NAME, || Box::new(Messages::new()))
    .with_kinds(KINDS)
    .with_controller(|| Box::new(control::MxController));
