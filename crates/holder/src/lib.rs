//! The holder: keeps frontends connected while causewayd is away.
//!
//! Some frontends never connect twice (QEMU's vhost-user-vsock). For a *held*
//! port this small process listens in causewayd's stead ([`holder`]), and passes
//! each frontend's messages on to the port's inner socket ([`relay`]), one at a
//! time, noting what they set up ([`record`]). Memory, rings and doorbells go
//! straight to causewayd: no byte of the data path passes here.
//!
//! When causewayd dies, its frontends see nothing. Its successor tells which
//! ports it serves ([`protocol`]), and gets the set-up of each again, with rings
//! continuing where guest memory says that they stand ([`replay`]). A record of
//! chains in flight is kept for frontends that keep none, so that what causewayd
//! had taken and not finished is done once ([`inflight`]).
//!
//! A frontend that breaks a rule, and a causewayd that answers rubbish, cost the
//! one connection they did it on.
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

pub mod client;
pub mod holder;
pub mod inflight;
pub mod inner;
pub mod limits;
pub mod listen;
pub mod port;
pub mod protocol;
pub mod record;
pub mod relay;
pub mod replay;
