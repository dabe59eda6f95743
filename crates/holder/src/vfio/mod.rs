//! vfio-user frontends: relayed to causewayd, and answered from memory while no causewayd runs.
//!
//! QEMU declares a vfio-user device dead after 5 s without a reply, and never reconnects. So this
//! relay differs from that of vhost-user ([`crate::relay`]): many commands are in flight, and while
//! causewayd is away the holder answers by itself. [`crate::port`] starts a relay for each
//! frontend, in a thread of its own; all modules run in that thread.
//!
//! | module | content |
//! |---|---|
//! | [`relay`] | the relay: commands to causewayd, replies to the frontend |
//! | [`away`] | answers while no causewayd runs |
//! | [`replay`] | the set-up for the next causewayd |
//! | [`record`] | the set-up: version, eventfds, and [`dma`] and [`registers`] |
//! | [`answers`] | the replies to reads and queries, for the time without causewayd |
//! | [`command`] | a command of the frontend, and the connection to causewayd |
//!
//! The holder maps no guest memory and interprets no register. Pages of registers that the frontend
//! has mapped are files of the causewayd that served it first; later causewayds do not see stores
//! to them.

pub mod answers;
pub mod away;
pub mod command;
pub mod dma;
pub mod record;
pub mod registers;
pub mod relay;
pub mod replay;
mod replay_error;
