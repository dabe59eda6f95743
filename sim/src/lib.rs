//! The simulator: runs the product's own shards under random guests, from one seed, without threads,
//! without the host's wall clock or randomness.
//!
//! [`world::play`] plays the world of a seed. Its guests record their observations on a
//! [`tape::Tape`]; the [`check`]ers read only the tape and compare it with the invariants. The same
//! seed gives the same tape.
//!
//! Limits: the kernel, guest drivers, VMM processes and timing of real hosts are not simulated.
#![forbid(unsafe_code)]

pub mod boards;
pub mod bytes;
pub mod check;
pub mod doorbells;
pub mod ether;
pub mod event;
pub mod lan;
pub mod play;
pub mod rng;
pub mod sock;
pub mod stage;
pub mod tape;
pub mod world;

pub use stage::{Stage, StageError};
pub use world::{Outcome, PlayOptions, play};
