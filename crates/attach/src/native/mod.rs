//! The native frontend: how a process or a container attaches to a port without a VM.
//!
//! It combines a VM's frontend and the driver in its guest, in one process over one sealed memory
//! file: [`Client`] speaks vhost-user, and the driver side of the rings is
//! [`causeway_ring::driver`]. [`NetPort`] carries Ethernet frames, [`VsockPort`] virtio-vsock
//! packets, and [`Sockets`] provides connections on top of packets. [`VfioUserClient`] speaks
//! vfio-user, for PCI devices. The module contains no protocol stack: frames are sent as given.
//! Examples, benchmarks, simulations, tests and the driver `mlx5-driver` use it; the daemon does
//! not.
//!
//! Calls that exchange requests block: those of [`Client`] and [`VfioUserClient`], `attach`,
//! `over`, and `pause`, `resume`, `grant_again` and `reconnect` of [`Frontend`]. So do `wait…`, and
//! the calls of [`Sockets`] with a time-out; no other call does. A caller that spins calls
//! `receive` in a loop; a caller that sleeps calls `wait` when `receive` returned nothing. A port
//! is owned by one thread at a time and has no thread of its own. A rule that the backend breaks is
//! a [`NativeError`], after which the port must be dropped; the backend is trusted in one respect:
//! it does not block the port's eventfds. Unless the holder keeps its connection, a port survives a
//! restart of the daemon only if the port was attached by path with a `reconnect` time; such a port
//! blocks in `wait…` or `reconnect` until the new daemon serves it or the time is over.

mod addresses;
mod client;
mod driver_queue;
mod error;
mod frontend;
mod net;
mod reconnect;
mod sockets;
mod vfio_user;
mod vsock;

pub use client::{Client, Pump};
pub use driver_queue::DriverQueue;
pub use error::NativeError;
pub use frontend::{DevicePlan, Frontend, QueuePlan, Role};
pub use net::{NET_HEADER_BYTES, NetOptions, NetPort, net_features};
pub use reconnect::Reconnect;
pub use sockets::{ConnectionId, SocketError, Sockets};
pub use vfio_user::{ClientRegion, VfioUserClient, VfioUserError};
pub use vsock::{VsockOptions, VsockPort};
