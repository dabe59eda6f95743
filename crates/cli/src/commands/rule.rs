//! `causeway rule`: lists, adds and deletes rules about connects between sockets.
//!
//! Rules are numbered by their position, from 0: numbers of later rules change with each addition
//! and deletion, so that a number is valid only until the list changes. `add` without `--index`
//! appends. `add --may-exist` succeeds if an equal rule exists at any position, and then the index
//! is ignored. The verb does not check whether a rule can match. `del` of a number that no rule has
//! is an error of exit status 3, or a success with `--if-exists`. A rule of the site has the number
//! `GROUP:NUMBER`, and comes before those of the host; the daemon refuses to delete it.
//!
//! `commands::run` is the caller; the requests go to `/v1/rules`.

use causeway_model::{RULE_FIELDS, RULE_INDEX, RuleSpec};
use serde_json::{Value, json};

use super::{CommandContext, hint};
use crate::args::RuleVerb;
use crate::client::{changing, view};
use crate::error::Result;
use crate::table::{Align, TextTable};
use crate::view::{RuleView, cell};

/// Runs `causeway rule` and prints the result.
pub fn run(cx: &CommandContext, verb: RuleVerb) -> Result<()> {
    match verb {
        RuleVerb::List => list(cx),
        RuleVerb::Add { values, may_exist, ephemeral } => {
            let rule = values.read()?;
            if may_exist && is_there(cx, &json!(rule))? {
                return cx.done(false, "the rule exists already");
            }
            add(cx, &rule, values.values.get(RULE_INDEX.key), ephemeral)
        }
        RuleVerb::Del { index, options } => cx.delete("rule", &index, &options),
    }
}

/// Prints a line for each rule, in the order of evaluation.
fn list(cx: &CommandContext) -> Result<()> {
    let value = cx.client.get("/v1/rules")?;
    cx.show(&value, |value| {
        let rules: Vec<RuleView> = view(value)?;
        let left = ["ACTION", "FROM", "TO"].map(|head| (head, Align::Left));
        let mut heads = vec![("INDEX", Align::Right)];
        heads.extend(left);
        heads.extend([("HITS", Align::Right), ("ORIGIN", Align::Left)]);
        let mut table = TextTable::new(&heads);
        for rule in rules {
            let of = |key| cell(&rule.rule, key);
            let index = match &rule.group {
                Some(group) => format!("{group}:{}", rule.index),
                None => rule.index.to_string(),
            };
            // An older daemon states no origin.
            let is_old = rule.origin.is_empty();
            let origin = if is_old { "host".to_owned() } else { rule.origin.clone() };
            let hits = rule.hits_total.to_string();
            table.row(vec![index, of("action"), of("from"), of("to"), hits, origin]);
        }
        Ok(table.render())
    })
}

/// Adds a rule before `index`, or at the end.
fn add(cx: &CommandContext, rule: &RuleSpec, index: Option<&Value>, ephemeral: bool) -> Result<()> {
    let mut body = json!(rule);
    if let (Some(index), Some(body)) = (index, body.as_object_mut()) {
        body.insert(RULE_INDEX.key.to_owned(), index.clone());
    }
    cx.client
        .post(&changing("/v1/rules", ephemeral), &body)
        .map_err(|e| hint(e, "group", "add it with `causeway group add`"))?;
    cx.done(true, "rule added")
}

/// Returns whether an equal rule exists at any position.
fn is_there(cx: &CommandContext, wanted: &Value) -> Result<bool> {
    let rules = cx.client.get("/v1/rules")?;
    // A rule of the site can go at any time: it is not the rule that the operator asks for.
    let same = |rule: &Value| {
        rule.get("group").is_none()
            && RULE_FIELDS.iter().all(|field| rule[field.key] == wanted[field.key])
    };
    Ok(rules.as_array().is_some_and(|rules| rules.iter().any(same)))
}
