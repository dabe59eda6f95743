//! Policies of the site about groups: rules and forwarding, as the process reports them.
//!
//! The controller passes each changed policy to the fabric, which applies it before the values of
//! the host. Without reports, after the end of the process or of etcd, policies stay as they are:
//! only an update removes them. A policy that the fabric refuses is logged and alarmed, the policy
//! before stays in force, and the next report of the whole state tries again. At most
//! [`CLUSTER_POLICIES_MAX`] (4,096) policies; an update with more is refused. The site has
//! precedence over the configuration of the host: a group with a forwarding that contradicts the
//! site's is an alarm. All of it runs in threads of the control socket, under the lock of the
//! registry.

use std::collections::{BTreeMap, BTreeSet};

use causeway_fabric::Control;
use causeway_model::limits::CLUSTER_POLICIES_MAX;
use causeway_model::{ClusterUpdate, CommandError, Forwarding, Name, SitePolicy};
use serde_json::json;

/// The state of reports about policies; the fabric has the policies.
#[derive(Debug, Default)]
pub(super) struct PolicyReports {
    /// Groups with a policy in force or refused that an update of the whole state has not named
    /// yet.
    sweep: Option<BTreeSet<Name>>,
    /// Reasons for which the fabric refused a policy.
    refused: BTreeMap<Name, String>,
}

/// Checks the number of the policies with those of an update.
pub(super) fn check(control: &Control<'_>, update: &ClusterUpdate) -> Result<(), CommandError> {
    let is_new = |policy: &&SitePolicy| control.site_policy(&policy.group).is_none();
    let new = update.policies.iter().filter(is_new).count();
    if control.site_groups().len().saturating_add(new) > CLUSTER_POLICIES_MAX {
        let text = format!("a site has at most {CLUSTER_POLICIES_MAX} groups with a policy");
        return Err(CommandError::Full(text));
    }
    Ok(())
}

/// Returns the policies that are in force.
pub(super) fn list(control: &Control<'_>) -> Vec<SitePolicy> {
    control.site_groups().filter_map(|(group, _)| control.site_policy(group)).collect()
}

/// Puts policies in force that were kept on disk.
pub(super) fn restore(control: &mut Control<'_>, all: Vec<SitePolicy>) -> Result<(), CommandError> {
    all.into_iter().map(|policy| control.set_site_policy(policy)).fold(Ok(()), Result::and)
}

impl PolicyReports {
    /// Takes the policies of an update.
    pub fn follow(&mut self, control: &mut Control<'_>, update: &ClusterUpdate) {
        // A process of an older release knows no policies: those in force stay.
        if update.begin && update.has_policies {
            // A refused policy of a new group is in no list of the fabric, but has an alarm.
            let known = control.site_groups().map(|(group, _)| group);
            self.sweep = Some(known.chain(self.refused.keys()).cloned().collect());
        }
        for policy in &update.policies {
            if let Some(sweep) = &mut self.sweep {
                sweep.remove(&policy.group);
            }
            self.set(control, policy.clone());
        }
        let mut removed = update.removed_policies.clone();
        if update.end {
            removed.extend(self.sweep.take().unwrap_or_default());
        }
        for group in removed {
            self.set(control, SitePolicy::none(group));
        }
    }

    /// Sets a policy in the fabric, if it is another than before.
    fn set(&mut self, control: &mut Control<'_>, policy: SitePolicy) {
        let group = policy.group.clone();
        let was_refused = self.refused.remove(&group).is_some();
        let in_force = control.site_policy(&group);
        let is_known =
            !was_refused && in_force.map_or(policy.is_empty(), |in_force| in_force == policy);
        if !is_known && let Err(error) = control.set_site_policy(policy) {
            log::warn!(group = group.as_str(), error:% = error; "cannot apply the policy of the site about a group: the policy before stays until the next report");
            self.refused.insert(group, error.to_string());
        }
    }

    /// Returns the text of the first policy that is refused, or that the configuration of a group
    /// contradicts. A group with the default forwarding contradicts none.
    pub fn alarm(&self, control: &Control<'_>) -> Option<String> {
        if let Some((group, reason)) = self.refused.first_key_value() {
            return Some(format!(
                "the policy of the site about group {group} is not applied: {reason}; correct the \
                 record with `causeway cluster group set {group}`"
            ));
        }
        let conflict = |(group, site): (&Name, Option<Forwarding>)| {
            let (own, site) = (control.group(group).ok()?.forwarding, site?);
            let is_conflict = own != site && own != Forwarding::default();
            is_conflict.then(|| (group.clone(), json!(own), json!(site)))
        };
        let (group, own, site) = control.site_groups().find_map(conflict)?;
        Some(format!(
            "group {group} has the forwarding {own} on this host, and the site states {site}, \
             which is in force: remove the value here, or change the site with `causeway cluster \
             group set {group} --forwarding {}`",
            own.as_str().unwrap_or_default()
        ))
    }
}
