//! Channels: event queues between two endpoints of one host, in memory that both map.
//!
//! Floor 3: `message` sends MX messages through channels between two processes, and `mxoe`
//! exchanges requests and events with a process through the channel of an endpoint ([`mx_rings`]).
//! An event passes without a system call or the daemon while neither side sleeps. A channel knows
//! no processes, messages or doorbells: its owner maps the memory, rings on request
//! ([`Sender::must_wake`]), and decides the meaning of events.
//!
//! A channel has two directions, each with a [`Sender`] and a [`Receiver`]. An *event* consists of
//! a kind, three words and some bytes. It occupies a cache line, written by the sender and polled
//! by the receiver. While awake, the receiver writes one other line, the consumed counts, once for
//! a quarter of the slots or of the data ring (at most 4 KiB). An event of more than
//! [`INLINE_BYTES`] (32) bytes has its bytes in a separate data ring.
//!
//! # Example
//! ```no_run
//! use causeway_channel::{EventHead, Layout, Side, format, open};
//! use causeway_memory::View;
//!
//! fn example(memory: &View) -> Result<(), Box<dyn std::error::Error>> {
//!     format(memory, Layout::DEFAULT)?;
//!     let (mut sender, _) = open(memory, Side::First)?;
//!     let (_, mut receiver) = open(memory, Side::Second)?;
//!     let has_room = sender.send(EventHead { kind: 1, words: [0; 3] }, b"bytes")?;
//!     assert!(has_room);
//!     if let Some(event) = receiver.poll()? {
//!         let mut bytes = vec![0; event.len];
//!         receiver.copy(&event, 0, &mut bytes);
//!         let _must_wake_sender = receiver.advance(&event);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Layout, version 3 (all numbers little-endian)
//! | bytes | content |
//! |---|---|
//! | 0 to 64 | header: `CWCH`, version u16, header length u16, slots u32, data bytes u32 (per direction) |
//! | 1024 to 1536 | control words of the first side's direction |
//! | 2048 to 2560 | control words of the second side's direction |
//! | 2560 to 4096 | reserved for the owner of both ends ([`UNUSED`]) |
//! | 4096 on | slots of the first side, slots of the second, data of the first, data of the second |
//!
//! Control words, each in its own line: +0 consumed counts, written by the receiver (slots, u32,
//! and data in units of 64 bytes, u32); +128 receiver sleeps; +192 progress of a cooperative copy
//! ([`cooperative_copy`]); +256 sender waits for room; +320 number of withdrawals
//! ([`Sender::withdraw`]); +384 sender closed; +448 sender omits fences after its events
//! ([`Sender::omit_fences`]).
//!
//! A slot has 64 bytes: words a, b at 0 and 8, inline bytes at 16, word c at 48, and at 56 the word
//! that is stored last: id u16, kind u8, flags u8, length u32. The id is that of the pass over the
//! ring, with bit 15 set, so a slot itself shows whether it is new. The position of bytes in the
//! data ring follows from the receiver's own count: no position is read from the peer. Bytes occupy
//! whole units of 64. With flag 1 they start at the beginning of the data ring, and the rest of the
//! ring before it counts as consumed.
//!
//! [`handshake`] orders the accesses of a side that sleeps and of the side that wakes it;
//! [`limits`] has the sizes.
//!
//! # Limits
//! A channel has exactly one sender and one receiver in each direction; neither may be used by two
//! threads at once. Events arrive in order and once. A full direction refuses an event
//! ([`Sender::send`] returns false), and the caller must keep the event. Nothing blocks, retries or
//! rings: the owner of an end sleeps and wakes the other end. After the first violation
//! ([`BrokenChannel`]) the owner must drop its ends: they do not remember the violation, and there
//! is no reset. A channel does not detect the death of the peer; events that the peer has not taken
//! are then lost without a report.
//!
//! # Position of data
//! A sender returns to the beginning of the data ring as soon as the data there was consumed,
//! instead of filling the whole ring: if both sides keep up with each other they reuse 8 KiB. These
//! lines stay in first-level caches, and the prefetcher of the receiver's processor does not pull
//! lines that the sender is about to write. 1 MiB crosses in 80 to 110 us, compared with 130 to 150
//! us through a ring of 16 KiB or more (two processors with a transfer of 0.05 us per line). A
//! sender that runs ahead of its receiver uses the whole ring.
//!
//! # Trust
//! The peer may write any bytes at any time. A slot is copied once and then checked; a peer that
//! violates the rules ([`BrokenChannel`]) loses this channel only. A forged slot is at worst a
//! different event, which the peer could have sent as well.
//!
//! # Lost pages
//! The memory is a [`View`], so the fault handler of its mapping recovers accesses to a file that
//! shrank. This costs nothing per access. [`Receiver::is_poisoned`] reports it afterwards.

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
pub mod cooperative_copy;
pub mod handshake;
mod layout;
pub mod limits;
pub mod mx_rings;
mod receiver;
mod sender;
mod short;

pub use area::{allow_fences, far_fence};
pub use layout::{ChannelError, Layout, Side, UNUSED, format, open};
pub use receiver::{Event, Receiver};
pub use sender::{EventHead, EventWriter, Sender, WARM_BYTES};
pub use short::ShortEvent;

#[cfg(doc)]
use causeway_memory::View;

/// Maximum number of an event's bytes that are in its cache line.
pub const INLINE_BYTES: usize = 32;

/// The peer violated a rule of the channel, which must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer wrote invalid values into the channel; close it")]
pub struct BrokenChannel;
