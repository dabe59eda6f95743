//! Rules, of which every shard has a copy, and traces of forwarding decisions.
//!
//! [`super::Registry`] calls it for commands about rules and for `Trace`. The list of the operator
//! is in the registry; a change is made there first and then in every shard, so shards check
//! connects against the old list for a moment. Existing connections are not affected by a change.
//! Hit counts are summed over all shards when they are viewed. Rules of the site are viewed before
//! those of the operator ([`super::site`]), and no command here changes them. An index beyond the list, a group
//! that does not exist, a rule between two groups and a rule beyond `RULES_MAX` (4,096) are refused
//! before any shard changes; a rule that equals another is permitted. `crate::rules` has the
//! checks and the meaning of a rule. If a dispatcher has stopped, a change fails with an error: the
//! registry, and the shards of dispatchers with lower numbers, have the change then.
//!
//! A trace asks the service that registered the query's type, and sends nothing. If the service has
//! no shard in the group, an empty shard answers, in the thread of the command. A query of a type
//! that no service registered, and a port or group that does not exist, are refused; a group beside
//! a port is not looked up. A command runs under the lock of the registry, in the thread of its
//! caller, and waits for the dispatchers, in the threads of which the shards change, count and
//! explain.

use super::core::Core;
use super::reply::{Reply, inconsistent};
use crate::shard::ports::no_port;
use crate::shard::{Shard, ShardKey};
use crate::shard_table::ShardTable;
use causeway_model::{Answer, CommandError, RuleView, TraceQuery, TraceScope};
use causeway_model::{Name, RuleSpec};

impl Core {
    /// Returns the rules with the hit counts of all shards, open and closed: first those of the site
    /// about each group of this host, then those of the operator.
    pub(super) fn rule_views(&self) -> Result<Vec<RuleView>, CommandError> {
        let hits = |r: &mut ShardTable| {
            let of = |(key, shard): (&ShardKey, &mut Shard)| {
                (key.group.clone(), shard.rules_mut().hits())
            };
            r.shards().map(of).collect::<Vec<_>>()
        };
        let (mut site, mut own) = (self.site_rule_views(), self.rules.view());
        for (group, (of_site, of_own)) in self.all(hits)?.into_iter().flatten() {
            let in_group = site.iter_mut().filter(|view| view.group.as_ref() == Some(&group));
            let counted = in_group.zip(of_site).chain(own.iter_mut().zip(of_own));
            for (view, hits) in counted {
                view.hits_total = view.hits_total.saturating_add(hits);
            }
        }
        site.append(&mut own);
        Ok(site)
    }

    /// Inserts a rule before `index`, or at the end, here and in every shard. The groups that it
    /// names must exist. Returns the views of all rules.
    pub(super) fn rule_add(&mut self, index: Option<usize>, rule: RuleSpec) -> Reply {
        for group in [&rule.from.group, &rule.to.group].into_iter().flatten() {
            self.has_group(group)?;
        }
        self.rules.add(index, rule.clone())?;
        self.all(move |r| {
            r.shards().for_each(|(_, shard)| {
                // Checked above; all lists are equal.
                let _ = shard.rules_mut().add(index, rule.clone());
            });
        })?;
        self.rule_views().map(Answer::Rules)
    }

    /// Deletes the rule at `index`, here and in every shard.
    pub(super) fn rule_delete(&mut self, index: usize) -> Reply {
        self.rules.delete(index)?;
        self.all(move |r| {
            r.shards().for_each(|(_, shard)| {
                let _ = shard.rules_mut().delete(index);
            });
        })?;
        Ok(Answer::Done)
    }

    /// Returns the explanation of a query by the service that registered its type.
    pub(super) fn trace(&self, query: TraceQuery) -> Reply {
        let known = || self.services.iter().flat_map(|s| s.traces.iter().map(move |t| (s, t)));
        let found = known().find(|(_, definition)| definition.what == query.what());
        let (service, definition) = found.ok_or_else(|| {
            let all: Vec<&str> = known().map(|(_, definition)| definition.what).collect();
            let text = format!("trace of {:?}: expected one of {}", query.what(), all.join(", "));
            CommandError::Invalid(text)
        })?;
        let TraceScope { from, to, group } = definition.scope(&query)?;
        let port = |name: &Name| self.ports.get(name).ok_or_else(|| no_port(name));
        // A port of another group is for the service to explain; a missing port is not.
        to.as_ref().map(port).transpose()?;
        let spec = from.as_ref().map(port).transpose()?;
        let of = spec.map(|(spec, _)| &spec.group).or(group.as_ref());
        if let Some(group) = of {
            self.has_group(group)?;
        }
        let key = of.map(|group| ShardKey::new(group, service.name));
        let answer = match key.filter(|key| self.shards.contains_key(key)) {
            Some(key) => self.with(&key, move |shard| shard.trace(&query))?,
            None => {
                // The service has no ports there: a shard without ports answers.
                let placeholder: Name = "none".parse().map_err(|_| inconsistent())?;
                self.empty_shard(of.unwrap_or(&placeholder), service.make)?.trace(&query)
            }
        };
        answer.unwrap_or_else(|| Err(inconsistent())).map(Answer::Trace)
    }
}
