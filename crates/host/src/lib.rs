//! Safe interfaces of Linux.
//!
//! - [`fd`]: descriptors that other processes send, accounted to their senders and closed where a
//!   slow close blocks no other peer.
//! - [`net`]: packet sockets with their rings and filters, batched sends, socket options of UDP and
//!   TCP, and I/O between sockets and guest memory.
//! - [`watchdog`]: interrupts a thread that a peer holds up in a write.
//!
//! Everything here is reached by system calls that need `unsafe`, and offers interfaces that do not.
#![allow(unsafe_code, reason = "system calls, and what the kernel writes into private memory")]
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

pub mod fd;
pub mod limits;
pub mod net;
pub mod watchdog;

pub use fd::{Account, ReceivedFd};
pub use net::{OwnMemory, OwnPiece};
pub use watchdog::Rescue;
