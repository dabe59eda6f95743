//! What a guest granted: its memory, reached only by checked copies.
//!
//! A guest is hostile from its first instruction, and its memory changes under
//! us at any time. So no reference to a shared byte ever exists here: bytes are
//! copied, by instructions that the compiler cannot repeat or reorder
//! (`kernel`), between private memory and a [`Map`] of granted regions, or
//! straight from one guest's map into another's ([`copy`]). The file behind a
//! grant may shrink; the touch that finds out poisons that [`Mapping`] and
//! nothing else ([`fault`]).
//!
//! A [`Map`] never changes. A guest whose memory table changes gets a new one
//! (a new epoch); whoever still holds the old one by its `Arc` keeps valid,
//! mapped memory until it lets go. Work that waits keeps guest addresses
//! ([`Span`]) and not pointers, so it is checked again in the epoch it runs in.
#![allow(unsafe_code, reason = "mmap, the fault handler, and copies of shared bytes live here")]
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

mod addresses;
mod closing;
mod control;
pub mod copy;
mod dirty;
mod elsewhere;
pub mod fault;
pub mod gather;
mod giver;
pub mod handed;
pub mod inlet;
pub mod io;
mod kernel;
pub mod limits;
mod map;
mod mapping;
mod own;
pub mod packet;
pub mod packet_filter;
pub mod packet_inlet;
pub mod packet_ring;
pub mod peer;
mod reaper;
pub mod slot;
mod substitute;
pub mod tcp;
pub mod trace;
pub mod udp;
mod unmap;
mod view;

pub use addresses::{fits, is_behind as is_behind_in_unmapping};
pub use copy::{Cursor, Span};
pub use dirty::DirtyLog;
pub use elsewhere::Elsewhere;
pub use giver::Giver;
pub use handed::Handed;
pub use kernel::copy_shared;
pub use map::{Map, MapError, OutOfGrant, Region};
pub use mapping::{Mapping, MappingError, create, is_memory};
pub use own::{OwnMemory, OwnPiece};
pub use unmap::unmap_elsewhere;
pub use view::View;
