//! Bounds of the driver: its memory layout, command lengths and waiting times.
//!
//! The modules of this crate read the constants; none can be configured, but the caller chooses the
//! length of the memory. Nothing grows: a driver with full memory returns
//! [`crate::DriverError::MemoryFull`], a longer command is [`crate::DriverError::CommandLen`], a
//! larger ring [`crate::DriverError::Size`], and a command that takes longer
//! [`crate::DriverError::Late`].
//!
//! `memory` reads the limits of the layout, `command` those of commands and waits, `driver`,
//! `event_ring` and `ethernet` those of queues, in the thread of the program that owns the driver
//! (a test or a benchmark).

use std::time::Duration;

/// First address of the driver's memory. Not 0, so that no address is valid by accident.
pub const BASE: u64 = 0x1_0000_0000;
/// Length of a page, in bytes.
pub const PAGE: u64 = 4096;
/// Offset of the mailboxes in the driver's memory, in bytes. The command queue is before them.
pub const MAILBOX_OFFSET: u64 = 0x10_0000;
/// Bytes of mailboxes for each entry of the command queue: half for the input, half for the output.
pub const MAILBOX_BYTES: u64 = 0x1_0000;
/// Offset of the memory for rings and buffers, in bytes.
pub const HEAP_OFFSET: u64 = 0x40_0000;
/// Least length of a driver's memory, in bytes.
pub const MEMORY_MIN: u64 = 8 << 20;
/// Length of memory from which on the driver keeps mailboxes for long commands, in bytes.
pub const LONG_COMMANDS_MEMORY_MIN: u64 = 64 << 20;
/// Bytes of mailboxes for a long command: an input of 1 MiB.
pub const LONG_MAILBOX_BYTES: u64 = (2 << 20) + (64 << 10);
/// Maximum length of a command's output, in bytes.
pub const COMMAND_OUTPUT_MAX: usize = 16 << 10;
/// Longest wait for a command.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// Polls of a command's status before the driver yields the processor.
pub const POLLS_BEFORE_YIELD: u32 = 1000;
/// Binary logarithm of the number of entries of the queues of command and asynchronous events.
pub const LOG_EVENTS: u8 = 5;
/// Binary logarithm of the number of entries of the queue of completion events.
pub const LOG_COMPLETION_EVENTS: u8 = 6;
/// Largest binary logarithm of a ring's number of entries.
pub const LOG_ENTRIES_MAX: u8 = 20;
/// Entries of the Ethernet queues, unless the caller gives another number.
pub const ETHERNET_LOG_ENTRIES: u8 = 9;
