//! Channels: two endpoints of one host talk through memory that both map.
//!
//! A channel has two directions, each with one [`Sender`] and one [`Receiver`]. What is sent is an
//! *event*: a kind, three words and some bytes. It is one cache line, written by the sender and
//! polled by the receiver; nothing else is touched while there is room and nobody sleeps. More than
//! [`INLINE_BYTES`] bytes lie in a ring of bytes beside. The channel knows nothing of processes or
//! messages: it may as well lie in a device's memory.
//!
//! # Layout, version 3 (all numbers little-endian)
//! | bytes | what |
//! |---|---|
//! | 0 to 64 | header: `CWCH`, version u16, header length u16, slots u32, data bytes u32 (per direction) |
//! | 1024 to 1536 | control of what the first side sends |
//! | 2048 to 2560 | control of what the second side sends |
//! | 2560 to 4096 | of who has both ends ([`UNUSED`]) |
//! | 4096 on | slots of the first side, of the second, data of the first, of the second |
//!
//! Control, each word on a line of its own: +0 what the receiver gave back (slots taken, u32, and
//! data taken in units of 64 bytes, u32); +128 receiver sleeps; +192 who copies what of a message that
//! both copy ([`shared`]); +256 sender waits for room; +320 how often the sender withdrew something
//! ([`Sender::withdraw`]); +384 sender closed; +448 sender makes no fence after its events
//! ([`Sender::spare`]).
//!
//! A slot is 64 bytes: words a, b at 0 and 8, inline bytes at 16, word c at 48, and at 56 the word
//! that is stored last: id u16, kind u8, flags u8, length u32. The id is the lap of the ring, 1 to
//! 65535; so a slot says by itself whether it is new. Bytes that are not inline lie where the
//! receiver's own count says: no position is ever taken from the peer. Each takes whole units of 64.
//! With flag 1 they lie at the beginning of the ring: what is left of it counts as taken.
//!
//! # Where data lies
//! A sender goes back to the beginning of the data ring as soon as what lies there was given back,
//! instead of round all of it: two sides that keep up with each other use 8 KiB again and again.
//! These lines lie in first caches; and the receiver's processor, which reads ahead of what it is
//! told to, does not take those that the sender is about to write. 1 MiB crosses in 80 to 110 us so,
//! by a ring of 16 KiB or more in 130 to 150 (two processors with a cache line of 0.05 us). Who does
//! not keep up has all of the ring.
//!
//! # Trust
//! The peer may write anything anywhere at any time. A slot is copied once and then checked; a
//! peer that lies ([`Broken`]) loses this channel. What it writes is at worst another event than
//! its honest one, which it could have sent as well.
//!
//! # Lost pages
//! The memory comes as a [`View`], so a file that shrinks is recovered by its mapping's
//! fault handler: at no cost per access, since nothing is asked before the touch.
//! [`Receiver::poisoned`] tells afterwards.

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

mod area;
pub mod handshake;
mod layout;
pub mod limits;
pub mod mx_rings;
mod receiver;
mod sender;
pub mod shared;
mod short;

pub use area::{allow_fences, far_fence};
pub use layout::{ChannelError, Layout, Side, UNUSED, format, open};
pub use receiver::{Event, Receiver};
pub use sender::{Head, Sender, WARM_BYTES, Writing};
pub use short::Short;

#[cfg(doc)]
use causeway_memory::View;

/// Bytes of an event that lie in its cache line.
pub const INLINE_BYTES: usize = 32;

/// The peer broke a rule of the channel: it is of no use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer wrote nonsense into the channel; close it")]
pub struct Broken;
