//! Names of shards.

use causeway_model::Name;

/// Names a shard in the process: the part of one service that serves one group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardKey {
    /// The group.
    pub group: Name,
    /// The name of the service.
    pub service: &'static str,
}

impl ShardKey {
    /// Names the shard of `service` in `group`.
    pub fn new(group: &Name, service: &'static str) -> Self {
        Self { group: group.clone(), service }
    }
}
