//! How guests come in: vhost-user, the local attachment, and the native front end.
//!
//! A guest's *frontend* (QEMU, user-mode Linux, DPDK, or a process through
//! [`native`]) connects to a port's socket and grants memory, rings and
//! doorbells by messages. [`attachment`] is the interface of the backend's side,
//! the same for every protocol. [`vhost_user::server`] implements it for one
//! port; the accepted state is a [`Device`]: a memory
//! map and queues, each with a ring while it runs. [`local`] implements it for
//! processes. Both sides of each protocol treat received bytes as hostile.
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

pub mod attachment;
pub mod doorbell;
pub mod limits;
pub mod local;
pub mod native;
pub mod vhost_user;

pub use attachment::{Attachment, AttachmentError, Connection, DoorbellSource, Event, FaultKind};
pub use vhost_user::fault::{Fault, Reason};
pub use vhost_user::server::{Device, Model, Server, VirtQueue};
