//! `causeway rule`: lists, adds and deletes rules.

use causeway_model::RuleSpec;
use serde_json::{Value, json};

use super::kept::warn_not_kept;
use super::{CommandContext, hint};
use crate::args::RuleVerb;
use crate::client::view;
use crate::error::{Error, Result};
use crate::table::{Align, TextTable};
use crate::view::{RuleView, cell};

/// Runs `causeway rule` and prints the result.
pub fn run(cx: &CommandContext, verb: RuleVerb) -> Result<()> {
    match verb {
        RuleVerb::List => list(cx),
        RuleVerb::Add { action, from, to, index, may_exist } => {
            let (from, to) = (from.unwrap_or_default(), to.unwrap_or_default());
            add(cx, &RuleSpec { action, from, to }, index, may_exist)
        }
        RuleVerb::Del { index, if_exists } => {
            match cx.client.delete(&format!("/v1/rules/{index}")) {
                Ok(_) => cx.done(true, &format!("rule {index} deleted")),
                Err(Error::NotFound(_)) if if_exists => cx.done(false, &format!("no rule {index}")),
                Err(error) => Err(hint(error, "rule", "see `causeway rule list`")),
            }
        }
    }
}

fn list(cx: &CommandContext) -> Result<()> {
    let value = cx.client.get("/v1/rules")?;
    cx.show(&value, |value| {
        let rules: Vec<RuleView> = view(value)?;
        let left = ["ACTION", "FROM", "TO"].map(|head| (head, Align::Left));
        let mut heads = vec![("INDEX", Align::Right)];
        heads.extend(left);
        heads.push(("HITS", Align::Right));
        let mut table = TextTable::new(&heads);
        for rule in rules {
            let of = |key| cell(&rule.rule, key);
            let (index, hits) = (rule.index.to_string(), rule.hits_total.to_string());
            table.row(vec![index, of("action"), of("from"), of("to"), hits]);
        }
        Ok(table.render())
    })
}

fn add(cx: &CommandContext, rule: &RuleSpec, index: Option<usize>, may_exist: bool) -> Result<()> {
    let wanted = json!(rule);
    if may_exist && is_there(cx, &wanted)? {
        return cx.done(false, "the rule exists already");
    }
    let mut body = wanted.clone();
    if let (Some(index), Some(body)) = (index, body.as_object_mut()) {
        body.insert("index".into(), json!(index));
    }
    cx.client
        .post("/v1/rules", &body)
        .map_err(|e| hint(e, "group", "add it with `causeway group add`"))?;
    warn_not_kept("rule", &wanted);
    cx.done(true, "rule added")
}

fn is_there(cx: &CommandContext, wanted: &Value) -> Result<bool> {
    let rules = cx.client.get("/v1/rules")?;
    let same = |rule: &Value| ["action", "from", "to"].iter().all(|key| rule[key] == wanted[key]);
    Ok(rules.as_array().is_some_and(|rules| rules.iter().any(same)))
}
