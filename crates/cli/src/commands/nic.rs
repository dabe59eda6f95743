//! `causeway nic`: lists and shows NICs of MX endpoints on this host (ports of kind `mx`).
//!
//! `list` prints a line for each NIC. `show` adds warnings, the last refusal, and a line for each
//! endpoint of each process, of the guest and of the host; a process without an endpoint has a line
//! too. The daemon bounds processes and endpoints. A port that does not exist, or is of another
//! kind, is an error of exit status 3. The verb only reads: NICs are ports, which `causeway port`
//! adds and deletes. NICs of other hosts are in `causeway peer`.
//!
//! `commands::run` is the caller; the requests go to `/v1/nics`.

use std::collections::BTreeMap;

use super::port::age_of;
use super::{CommandContext, hint};
use crate::args::NicVerb;
use crate::client::view;
use crate::error::Result;
use crate::table::{Align, TextTable, bytes, pairs};
use crate::view::{NicEndpointView, NicProcessView, NicView};

const SEE_NICS: &str = "see `causeway nic list`";

/// Runs `causeway nic` and prints the result.
pub fn run(cx: &CommandContext, verb: NicVerb) -> Result<()> {
    match verb {
        NicVerb::List => {
            let value = cx.client.get("/v1/nics")?;
            cx.show(&value, |value| Ok(table(&view::<Vec<NicView>>(value)?)))
        }
        NicVerb::Show { port } => {
            let path = format!("/v1/nics/{port}");
            let value = cx.client.get(&path).map_err(|e| hint(e, "mx port", SEE_NICS))?;
            cx.show(&value, |value| Ok(text(&view(value)?)))
        }
    }
}

/// Messages and bytes that passed the daemon.
struct Traffic<'a>(&'a BTreeMap<String, u64>);

impl Traffic<'_> {
    /// Returns the cells of messages and bytes, sent and received.
    fn cells(&self) -> [String; 4] {
        let of = |name: &str| self.0.get(name).copied().unwrap_or(0);
        let sent = of("bytes_sent_total").saturating_add(of("bytes_taken_total"));
        let received = of("bytes_received_total").saturating_add(of("bytes_pulled_total"));
        [
            of("messages_sent_total").to_string(),
            bytes(sent),
            of("messages_received_total").to_string(),
            bytes(received),
        ]
    }
}

/// Heads of [`Traffic::cells`].
const TRAFFIC: [&str; 4] = ["SENT", "BYTES SENT", "RECEIVED", "BYTES RECEIVED"];

/// Returns the guest that a NIC serves.
fn guest(nic: &NicView) -> String {
    match (&nic.adapter, nic.guest.as_str()) {
        (None, _) => "-".to_owned(),
        (Some(adapter), "served") => adapter.clone(),
        (Some(adapter), state) => format!("{adapter} ({state})"),
    }
}

/// Returns a line for each NIC.
fn table(nics: &[NicView]) -> String {
    let left = ["PORT", "GROUP", "MAC", "HOSTNAME", "GUEST"].map(|head| (head, Align::Left));
    let right = ["PROCESSES", "SESSIONS", "ENDPOINTS"].map(|head| (head, Align::Right));
    let traffic = TRAFFIC.map(|head| (head, Align::Right));
    let warnings = [("WARNINGS", Align::Right)];
    let mut table = TextTable::new(&[&left[..], &right, &traffic, &warnings].concat());
    for nic in nics {
        let mut row = vec![
            nic.port.clone(),
            nic.group.clone(),
            nic.mac.clone(),
            nic.hostname.clone(),
            guest(nic),
            nic.processes.to_string(),
            nic.sessions.to_string(),
            nic.endpoints.to_string(),
        ];
        row.extend(Traffic(&nic.counters).cells());
        row.push(nic.warnings.len().to_string());
        table.row(row);
    }
    table.render()
}

/// Returns the full description of a NIC.
fn text(nic: &NicView) -> String {
    let counter = |name: &str| nic.counters.get(name).copied().unwrap_or(0);
    let mut head = vec![
        ("port", nic.port.clone()),
        ("group", nic.group.clone()),
        ("mac", nic.mac.clone()),
        ("hostname", nic.hostname.clone()),
        ("guest", guest(nic)),
        ("processes", nic.processes.to_string()),
        ("endpoints", nic.endpoints.to_string()),
        ("refused", counter("refused_total").to_string()),
    ];
    if nic.adapter.is_some() {
        let begun = counter("guest_sessions_begun_total");
        let failed = counter("guest_sessions_failed_total");
        let sessions = format!("{} of {begun} begun, {failed} failed", nic.sessions);
        let memory = format!(
            "{}, {} of these in rings",
            bytes(counter("guest_memory_bytes")),
            bytes(counter("guest_mirrored_bytes"))
        );
        head.extend([("sessions", sessions), ("guest memory", memory)]);
    }
    let aged = |text: &str, age: Option<u64>| match age {
        Some(age) => format!("{text} ({} ago)", age_of(age)),
        None => text.to_owned(),
    };
    head.extend(nic.refusal.iter().map(|why| ("refusal", aged(why, nic.refusal_age_seconds))));
    head.extend(nic.notice.iter().map(|what| ("notice", aged(what, nic.notice_age_seconds))));
    head.extend(nic.warnings.iter().map(|warning| ("warning", warning.clone())));
    pairs(&head) + &processes(&nic.process_list)
}

