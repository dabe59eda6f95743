//! Connect rules: ordered lists of accept and reject rules, after V4V's viptables.
//!
//! The registry keeps the list of the operator, and each shard a copy with its own hit counts. The
//! socket service checks each connect against the copy ([`Rules::admits`]) before it looks up the
//! destination. The first matching rule decides; a connect that no rule matches is accepted.
//!
//! The rules of the site about the shard's group (`causeway_model::SitePolicy`) come before the
//! list of the operator: the host's rules decide only connects that no rule of the site matches.
//!
//! Rules apply to new connects only: neither to open connections, nor to frames, nor to MX
//! messages. They cannot admit a connect to another group. At most [`RULES_MAX`] (4,096) rules of
//! the operator, and a further one is refused; a look-up scans the lists in order, so its cost
//! grows with their length. A connect is checked in the dispatcher's thread of the shard. The order
//! of the list is that of the operator; two equal rules are permitted, and the second has no effect.

use causeway_model::limits::RULES_MAX;
use causeway_model::{CID_HOST, Name, RuleAction, RuleOrigin, RuleSide, RuleSpec};
use causeway_model::{CommandError, RuleView};

/// An end of a connect.
#[derive(Debug, Clone, Copy)]
pub struct RuleEnd<'a> {
    /// The guest's group, or the group that the host connects to.
    pub group: &'a Name,
    /// CID; 2 is the host.
    pub cid: u32,
    /// Port number.
    pub port: u32,
}

/// The rule that decides a connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleMatch {
    /// Author of the rule.
    pub origin: RuleOrigin,
    /// Number of the rule among those of its author, from 0.
    pub index: usize,
    /// The decision.
    pub action: RuleAction,
}

/// Rules of one author in order, each with the number of connects that it decided.
#[derive(Debug, Default)]
pub(crate) struct RuleList(Vec<(RuleSpec, u64)>);

impl RuleList {
    /// Returns a list of rules without hits.
    pub fn new(rules: Vec<RuleSpec>) -> Self {
        Self(rules.into_iter().map(|rule| (rule, 0)).collect())
    }

    /// Returns the rules in order.
    pub fn rules(&self) -> impl Iterator<Item = &RuleSpec> {
        self.0.iter().map(|(rule, _)| rule)
    }

    /// Returns the index and action of the first rule that matches.
    fn find(&self, from: RuleEnd<'_>, to: RuleEnd<'_>) -> Option<(usize, RuleAction)> {
        let index =
            self.0.iter().position(|(r, _)| matches(&r.from, from) && matches(&r.to, to))?;
        self.0.get(index).map(|(rule, _)| (index, rule.action))
    }

    /// Returns the views of the rules, in order; `group` is that of rules of the site.
    pub fn view(&self, group: Option<&Name>) -> Vec<RuleView> {
        let origin = if group.is_some() { RuleOrigin::Cluster } else { RuleOrigin::Host };
        let view = |(index, (rule, hits)): (usize, &(RuleSpec, u64))| RuleView {
            index,
            origin,
            group: group.cloned(),
            rule: rule.clone(),
            hits_total: *hits,
        };
        self.0.iter().enumerate().map(view).collect()
    }

    /// Returns the hit count of each rule, in order.
    pub fn hits(&self) -> Vec<u64> {
        self.0.iter().map(|(_, hits)| *hits).collect()
    }

    /// Adds the hit counts of another list of the same rules in the same order.
    fn count(&mut self, other: &Self) {
        for ((_, hits), (_, more)) in self.0.iter_mut().zip(&other.0) {
            *hits = hits.saturating_add(*more);
        }
    }
}

/// The rules of a shard, and their hit counts.
#[derive(Debug, Default)]
pub struct Rules {
    /// Those of the site about the shard's group, which come first.
    site: RuleList,
    /// Those of the operator.
    list: RuleList,
}

/// Returns whether one side of a rule matches an end of a connect.
fn matches(side: &RuleSide, end: RuleEnd<'_>) -> bool {
    let is_host = end.cid == CID_HOST;
    let matches_end = if side.host {
        is_host
    } else {
        // A group names guests; without a group the side matches every end, including the host.
        side.group.as_ref().is_none_or(|group| !is_host && group == end.group)
            && side.cid.is_none_or(|cid| cid == end.cid)
    };
    matches_end && side.ports.is_none_or(|(first, last)| (first..=last).contains(&end.port))
}

impl Rules {
    /// Returns the first rule that matches, without counting it; `None` if no rule matches.
    pub fn find(&self, from: RuleEnd<'_>, to: RuleEnd<'_>) -> Option<RuleMatch> {
        let found = |origin, (index, action)| RuleMatch { origin, index, action };
        let site = self.site.find(from, to).map(|rule| found(RuleOrigin::Cluster, rule));
        site.or_else(|| self.list.find(from, to).map(|rule| found(RuleOrigin::Host, rule)))
    }

    /// Returns whether the connect may be made, and counts the rule that decided. Without a match
    /// the connect is accepted.
    pub fn admits(&mut self, from: RuleEnd<'_>, to: RuleEnd<'_>) -> bool {
        let Some(RuleMatch { origin, index, action }) = self.find(from, to) else { return true };
        let list = match origin {
            RuleOrigin::Cluster => &mut self.site,
            RuleOrigin::Host => &mut self.list,
        };
        if let Some((_, hits)) = list.0.get_mut(index) {
            *hits = hits.saturating_add(1);
        }
        action == RuleAction::Accept
    }

