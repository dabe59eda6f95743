//! Policies of the site about groups: rules before those of the host, and a forwarding mode instead
//! of the host's.
//!
//! The link service sets them ([`super::Control::set_site_policy`]) as the process
//! `causeway-directory` reports them, under the lock of the registry; the fabric does not know
//! where they come from. A policy stays until another replaces it, also while its group does not
//! exist: a shard has the rules of its group from its opening on. Shards change one after the
//! other, so that connects are checked against the old rules for a moment, and open connections
//! stay. Hit counts begin at 0 with each change of the rules. If a dispatcher has stopped, the
//! change fails with an error, and the policy is in force in the registry and in the shards before.

use causeway_model::{
    CommandError, Forwarding, GroupSpec, GroupView, Name, RuleSpec, RuleView, SitePolicy,
};

use super::core::Core;
use super::policy::GroupPolicy;
use crate::rules::RuleList;
use crate::shard::ShardKey;

impl Core {
    /// Replaces the policy about a group, which has been checked. Returns whether the policy before
    /// or the new one has a forwarding mode.
    pub(super) fn set_site_policy(&mut self, policy: SitePolicy) -> Result<bool, CommandError> {
        let SitePolicy { group, forwarding, rules } = policy;
        let before = self.site.get(&group);
        let has_forwarding =
            forwarding.is_some() || before.is_some_and(|before| before.forwarding.is_some());
        let known = before.into_iter().flat_map(|before| before.rules.rules());
        let (is_same, is_empty) = (known.eq(&rules), forwarding.is_none() && rules.is_empty());
        match self.site.get_mut(&group) {
            // The hit counts stay.
            Some(known) if is_same && !is_empty => known.forwarding = forwarding,
            _ if is_empty => drop(self.site.remove(&group)),
            _ => {
                let list = RuleList::new(rules.clone());
                self.site.insert(group.clone(), GroupPolicy { forwarding, rules: list });
            }
        }
        if is_same {
            return Ok(has_forwarding);
        }
        let of: Vec<ShardKey> =
            self.shards.keys().filter(|key| key.group == group).cloned().collect();
        // The other shards follow also if the dispatcher of one has stopped.
        let mut result = Ok(has_forwarding);
        for key in of {
            let rules = rules.clone();
            let set = self.with(&key, move |shard| shard.rules_mut().set_site(rules));
            result = result.and_then(|has| set.map(|_| has));
        }
        result
    }

    /// Returns the rules of the site about a group.
    pub(super) fn site_rules(&self, group: &Name) -> Vec<RuleSpec> {
        let policy = self.site.get(group);
        policy.map(|policy| policy.rules.rules().cloned().collect()).unwrap_or_default()
    }

    /// Returns the forwarding mode of a group by the site.
    pub(super) fn site_forwarding(&self, group: &Name) -> Option<Forwarding> {
        self.site.get(group)?.forwarding
    }

    /// Returns the view of a group, without the objects of services.
    pub(super) fn group_view(&self, group: &GroupSpec) -> GroupView {
        let mut view = GroupView::new(group, self.ports_of(&group.name));
        view.site_forwarding = self.site_forwarding(&group.name);
        view
    }

    /// Returns the rules of the site about the groups of this host, in order of the groups' names,
    /// with the hit counts of closed shards.
    pub(super) fn site_rule_views(&self) -> Vec<RuleView> {
        let here = self.site.iter().filter(|(name, _)| self.group(name).is_some());
        here.flat_map(|(name, policy)| policy.rules.view(Some(name))).collect()
    }
}
