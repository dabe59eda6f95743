//! `causeway link`: lists, shows, adds and deletes links.
//!
//! `add` sends the given options only; the daemon fills in the defaults and answers with the link's
//! state, which may still be down: the verb does not wait for the peer. `add --may-exist` succeeds
//! if a link of the name has the requested group and kind; other options are not compared. A link
//! cannot be changed in place. `del` also deletes the routes that name the link. `list --group`
//! refuses a group that does not exist. Round-trip time, loss and path MTU are those that the
//! daemon measured last; `-` means not measured.
//!
//! `commands::run` is the caller; the requests go to `/v1/links`.

use std::time::{SystemTime, UNIX_EPOCH};

use causeway_model::draft::LinkKindName;
use causeway_model::draft::link::LINK_FIELDS;
use causeway_model::schema::FieldInfo;
use causeway_model::{Name, date};
use serde_json::Value;

use super::port::counters;
use super::{CommandContext, hint, is_conflict};
use crate::args::options::shown;
use crate::args::{LinkAdd, LinkVerb};
use crate::client::{changing, view};
use crate::error::{Error, Result};
use crate::table::{Align, TextTable, pairs};
use crate::view::{LinkView, cell};

const SEE_LINKS: &str = "see `causeway link list`";
/// Keys that `link show` prints before and after the options.
const PRINTED: [&str; 4] = ["name", "group", "kind", "metric"];

/// Runs `causeway link` and prints the result.
pub fn run(cx: &CommandContext, verb: LinkVerb) -> Result<()> {
    match verb {
        LinkVerb::List { group } => list(cx, group.as_ref()),
        LinkVerb::Show { name } => {
            let path = format!("/v1/links/{name}");
            let value = cx.client.get(&path).map_err(|e| hint(e, "link", SEE_LINKS))?;
            cx.show(&value, |value| Ok(text(&view(value)?)))
        }
        LinkVerb::Add(args) => add(cx, &args),
        LinkVerb::Del { name, options } => cx.delete("link", &name, &options),
    }
}

/// Prints a line for each link, or for each link of a group.
fn list(cx: &CommandContext, group: Option<&Name>) -> Result<()> {
    let mut value = cx.client.get("/v1/links")?;
    if let (Some(group), Some(links)) = (group, value.as_array_mut()) {
        // A missing group is an error, not an empty list.
        let see = "see `causeway group list`";
        cx.client.get(&format!("/v1/groups/{group}")).map_err(|e| hint(e, "group", see))?;
        links.retain(|link| link["group"] == group.as_str());
    }
    cx.show(&value, |value| {
        let links: Vec<LinkView> = view(value)?;
        let left = ["NAME", "GROUP", "KIND", "PEER", "STATE"].map(|head| (head, Align::Left));
        let right = ["RTT", "LOSS", "PATH-MTU", "METRIC"].map(|head| (head, Align::Right));
        let mut table = TextTable::new(&[&left[..], &right].concat());
        for link in links {
            let of = |key| cell(&link.spec, key);
            let (name, group, kind, metric) = (of("name"), of("group"), of("kind"), of("metric"));
            let peer = peer(&link);
            let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
            table.row(vec![
                name,
                group,
                kind,
                peer,
                link.state,
                or_none(link.rtt_us.map(microseconds)),
                or_none(link.loss_percent.map(|n| format!("{n} %"))),
                or_none(link.path_mtu.map(|n| n.to_string())),
                metric,
            ]);
        }
        Ok(table.render())
    })
}

/// Returns microseconds with a unit: ms from 10,000 us on.
fn microseconds(n: f64) -> String {
    if n < 10_000.0 { format!("{n:.0} us") } else { format!("{:.1} ms", n / 1000.0) }
}

/// Returns the peer's current or configured address, or the interface.
fn peer(link: &LinkView) -> String {
    let option = |key| link.spec.text(key).map(str::to_owned);
    let address = link.endpoint.clone().or_else(|| option("remote"));
    address.or_else(|| option("interface")).unwrap_or_else(|| "-".into())
}

