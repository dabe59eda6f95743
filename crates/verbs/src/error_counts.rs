//! Counts of failed work requests by the status of their completion.
//!
//! The engine counts a status where it makes the error completion of a send or receive work
//! request; flushed work requests have a counter of their own ([`crate::Counters::flushed`]). The
//! counts belong to the adapter of the completion, wrap, and outlive a reset by the guest.
//! `causeway-hca` prints them by name. All of it runs in the dispatcher's thread that serves the
//! subnet.

use crate::work::Status;

/// The statuses that are counted, with their names for operators.
const KINDS: [(Status, &str); 11] = [
    (Status::LocalLength, "local length"),
    (Status::LocalQueuePairOperation, "local queue pair operation"),
    (Status::LocalProtection, "local protection"),
    (Status::MemoryWindowBind, "memory region change"),
    (Status::BadResponse, "bad response"),
    (Status::LocalAccess, "local access"),
    (Status::RemoteInvalidRequest, "remote invalid request"),
    (Status::RemoteAccess, "remote access"),
    (Status::RemoteOperation, "remote operation"),
    (Status::RetryExceeded, "transport retry exceeded"),
    (Status::ReceiverNotReadyExceeded, "receiver-not-ready retry exceeded"),
];

/// Failed work requests by status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorCounts([u64; KINDS.len()]);

impl ErrorCounts {
    /// Counts a failed work request. A success and a flush are not counted.
    pub(crate) fn add(&mut self, status: Status) {
        let index = KINDS.iter().position(|(kind, _)| *kind == status);
        if let Some(count) = index.and_then(|index| self.0.get_mut(index)) {
            *count = count.wrapping_add(1);
        }
    }

    /// Returns the number of failed work requests with a status.
    pub fn of(&self, status: Status) -> u64 {
        let index = KINDS.iter().position(|(kind, _)| *kind == status);
        index.and_then(|index| self.0.get(index)).copied().unwrap_or(0)
    }

    /// Returns the statuses that occurred, by name, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        KINDS.iter().zip(self.0).filter(|(_, count)| *count > 0).map(|((_, n), count)| (*n, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_errors_are_counted_by_status_without_success_and_flush() {
        let mut counts = ErrorCounts::default();
        for status in [Status::RemoteAccess, Status::Success, Status::Flushed, Status::RemoteAccess]
        {
            counts.add(status);
        }
        assert_eq!(counts.iter().collect::<Vec<_>>(), [("remote access", 2)]);
        assert_eq!((counts.of(Status::RemoteAccess), counts.of(Status::Flushed)), (2, 0));
    }
}
