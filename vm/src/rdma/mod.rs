//! Guests with RDMA: a stock kernel's `mlx5` driver and Debian's RDMA programs on a vfio-user
//! socket.
//!
//! [`fetch`] downloads QEMU 10.1 or later, a kernel and a user space; only its first run for a
//! suite and its programs needs the network. [`machine`] returns the [`Machine`](crate::Machine) of
//! [`RdmaGuest`]s. [`Exchange`] runs a server program in a guest and its client in another guest.
//! [`Counters`] are those of an adapter or port in the daemon. A [`Pair`] is two guests and their
//! daemon, a [`Group`] several; [`Steps`] runs [`programs`] in guests and collects the results, for
//! tests and for `make matrix`. [`kill_under_load`] replaces the daemon during an exchange, and
//! [`unplug()`] removes a function.
//!
//! The socket's server must listen before the guest starts, and must answer within 5 s at all
//! times: QEMU declares the device dead after that, and does not reconnect.

mod counters;
mod exchange;
mod group;
mod guest;
mod image;
mod kills;
mod outcome;
mod pair;
pub mod programs;
mod steps;
mod unplug;

pub use counters::Counters;
pub use exchange::{Exchange, Listener};
pub use group::Group;
pub use guest::{DEVICE, RdmaGuest};
pub use image::{Programs, Suite, fetch, machine};
pub use kills::{Load, kill_under_load};
pub use outcome::{Outcome, Step};
pub use pair::{Carried, Pair};
pub use steps::Steps;
pub use unplug::unplug;
