//! Memory regions of an adapter.

/// The accesses that a region or queue pair permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights(pub u8);
