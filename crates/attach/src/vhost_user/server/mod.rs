//! The backend's half of one port's conversation with its frontend.
//!
//! [`Backend`] is the protocol: a message in, a reply and events out, no I/O but
//! the mapping of granted files. [`Server`] joins it to a connection. A rule that
//! the frontend breaks ends as a [`Fault`](super::fault::Fault): the server lets
//! go of everything it was granted, and its port is to be closed.

mod backend;
mod device;
mod inflight;
mod memory;
mod model;
mod queue;
mod shell;

pub use backend::{Backend, Outcome, Reply};
pub use device::Device;
pub use model::{Model, features};
pub use queue::VirtQueue;
pub use shell::Server;

/// What a message changed, for whoever drives the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Queue `i` runs: its ring is there, watch its doorbell. Chains may wait already.
    QueueStarted(usize),
    /// Queue `i` no longer runs: its ring and doorbell are gone, forget its chains.
    /// Chains that were in flight have been given back, unwritten.
    QueueStopped(usize),
    /// The memory map was replaced; running queues have followed. Addresses of chains in
    /// flight stay meaningful, but have to be looked up in the new map.
    MemoryChanged,
    /// The guest's driver began anew: whatever it had agreed with anyone before is forgotten.
    Reset,
    /// The frontend is gone, in good order. It may come back on a new connection.
    Closed,
}
