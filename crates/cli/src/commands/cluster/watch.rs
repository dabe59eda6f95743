//! `causeway cluster watch`: prints the changes of the cluster as the daemon follows them.
//!
//! The source is the daemon and not etcd: the daemon has what this host accepted after the checks of
//! signatures, with its links, and answers while etcd is away; no password of etcd is needed. Each
//! look reads `/v1/cluster`, the hosts and the links; the addresses, which may be 65,536, are read
//! after a change of [`ClusterStatus::generation`](causeway_model::ClusterStatus) and once more with
//! the next look, because the process sends large changes in parts. A change that is undone between
//! two looks is not shown.
//!
//! The first state is not printed. While the daemon does not answer, and until its successor has the
//! whole site again ([`ClusterView::complete`]), only the state is compared. [`changes`] compares two states and is pure; `cluster::run` is
//! the caller, in the main thread.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use causeway_model::{ClusterAddress, ClusterHostView, ClusterView, Name, RemoteAddress, date};
use serde::Serialize;

use crate::args::{ClusterWatchArgs, Format};
use crate::client::view;
use crate::commands::{CommandContext, print};
use crate::error::Result;
use crate::view::LinkView;

/// The cluster at one time.
#[derive(Debug, Clone, Default)]
struct Look {
    /// Whether the other fields but `state` and `reason` were ever read.
    is_known: bool,
    state: String,
    reason: String,
    alarm: String,
    held: u64,
    generation: u64,
    /// Other hosts, with whether each is seen.
    hosts: BTreeMap<Name, bool>,
    evicted: BTreeSet<Name>,
    /// Links of the cluster, with their states.
    links: BTreeMap<String, String>,
    addresses: BTreeMap<ClusterAddress, Name>,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
struct Change {
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<Name>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    at: Option<ClusterAddress>,
    /// The host that had the address before.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
}

impl Change {
    fn of_host(event: &'static str, host: &Name) -> Self {
        Self { event, host: Some(host.clone()), ..Self::default() }
    }

    fn of_link(event: &'static str, link: &str) -> Self {
        Self { event, link: Some(link.to_owned()), ..Self::default() }
    }

    fn of_address(event: &'static str, at: &ClusterAddress, host: &Name) -> Self {
        Self { at: Some(at.clone()), ..Self::of_host(event, host) }
    }

    fn of_text(event: &'static str, text: String) -> Self {
        Self { event, text, ..Self::default() }
    }

