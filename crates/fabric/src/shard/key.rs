//! Identifiers of shards.

use causeway_model::Name;

/// Identifies a shard in the process: the part of one service that serves one group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardKey {
    /// Group.
    pub group: Name,
    /// Name of the service.
    pub service: &'static str,
}

impl ShardKey {
    /// Returns the key of `service` in `group`.
    pub fn new(group: &Name, service: &'static str) -> Self {
        Self { group: group.clone(), service }
    }
}
