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
//! (a new epoch); a holder of the old one keeps valid, mapped memory until it
//! drops its `Arc`. Work that waits keeps guest addresses ([`Span`]) and not
//! pointers, so it is checked again in the epoch it runs in. A map has few
//! regions with a mapping each ([`Region`]), or up to 262,144 grants in mapped
//! files ([`Grants`]).
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

mod access;
mod addresses;
mod background;
pub mod copy;
mod dirty;
pub mod fault;
mod grants;
mod kernel;
pub mod limits;
mod map;
mod mapping;
mod owner;
mod regions;
mod rights;
pub mod slot;
mod substitute;
mod table;
pub mod trace;
mod unmap;
mod view;

pub use addresses::{fits, is_behind as is_behind_in_unmapping};
pub use background::Background;
pub use copy::{Cursor, Span};
pub use dirty::DirtyLog;
pub use grants::{Grant, GrantError, Grants};
pub use kernel::copy_shared;
pub use map::{Map, MapError, OutOfGrant, Region};
pub use mapping::{KeptFile, Mapping, MappingError, create, is_memory};
pub use owner::Owner;
pub use regions::{Access, GuestSpans, RegionError, RegionKey, Regions, Registration};
pub use rights::Rights;
pub use unmap::unmap_elsewhere;
pub use view::View;
