//! The policy of the site about a group, as the registry keeps it.
//!
//! [`super::site`] replaces it, and the views and shards of the group read it, under the lock of the
//! registry. The values have been checked, and exist also without the group.

use causeway_model::{Forwarding, Name, SitePolicy};

use crate::rules::RuleList;

/// The policy of the site about a group.
#[derive(Debug)]
pub(super) struct GroupPolicy {
    pub(super) forwarding: Option<Forwarding>,
    /// Rules, with the hit counts of closed shards.
    pub(super) rules: RuleList,
}

impl GroupPolicy {
    /// Returns the policy as it was set.
    pub(super) fn to_policy(&self, group: &Name) -> SitePolicy {
        let (group, forwarding) = (group.clone(), self.forwarding);
        SitePolicy { group, forwarding, rules: self.rules.rules().cloned().collect() }
    }
}
