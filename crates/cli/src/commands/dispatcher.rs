//! `causeway dispatcher`: lists dispatchers with their load and shards, and moves the shards of a
//! group to another dispatcher.
//!
//! A move is for all services of the group, or for a single service with `--service`; the reply is
//! the list after the request. Of several shards, a failed move leaves those moved before on their
//! new dispatcher. The daemon balances load by itself and may move the shards again later. The
//! number of dispatchers and their CPUs are configuration (`[dispatch]`) and cannot be changed
//! here. Loads are percentages that the daemon measured, not sampled by the tool. A group that does
//! not exist is an error of exit status 3.
//!
//! `commands::run` is the caller.

use serde_json::json;

use super::{CommandContext, hint};
use crate::args::DispatcherVerb;
use crate::client::view;
use crate::error::Result;
use crate::table::{Align, TextTable};
use crate::view::DispatcherView;

/// Runs `causeway dispatcher` and prints the result.
pub fn run(cx: &CommandContext, verb: DispatcherVerb) -> Result<()> {
    match verb {
        DispatcherVerb::List => {
            let value = cx.client.get("/v1/dispatchers")?;
            cx.show(&value, |value| Ok(table(&view::<Vec<DispatcherView>>(value)?)))
        }
        DispatcherVerb::Move { group, dispatcher, service } => {
            let body = json!({ "group": group, "service": service });
            let moved = cx.client.post(&format!("/v1/dispatchers/{dispatcher}"), &body);
            let value = moved.map_err(|e| hint(e, "group", "see `causeway group list`"))?;
            cx.show(&value, |value| Ok(table(&view::<Vec<DispatcherView>>(value)?)))
        }
    }
}

/// Returns a line for each dispatcher, and a line for each of its shards.
fn table(dispatchers: &[DispatcherView]) -> String {
    let mut table = TextTable::new(&[
        ("DISPATCHER", Align::Right),
        ("CPU", Align::Left),
        ("BUSY", Align::Right),
        ("SPIN", Align::Right),
        ("GROUP", Align::Left),
        ("SERVICE", Align::Left),
        ("PORTS", Align::Right),
        ("BUSY", Align::Right),
        ("MOVES", Align::Right),
    ]);
    let nothing = || "-".to_owned();
    for dispatcher in dispatchers {
        let scarce = if dispatcher.scarce { " (scarce)" } else { "" };
        let mut head = vec![
            dispatcher.number.to_string(),
            dispatcher.cpu.map_or("any".into(), |cpu| cpu.to_string()),
            format!("{} %", dispatcher.busy_percent),
            format!("{} us{scarce}", dispatcher.spin_us),
        ];
        if dispatcher.shards.is_empty() {
            head.extend(std::iter::repeat_with(nothing).take(5));
            table.row(head);
            continue;
        }
        for shard in &dispatcher.shards {
            let mut row = std::mem::replace(&mut head, vec![String::new(); 4]);
            row.extend([
                shard.group.clone(),
                shard.service.clone(),
                shard.ports.to_string(),
                format!("{} %", shard.busy_percent),
                shard.moves_total.to_string(),
            ]);
            table.row(row);
        }
    }
    table.render()
}
