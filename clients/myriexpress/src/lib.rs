//! `libmyriexpress.so`: the MX API, binary-compatible, for processes on a host with a Causeway
//! daemon.
//!
//! A C program calls the functions of `call`; each checks what it was given, takes the lock of
//! its endpoint (`table`), and uses the library half of the engine
//! ([`causeway_message::library`]) over channels to partners of this host
//! ([`causeway_endpoint`]). The daemon is asked for endpoints and channels by its board's socket and
//! is not on the path of a message.
//!
//! Nothing goes on but in calls of the application. Calls that wait look for a moment and then
//! sleep on the endpoint's doorbell (`wait`).
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
mod call;
mod code;
mod endpoint;
mod errors;
mod fork;
mod limits;
mod memory;
mod table;
mod wait;
