//! Wire formats: bytes to meaning and back, and nothing else.
//!
//! No I/O, no clock, no allocation and no `unsafe`. Every format has one module
//! of the same shape: `parse` takes private bytes (never shared memory) and
//! gives a checked value or a typed error, `emit` writes the value back, and
//! `parse(emit(x)) == x`. No parser panics, whatever the bytes.

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

pub mod checksum;
pub mod ecn;
pub mod ethernet;
mod field;
pub mod frame;
pub mod hello;
pub mod ipv4;
pub mod ipv6;
pub mod local;
pub mod mx;
pub mod mxoe;
pub mod pcapng;
pub mod tcp;
pub mod tunnel;
pub mod udp;
pub mod virtio;
pub mod virtio_net;
pub mod vnet_stream;
pub mod vsock;
pub mod vxlan;

pub use field::Truncated;