    /// Returns the rules of the operator in order.
    pub fn view(&self) -> Vec<RuleView> {
        self.list.view(None)
    }

    /// Returns the hit counts of the rules of the site and of the operator, in order.
    pub fn hits(&self) -> (Vec<u64>, Vec<u64>) {
        (self.site.hits(), self.list.hits())
    }

    /// Adds the hit counts of the operator's rules of another list of the same rules in the same
    /// order, when the shard of that list closes.
    pub(crate) fn count(&mut self, other: &Self) {
        self.list.count(&other.list);
    }

    /// Adds the hit counts of the site's rules to `list`, when the shard closes.
    pub(crate) fn count_site(&self, list: &mut RuleList) {
        list.count(&self.site);
    }

    /// Replaces the rules of the site, with hit counts of 0. They are not checked here.
    pub(crate) fn set_site(&mut self, rules: Vec<RuleSpec>) {
        self.site = RuleList::new(rules);
    }

    /// Inserts a rule before `index`, or at the end.
    ///
    /// # Errors
    /// The list is full, `index` is out of range, or the rule names two groups and so matches
    /// nothing.
    pub fn add(&mut self, index: Option<usize>, rule: RuleSpec) -> Result<(), CommandError> {
        let count = self.list.0.len();
        if count >= RULES_MAX {
            return Err(CommandError::Full(format!("there are {RULES_MAX} rules already")));
        }
        let index = index.unwrap_or(count);
        if index > count {
            return Err(CommandError::Invalid(format!("index {index}: expected 0 to {count}")));
        }
        if let (Some(from), Some(to)) = (&rule.from.group, &rule.to.group)
            && from != to
        {
            return Err(CommandError::Invalid(format!(
                "a rule from group {from} to group {to} can match nothing: no traffic crosses groups"
            )));
        }
        self.list.0.insert(index, (rule, 0));
        Ok(())
    }

    /// Deletes the rule at `index`.
    ///
    /// # Errors
    /// No rule has this index.
    pub fn delete(&mut self, index: usize) -> Result<(), CommandError> {
        if index >= self.list.0.len() {
            return Err(CommandError::NotFound { what: "rule", name: index.to_string() });
        }
        self.list.0.remove(index);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(action: RuleAction, from: &str, to: &str) -> RuleSpec {
        RuleSpec { action, from: from.parse().unwrap(), to: to.parse().unwrap() }
    }

    #[test]
    fn the_first_match_decides_and_no_match_accepts() {
        let (blue, red): (Name, Name) = ("blue".parse().unwrap(), "red".parse().unwrap());
        let mut rules = Rules::default();
        rules.add(None, rule(RuleAction::Accept, "blue/3:*", "blue/4:22")).unwrap();
        rules.add(None, rule(RuleAction::Reject, "blue/*:*", "blue/*:1-1024")).unwrap();
        rules.add(None, rule(RuleAction::Reject, "host:*", "red/*:*")).unwrap();
        let end = |group, cid, port| RuleEnd { group, cid, port };
        assert!(rules.admits(end(&blue, 3, 999), end(&blue, 4, 22)));
        assert!(!rules.admits(end(&blue, 5, 999), end(&blue, 4, 22)));
        assert!(rules.admits(end(&blue, 5, 999), end(&blue, 4, 2000)));
        assert!(rules.admits(end(&red, 3, 999), end(&red, 4, 22)));
        assert!(!rules.admits(end(&red, 2, 999), end(&red, 4, 22)));
        assert!(rules.admits(end(&red, 4, 22), end(&red, 2, 999)), "not the other way");
        let hits: Vec<u64> = rules.view().iter().map(|r| r.hits_total).collect();
        assert_eq!(hits, [1, 1, 1]);
    }

    #[test]
    fn rules_check_positions_and_groups() {
        let mut rules = Rules::default();
        assert!(rules.add(Some(1), rule(RuleAction::Reject, "*", "*")).is_err());
        assert!(rules.add(None, rule(RuleAction::Reject, "blue/*", "red/*")).is_err());
        rules.add(Some(0), rule(RuleAction::Reject, "*", "*")).unwrap();
        assert!(rules.delete(1).is_err());
        rules.delete(0).unwrap();
    }
    #[test]
    fn rules_of_the_site_come_before_those_of_the_host() {
        let blue: Name = "blue".parse().unwrap();
        let end = |cid, port| RuleEnd { group: &blue, cid, port };
        let mut rules = Rules::default();
        rules.add(None, rule(RuleAction::Accept, "*", "*")).unwrap();
        rules.set_site(vec![
            rule(RuleAction::Accept, "blue/3:*", "blue/4:22"),
            rule(RuleAction::Reject, "*", "blue/4:22"),
        ]);
        assert!(rules.admits(end(3, 9), end(4, 22)));
        assert!(!rules.admits(end(5, 9), end(4, 22)), "the host cannot weaken the site");
        assert!(rules.admits(end(5, 9), end(4, 23)));
        rules.delete(0).unwrap();
        rules.add(None, rule(RuleAction::Reject, "*", "*")).unwrap();
        assert!(!rules.admits(end(5, 9), end(4, 23)), "the host decides the rest");
        assert!(rules.admits(end(3, 9), end(4, 22)), "the site has decided");
        assert_eq!(rules.hits(), (vec![2, 1], vec![1]));
        let found = rules.find(end(5, 9), end(4, 22)).unwrap();
        assert_eq!((found.origin, found.index), (RuleOrigin::Cluster, 1));
        rules.set_site(Vec::new());
        assert!(!rules.admits(end(3, 9), end(4, 22)));
    }
}
