//! The engine with its surroundings: rings to the host sides, lent memory, and frames.
//!
//! The driver runs in the daemon for all endpoints of a NIC, or in a process for its own endpoint
//! in direct mode. The owner supplies the output for frames ([`Output`]) and passes received frames
//! to [`Engine::receive`].
//!
//! # Budget
//! | operation | cost |
//! |---|---|
//! | request | one poll of a slot, one copy |
//! | sent frame | no copy of long data, which the kernel reads from lent memory; one system call for up to [`FRAMES_PER_CALL_MAX`](causeway_host::limits::FRAMES_PER_CALL_MAX) frames |
//! | received frame | one copy, from the receive buffer to its destination |
//! | event | one copy into the ring |
//!
//! An eager message to the network is copied twice more: into the buffer that is kept until its
//! acknowledgement, and into its frame. A received message that waits (for order or room) is copied
//! once more.
//!
//! # Modules
//! | module | content |
//! |---|---|
//! | `engine` | serving of requests, frames and timers |
//! | `endpoint_io` | rings and regions of one endpoint |
//! | `tx_path` | destinations of the engine: endpoints and the network |
//! | `tx_batch` | frames that leave in one system call |
//! | `limits` | limits |
//!
//! The driver opens no sockets, waits for no descriptors and starts no threads. One thread at a
//! time calls an [`Engine`]. After each batch of calls the owner calls [`TxPath::commit`], which
//! sends the remaining frames and names the endpoints to wake, to serve or to close.

mod endpoint_io;
mod engine;
pub mod limits;
mod tx_batch;
mod tx_path;

pub use endpoint_io::{CheckedRegion, EndpointIo, LentRegion, RegionRefusal};
pub use engine::{Engine, Neighbours, NoNeighbours, ServeOutcome};
pub use tx_batch::{Output, TxBatch};
pub use tx_path::{EndpointAction, TxPath, random};
