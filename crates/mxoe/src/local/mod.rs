//! Messages between NICs of one daemon, in memory.
//!
//! A NIC that was added by [`Nic::nic_add_local`] is a *local* NIC: its [`Nic`] runs in the same
//! thread, and nothing for it reaches the network. Connects use the packets of MXoE. Messages use
//! none: an eager message, an offer or a notification is given to the receiver in one step or stays
//! with its sender, and a pull copies from region to region. So there are no sequence numbers,
//! acknowledgements or timers between local peers, and a peer that is gone is reported at once.
//!
//! ```text
//!   Nic ── LocalWork ──▶ perform(work, own NIC, other NIC)
//! ```
//!
//! No call of one [`Nic`] calls another. A NIC queues [`LocalWork`], its owner takes the work by
//! [`Nic::next_local`] and passes it to [`perform()`] with both NICs, which may queue further work.
//! A work takes a bounded time: at most [`LOCAL_MESSAGES_MAX`] (32) messages or
//! [`LOCAL_PIECE_BYTES`] (64 KiB); the rest goes to the end of the queue, so that all pairs advance
//! alike.
//!
//! # Back-pressure
//! A message without room at the receiver stays in the queue of its sender, bounded by the limits
//! of sends. The receiver notes the peer, and asks for its messages when there is room. Order holds
//! per peer: a waiting peer gives no later message (notifications excepted).
//!
//! # Failures
//! A message to an endpoint that was closed, opened again or that disconnected ends the peer with
//! the status of the matching refusal of MXoE; a pull from such an endpoint ends with
//! `BadRdmaWindow`, if the end of the peer was not reported first. If the sender's region is
//! released or unmapped in the middle, pull and offer end with `BadRdmaWindow`; if it is the
//! receiver's, the pull does, and the offer succeeds with 0 bytes. The pull of a message that its
//! sender cancelled ends with `Aborted`, as in a channel of two processes.
//!
//! Trust: an endpoint of the group names no other endpoint by itself; addresses and sessions in
//! [`LocalWork`] come from the engine. Used by `causeway-mx` on the dispatcher's thread.
//!
//! [`Nic`]: crate::Nic
//! [`Nic::nic_add_local`]: crate::Nic::nic_add_local
//! [`Nic::next_local`]: crate::Nic::next_local

mod endpoint;
mod nic;
mod perform;
mod queue;

pub use perform::{LocalSide, deliver, perform, route};
pub use queue::{LocalEnds, LocalWork};

pub(crate) use queue::LocalQueue;

/// Maximum number of messages that a work passes.
pub const LOCAL_MESSAGES_MAX: usize = 32;
/// Maximum number of bytes that a work copies, and number of bytes after which it passes no more
/// messages: 64 KiB.
pub const LOCAL_PIECE_BYTES: u32 = 64 << 10;
