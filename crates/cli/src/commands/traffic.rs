//! `causeway traffic`: prints the traffic matrix of a group, the pair of addresses with the highest
//! rate first.
//!
//! Rates are in Mbit/s over the daemon's last window (about 1 s), frames, RDMA messages and the
//! bytes of both since the pair entered the matrix. The verb takes a single sample; it neither
//! repeats nor resets. Pairs that did not fit into the daemon's bounded matrix are only counted
//! together, in the last line. JSON output has the daemon's order and units. A group that does not
//! exist is an error of exit status 3.
//!
//! `commands::run` is the caller; the request goes to `/v1/traffic/GROUP`.

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

/// Returns the table, and the lines about the window and uncounted frames.
fn text(mut traffic: TrafficView) -> String {
    let left = ["SOURCE", "DESTINATION", "FROM"].map(|head| (head, Align::Left));
    let right =
        ["MBIT/S", "FRAMES", "BYTES", "MESSAGES", "MESSAGE BYTES"].map(|head| (head, Align::Right));
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
            pair.messages_total.to_string(),
            pair.message_bytes_total.to_string(),
        ]);
    }
    let mut out = table.render();
    out.push_str(&format!("\nRates are of the last {:.1} s.\n", traffic.window_seconds));
    if traffic.uncounted_frames_total > 0 {
        let n = traffic.uncounted_frames_total;
        out.push_str(&format!(
            "{n} frames and messages belong to pairs that did not fit into this matrix.\n"
        ));
    }
    out
}
