//! `causeway cluster`: the site of this host, as the daemon knows it from `causeway-directory`.
//!
//! The verbs of this program only read, from `/v1/cluster`. Other verbs (`init`, `token`, `join`, `group`, `evict`) are
//! those of `causeway-directory`, the only program that connects to etcd, which replaces this process. A daemon without a
//! cluster shows the state `no-process` and empty lists. `commands::run` is the caller.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use causeway_model::{ClusterHostView, ClusterView, Name, RemoteAddress};

use super::CommandContext;
use crate::args::ClusterVerb;
use crate::client::view;
use crate::error::{Error, Result};
use crate::table::{Align, TextTable, duration, pairs};

mod watch;

/// The program that connects to etcd.
const DIRECTORY: &str = "causeway-directory";

/// Runs `causeway cluster` and prints the result.
pub fn run(cx: &CommandContext, verb: ClusterVerb) -> Result<()> {
    match verb {
        ClusterVerb::Status => {
            let value = cx.client.get("/v1/cluster")?;
            cx.show(&value, |value| Ok(status(&view::<ClusterView>(value)?)))
        }
        ClusterVerb::Hosts => {
            let value = cx.client.get("/v1/cluster/hosts")?;
            cx.show(&value, |value| Ok(hosts(&view::<Vec<ClusterHostView>>(value)?)))
        }
        ClusterVerb::Addresses => {
            let value = cx.client.get("/v1/cluster/addresses")?;
            cx.show(&value, |value| Ok(addresses(&view::<Vec<RemoteAddress>>(value)?)))
        }
        ClusterVerb::Watch(args) => watch::run(cx, &args),
        ClusterVerb::Directory(words) => Err(replace_process(&words)),
    }
}

/// Replaces this process by `causeway-directory` with a verb of its own: the program beside this
/// one, else that of PATH. Returns the error if there is none.
fn replace_process(words: &[OsString]) -> Error {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(DIRECTORY));
    let beside = beside.filter(|path| path.exists());
    let program = beside.unwrap_or_else(|| DIRECTORY.into());
    let error = Command::new(&program).args(words).exec();
    Error::Output { what: format!("the program {}", program.display()), error }
}

/// Returns the state, a line for each value; counters of 0 are omitted.
fn status(cluster: &ClusterView) -> String {
    let shown =
        |name: &Option<Name>| name.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    let process = &cluster.status;
    let heard = cluster.heard_seconds.map(|seconds| format!("{} ago", duration(seconds)));
    let mut lines = vec![
        ("state", cluster.state.clone()),
        ("reason", cluster.reason.clone()),
        ("alarm", process.alarm.clone()),
        ("evicted", process.evicted.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")),
        ("site", shown(&cluster.site)),
        ("host", shown(&cluster.host)),
        ("hosts", format!("{} others, {} seen", cluster.hosts, cluster.hosts_seen)),
        ("addresses", cluster.addresses.to_string()),
        ("report", heard.unwrap_or_else(|| "-".to_owned())),
        ("revision", process.revision.to_string()),
        ("confirmed", format!("{} before the report", duration(process.revision_age_seconds))),
        ("resync", format!("{:.3} s", process.resync_seconds)),
    ];
    lines.retain(|(_, text)| !text.is_empty());
    let counters = process.counters.iter().filter(|(_, count)| **count > 0);
    let counters: Vec<(&str, String)> =
        counters.map(|(name, count)| (name.as_str(), count.to_string())).collect();
    lines.extend(counters);
    pairs(&lines)
}

/// Returns a line for each host.
fn hosts(hosts: &[ClusterHostView]) -> String {
    let heads = ["HOST", "SEEN", "ENDPOINT", "GROUPS", "LINKS"].map(|head| (head, Align::Left));
    let heads = [&heads[..], &[("ADDRESSES", Align::Right), ("REASON", Align::Left)]].concat();
    let mut table = TextTable::new(&heads);
    for ClusterHostView { host, links, addresses, reason } in hosts {
        let groups: Vec<&str> = host.groups.iter().map(|group| group.name.as_str()).collect();
        let links: Vec<&str> = links.iter().map(|link| link.as_str()).collect();
        let endpoint = host.endpoints.first().map(ToString::to_string).unwrap_or_default();
        table.row(vec![
            host.id.to_string(),
            if host.seen { "yes" } else { "no" }.into(),
            endpoint,
            groups.join(","),
            links.join(","),
            addresses.to_string(),
            reason.clone(),
        ]);
    }
    table.render()
}

/// Returns a line for each address.
fn addresses(addresses: &[RemoteAddress]) -> String {
    let heads = ["KIND", "GROUP", "ADDRESS", "HOST"].map(|head| (head, Align::Left));
    let mut table = TextTable::new(&heads);
    for RemoteAddress { at, host, .. } in addresses {
        let (kind, group) = (at.kind.to_string(), at.group.to_string());
        table.row(vec![kind, group, at.address.clone(), host.to_string()]);
    }
    table.render()
}
