//! Software offloads: checksums and segmentation that a sender requested and its receiver did not
//! negotiate.
//!
//! Frames pass uncut where both sides negotiated the offload ([`mod@plan`]). Otherwise checksums
//! are completed ([`checksum`]) and frames cut into segments ([`segment`]). `deliver` and `link_tx`
//! call the module for each receiver separately.
//!
//! The module works on private bytes and header values; it reads no guest memory and allocates
//! nothing. It merges no segments (no GRO), verifies no complete checksum, and cuts TCP and UDP
//! only, over IPv4 and IPv6. Offload requests were validated before (`headers`).

pub mod checksum;
pub mod plan;
pub mod segment;

pub use plan::{OffloadPlan, plan};

/// Overwrites the bytes from offset `at` on. No effect if the frame ends before them.
fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) {
        *place = value;
    }
}

/// Returns the bytes from offset `at` on, or zeroes if the frame ends before them.
fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}
