//! The native front end: how a process or a container attaches itself.
//!
//! It does what a VM's frontend and the driver in its guest do together, in one
//! process over one sealed memory file: [`Client`] speaks vhost-user, the driver
//! side of the rings is [`causeway_ring::driver`]. [`NetPort`] carries Ethernet
//! frames, [`VsockPort`] virtio-vsock packets, and [`Sockets`] puts connections
//! on top of packets.
//!
//! Nothing here blocks but the calls named `wait…`, `connect…` and `attach`; a
//! caller that spins calls `receive` in a loop, one that sleeps calls `wait`
//! when there was nothing.

mod client;
mod error;
mod frontend;
mod lane;
mod net;
mod revive;
mod sockets;
mod vsock;

pub use client::{Client, Pump};
pub use error::NativeError;
pub use frontend::{Frontend, Plan, QueuePlan, Role};
pub use lane::Lane;
pub use net::{NET_HEADER_BYTES, NetOptions, NetPort, net_features};
pub use revive::Reconnect;
pub use sockets::{ConnectionId, SocketError, Sockets};
pub use vsock::{VsockOptions, VsockPort};
