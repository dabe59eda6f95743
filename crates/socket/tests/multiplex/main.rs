//! The protocol engine of sockets between hosts against a model: two sessions over a network that
//! loses, repeats, reorders and delays datagrams by a seed.
#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "a test")]

mod network;
mod owners;
mod random;
mod restarts;
