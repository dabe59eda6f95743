//! The simulator: runs the product's own shards under random guests, with simulated time and with
//! faults drawn from one seed.
//!
//! [`world::play`] plays the world of a seed: the same seed gives the same tape. [`boards::play`]
//! plays the world of MX NICs of a seed, which uses the host's loopback interface and may differ in
//! rare cases. Guests record their observations on a [`tape::Tape`]; the [`check`]ers read only the
//! tape and compare it with the invariants.
//!
//! | module | content |
//! |---|---|
//! | [`mod@world`], [`stage`] | a world of one or two stages; a shard and its frontends in one thread |
//! | [`play`](mod@play), [`doorbells`] | guests of a stage and their common actions; doorbells that come late or never |
//! | [`ether`], [`sock`] | stages of virtio-net and vsock devices |
//! | [`lan`], [`boards`] | worlds of hosts that links join; hosts with one MX NIC each |
//! | [`event`], [`tape`], [`check`] | observations, their record, the invariants |
//! | [`rng`], [`bytes`] | random numbers and payload of a seed |
//!
//! A world runs in the caller's thread, one after another; the first violation ends it and is
//! returned. A turn of a shard may run in another thread, for which the world waits, and threads of
//! the product close descriptors. Lengths are bounded by constants: a world of stages has 80 to 500
//! steps (twice as many in a heavy world), and then at most 5,000 rounds for each stage.
//! `causeway-sim` and the tests of the crate play worlds; the fuzz targets use [`Stage`] alone.
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
