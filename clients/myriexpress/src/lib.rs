//! `libmyriexpress.so`: the MX API, binary-compatible, for processes on a host with a Causeway
//! daemon, or in a guest of such a host with an adapter.
//!
//! A C program calls the functions of `call`. Each function validates its arguments, takes the lock
//! of its endpoint (`table`), and uses the matching engine ([`causeway_message::library`]) over
//! channels to peers of this host, and to other peers over the daemon, or in direct mode over a
//! packet socket ([`causeway_endpoint`]). The library asks the daemon for endpoints and channels by
//! the socket of its NIC, or in a guest by the adapter; the daemon is not on the path of messages
//! in a channel.
//!
//! There is no progress thread: progress happens in calls of the application. Calls that wait poll
//! for a moment and then sleep on the doorbell of the endpoint (`wait`). The library exports only C
//! symbols and has no Rust API:
//!
//! ```c
//! mx_init();
//! mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, key, NULL, 0, &endpoint);
//! mx_connect(endpoint, nic, peer_endpoint, key, MX_INFINITE, &peer);
//! mx_isend(endpoint, &segment, 1, peer, match_info, NULL, &request);
//! mx_wait(endpoint, &request, MX_INFINITE, &status, &result);
//! ```
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
