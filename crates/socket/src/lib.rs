//! AF_VSOCK between guests of a group, and between guests and the host: V4VSockets
//! on an unmodified guest's virtio-vsock.
//!
//! V4V gave sockets between VMs that a trusted party copies once, with the
//! sender's address stamped by that party. Here the guest's own AF_VSOCK is the
//! interface, the dispatcher is the trusted party, and the copy goes straight
//! from the sender's transmit descriptors into the receiver's receive
//! descriptors.
//!
//! | module | idea |
//! |---|---|
//! | [`credit`] | flow-control arithmetic, and who lies about it |
//! | [`conn`] | one connection as a state machine, free of I/O |
//! | [`table`] | all connections, found by what a packet says |
//! | [`seat`] | what a port has waiting, held and filling |
//! | [`deadline`] | connections that end by themselves, in time |
//! | [`wait`] | how long a sender has stood still for a receiver |
//! | [`unread`] | packets that a receiver's kernel still queues |
//! | [`pack`] | data copied aside |
//! | `transmit` | what a guest sent: checked, resolved, passed on |
//! | `deliver` | into a guest's receive buffers |
//! | `host`, `host_messages` | host processes at the other end |
//!
//! # When a receiver has no room
//! Data waits in the sender's own descriptors, up to a part of its ring; then
//! in a bounded staging buffer; then the sender's ring waits. A receiver that
//! runs and makes no progress while a sender waits loses the connections they
//! share (see `stall`), so that it cannot hold up the sender's other peers for
//! long. A receiver has no room if it has no receive buffers, and also if its
//! kernel would queue more packets of a connection than it accounts for
//! ([`unread`]).
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

pub mod conn;
mod connect_line;
pub mod counters;
pub mod credit;
pub mod deadline;
mod deliver;
mod host;
mod host_messages;
pub mod ledger;
pub mod limits;
pub mod pack;
mod revive;
pub mod seat;
mod service;
mod stall;
pub mod table;
mod trace;
mod transmit;
pub mod unread;
pub mod wait;

pub use service::Socket;

use causeway_fabric::Registration;

/// The kinds of ports of the service.
const KINDS: &[&causeway_model::Kind] = &[&causeway_model::port::VSOCK];

/// Adds the service to a fabric. Its commands are the rules, which the fabric keeps.
pub const SERVICE: Registration =
    Registration::new("vsock", || Box::new(Socket::new())).with_kinds(KINDS);
