//! The backend half of MX endpoints ([`causeway_message::backend`]) with what it has around it: the
//! rings to their library halves, memory that these lent, and frames on their way out.
//!
//! It runs where the network is: in the daemon for all endpoints of a board, or in a process for its
//! own, where the board lets processes at the network (`bypass`). Where frames leave is for who has it
//! to say ([`Exit`]), and so is whence they come ([`Half::arrive`]).
//!
//! # Budget
//! A request: one look at a slot, one copy. A frame out: no copy of what is long, which the host
//! takes from where it was lent, and one system call for up to
//! [`FRAMES_PER_CALL_MAX`](causeway_memory::limits::FRAMES_PER_CALL_MAX). A frame in: one copy, from where
//! the host put it to where it is wanted. An event: one copy into the ring.
//!
//! | module | idea |
//! |---|---|
//! | `half` | the engine, and one look at all that it has to do |
//! | `desk` | the backend's end of one endpoint |
//! | `outlet` | what the engine has around it |
//! | `frames` | what leaves |

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

mod desk;
mod frames;
mod half;
pub mod limits;
mod outlet;

pub use desk::{Desk, Lent, NoRegion};
pub use frames::{Exit, Frames};
pub use half::{After, Half};
pub use outlet::{Outlet, Said, random};
