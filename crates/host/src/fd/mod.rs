//! Descriptors that other processes send over Unix sockets: receiving them ([`receive`]),
//! accounting them to their senders ([`account`]), and closing them in other threads where a close
//! may block. *Descriptor* means a file descriptor here, never a virtio descriptor.
//!
//! The modules do not interpret the bytes that arrive with a descriptor. They stand between a
//! socket of a frontend, a client process or a peer process, and the attachment that parses its
//! messages. They send no descriptors.

pub mod account;
pub(crate) mod control;
mod deferred_close;
pub mod peer_pidfd;
mod reaper;
pub mod receive;
pub mod received_fd;

pub use account::Account;
pub use received_fd::ReceivedFd;
