//! `libcauseway-fi.so`: a provider of libfabric, for processes on a host with a Causeway daemon.
//!
//! libfabric's core loads the library and calls `fi_prov_ini`. What crosses its interface is in
//! [`abi`].
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