    /// Returns the change in a line.
    fn line(&self) -> String {
        let mut words = vec![format!("{:<15}", self.event)];
        words.extend(self.link.clone());
        words.extend(self.at.as_ref().map(|at| format!("{} {}/{}", at.kind, at.group, at.address)));
        words.extend(self.host.as_ref().map(|host| match &self.at {
            Some(_) => format!("at {host}"),
            None => host.to_string(),
        }));
        words.extend(self.from.as_ref().map(|from| format!("from {from}")));
        words.extend(Some(self.text.clone()).filter(|text| !text.is_empty()));
        words.join(" ").trim_end().to_owned()
    }
}

/// Runs `causeway cluster watch`.
pub fn run(cx: &CommandContext, args: &ClusterWatchArgs) -> Result<()> {
    let pause = Duration::from_secs_f64(args.interval);
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut last = look(cx, &Look::default(), true)?;
    let (mut is_lost, mut is_settling) = (false, true);
    loop {
        std::thread::sleep(pause);
        let mut found = Vec::new();
        match look(cx, &last, is_settling) {
            Ok(now) => {
                if std::mem::take(&mut is_lost) {
                    found.push(Change::of_text("daemon-back", String::new()));
                }
                found.extend(changes(&last, &now));
                is_settling = now.generation != last.generation;
                last = now;
            }
            Err(error) if !is_lost => {
                (is_lost, is_settling) = (true, true);
                found.push(Change::of_text("daemon-lost", error.to_string()));
            }
            Err(_) => {}
        }
        for change in found {
            show(cx, &change)?;
            left = left.saturating_sub(1);
            if left == 0 {
                return Ok(());
            }
        }
    }
}

/// Reads the cluster. The addresses are those of the last look if nothing changed.
fn look(cx: &CommandContext, last: &Look, is_settling: bool) -> Result<Look> {
    let cluster: ClusterView = view(&cx.client.get("/v1/cluster")?)?;
    let (state, reason, status) = (cluster.state, cluster.reason, cluster.status);
    // A new daemon has no site before the first report, and a part of it before the end of the first.
    if cluster.site.is_none() || !cluster.complete {
        // With another generation, so that the next look reads the addresses.
        return Ok(Look { state, reason, generation: 0, ..last.clone() });
    }
    let mut now = Look {
        is_known: true,
        state,
        reason,
        alarm: status.alarm,
        held: status.counters.get("removals_held_total").copied().unwrap_or(0),
        generation: status.generation,
        evicted: status.evicted.into_iter().collect(),
        ..last.clone()
    };
    let hosts: Vec<ClusterHostView> = view(&cx.client.get("/v1/cluster/hosts")?)?;
    now.hosts = hosts.into_iter().map(|known| (known.host.id, known.host.seen)).collect();
    let links: Vec<LinkView> = view(&cx.client.get("/v1/links")?)?;
    let links = links.into_iter().filter(|link| link.is_of_cluster);
    let named = |link: LinkView| Some((link.spec.text("name")?.to_owned(), link.state));
    now.links = links.filter_map(named).collect();
    if is_settling || now.generation != last.generation || cluster.addresses != last.addresses.len()
    {
        let all: Vec<RemoteAddress> = view(&cx.client.get("/v1/cluster/addresses")?)?;
        now.addresses = all.into_iter().map(|known| (known.at, known.host)).collect();
    }
    Ok(now)
}

/// Prints a change with the time of day in UTC.
fn show(cx: &CommandContext, change: &Change) -> Result<()> {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = wall.as_secs();
    let day = seconds % 86_400;
    let (hour, minute, second) = (day / 3_600, day / 60 % 60, day % 60);
    let at = format!("{}T{hour:02}:{minute:02}:{second:02}Z", date(seconds));
    match cx.format {
        Format::Json => {
            let mut value = serde_json::json!({ "time": at });
            if let (Some(to), Ok(serde_json::Value::Object(fields))) =
                (value.as_object_mut(), serde_json::to_value(change))
            {
                to.extend(fields);
            }
            print(&format!("{value}\n"))
        }
        Format::Table => print(&format!("{at} {}\n", change.line())),
    }
}

/// Returns the changes between two looks.
fn changes(before: &Look, now: &Look) -> Vec<Change> {
    let mut all = Vec::new();
    if before.state != now.state {
        let text = if now.reason.is_empty() {
            now.state.clone()
        } else {
            format!("{}: {}", now.state, now.reason)
        };
        all.push(Change::of_text("state", text));
    }
    if !before.is_known {
        return all;
    }
    hosts(before, now, &mut all);
    links(before, now, &mut all);
    addresses(before, now, &mut all);
    if now.held > before.held {
        all.push(Change::of_text("removals-held", String::new()));
    }
    if before.alarm != now.alarm {
        let event = if now.alarm.is_empty() { "alarm-ended" } else { "alarm" };
        all.push(Change::of_text(event, now.alarm.clone()));
    }
    all
}

fn hosts(before: &Look, now: &Look, all: &mut Vec<Change>) {
    for host in now.evicted.difference(&before.evicted) {
        all.push(Change::of_host("host-evicted", host));
    }
    for host in before.evicted.difference(&now.evicted) {
        all.push(Change::of_host("host-readmitted", host));
    }
    for (host, seen) in &now.hosts {
        let event = match (before.hosts.get(host), seen) {
            (None, _) => "host-added",
            (Some(false), true) => "host-seen",
            (Some(true), false) => "host-unseen",
            _ => continue,
        };
        all.push(Change::of_host(event, host));
    }
    for host in before.hosts.keys().filter(|host| !now.hosts.contains_key(*host)) {
        if !now.evicted.contains(host) {
            all.push(Change::of_host("host-removed", host));
        }
    }
}

fn links(before: &Look, now: &Look, all: &mut Vec<Change>) {
    for (link, state) in &now.links {
        let known = before.links.get(link);
        if known.is_none() {
            all.push(Change::of_link("link-added", link));
        }
        let (is_up, was_up) = (state != "down", known.is_some_and(|state| state != "down"));
        if is_up != was_up {
            all.push(Change::of_link(if is_up { "link-up" } else { "link-down" }, link));
        }
    }
    for link in before.links.keys().filter(|link| !now.links.contains_key(*link)) {
        all.push(Change::of_link("link-removed", link));
    }
}

fn addresses(before: &Look, now: &Look, all: &mut Vec<Change>) {
    for (at, host) in &now.addresses {
        match before.addresses.get(at) {
            None => all.push(Change::of_address("claimed", at, host)),
            Some(old) if old != host => {
                let moved = Change::of_address("moved", at, host);
                all.push(Change { from: Some(old.clone()), ..moved });
            }
            Some(_) => {}
        }
    }
    for (at, host) in before.addresses.iter().filter(|(at, _)| !now.addresses.contains_key(*at)) {
        all.push(Change::of_address("withdrawn", at, host));
    }
}

#[cfg(test)]
mod tests {
    use causeway_model::AddressKind;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn mac(last: u8) -> ClusterAddress {
        let address = format!("52:54:00:00:00:{last:02x}");
        ClusterAddress { kind: AddressKind::Mac, group: name("blue"), address }
    }

