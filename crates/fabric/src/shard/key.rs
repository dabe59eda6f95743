//! Identifiers of shards.
//!
//! The registry and the shard tables of dispatchers find a shard by its [`ShardKey`], a group and a
//! service: equal keys are the same shard, also after the shard moved. A key names no port, and
//! does not show the dispatcher that serves the shard or whether the shard is open. Events of the
//! kernel and doorbells of sources name a slot and a serial number instead.

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
