//! Guest memory: granted regions, reached by checked copies and accesses of words.
//!
//! A guest is hostile from its first instruction, and its memory changes at any time. So no
//! reference to a shared byte ever exists here, except to atomic words during one access: bytes are
//! copied, by instructions that the compiler cannot repeat or reorder (`kernel`), between private
//! memory and a [`Map`] of granted regions, or straight from one guest's map into another's
//! ([`copy`]). The file behind a grant may shrink; the access that detects it poisons that
//! [`Mapping`] and nothing else ([`fault`]).
//!
//! A [`Map`] never changes. A guest whose memory table changes gets a new map (a new epoch); a
//! holder of the old map keeps valid, mapped memory until it drops its `Arc`. Deferred work keeps
//! guest addresses ([`Span`]) and not pointers, so it is checked again in the epoch in which it
//! runs. A map has few regions with a mapping each ([`Region`]), or up to 262,144 grants in mapped
//! files ([`Grants`]).
//!
//! The crate knows neither rings nor protocols: `attach` builds maps from vhost-user messages,
//! `ring` reads descriptors through a [`View`], and services copy payloads. It waits for no file
//! system: only memory files are mapped ([`is_memory`]).
//!
//! # Threads and limits
//! A [`Map`] is used from any thread without a lock. Calls run in the caller's thread; in the
//! daemon, up to 4 threads of the crate unmap, except mappings of at most 1 MiB of sealed files or
//! of mirrors. [`limits`] has the bounds: a region, grant or mapping beyond one is refused with an
//! error of the call, and what was granted before stays. Two regions that overlap are refused
//! ([`MapError`]). The addresses of the process are shared: a peer may map at most a sixteenth of
//! those that remain.
//!
//! [`slot`] is an entry of the table by which the SIGBUS handler finds a mapping; [`trace`] records
//! accesses for tests, with the feature `trace` only.
//!
//! # Example
//!
//! ```
//! use std::os::fd::AsFd;
//! use std::sync::Arc;
//! use causeway_memory::{Map, Mapping, Region, create};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = create("guest", 1 << 20)?;
//! let mapping = Arc::new(Mapping::new(file.as_fd(), 0, 1 << 20)?);
//! let map = Map::new(vec![Region { guest: 0x4000_0000, user: 0, mapping }])?;
//! map.write(0x4000_0010, b"frame")?;
//! let mut private = [0; 5];
//! map.read(0x4000_0010, &mut private)?;
//! assert_eq!(&private, b"frame");
//! assert!(map.read(0x3fff_ffff, &mut private).is_err());
//! # Ok(())
//! # }
//! ```
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
mod mirror;
mod mirror_runs;
mod owner;
mod regions;
mod rights;
pub mod slot;
mod substitute;
mod table;
pub mod trace;
mod unmap;
mod view;
mod watch;
mod word;

pub use addresses::{fits, is_behind as has_unmap_backlog};
pub use background::Background;
pub use copy::{Cursor, Span};
pub use dirty::DirtyLog;
pub use grants::{Grant, GrantError, Grants};
pub use kernel::copy_shared;
pub use map::{Map, MapError, OutOfGrant, Region};
pub use mapping::{KeptFile, Mapping, MappingError, create, is_memory};
pub use mirror::{MirrorError, first_bytes};
pub use mirror_runs::mirrored_runs;
pub use owner::Owner;
pub use regions::{Access, GuestSpans, RegionError, RegionKey, Regions, Registration};
pub use rights::Rights;
pub use unmap::unmap_in_background;
pub use view::View;
pub use watch::WordWatch;
