//! `causeway group`: lists, shows, adds and deletes groups.
//!
//! `add --may-exist` succeeds if the group exists with the same forwarding, weight and kind, and is
//! refused otherwise (exit status 1): a group cannot be changed in place. A group with ports or
//! links is not deleted by the daemon (exit status 1). `show` and `del` of a group that does not
//! exist are errors of exit status 3; `del --if-exists` then succeeds.
//!
//! `commands::run` is the caller; the requests go to `/v1/groups`.

use causeway_model::GROUP_FIELDS;
use serde_json::json;

use super::{CommandContext, hint, is_conflict};
use crate::args::GroupVerb;
use crate::client::{changing, view};
use crate::error::{Error, Result};
use crate::table::{Align, TextTable, pairs};
use crate::view::GroupView;

const SEE_GROUPS: &str = "see `causeway group list`";

/// Runs `causeway group` and prints the result.
pub fn run(cx: &CommandContext, verb: GroupVerb) -> Result<()> {
    match verb {
        GroupVerb::List => list(cx),
        GroupVerb::Show { name } => {
            let path = format!("/v1/groups/{name}");
            let value = cx.client.get(&path).map_err(|e| hint(e, "group", SEE_GROUPS))?;
            cx.show(&value, |value| {
                let group: GroupView = view(value)?;
                let forwarding = match &group.site_forwarding {
                    Some(site) => format!("{site} (cluster; this host: {})", group.forwarding),
                    None => group.forwarding.clone(),
                };
                Ok(pairs(&[
                    ("name", group.name),
                    ("forwarding", forwarding),
                    ("weight", group.weight.to_string()),
                    ("kind", group.kind),
                    ("ports", group.ports.join("\n")),
                    ("links", group.links.join("\n")),
                ]))
            })
        }
        GroupVerb::Add { values, may_exist, ephemeral } => {
            let group = values.read()?;
            let (name, body) = (&group.name, json!(group));
            match cx.client.post(&changing("/v1/groups", ephemeral), &body) {
                Ok(_) => cx.done(true, &format!("group {name} added")),
                Err(error) if may_exist && is_conflict(&error) => {
                    // A conflict can have other causes: only an existing group satisfies
                    // `--may-exist`.
                    let there = cx.client.get(&format!("/v1/groups/{name}")).map_err(|_| error)?;
                    let keys = GROUP_FIELDS.iter().map(|field| field.key);
                    if let Some(key) = keys.into_iter().find(|key| there[key] != body[key]) {
                        let text = format!("group {name} exists with another {key}");
                        return Err(Error::Refused { kind: "conflict".into(), message: text });
                    }
                    cx.done(false, &format!("group {name} exists already"))
                }
                Err(error) => Err(error),
            }
        }
        GroupVerb::Del { name, options } => cx.delete("group", &name, &options),
    }
}

/// Returns the forwarding that is in force: that of the site, if it states one.
fn forwarding(group: &GroupView) -> String {
    match &group.site_forwarding {
        Some(site) => format!("{site} (cluster)"),
        None => group.forwarding.clone(),
    }
}

/// Prints a line for each group, with the names of its ports and links.
fn list(cx: &CommandContext) -> Result<()> {
    let value = cx.client.get("/v1/groups")?;
    cx.show(&value, |value| {
        let groups: Vec<GroupView> = view(value)?;
        let heads = ["NAME", "FORWARDING", "PORTS", "LINKS"].map(|head| (head, Align::Left));
        let mut table = TextTable::new(&heads);
        let words = |names: &[String]| match names {
            [] => "-".to_owned(),
            names => names.join(" "),
        };
        for group in groups {
            let (ports, links) = (words(&group.ports), words(&group.links));
            let forwarding = forwarding(&group);
            table.row(vec![group.name, forwarding, ports, links]);
        }
        Ok(table.render())
    })
}
