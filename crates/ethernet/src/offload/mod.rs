//! Work that a sender left undone and its receiver will not do.
//!
//! Frames pass uncut wherever both sides negotiated it ([`mod@plan`]). Else checksums
//! are completed ([`checksum`]) and frames cut ([`segment`]) in software.

pub mod checksum;
pub mod plan;
pub mod segment;

pub use plan::{Plan, plan};

/// Overwrites the bytes at `at`; leaves a frame that ends before them alone.
fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) {
        *place = value;
    }
}

/// The bytes at `at`, or zeroes past the end.
fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}
