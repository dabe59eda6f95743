//! Rings and doorbells: the device side of virtio queues.
//!
//! A [`Queue`] takes chains that the driver made available, checks every index
//! and descriptor once, and hands out plain values ([`Chain`]); nothing in it
//! knows of sockets or processes. Split rings ([`split`]) and packed rings
//! ([`packed`]) are its two arms; [`handshake`] is what they have in common.
//!
//! # Park and wake
//! A dispatcher that has found every ring empty calls [`Queue::arm`] on each,
//! which asks the driver for a doorbell and then looks once more ([`handshake`]
//! has the order that this needs). Only when all rings stay empty it
//! parks. While it works, [`Queue::disarm`] keeps the driver from ringing.
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

mod chain;
mod doorbell;
pub mod driver;
mod error;
mod format;
pub mod handshake;
mod inflight;
mod latch;
pub mod limits;
mod marks;
pub mod packed;
pub mod position;
mod queue;
pub mod split;

pub use chain::Chain;
pub use doorbell::{Doorbell, DoorbellError, Notifier};
pub use error::RingError;
pub use inflight::{Inflight, PackedInflight, SplitInflight};
pub use queue::{Popped, Queue, Setup};
