//! The backend half of MX endpoints ([`crate`]) with what it has around it: the
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

mod endpoint_io;
mod engine;
pub mod limits;
mod tx_batch;
mod tx_path;

pub use endpoint_io::{Desk, Lent, NoRegion};
pub use engine::{After, Half};
pub use tx_batch::{Exit, Frames};
pub use tx_path::{Outlet, Said, random};
