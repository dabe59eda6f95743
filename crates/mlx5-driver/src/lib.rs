//! The driver of the ConnectX function, for host processes, benchmarks and tests.
//!
//! A guest's `mlx5_core`, `mlx5_ib` and rdma-core drive the function of `causeway-mlx5`; this crate
//! is the same driver without a guest, as `causeway_attach::native` is for virtio. One memory file
//! holds the command queue, all rings and all buffers:
//!
//! | part | content |
//! |---|---|
//! | [`Bar`] | BAR 0: trapped registers and doorbell pages, over vfio-user ([`VfioBar`]) or in the process of the function (tests) |
//! | [`DriverMemory`] | the memory file, its map and its allocation |
//! | [`Driver`] | start, commands with mailboxes, event queues, completion queues, queue pairs, memory keys |
//! | [`EthernetInterface`] | send queue, receive queue and steering of an Ethernet interface |
//!
//! A command stores its input into memory, writes one register, and polls for its end, at most
//! [`limits::COMMAND_TIMEOUT`] (10 s). Posts, polls and arms are loads and stores of memory alone:
//! they send no message and make no system call. The driver does not notice a ring that its caller
//! overfills: the function then moves the queue pair to the error state, or loses completions.
//!
//! # Limits
//! One command at a time, input up to 1 MiB; memory is never freed. Replies and completions are
//! copied before they are parsed; an unknown status or a malformed entry is a [`DriverError`].
//! Numbers of objects are used as the function returned them. Not thread-safe: one thread owns a
//! driver.
//!
//! `bench`, and the tests of `causeway-mlx5`, `causeway-hca`, `causeway-mx` and `causeway-daemon`,
//! call this crate; the daemon itself does not.
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

mod bar;
mod command;
mod completion_ring;
mod driver;
mod error;
mod ethernet;
mod event_ring;
pub mod limits;
mod memory;
mod memory_key;
mod queue_pair;
mod resize;
mod vfio;

pub use bar::{Bar, DoorbellPages};
pub use completion_ring::CompletionRing;
pub use driver::Driver;
pub use error::DriverError;
pub use ethernet::{EthernetInterface, EthernetOptions, FrameTemplate};
pub use event_ring::EventRing;
pub use memory::{DriverMemory, page_list};
pub use queue_pair::{Post, QueuePair};
pub use vfio::VfioBar;
