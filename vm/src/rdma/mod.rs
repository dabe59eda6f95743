//! Guests with RDMA: a stock kernel's `mlx5` driver and Debian's RDMA programs on a vfio-user socket.
//!
//! [`fetch`] downloads QEMU 11, a kernel and a user space; it needs the network at its first run
//! only. [`machine`] returns the [`Machine`](crate::Machine) of [`RdmaGuest`]s.
//! [`Exchange`] runs a server program in a guest and its client in another guest. [`Counters`] are
//! those of an adapter in the daemon. A [`Pair`] is two guests and their daemon; [`Steps`] runs
//! [`programs`] in a pair and collects the results, for tests and for the matrix.
//!
//! The socket's server must listen before the guest starts, and must answer within 5 s at all times:
//! QEMU declares the device dead after that, and does not reconnect.

mod counters;
mod exchange;
mod guest;
mod image;
mod pair;
pub mod programs;
mod steps;

pub use counters::Counters;
pub use exchange::{Exchange, Listener};
pub use guest::{DEVICE, RdmaGuest};
pub use image::{Programs, Suite, fetch, machine};
pub use pair::{Carried, Pair};
pub use steps::{Step, Steps};
