//! How a replay ([`super::replay`]) ends early: [`super::relay`] connects again, or ends the
//! frontend's connection.

use crate::relay::RelayEnd;

/// Why a replay ended early.
#[derive(Debug)]
pub(super) enum ReplayError {
    /// causewayd closed the connection.
    Gone,
    /// The frontend's connection ends.
    End(RelayEnd),
}

impl From<RelayEnd> for ReplayError {
    fn from(end: RelayEnd) -> Self {
        Self::End(end)
    }
}
