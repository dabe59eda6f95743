//! The count of queues that no pass has looked at since the last doorbell or message.
//!
//! [`open_work`](crate::open_work) sets the count and lowers it after each pass; a function with a
//! count above 0 may have posted work. The count does not name the queues.

/// Queues that no pass has looked at since the last doorbell or message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unlooked {
    queue_pairs: usize,
    completion_queues: usize,
}

impl Unlooked {
    /// Returns the count when a pass may have looked at none of these queues.
    pub fn all(queue_pairs: usize, completion_queues: usize) -> Self {
        Self { queue_pairs, completion_queues }
    }

    /// Returns whether no pass has looked at some queue, if there are as many queues now: queues may
    /// have disappeared since they were counted.
    pub fn has_any(self, queue_pairs: usize, completion_queues: usize) -> bool {
        self.queue_pairs.min(queue_pairs) > 0 || self.completion_queues.min(completion_queues) > 0
    }

    /// Counts the queues that a pass looked at.
    pub fn look(&mut self, queue_pairs: usize, completion_queues: usize) {
        self.queue_pairs = self.queue_pairs.saturating_sub(queue_pairs);
        self.completion_queues = self.completion_queues.saturating_sub(completion_queues);
    }
}
