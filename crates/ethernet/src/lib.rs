//! Ethernet between the ports of a group: the local half of VNET/P.
//!
//! The parts that decide are plain functions and tables over private bytes:
//! [`table`] knows who is where, [`offload`] what is to be done with a frame
//! that its receiver does not take as it is, [`features`] what a port offers,
//! [`counters`] what happened.

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

pub mod counters;
pub mod features;
pub mod limits;
pub mod offload;
pub mod table;