/// Returns the endpoints of processes after a blank line, if there are processes.
fn processes(list: &[NicProcessView]) -> String {
    if list.is_empty() {
        return String::new();
    }
    let (left, right) = (Align::Left, Align::Right);
    let head = [
        ("PROCESS", left),
        ("STATE", left),
        ("UNREAD", right),
        ("LENT", right),
        ("ENDPOINT", right),
        ("RINGS", left),
        ("PEERS", right),
    ];
    let mut table = TextTable::new(&[&head[..], &TRAFFIC.map(|head| (head, right))].concat());
    for process in list {
        let name = match (process.session, process.user) {
            (Some(session), _) => format!("session {session}"),
            (None, Some(user)) => format!("{}, user {user}", process.place),
            (None, None) => process.place.clone(),
        };
        let lent = format!("{} in {}", bytes(process.region_bytes), process.regions);
        let start = [name, process.state.clone(), process.unread_messages.to_string(), lent];
        for endpoint in &process.endpoint_list {
            table.row([&start[..], &endpoint_cells(endpoint)].concat());
        }
        if process.endpoint_list.is_empty() {
            table.row([&start[..], &std::array::from_fn::<_, 7, _>(|_| "-".to_owned())].concat());
        }
    }
    format!("\n{}", table.render())
}

/// Returns the cells of an endpoint.
fn endpoint_cells(endpoint: &NicEndpointView) -> Vec<String> {
    let rings = match endpoint.unread_seconds {
        Some(seconds) => format!("{} {seconds:.0} s", endpoint.state),
        None => endpoint.state.clone(),
    };
    let mut cells = vec![endpoint.number.to_string(), rings, endpoint.peers.to_string()];
    if endpoint.counters.is_empty() {
        cells.extend(TRAFFIC.map(|_| "-".to_owned()));
    } else {
        cells.extend(Traffic(&endpoint.counters).cells());
    }
    cells
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn nic(more: Value) -> NicView {
        let mut value = json!({
            "port": "vm1-mx", "group": "blue", "mac": "52:54:00:00:00:07", "hostname": "vm1:0",
            "adapter": "vm1-rdma", "guest": "served", "processes": 2, "sessions": 1,
            "endpoints": 2, "warnings": [],
            "counters": {"messages_sent_total": 9, "bytes_sent_total": 1024,
                         "bytes_taken_total": 3072, "bytes_pulled_total": 1_048_576,
                         "guest_sessions_begun_total": 4, "guest_sessions_failed_total": 1,
                         "guest_memory_bytes": 4096, "refused_total": 5},
        });
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(value).unwrap()
    }

    /// Returns the words of a line of `text` that starts with `start`.
    fn words<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
        let line = text.lines().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("{start}: {text}")).split_whitespace().collect()
    }

    #[test]
    fn nic_list_has_the_guest_and_the_traffic_of_each_nic() {
        let waits = json!({"port": "b", "guest": "waits", "counters": {}, "warnings": ["x"]});
        let plain = json!({"port": "c", "adapter": null, "guest": "none", "counters": {}});
        let listed = table(&[nic(json!({})), nic(waits), nic(plain)]);
        assert_eq!(
            words(&listed, "vm1-mx"),
            [
                "vm1-mx",
                "blue",
                "52:54:00:00:00:07",
                "vm1:0",
                "vm1-rdma",
                "2",
                "1",
                "2",
                "9",
                "4",
                "KiB",
                "0",
                "1",
                "MiB",
                "0"
            ]
        );
        assert_eq!(words(&listed, "b  ")[4..6], ["vm1-rdma", "(waits)"]);
        assert_eq!(words(&listed, "b  ").last(), Some(&"1"));
        assert_eq!(words(&listed, "c  ")[4], "-");
    }

    #[test]
    fn nic_show_has_sessions_endpoints_and_the_last_refusal() {
        let processes = json!([
            {"place": "host", "user": 1000, "state": "active", "unread_messages": 0, "regions": 0,
             "region_bytes": 0, "endpoint_list": [
                {"number": 7, "state": "channels", "peers": 0}]},
            {"place": "guest", "session": 12, "state": "not reading", "unread_messages": 16,
             "regions": 2, "region_bytes": 8192, "endpoint_list": [
                {"number": 3, "state": "unread", "unread_seconds": 4.2, "peers": 1,
                 "counters": {"messages_received_total": 8}}]},
            {"place": "guest", "session": 13, "state": "attaching", "unread_messages": 0,
             "regions": 0, "region_bytes": 0},
        ]);
        let shown = text(&nic(json!({
            "process_list": processes, "refusal": "a process was refused",
            "refusal_age_seconds": 61, "warnings": ["the NIC waits"],
        })));
        for line in [
            "sessions      1 of 4 begun, 1 failed",
            "guest memory  4 KiB, 0 B of these in rings",
            "refused       5",
            "refusal       a process was refused (1 min 1 s ago)",
            "warning       the NIC waits",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
        }
        assert_eq!(
            words(&shown, "session 12"),
            [
                "session", "12", "not", "reading", "16", "8", "KiB", "in", "2", "3", "unread", "4",
                "s", "1", "0", "0", "B", "8", "0", "B"
            ]
        );
        assert_eq!(words(&shown, "session 13")[2], "attaching");
        assert_eq!(
            words(&shown, "host, user 1000")[9..],
            ["7", "channels", "0", "-", "-", "-", "-"]
        );
        assert!(!text(&nic(json!({}))).contains("PROCESS"), "no process, no table");
    }
}
