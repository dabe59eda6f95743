//! The simulator: the product's own shards under random guests, from one seed, without threads
//! of their own, wall clock or randomness of the host.
//!
//! [`world::play`] plays the world of a seed. Its guests write what they see on a
//! [`tape::Tape`], and the [`check`]ers, which know nothing else, hold it against what was
//! promised. The same seed gives the same tape.
#![forbid(unsafe_code)]

pub mod bells;
pub mod boards;
pub mod bytes;
pub mod check;
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
pub use world::{Outcome, Wish, play};
