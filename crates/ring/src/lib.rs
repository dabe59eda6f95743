//! Virtio rings and doorbells: the device side of virtio queues, and the driver side for processes
//! that attach themselves.
//!
//! Floor 3: the backend in `attach` sets queues up, the services pop chains from them and push used
//! entries in the dispatcher's thread. A frame starts here: a service pops the sender's chain and
//! the receiver's chains, `memory::copy` copies between them, and the dispatcher publishes both
//! queues and notifies at the end of the turn. This crate knows no sockets, processes or protocols;
//! it never copies payload, and it never trusts an index or descriptor of the other side.
//!
//! - [`Queue`]: pops chains that the driver made available, checks every index and descriptor once,
//!   and returns plain values ([`Chain`]). It has two formats, [`split`] and [`packed`].
//! - [`driver::Driver`]: the driver side of both formats.
//! - [`handshake`]: the ordered memory accesses of both formats and sides.
//! - [`Inflight`]: the record of chains in flight, which outlives the process.
//! - [`Doorbell`], [`Notifier`]: the signals of a queue, on eventfds or (a notifier) a Unix stream.
//! - [`position`]: a slot of a packed ring with its wrap counter.
//!
//! # Parking
//! A dispatcher that found every ring empty calls [`Queue::arm`] on each ring. This requests a
//! doorbell and then polls the ring again ([`handshake`] has the required order). Only if all rings
//! are still empty the dispatcher parks. While it polls, [`Queue::disarm`] suppresses doorbells.
//!
//! # Limits
//! A queue is not thread-safe: one thread owns it at a time, and only the other side of the ring
//! accesses the memory concurrently. It neither waits nor rings: [`Queue::publish`] returns whether
//! the driver wants a notification, and the caller must send it ([`Notifier`]). A full or empty
//! ring is no error. A ring, chain or index that breaks a rule is a [`RingError`], after which the
//! owner stops the queue; a used entry of a chain that is not in flight is ignored. The bounds are
//! in [`limits`].
//!
//! # Example
//! ```no_run
//! use causeway_memory::Map;
//! use causeway_ring::{Chain, Queue, QueueSetup, RingError};
//!
//! // Returns all available chains unwritten, and whether the driver wants a notification.
//! fn drain(setup: QueueSetup, map: &Map) -> Result<bool, RingError> {
//!     let mut queue = Queue::new(setup, map)?;
//!     let mut chain = Chain::new();
//!     while queue.pop(map, &mut chain)? {
//!         queue.push(chain.head(), 0)?;
//!     }
//!     queue.publish()
//! }
//! ```
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

mod chain;
mod doorbell;
pub mod driver;
mod error;
mod format;
pub mod handshake;
mod head_set;
mod inflight;
mod latch;
pub mod limits;
pub mod packed;
pub mod position;
mod queue;
pub mod split;

pub use chain::Chain;
pub use doorbell::{Doorbell, DoorbellError, Notifier};
pub use error::RingError;
pub use inflight::{Inflight, PackedInflight, SplitInflight};
pub use queue::{PoppedBatch, Queue, QueueSetup};
