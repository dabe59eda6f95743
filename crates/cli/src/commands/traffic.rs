//! `causeway traffic`: prints the traffic matrix of a group.

use causeway_model::Name;

use super::{CommandContext, hint};
use crate::client::view;
use crate::error::Result;
use crate::table::{Align, TextTable};
use crate::view::TrafficView;

/// Runs `causeway traffic` and prints the result.
pub fn run(cx: &CommandContext, group: &Name) -> Result<()> {
    let value = cx.client.get(&format!("/v1/traffic/{group}"));
    let value = value.map_err(|e| hint(e, "group", "see `causeway group list`"))?;
    cx.show(&value, |value| {
        let traffic: TrafficView = view(value)?;
        Ok(text(traffic))
    })
}

fn text(mut traffic: TrafficView) -> String {
    let left = ["SOURCE", "DESTINATION", "FROM"].map(|head| (head, Align::Left));
    let right = ["MBIT/S", "FRAMES", "BYTES"].map(|head| (head, Align::Right));
    let mut table = TextTable::new(&[&left[..], &right].concat());
    traffic.pairs.sort_by(|a, b| b.bytes_per_second.total_cmp(&a.bytes_per_second));
    for pair in traffic.pairs {
        table.row(vec![
            pair.source,
            pair.destination,
            pair.from,
            format!("{:.2}", pair.bytes_per_second * 8.0 / 1e6),
            pair.frames_total.to_string(),
            pair.bytes_total.to_string(),
        ]);
    }
    let mut out = table.render();
    out.push_str(&format!("\nRates are of the last {:.1} s.\n", traffic.window_seconds));
    if traffic.uncounted_frames_total > 0 {
        let n = traffic.uncounted_frames_total;
        out.push_str(&format!("{n} frames belong to pairs that did not fit into this matrix.\n"));
    }
    out
}
