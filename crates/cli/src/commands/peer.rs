//! `causeway peer`: lists and shows NICs of other hosts, as the MX NICs of this host know them.
//!
//! A peer that several NICs of this host know has a line for each. `show` selects by MAC address or
//! hostname and prints the connections between endpoints with their counters; counters of 0 are
//! omitted in text output. A NIC that no NIC of this host knows is an error of exit status 3. The
//! verb only reads: peers are discovered or configured, and cannot be
//! added, deleted or probed here. Peers of links are in `causeway link`.
//!
//! `commands::run` is the caller; the request goes to `/v1/peers`.

use causeway_model::PairView;
use serde_json::Value;

use super::CommandContext;
use crate::args::PeerVerb;
use crate::client::view;
use crate::error::{Error, Result};
use crate::table::{Align, TextTable};
use crate::view::PeerView;

/// Runs `causeway peer` and prints the result.
pub fn run(cx: &CommandContext, verb: PeerVerb) -> Result<()> {
    let value = cx.client.get("/v1/peers")?;
    match verb {
        PeerVerb::List => cx.show(&value, |value| Ok(table(&view::<Vec<PeerView>>(value)?))),
        PeerVerb::Show { nic } => show(cx, value, &nic),
    }
}

/// Shows a NIC, as each NIC of this host knows it.
fn show(cx: &CommandContext, value: Value, nic: &str) -> Result<()> {
    let named = |peer: &Value| {
        let is = |field: &str| peer.get(field).and_then(Value::as_str) == Some(nic);
        is("mac") || is("hostname")
    };
    let all = value.as_array().into_iter().flatten();
    let found: Vec<Value> = all.filter(|peer| named(peer)).cloned().collect();
    if found.is_empty() {
        let text = format!("no NIC {nic} is known; see `causeway peer list`");
        return Err(Error::NotFound(text));
    }
    cx.show(&Value::Array(found), |value| {
        let peers = view::<Vec<PeerView>>(value)?;
        let mut out = table(&peers);
        for peer in &peers {
            out.push_str(&format!("\n{}", pairs(peer)));
            for pair in &peer.pairs {
                out.push_str(&counters(pair));
            }
        }
        Ok(out)
    })
}

/// Returns the connections of a NIC, a line for each.
fn pairs(peer: &PeerView) -> String {
    let heads = ["ENDPOINT", "PARTNER", "RTT", "IN FLIGHT", "WAITING", "PARKED"];
    let mut table = TextTable::new(&heads.map(|head| (head, Align::Right)));
    for pair in &peer.pairs {
        table.row(vec![
            pair.endpoint.to_string(),
            pair.partner.to_string(),
            pair.rtt_us.map_or_else(|| "-".to_owned(), |rtt| format!("{rtt:.1} us")),
            pair.in_flight.to_string(),
            pair.waiting.to_string(),
            format!("{} B", pair.parked_bytes),
        ]);
    }
    table.render()
}

/// Returns the counters of a connection.
fn counters(pair: &PairView) -> String {
    let heads = [("COUNTER", Align::Left), ("VALUE", Align::Right)];
    let mut table = TextTable::new(&heads);
    for (name, value) in pair.counters.iter().filter(|(_, value)| **value > 0) {
        table.row(vec![name.clone(), value.to_string()]);
    }
    format!("\nendpoint {}, partner {}\n{}", pair.endpoint, pair.partner, table.render())
}

/// Returns a line for each NIC.
fn table(peers: &[PeerView]) -> String {
    let left = ["PORT", "MAC", "HOSTNAME", "KNOWN", "STATE"].map(|head| (head, Align::Left));
    let right = ["HEARD", "PARTNERS", "RTT", "SENT", "RECEIVED", "RESENT"];
    let right = right.map(|head| (head, Align::Right));
    let mut table = TextTable::new(&[&left[..], &right].concat());
    let counter = |peer: &PeerView, name: &str| peer.counters.get(name).copied().unwrap_or(0);
    for peer in peers {
        let shown = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        table.row(vec![
            peer.port.clone(),
            peer.mac.clone(),
            shown(peer.hostname.clone()),
            peer.known.clone(),
            peer.state.clone(),
            shown(peer.heard_seconds.map(|seconds| format!("{seconds:.0} s ago"))),
            peer.partners.to_string(),
            shown(peer.rtt_us.map(|rtt| format!("{rtt:.1} us"))),
            counter(peer, "messages_sent_total").to_string(),
            counter(peer, "messages_received_total").to_string(),
            counter(peer, "resent_total").to_string(),
        ]);
    }
    table.render()
}
