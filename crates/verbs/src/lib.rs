//! RDMA verbs without I/O: queue pairs, memory regions, and the transport between the adapters of a
//! group.
//!
//! A [`Subnet`] holds the adapters that may exchange messages. Each [`Adapter`] belongs to a guest
//! or process and consists of work queues in its owner's memory ([`Queues`], implemented by the
//! format of a device; in the daemon that is `causeway-mlx5`), memory regions ([`region`]) and
//! queue pairs ([`queue_pair`]). The service `causeway-hca` owns a subnet for each group;
//! `causeway-mlx5` calls [`Subnet::progress`] in the service's turns for queue pairs with posted
//! work. The [`engine`] executes send work requests in order and copies each payload once, from the
//! requester's memory straight into the responder's. The crate starts no thread and reads no clock:
//! callers pass the time.
//!
//! ```text
//!   Queues (mlx5) ──▶ SendWork ──▶ ┌────────┐ ── copy ──▶ memory of the responder
//!                                  │ engine │
//!   Queues (mlx5) ◀── Completion ─ └────────┘ ── Completion ──▶ Queues of the responder
//! ```
//!
//! The crate follows the InfiniBand architecture specification, volume 1, release 1.3, with annex
//! A14 (XRC). Both sides of a connection are in the same process, so that packets, sequence numbers
//! and acknowledgements do not exist; a message is visible at the responder exactly as if they did.
//!
//! # Limits
//! Every number of objects has a bound in [`limits`]: beyond it a creation fails and changes
//! nothing. Work per call has a [`Budget`], and the rest waits for the next call. A second adapter
//! with the same Ethernet address is refused. The owners of adapters are hostile: keys, addresses,
//! lengths and numbers are checked where they are used. Not supported are memory windows, path
//! migration, masked atomic operations and congestion control.
//!
//! # Example
//! ```
//! use causeway_verbs::number::Table;
//!
//! let mut queue_pairs = Table::new(16);
//! let number = queue_pairs.insert("reset")?;
//! assert_eq!(queue_pairs.remove(number), Some("reset"));
//! // The next object has another number: a stale number names nothing.
//! assert_ne!(queue_pairs.insert("ready")?, number);
//! assert!(queue_pairs.get(number).is_none());
//! # Ok::<(), causeway_verbs::number::TableFull>(())
//! ```
//!
//! # Modules
//! [`subnet`] owns the [`adapter`]s, an adapter its [`queue_pair`]s ([`Attributes`] are their
//! values). [`mod@queues`] is the interface to their work queues, and [`work`] has the decoded
//! requests and completions. [`multicast`] has the groups of datagram queue pairs. [`number`] gives
//! objects their numbers. [`transport`] finds the adapter of a destination; [`session`] connects
//! queue pairs to a service of the daemon. Other hosts, and adapters that the group's [`policy`]
//! denies, are refused with a [`transport::Refusal`].
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

pub mod adapter;
mod adapter_id;
mod attributes;
mod budget;
pub mod engine;
mod error_counts;
pub mod limits;
pub mod multicast;
pub mod number;
mod peer_traffic;
pub mod policy;
pub mod queue_pair;
pub mod queues;
pub mod region;
pub mod session;
pub mod subnet;
pub mod transport;
pub mod work;

pub use adapter::{Adapter, AdapterConfig, Counters, Retired};
pub use adapter_id::AdapterId;
pub use attributes::{Attributes, Change, Kind, Peer, QueuePairError, Receive, State};
pub use budget::Budget;
pub use engine::{Endpoint, Observation, ObservedMessage, Progress, Resume, WaitReason};
pub use error_counts::ErrorCounts;
pub use peer_traffic::{PeerTraffic, TrafficSum};
pub use queue_pair::QueuePair;
pub use queues::{AsyncEvent, Overrun, QueueError, Queues, XrcQueue};
pub use subnet::{AddError, Subnet};
