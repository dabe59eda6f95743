//! Identifiers of links and stations in the service that forwards a group's frames.
//!
//! `causeway_link` numbers its links when they are added; [`crate::station`] gives numbers to
//! stations, with a bit that links do not have. The forwarding service finds a member by its number
//! ([`crate::carrier::Membership`]), also after the carrier was replaced; a number that it does not
//! know has no effect. Operators see names instead. The type is a plain value, and any thread may
//! hold it.

/// Identifies a link or a station for as long as it exists; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);