    #[test]
    fn watch_shows_each_change_once() {
        let before = Look {
            is_known: true,
            state: "follows".into(),
            hosts: [(name("h2"), true), (name("h3"), true), (name("h4"), false)].into(),
            links: [("a".into(), "up".into()), ("b".into(), "up".into())].into(),
            addresses: [(mac(1), name("h2")), (mac(2), name("h2"))].into(),
            ..Look::default()
        };
        assert_eq!(changes(&before, &before), []);
        // A daemon that does not have the whole site yet.
        let unknown = Look { state: "no-process".into(), ..Look::default() };
        let shown: Vec<String> = changes(&unknown, &before).iter().map(Change::line).collect();
        assert_eq!(shown, ["state           follows"]);
        let now = Look {
            is_known: true,
            state: "frozen".into(),
            reason: "away".into(),
            alarm: "held".into(),
            held: 1,
            hosts: [(name("h2"), false), (name("h4"), true), (name("h5"), true)].into(),
            evicted: [name("h3")].into(),
            links: [("a".into(), "down".into()), ("c".into(), "up".into())].into(),
            addresses: [(mac(1), name("h4")), (mac(3), name("h5"))].into(),
            ..Look::default()
        };
        let shown: Vec<String> = changes(&before, &now)
            .iter()
            .map(|change| change.line().split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            shown,
            [
                "state frozen: away",
                "host-evicted h3",
                "host-unseen h2",
                "host-seen h4",
                "host-added h5",
                "link-down a",
                "link-added c",
                "link-up c",
                "link-removed b",
                "moved mac blue/52:54:00:00:00:01 at h4 from h2",
                "claimed mac blue/52:54:00:00:00:03 at h5",
                "withdrawn mac blue/52:54:00:00:00:02 at h2",
                "removals-held",
                "alarm held",
            ]
        );
        let ended =
            changes(&now, &Look { alarm: String::new(), evicted: [].into(), ..now.clone() });
        let events: Vec<&str> = ended.iter().map(|change| change.event).collect();
        assert_eq!(events, ["host-readmitted", "alarm-ended"]);
        let json = serde_json::to_value(&changes(&before, &now)[9]).unwrap();
        assert_eq!((&json["address"], &json["from"]), (&"52:54:00:00:00:01".into(), &"h2".into()));
    }
}
