//! The ConnectX function: an emulated virtual function for the mlx5 driver of unmodified guests.
//!
//! A [`Function`] is the device of a port. Its driver works in three ways:
//!
//! | driver | function |
//! |---|---|
//! | reads and writes [`Registers`], trapped by the VMM | the control thread answers; a doorbell of the command queue wakes the dispatcher |
//! | writes commands into its memory | [`run_commands`] executes them: objects are created, changed and destroyed |
//! | posts work queue entries and counts them in doorbell records | [`poll()`] finds the counts, and `causeway_verbs` executes the work |
//!
//! By default nothing on the data path is trapped: the driver's doorbell pages are ordinary memory
//! that is never read, because a doorbell record carries the same value. At a port with `doorbell =
//! "trap"`, a write to a doorbell page wakes the dispatcher, and its value is not used.
//!
//! The function implements [`causeway_verbs::Queues`]; queue pair states, memory regions, rights
//! and copies are the part of `causeway_verbs`, which the documentation of this crate calls the
//! *engine*. Formats are those of `causeway_wire::mlx5`. The device that guests see is described in
//! `docs/design/rdma.md`; the supported commands are in [`table`].
//!
//! # Limits
//! Numbers of objects, lengths of queues and commands: [`limits`] and [`FunctionConfig`]. A driver
//! is hostile: entries are copied once and checked, links and chains are bounded by lengths, and a
//! work queue that cannot be read ends in the error state. A driver can harm the memory of its own
//! guest only, where that memory is granted. The function has no firmware commands of physical
//! functions, no on-demand paging and no InfiniBand link.
//!
//! At a limit a command fails with a status ([`limits`]), objects that exist stay, and work beyond
//! the limits of a pass waits for the next pass. A driver that starts anew, as after a reboot of
//! the guest, finds a function without objects: a reset by the VMM or by a command ends them
//! ([`reset()`]).
//!
//! [`registers`] and [`config_space`] are the part that the VMM traps; [`ethernet`] has the queues
//! of frames and their steering rules.
//!
//! `causeway-hca` owns the functions, calls [`poll()`] and [`run_commands`] in the dispatcher's
//! turns, and raises the interrupts; the control thread of the attachment serves the registers.
//!
//! # Example
//! ```
//! use causeway_mlx5::registers::REGION_CONFIG;
//! use causeway_mlx5::{Function, FunctionConfig};
//!
//! let function = Function::new(FunctionConfig {
//!     mac: [2, 0, 0, 0, 0, 1],
//!     mtu: 9000,
//!     vectors: 8,
//!     queue_pairs_max: 64,
//!     completion_queues_max: 64,
//!     regions_max: 1024,
//!     registered_bytes_max: 1 << 30,
//!     uar_bytes: 32 << 20,
//! });
//! let mut identity = [0; 4];
//! function.registers().read(REGION_CONFIG, 0, &mut identity);
//! assert_eq!(identity, [0xb3, 0x15, 0x1e, 0x10], "ConnectX virtual function, 15b3:101e");
//! ```
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

mod command;
mod completion_queue;
pub mod config_space;
pub mod ethernet;
mod event_pacing;
mod event_queue;
mod function;
mod function_config;
pub mod limits;
mod network_header;
mod open_work;
mod paced_events;
mod page_list;
mod poll;
mod queues;
mod receive_entry;
mod receive_pool;
mod record;
pub mod registers;
mod reset;
mod send_entry;
pub mod table;
mod uar_pages;
mod unlooked;
mod vport;
mod work_queues;

pub use function::{Counters, Function};
pub use function_config::FunctionConfig;
pub use poll::{CommandCost, adapter_config, poll, run_commands};
pub use record::restore::restore;
pub use record::{Record, RecordError, RecordMemory, RecordSpace, RestoreError, Restored};
pub use registers::Registers;
pub use reset::{disconnect, reset};
