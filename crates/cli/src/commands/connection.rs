//! `causeway connection list`: AF_VSOCK connections between guests, and with host processes.
//!
//! The daemon sends the list in pages of at most [`PAGE`] (1,000) connections, which the verb
//! requests one after the other until the list ends or has `--limit` connections. Text output then
//! states that there are more; JSON output, one list of all pages, does not. The pages are samples
//! of different times. If a request fails, nothing is printed; a port or group that does not exist
//! is an error of exit status 3.
//!
//! `commands::run` is the caller; the requests go to `/v1/connections`.

use causeway_model::ConnectionPage;
use causeway_model::Textual;
use serde_json::{Value, json};

use super::{CommandContext, hint};
use crate::args::{ConnectionList, ConnectionVerb};
use crate::client::view;
use crate::error::Result;
use crate::table::{Align, TextTable, bytes, duration};
use crate::view::ConnectionView;

/// Most connections in one page of the daemon.
const PAGE: usize = causeway_model::limits::CONNECTIONS_PAGE_MAX;

/// Runs `causeway connection` and prints the result.
pub fn run(cx: &CommandContext, verb: &ConnectionVerb) -> Result<()> {
    let ConnectionVerb::List(list) = verb;
    let (connections, has_more) = pages(cx, list)?;
    cx.show(&Value::Array(connections), |value| {
        let mut text = table(&view::<Vec<ConnectionView>>(value)?);
        if has_more {
            text.push_str("\nThere are more connections: raise --limit, or give a filter.\n");
        }
        Ok(text)
    })
}

/// Requests pages until the end of the list or the limit, and returns whether there are more.
fn pages(cx: &CommandContext, list: &ConnectionList) -> Result<(Vec<Value>, bool)> {
    let ConnectionList { group, port, cid, number, state, limit } = list;
    let state = state.map(|state| json!(state.name()));
    let mut wanted = json!({
        "group": group, "port": port, "cid": cid, "number": number, "state": state,
    });
    let mut all = Vec::new();
    loop {
        wanted["limit"] = json!(PAGE.min(limit.saturating_sub(all.len())));
        let value = cx.client.post("/v1/connections", &wanted);
        let value = value.map_err(|e| hint(e, "port", "see `causeway port list`"));
        let mut value = value.map_err(|e| hint(e, "group", "see `causeway group list`"))?;
        let page: ConnectionPage<Textual> = view(&value)?;
        if let Some(list) = value["connections"].as_array_mut() {
            all.append(list);
        }
        match page.next {
            None => return Ok((all, false)),
            Some(_) if all.len() >= *limit => return Ok((all, true)),
            Some(next) => wanted["after"] = json!(next),
        }
    }
}

/// Returns a line for each connection.
fn table(connections: &[ConnectionView]) -> String {
    let left = ["GROUP", "FROM", "TO", "TYPE", "STATE", "AGE"].map(|head| (head, Align::Left));
    let right = ["QUEUED-TO", "CREDIT-TO", "QUEUED-BACK", "CREDIT-BACK"];
    let right = right.map(|head| (head, Align::Right));
    let mut table = TextTable::new(&[&left[..], &right].concat());
    for connection in connections {
        let ConnectionView { group, kind, state, caller, callee, .. } = connection;
        table.row(vec![
            group.clone(),
            caller.label(),
            callee.label(),
            kind.clone(),
            state.clone(),
            duration(connection.age_seconds),
            bytes(callee.queued_bytes),
            bytes(callee.credit_bytes.into()),
            bytes(caller.queued_bytes),
            bytes(caller.credit_bytes.into()),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_list_has_both_ends_age_and_queued_bytes() {
        let connections = json!([{
            "group": "blue", "type": "stream", "state": "open", "age_seconds": 61.2,
            "caller": {
                "port": "vm1", "cid": 3, "number": 1000,
                "queued_bytes": 0, "unread_bytes": 0, "credit_bytes": 65536,
            },
            "callee": {
                "cid": 2, "number": 22,
                "queued_bytes": 2048, "unread_bytes": 1, "credit_bytes": 0,
            },
        }]);
        let text = table(&view::<Vec<ConnectionView>>(&connections).unwrap());
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        let expected = "blue vm1:1000 host:22 stream open 1m 1s 2 KiB 0 B 0 B 64 KiB";
        assert_eq!(row.join(" "), expected);
    }
}
