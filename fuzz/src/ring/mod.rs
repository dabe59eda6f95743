//! Rings of both formats: a driver that writes what it likes between our calls.

mod indirect;
mod story;

pub use indirect::{run as indirect, seeds as indirect_seeds};

/// A story of a split ring.
pub fn split(data: &[u8]) {
    story::run(data, false);
}

/// A story of a packed ring.
pub fn packed(data: &[u8]) {
    story::run(data, true);
}

/// Stories that get far.
pub fn split_seeds() -> Vec<Vec<u8>> {
    story::seeds(false)
}

/// Stories that get far.
pub fn packed_seeds() -> Vec<Vec<u8>> {
    story::seeds(true)
}
