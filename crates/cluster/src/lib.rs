//! The directory of a site: which host has which address, as records in etcd.
//!
//! The crate is sans-I/O: bytes, the time of day and random bytes are arguments, writes are values.
//! So the process `causeway-directory` (crate `etcd`) and the tests run the same code. It has no
//! client of etcd, opens no link and forwards nothing; without it a daemon works with the links of
//! its configuration.
//!
//! ```text
//!  etcd ── KeyEvent, list ──▶ ┌─────────┐ ──▶ hosts, addresses ──▶ daemon
//!                          │ Replica │
//!  etcd ◀──── Write ────── └────▲────┘
//!                 Claimer ──────┘ ◀── addresses of this host ── daemon
//! ```
//!
//! [`Replica`] verifies records and keeps the accepted ones; [`Claimer`] decides which claims this
//! host writes. A refused record replaces no accepted record and is counted ([`RecordRefusal`]);
//! [`limits`] has the bounds. Everything runs in the thread of the caller, in `causeway-directory`
//! its main thread.
//!
//! ```
//! use causeway_cluster::record::GroupRecord;
//! use causeway_cluster::{Claimer, KeyEvent, RecordKey, Replica, SigningKey};
//! use causeway_model::{AddressKind, ClusterAddress, LocalAddress};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (site, host) = ("lab".parse()?, "h1".parse()?);
//! let key = SigningKey::new([7; 32])?; // The process asks the kernel for random bytes.
//! let mut replica = Replica::new(site, host, key.public());
//! let group = RecordKey::Group("blue".parse()?).path(replica.site()).into_bytes();
//! let value = Some(GroupRecord::new(7).write());
//! replica.list(&[KeyEvent { key: group, value, revision: 5 }], 5, 1_000);
//!
//! let (kind, group) = (AddressKind::Mac, "blue".parse()?);
//! let at = ClusterAddress { kind, group, address: "52:54:00:00:00:01".into() };
//! let mut claimer = Claimer::default();
//! claimer.observe(&[LocalAddress { at, since: 900 }], &replica, 1_000);
//! let writes = claimer.writes(&mut replica, &key, 1_000);
//! assert_eq!(writes[0].expected, 0, "the key must not exist");
//! # Ok(())
//! # }
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`key`] | keys in etcd |
//! | [`record`] | values in etcd, with versions |
//! | [`sign`] | Ed25519 keys and signatures |
//! | [`refusal`] | the reasons for which records are refused |
//! | [`replica`] | the accepted records, and the rules of failures |
//! | [`claimer`] | the claims of this host |
//! | [`token`] | tokens by which hosts join |
//! | [`limits`] | limits |

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

pub mod claimer;
pub mod key;
pub mod limits;
pub mod record;
pub mod refusal;
pub mod replica;
pub mod sign;
pub mod token;

pub use claimer::{Claimer, Write};
pub use key::RecordKey;
pub use record::{ClaimRecord, EvictionRecord, GroupRecord, HostRecord};
pub use refusal::RecordRefusal;
pub use replica::{KeyEvent, Replica};
pub use sign::{SigningKey, VerifyingKey};
