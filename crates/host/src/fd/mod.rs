//! Descriptors that other processes send over Unix sockets.

pub mod account;
pub(crate) mod control;
mod deferred_close;
pub mod peer_pidfd;
mod reaper;
pub mod receive;
pub mod received_fd;

pub use account::Account;
pub use received_fd::ReceivedFd;
