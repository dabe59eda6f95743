//! The simulator: the product's own shards under random guests, from one seed, without threads,
//! wall clock or randomness of the host.
#![forbid(unsafe_code)]

pub mod stage;

pub use stage::{Stage, StageError};
