//! The policy of a site about a group: its forwarding and its rules, on every host of the site.
//!
//! `causeway-directory` reads it from the group's record, the link service passes it to the fabric,
//! and the fabric applies it before the values of the host: a rule of the site that matches a
//! connect decides it, and the forwarding of the site replaces that of the host's group. A policy
//! without values has no effect.
//!
//! The rules have the form of `[[rule]]` and stay inside the group: a side names the group, `*` or
//! the host. At most [`SITE_RULES_MAX`] (64) rules. [`SitePolicy::check`] refuses others; the
//! replica of the site, the verbs of operators and the link service call it, each in its thread.

use serde::{Deserialize, Serialize};

use crate::limits::SITE_RULES_MAX;
use crate::{Forwarding, Name, RuleSide, RuleSpec};

/// The values of a group that the site states for all of its hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SitePolicy {
    /// The group.
    pub group: Name,
    /// Treatment of frames that no route matches; `None` leaves each host its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forwarding: Option<Forwarding>,
    /// Rules about connects in the group, in their order; at most [`SITE_RULES_MAX`] (64).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleSpec>,
}

/// The reason why a policy is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SitePolicyError {
    /// There are too many rules.
    #[error("{0} rules: expected at most {SITE_RULES_MAX}")]
    Rules(usize),
    /// A rule names another group.
    #[error(
        "rule {index} has the side {side}: expected group {group}, */… or host, because the rules \
         of a group stay inside it"
    )]
    Foreign {
        /// Number of the rule, from 0.
        index: usize,
        /// The side.
        side: RuleSide,
        /// The group of the policy.
        group: Name,
    },
}

impl SitePolicy {
    /// Returns a policy without values.
    pub const fn none(group: Name) -> Self {
        Self { group, forwarding: None, rules: Vec::new() }
    }

    /// Returns whether the policy has no values.
    pub fn is_empty(&self) -> bool {
        self.forwarding.is_none() && self.rules.is_empty()
    }

    /// Checks the number of the rules, and that they stay inside the group.
    ///
    /// # Errors
    /// There are more than [`SITE_RULES_MAX`] (64) rules, or a side of one names another group.
    pub fn check(&self) -> Result<(), SitePolicyError> {
        if self.rules.len() > SITE_RULES_MAX {
            return Err(SitePolicyError::Rules(self.rules.len()));
        }
        for (index, rule) in self.rules.iter().enumerate() {
            let is_foreign =
                |side: &&RuleSide| side.group.as_ref().is_some_and(|group| *group != self.group);
            if let Some(side) = [&rule.from, &rule.to].into_iter().find(is_foreign) {
                let (side, group) = (side.clone(), self.group.clone());
                return Err(SitePolicyError::Foreign { index, side, group });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RuleAction;

    #[test]
    fn site_policy_rules_stay_inside_the_group() {
        let rule = |from: &str, to: &str| RuleSpec {
            action: RuleAction::Reject,
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
        };
        let mut policy = SitePolicy::none("blue".parse().unwrap());
        policy.rules = vec![rule("blue/3:*", "*/4:22"), rule("host:*", "*")];
        assert_eq!(policy.check(), Ok(()));
        policy.rules.push(rule("*", "red/4:22"));
        let refused = policy.check().unwrap_err().to_string();
        assert!(refused.contains("rule 2") && refused.contains("red/4:22"), "{refused}");
        policy.rules = vec![rule("*", "*"); SITE_RULES_MAX + 1];
        assert_eq!(policy.check(), Err(SitePolicyError::Rules(SITE_RULES_MAX + 1)));
    }
}
