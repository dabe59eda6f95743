//! How guests come in: vhost-user, and the native front end.
//!
//! A guest's *frontend* (QEMU, user-mode Linux, DPDK, or a process through
//! [`native`]) connects to a port's socket and grants memory, rings and
//! doorbells by messages. [`vhost_user::server`] is the backend's half of that
//! conversation for one port; what it has accepted so far is a
//! [`Device`]: a memory map and queues, each with a
//! ring once it runs. Both halves treat what they read as hostile.
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

pub mod doorbell;
pub mod limits;
pub mod local;
pub mod native;
pub mod vhost_user;

pub use vhost_user::fault::{Fault, FaultKind, Reason};
pub use vhost_user::server::{Device, Event, Model, Server, VirtQueue};
