//! Limits of a channel's size: slots and bytes of a direction, both powers of two.
//!
//! [`Layout::new`](crate::Layout::new) checks them when a channel is created and when it is opened,
//! and fails with [`ChannelError::Layout`](crate::ChannelError::Layout) outside them. Both
//! directions have the same size, which cannot change afterwards. The maximum length of an event is
//! half of the data ring ([`Layout::event_bytes_max`](crate::Layout::event_bytes_max)).
//!
//! The creator of a channel (causewayd, or a process in direct mode) chooses the size; the process
//! that opens the channel checks the size in its header, and refuses a channel outside the limits.
//! Both do so in the thread of the owner: in causewayd a dispatcher, else the application's.

/// Minimum number of slots of a direction. The number of slots is a power of two.
pub const SLOTS_MIN: u32 = 16;
/// Maximum number of slots of a direction.
pub const SLOTS_MAX: u32 = 16_384;
/// Minimum size of a direction's data ring, in bytes. The size is a power of two.
pub const DATA_BYTES_MIN: u32 = 4096;
/// Maximum size of a direction's data ring, in bytes.
pub const DATA_BYTES_MAX: u32 = 64 << 20;