/// Returns the expiry of a certificate: the date, and the number of days left.
fn expiry(seconds: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    match seconds.saturating_sub(now).div_euclid(86_400) {
        ..0 => format!("expired on {}", day(seconds)),
        days => format!("expires on {}, in {days} days", day(seconds)),
    }
}

/// Returns seconds since 1970 as a date such as `2026-11-21`, in UTC; times before 1970 as a
/// number.
fn day(seconds: i64) -> String {
    u64::try_from(seconds).map_or_else(|_| seconds.to_string(), date)
}

/// Returns the full description of a link.
fn text(link: &LinkView) -> String {
    let of = |key| (key, cell(&link.spec, key));
    let mut list = vec![
        of("name"),
        of("group"),
        of("kind"),
        ("state", format!("{}: {}", link.state, link.reason)),
    ];
    let fields = LINK_FIELDS.iter().filter(|field| !PRINTED.contains(&field.key));
    let fields: Vec<FieldInfo> = fields.map(FieldInfo::from).collect();
    let options = shown(&fields, &link.spec.0);
    list.extend(options.iter().map(|(key, value)| (key.as_str(), value.clone())));
    let mut add = |key, value: Option<String>| list.extend(value.map(|value| (key, value)));
    add("metric", Some(cell(&link.spec, "metric")));
    add("endpoint", link.endpoint.clone());
    add("certificate", link.certificate_expires.map(expiry));
    add("round trip", link.rtt_us.map(microseconds));
    add("loss", link.loss_percent.map(|n| format!("{n} %")));
    add("path MTU", link.path_mtu.map(|n| n.to_string()));
    add("MTU", Some(link.mtu.to_string()));
    add("came up", Some(format!("{} times", link.ups_total)));
    pairs(&list) + &counters(&link.counters)
}

/// Adds a link and prints its state.
fn add(cx: &CommandContext, args: &LinkAdd) -> Result<()> {
    let (name, group) = (args.values.text("name"), args.values.text("group"));
    let wanted = Value::Object(args.values.values.clone());
    let value = match cx.client.post(&changing("/v1/links", args.ephemeral), &wanted) {
        Ok(value) => value,
        Err(error) if args.may_exist && is_conflict(&error) => existing(cx, args, error)?,
        Err(error) => {
            let see = format!("add it with `causeway group add {group}`");
            return Err(hint(error, "group", &see));
        }
    };
    cx.show(&value, |value| {
        let link: LinkView = view(value)?;
        Ok(format!("link {name} to {} is {}: {}\n", peer(&link), link.state, link.reason))
    })
}

/// Returns the requested kind, by default `causeway`.
fn kind_of(args: &LinkAdd) -> &str {
    let kind = args.values.text("kind");
    if kind.is_empty() { LinkKindName::default().as_str() } else { kind }
}

/// Returns the existing link if it has the requested group and kind.
fn existing(cx: &CommandContext, args: &LinkAdd, refusal: Error) -> Result<Value> {
    let name = args.values.text("name");
    let there = match cx.client.get(&format!("/v1/links/{name}")) {
        Ok(value) => value,
        // The conflict is with another object.
        Err(Error::NotFound(_)) => return Err(refusal),
        Err(other) => return Err(other),
    };
    if there["group"] == args.values.text("group") && there["kind"] == kind_of(args) {
        return Ok(there);
    }
    let (group, kind) = (&there["group"], &there["kind"]);
    let message = format!("link {name} exists with group {group} and kind {kind}; delete it first");
    Err(Error::Refused { kind: "conflict".into(), message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_expiry_is_shown_by_day() {
        for (seconds, text) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (1_795_867_200, "2026-11-28"),
            (4_107_542_400, "2100-03-01"),
            (-1, "-1"),
        ] {
            assert_eq!(day(seconds), text);
        }
        assert_eq!(expiry(1_000_000_000), "expired on 2001-09-09");
        assert!(expiry(32_503_680_000).starts_with("expires on 3000-01-01, in "));
    }
}
