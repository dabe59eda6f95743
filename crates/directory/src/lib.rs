//! Ownership of addresses: which place has an address, by claims with epochs.
//!
//! A [`Directory`] keeps the claims on every address and follows the best one. Reports come from
//! [sources](Source): the tunnels to peers. The directory performs no I/O and reads no clock; the
//! caller passes the time of day. It does not forward frames and authenticates no peer: tunnels do, by keys, or in `causeway-plain` links by
//! the peer's address alone. `link` applies their reports, and passes changes on to `ethernet`,
//! which sends frames to the new place.
//!
//! ```text
//!   own ports ── claim_local ──▶ ┌───────────┐
//!                                │ Directory │──▶ Change: address, from place, to place
//!   Source ───── Report ───────▶ └───────────┘
//! ```
//!
//! A claim that the caller has verified, such as that of a host of the cluster, is an *assignment*
//! ([`Directory::assign`]): no claim of another host is followed beside it.
//!
//! Several places may claim one address: the best claim is followed, and the others are kept, at
//! most 8 in all. A newer claim of a place replaces its older one, and a repeated claim has no
//! effect. At a limit a claim of a peer is dropped and requested again later; own ports always find
//! room ([`limits`]). The crate runs in the thread of its caller: the dispatcher of the shard of
//! links.
//!
//! Each kind of address implements [`Key`]. There are Ethernet addresses ([`MacKey`]) and the
//! CIDs of guests ([`CidKey`]).
//!
//! ```
//! use causeway_directory::{Directory, MacKey, Place, Report};
//!
//! let mac: MacKey = (7, [2, 0, 0, 0, 0, 1]);
//! let mut directory = Directory::default();
//! directory.claim_local(mac, 1_000);
//! // The guest moves to the peer behind link 3, which claims the address with a newer epoch.
//! let place = Place::Link(3);
//! let changes = directory.apply(Report::Claimed { place, key: mac, epoch: 2_000 }, 2_000);
//! assert_eq!(changes[0].from, Some(Place::Here));
//! assert_eq!(directory.find(mac), Some(place));
//! ```
//!
//! | module | content |
//! |---|---|
//! | `table` | the directory: claims by address, unreachable places, epochs |
//! | `claims` | the claims on one address and their order |
//! | `assignment` | addresses that a verified claim gives to a host |
//! | `advertisement` | the addresses that one side advertised to the other, with a digest |
//! | `source` | reports, and the trait of their sources |
//! | `limits` | limits |

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

mod advertisement;
mod assignment;
mod claims;
pub mod limits;
mod source;
mod table;

use std::fmt::Debug;

pub use advertisement::{Advertisement, Full, Unconfirmed};
pub use source::{Report, Source};
pub use table::{Change, Directory};

/// An address of one kind.
pub trait Key: Copy + Ord + Debug {
    /// Returns two words from which the digest of an [`Advertisement`] is computed. Peers compare
    /// digests, so the words of an address never change between versions.
    fn digest_words(&self) -> [u64; 2];
}

/// A virtual network and an Ethernet address in it.
pub type MacKey = (u32, [u8; 6]);

impl Key for MacKey {
    fn digest_words(&self) -> [u64; 2] {
        let (vni, [a, b, c, d, e, f]) = *self;
        let mac = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        [mac.wrapping_add(u64::from(vni) << 48), mac]
    }
}

/// A virtual network and the CID of a guest in it.
pub type CidKey = (u32, u32);

impl Key for CidKey {
    fn digest_words(&self) -> [u64; 2] {
        let (vni, cid) = *self;
        [u64::from(cid).wrapping_add(u64::from(vni) << 48), u64::from(cid)]
    }
}

/// The location of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A port of this daemon.
    Here,
    /// The peer behind the link with this number.
    Link(u32),
}
