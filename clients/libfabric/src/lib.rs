//! `libcauseway-fi.so`: a provider of libfabric, for processes on a host with a Causeway daemon.
//!
//! libfabric's core loads the library and calls `fi_prov_ini` (`provider`), asks what there is
//! (`info`) and opens a `fabric`; what is opened from that is `shell`'s. What crosses the C
//! interface is in `abi`.
#![allow(unsafe_code, reason = "the C ABI: pointers of the caller, and functions of it")]
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

mod abi;
mod address;
mod boards;
mod eq;
#[cfg_attr(not(test), allow(dead_code, reason = "for what sends and receives"))]
mod errno;
mod fabric;
mod info;
mod limits;
mod provider;
mod rdm;
mod say;
mod shell;
#[cfg(feature = "story")]
pub mod story;
