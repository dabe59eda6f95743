//! The backend of one vhost-user port.
//!
//! [`Backend`] is the protocol: a message in, a reply and events out, no I/O except the mapping of
//! files and notifications of the guest. [`Server`] joins it to a connection and is an
//! [`Attachment`](crate::attachment::Attachment), which the dispatcher polls. [`Device`] is the
//! resulting state, which the port's service uses.
//!
//! A broken rule ends in a [`Fault`](super::fault::Fault): the server releases everything that the
//! frontend granted, and the dispatcher closes the connection; the port waits for the next frontend
//! with a new server. No other port is affected. The closed connection is the only signal of a
//! broken ring: DEVICE_NEEDS_RESET (virtio 1.3, 2.1.2) could no longer be read, and the error
//! descriptor of a queue is not used. The backend pops no chains, watches no doorbells and knows no
//! device type; the port's service and the dispatcher do. A server serves one frontend.

mod backend;
mod connection;
mod device;
mod inflight;
mod memory;
mod model;
mod queue;

pub use backend::{Backend, Outcome, Reply};
pub use connection::Server;
pub use device::Device;
pub use model::{Model, features};
pub use queue::VirtQueue;

pub use crate::attachment::Event;
