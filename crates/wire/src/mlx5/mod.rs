//! Formats of a ConnectX virtual function (mlx5): registers, commands, queues and their entries.
//!
//! The emulated device (`causeway-mlx5`) is the only user in the daemon: it parses commands and
//! work queue entries and emits outputs, completions and events. The other side are the mlx5
//! drivers of guests, which have definitions of their own, and `causeway-mlx5-driver`, tests,
//! benchmarks and fuzz targets of this repository, which use these types in reverse. All fields are
//! big-endian. Structures have public fields; `parse` ignores reserved bits, `emit` leaves them as
//! they are, and codes that this crate does not know stay numbers. Only lengths are checked
//! ([`crate::Truncated`]); checks of values belong to the device, because nearly all depend on the
//! state of an object. The device has RoCE alone: fields for InfiniBand links are described, and
//! ignored or zero.
//!
//! | module | formats |
//! |---|---|
//! | [`registers`] | initialisation segment, doorbell pages, registers of the port |
//! | [`command`] | command queue, mailboxes, opcodes, results |
//! | [`startup`], [`capability`] | versions, identifiers, capabilities |
//! | [`page_list`] | addresses of the pages of queues and memory keys |
//! | [`event_queue`], [`completion_queue`] | contexts, entries, doorbells |
//! | [`memory_key`] | contexts and their changes by work requests |
//! | [`queue_pair`], [`work_queue`] | contexts, doorbell records |
//! | [`work_request`] | entries of send and receive queues |
//! | [`vport`], [`counters`] | addresses, MTU, GID table; counters |
//! | [`steering`] | receive tables and flow tables |
//!
//! Limits: a send queue entry has at most [`work_request::ENTRY_MAX`] bytes; lists end with the
//! bytes that are passed. Nothing here allocates. The device calls them in the dispatcher's thread;
//! only the PCI identifiers and offsets of [`registers`] are read in the control thread of a port.

pub mod capability;
pub mod command;
pub mod completion_queue;
pub mod counters;
pub mod event_queue;
mod field;
mod general;
pub mod memory_key;
mod opcode;
pub mod page_list;
pub mod queue_pair;
pub mod registers;
mod segment;
pub mod startup;
pub mod steering;
pub mod vport;
pub mod work_queue;
pub mod work_request;

#[cfg(test)]
mod tests;
