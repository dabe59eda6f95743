//! RDMA verbs without I/O.
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

pub mod limits;
pub mod queues;
pub mod region;
pub mod work;

pub use queues::{AsyncEvent, Overrun, QueueError, Queues};
