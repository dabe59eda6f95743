//! libfabric's C interface: layouts, numbers and tables of functions. It contains no behaviour.
//!
//! Names are those of C: `struct fi_info` is [`FiInfo`], `struct fid_ep` is [`FidEp`],
//! `struct fi_ops_msg` is [`OpsMsg`]; constants keep their names. Enumerations are plain numbers,
//! because a caller may pass any.
//!
//! Layouts are those of libfabric 2.7, which begin as all older ones do. A structure of an older
//! caller ends earlier: fields marked with a version are beyond its end, and are neither read nor
//! written unless the caller's version has them. Memory that the core frees is allocated here in
//! full length.

#![allow(dead_code, unused_imports, reason = "an interface has more than is used of it")]

mod atomic;
mod av;
mod cm;
mod collective;
mod cq;
mod domain;
mod endpoint;
mod eq;
mod errno;
mod fabric;
mod flags;
mod info;
mod mr;
mod msg;
mod ops;
mod provider;
mod rma;
mod tagged;
#[cfg(test)]
mod tests;
mod wait;

pub use atomic::*;
pub use av::*;
pub use cm::*;
pub use collective::*;
pub use cq::*;
pub use domain::*;
pub use endpoint::*;
pub use eq::*;
pub use errno::*;
pub use fabric::*;
pub use flags::*;
pub use info::*;
pub use mr::*;
pub use msg::*;
pub use provider::*;
pub use rma::*;
pub use tagged::*;
pub use wait::*;

/// `fi_addr_t`: an index into an address vector.
pub type FiAddr = u64;

/// `FI_ADDR_UNSPEC`: any source.
pub const FI_ADDR_UNSPEC: FiAddr = u64::MAX;
/// `FI_ADDR_NOTAVAIL`: a source that is not in the address vector.
pub const FI_ADDR_NOTAVAIL: FiAddr = u64::MAX;
/// `FI_KEY_NOTAVAIL`: a key that does not exist yet.
pub const FI_KEY_NOTAVAIL: u64 = u64::MAX;

/// Returns a version in the interface's encoding: `FI_VERSION(major, minor)`.
pub const fn version(major: u16, minor: u16) -> u32 {
    (major as u32) << 16 | minor as u32
}
