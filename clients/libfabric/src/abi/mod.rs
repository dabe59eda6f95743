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
//!
//! # Modules
//! `errno`, `flags` and `ops` (the declaration of tables) use no object. Above them are the header
//! of all objects (`fid`), the arguments of calls (`attr`, `message`, `atomic`), and the objects
//! that name no other (`av`, `mr`, `wait`, `cq`, `eq`). `endpoint` uses these, `fabric` (fabrics,
//! domains, `fi_info`) names all objects, and `provider` the fabric. No module uses a later one.

#![allow(dead_code, unused_imports, reason = "an interface has more than is used of it")]

mod atomic;
mod attr;
mod av;
mod cq;
mod endpoint;
mod eq;
mod errno;
mod fabric;
mod fid;
mod flags;
mod message;
mod mr;
mod ops;
mod provider;
#[cfg(test)]
mod tests;
mod wait;

pub use atomic::*;
pub use attr::*;
pub use av::*;
pub use cq::*;
pub use endpoint::*;
pub use eq::*;
pub use errno::*;
pub use fabric::*;
pub use fid::*;
pub use flags::*;
pub use message::*;
pub use mr::*;
pub use provider::*;
pub use wait::*;
