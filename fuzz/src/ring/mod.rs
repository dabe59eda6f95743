//! Virtqueues of both formats, with a driver that writes arbitrary values between the calls of the
//! device. Targets `split`, `packed` and `indirect`, which drive `causeway_ring` alone, without a
//! service or a doorbell.

mod indirect;
mod scenario;

pub use indirect::{run as indirect, seeds as indirect_seeds};

/// Runs a scenario on a split ring.
pub fn split(data: &[u8]) {
    scenario::run(data, false);
}

/// Runs a scenario on a packed ring.
pub fn packed(data: &[u8]) {
    scenario::run(data, true);
}

/// Returns scenarios that reach deep code paths.
pub fn split_seeds() -> Vec<Vec<u8>> {
    scenario::seeds(false)
}

/// Returns scenarios that reach deep code paths.
pub fn packed_seeds() -> Vec<Vec<u8>> {
    scenario::seeds(true)
}
