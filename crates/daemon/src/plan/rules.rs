//! Plans the changes of rules. Rules have an order and no names: the longest common subsequence of
//! both lists stays, all others are deleted or inserted. A rule is never replaced in place.
//!
//! Time and memory grow with the product of the differing parts of both lists, at most `RULES_MAX`
//! (4,096) squared entries of 2 bytes. While the steps are executed, the rules in effect are
//! neither the old nor the new list: deletions come first, so that a connect between both may find
//! fewer rules.
//!
//! `plan()` calls [`note`] once per plan; `plan::execute` executes the steps in their order.
//! `causeway config diff` prints [`changes`]. Both run in the thread of the connection.

use causeway_model::RuleSpec;
use serde_json::json;

use super::{ChangePlan, ChangeType, PlanStep, PlannedChange, StepCommand};

/// Returns the rules that stay as pairs of indices, in `before` and in `after`, ascending.
fn common(before: &[RuleSpec], after: &[RuleSpec]) -> Vec<(usize, usize)> {
    let head = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let (old, new) = (&before[head..], &after[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    // Lengths of the longest common subsequence from each pair of indices on; at most RULES_MAX
    // squared.
    let width = new.len() + 1;
    let mut lengths = vec![0_u16; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            lengths[i * width + j] = if old[i] == new[j] {
                lengths[(i + 1) * width + j + 1] + 1
            } else {
                lengths[(i + 1) * width + j].max(lengths[i * width + j + 1])
            };
        }
    }
    let mut pairs: Vec<_> = (0..head).map(|n| (n, n)).collect();
    let (mut i, mut j) = (0, 0);
    while i < old.len() && j < new.len() {
        if old[i] == new[j] {
            pairs.push((head + i, head + j));
            (i, j) = (i + 1, j + 1);
        } else if lengths[(i + 1) * width + j] >= lengths[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    let (old_end, new_end) = (before.len() - tail, after.len() - tail);
    pairs.extend((0..tail).map(|n| (old_end + n, new_end + n)));
    pairs
}

/// Returns the deletions and insertions of rules, each with the position of the rule.
///
/// Deletions come first, from the last to the first, then insertions from the first to the last, so
/// that each position is valid when the change is made.
pub fn changes(before: &[RuleSpec], after: &[RuleSpec]) -> Vec<(usize, PlannedChange)> {
    let pairs = common(before, after);
    let shown = |index: usize, rule: &RuleSpec| {
        let action = json!(rule.action);
        let action = action.as_str().unwrap_or_default();
        format!("{index}: {action} from {} to {}", rule.from, rule.to)
    };
    let mut changes = Vec::new();
    let mut stays = pairs.iter().map(|(old, _)| *old).rev().peekable();
    for (index, rule) in before.iter().enumerate().rev() {
        if stays.next_if_eq(&index).is_some() {
            continue;
        }
        let (name, before) = (shown(index, rule), Some(json!(rule)));
        let action = ChangeType::Delete;
        changes.push((index, PlannedChange { action, what: "rule", name, before, after: None }));
    }
    let mut stays = pairs.iter().map(|(_, new)| *new).peekable();
    for (index, rule) in after.iter().enumerate() {
        if stays.next_if_eq(&index).is_some() {
            continue;
        }
        let (name, after) = (shown(index, rule), Some(json!(rule)));
        let action = ChangeType::Add;
        let change = PlannedChange { action, what: "rule", name, before: None, after };
        changes.push((index, change));
    }
    changes
}

/// Plans the changes of rules.
pub(super) fn note(plan: &mut ChangePlan, before: &[RuleSpec], after: &[RuleSpec]) {
    for (index, planned) in changes(before, after) {
        let change = plan.changes.len();
        let added = (planned.action == ChangeType::Add).then(|| after.get(index)).flatten();
        let act = match added {
            Some(rule) => StepCommand::RuleAdd(index, rule.clone()),
            None => StepCommand::RuleDel(index),
        };
        plan.changes.push(planned);
        plan.steps.push(PlanStep { change, act });
    }
}
