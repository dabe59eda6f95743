//! `causeway peer …`

use super::Context;
use crate::args::PeerVerb;
use crate::client::view;
use crate::error::Result;
use crate::table::{Align, Table};
use crate::view::Peer;

pub fn run(cx: &Context, verb: PeerVerb) -> Result<()> {
    let PeerVerb::List = verb;
    let value = cx.client.get("/v1/peers")?;
    cx.show(&value, |value| Ok(table(&view::<Vec<Peer>>(value)?)))
}

/// One line for each.
fn table(peers: &[Peer]) -> String {
    let left = ["PORT", "MAC", "HOSTNAME", "KNOWN", "STATE"].map(|head| (head, Align::Left));
    let right = ["HEARD", "PARTNERS", "RTT", "SENT", "RECEIVED", "RESENT"];
    let right = right.map(|head| (head, Align::Right));
    let mut table = Table::new(&[&left[..], &right].concat());
    let counter = |peer: &Peer, name: &str| peer.counters.get(name).copied().unwrap_or(0);
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
