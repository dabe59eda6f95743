//! Identifiers of links and stations in the service that forwards a group's frames.

/// Identifies a link for as long as it exists; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);
