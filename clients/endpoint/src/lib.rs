//! An endpoint in a process, without any API around it: what `libmyriexpress.so` and the libfabric
//! provider share.
//!
//! An [`Endpoint`] is the library half of the engine ([`causeway_message::library`]) with its way
//! to partners ([`way`]): channels to those of this host, rings to the backend half for the others,
//! which is the daemon's or, where the board lets its processes at the network, here (`bypass`). The
//! daemon is asked for all of them by the socket of a board ([`board`]). Nothing goes on but in calls of
//! whoever has the endpoint; who has nothing to do sleeps on what it hears by ([`ears`]).
#![allow(unsafe_code, reason = "locks, descriptors in a child process, other processes' memory")]
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

pub mod board;
mod bypass;
mod direct;
pub mod ears;
mod endpoint;
mod error;
pub mod limits;
pub mod lock;
mod staging;
mod strangers;
pub mod way;

pub use endpoint::{Endpoint, Opening, now};
pub use error::Error;
