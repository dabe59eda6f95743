//! `causeway hca`: lists and shows host channel adapters, which give guests RDMA verbs.
//!
//! `list` prints a line for each adapter: the numbers of its objects and its sums. `show` adds the
//! limits, the queue pairs and all counters. The daemon bounds the number of queue pairs, and the
//! output has the number of the others. Counters of 0 are omitted in text output. A port that does
//! not exist, or is of another kind, is an error of exit status 3. The verb only reads: adapters
//! are ports of kind `hca`, which `causeway port` adds and deletes, and their objects belong to the
//! guest's driver.
//!
//! `commands::run` is the caller; the requests go to `/v1/hcas`.

use causeway_model::HcaActivity;

use super::port::counters;
use super::{CommandContext, hint};
use crate::args::HcaVerb;
use crate::client::view;
use crate::error::Result;
use crate::table::{Align, TextTable, bytes, pairs};
use crate::view::{HcaQueuePairView, HcaView};

const SEE_HCAS: &str = "see `causeway hca list`";

/// Runs `causeway hca` and prints the result.
pub fn run(cx: &CommandContext, verb: HcaVerb) -> Result<()> {
    match verb {
        HcaVerb::List => {
            let value = cx.client.get("/v1/hcas")?;
            cx.show(&value, |value| Ok(table(&view::<Vec<HcaView>>(value)?)))
        }
        HcaVerb::Show { port } => {
            let path = format!("/v1/hcas/{port}");
            let value = cx.client.get(&path).map_err(|e| hint(e, "hca port", SEE_HCAS))?;
            cx.show(&value, |value| Ok(text(&view(value)?)))
        }
    }
}

/// Returns a line for each adapter.
fn table(hcas: &[HcaView]) -> String {
    let left = ["PORT", "GROUP", "MAC", "STATE"].map(|head| (head, Align::Left));
    let right = ["QPS", "CQS", "MRS", "REGISTERED", "REQUESTS", "BYTES", "ERRORS"];
    let right = right.map(|head| (head, Align::Right));
    let mut table = TextTable::new(&[&left[..], &right].concat());
    for hca in hcas {
        let counter = |name: &str| hca.counters.get(name).copied().unwrap_or(0);
        table.row(vec![
            hca.port.clone(),
            hca.group.clone(),
            hca.mac.clone(),
            hca.state.clone(),
            hca.queue_pairs.to_string(),
            hca.completion_queues.to_string(),
            hca.regions.to_string(),
            bytes(hca.registered_bytes),
            counter("requests_total").to_string(),
            bytes(counter("request_bytes_total")),
            counter("request_errors_total").to_string(),
        ]);
    }
    table.render()
}

/// Returns the full description of an adapter.
fn text(hca: &HcaView) -> String {
    let of = |count: usize, most: usize| format!("{count} of {most}");
    let registered =
        format!("{} of {}", bytes(hca.registered_bytes), bytes(hca.registered_bytes_max));
    let activity = &hca.activity;
    // An older daemon has no limit but one request of each queue pair.
    let waiting_max = match activity.waiting_requests_max {
        0 => hca.queue_pairs,
        most => most,
    };
    let mut head = vec![
        ("port", hca.port.clone()),
        ("group", hca.group.clone()),
        ("mac", hca.mac.clone()),
        ("state", hca.state.clone()),
        ("queue pairs", of(hca.queue_pairs, hca.queue_pairs_max)),
        ("completion queues", of(hca.completion_queues, hca.completion_queues_max)),
        ("memory regions", of(hca.regions, hca.regions_max)),
        ("registered", registered),
        ("waiting requests", of(activity.waiting_requests, waiting_max)),
    ];
    for (name, objects) in &activity.objects {
        head.push((name, of(objects.count, objects.max)));
    }
    head.extend(limits(activity));
    pairs(&head)
        + &rates(activity)
        + &errors(activity)
        + &queue_pairs(hca)
        + &counters(&hca.counters)
}

/// Returns the states of the queue pairs and the limits of the port's work; nothing of a daemon
/// that does not report them.
fn limits(activity: &HcaActivity) -> Vec<(&'static str, String)> {
    if activity.doorbell.is_empty() {
        return Vec::new();
    }
    let states = activity.queue_pair_states.iter();
    let states: Vec<String> = states.map(|(state, count)| format!("{count} {state}")).collect();
    let rate = |most: Option<u64>, unit: &str| match most {
        Some(most) => format!("{most} {unit} a second"),
        None => "no limit".to_owned(),
    };
    vec![
        ("queue pair states", states.join(", ")),
        ("doorbell", activity.doorbell.clone()),
        ("weight", activity.weight.to_string()),
        ("byte rate", rate(activity.byte_rate_max, "bytes")),
        ("message rate", rate(activity.message_rate_max, "messages")),
        ("pauses for the rate", activity.rate_pauses_total.to_string()),
    ]
}

/// Returns the rates over the last seconds after a blank line, unless there are none.
fn rates(activity: &HcaActivity) -> String {
    let rates = &activity.rates;
    if rates.over_ms == 0 {
        return String::new();
    }
    let all = [
        ("requests", rates.requests.to_string()),
        ("request bytes", bytes(rates.request_bytes)),
        ("received messages", rates.received_messages.to_string()),
        ("received bytes", bytes(rates.received_bytes)),
        ("request errors", rates.request_errors.to_string()),
        ("sent frames", rates.sent_frames.to_string()),
        ("received frames", rates.received_frames.to_string()),
    ];
    let seconds = rates.over_ms as f64 / 1000.0;
    format!("\nRATES A SECOND, over {seconds:.1} s\n{}", pairs(&all))
}

/// Returns the failed work requests by status after a blank line, if there are any.
fn errors(activity: &HcaActivity) -> String {
    if activity.errors.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&[("FAILED REQUESTS", Align::Left), ("COUNT", Align::Right)]);
    for (status, count) in &activity.errors {
        table.row(vec![status.clone(), count.to_string()]);
    }
    format!("\n{}", table.render())
}

/// Returns the listed queue pairs after a blank line, and the number of the others.
fn queue_pairs(hca: &HcaView) -> String {
    if hca.queue_pair_list.is_empty() {
        return String::new();
    }
    let (left, right) = (Align::Left, Align::Right);
    let mut table = TextTable::new(&[
        ("QP", right),
        ("TYPE", left),
        ("STATE", left),
        ("PEER", left),
        ("PEER QP", right),
        ("SEND CQ", right),
        ("RECEIVE CQ", right),
        ("WAITS", left),
        ("REFUSAL", left),
    ]);
    let none = || "-".to_owned();
    for pair in &hca.queue_pair_list {
        table.row(vec![
            pair.number.to_string(),
            pair.kind.clone(),
            pair.state.clone(),
            pair.peer.clone().unwrap_or_else(none),
            pair.peer_queue_pair.map_or_else(none, |number| number.to_string()),
            pair.send_completion_queue.to_string(),
            pair.receive_completion_queue.to_string(),
            pair.waits_for.clone().unwrap_or_else(none),
            refusal(pair).unwrap_or_else(none),
        ]);
    }
    let omitted = match hca.queue_pairs_omitted {
        0 => String::new(),
        omitted => format!("{omitted} further queue pairs are not shown\n"),
    };
    format!("\n{}{omitted}", table.render())
}

/// Returns why requests of a queue pair found no responder, and their number.
fn refusal(pair: &HcaQueuePairView) -> Option<String> {
    match (&pair.refusal, pair.refusals) {
        (Some(reason), 0) => Some(reason.clone()),
        (Some(reason), count) => Some(format!("{reason} ({count})")),
        (None, 0) => None,
        (None, count) => Some(format!("answered again ({count})")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn hca(more: Value) -> HcaView {
        let mut value = json!({
            "port": "vm1-rdma", "group": "blue", "mac": "52:54:00:00:00:07", "state": "active",
            "queue_pairs": 258, "queue_pairs_max": 4096,
            "completion_queues": 3, "completion_queues_max": 4096,
            "regions": 12, "regions_max": 65536,
            "registered_bytes": 1_610_612_736_u64, "registered_bytes_max": 1_u64 << 40,
            "counters": {"requests_total": 9, "request_bytes_total": 4096, "request_errors_total": 0},
        });
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn hca_list_has_an_aligned_line_for_each_adapter() {
        let idle = hca(json!({"port": "b", "state": "no driver", "queue_pairs": 0, "regions": 0,
                              "registered_bytes": 0, "counters": {}}));
        assert_eq!(
            table(&[hca(json!({})), idle]),
            "PORT      GROUP  MAC                STATE      QPS  CQS  MRS  REGISTERED  REQUESTS  \
             BYTES  ERRORS\n\
             vm1-rdma  blue   52:54:00:00:00:07  active     258    3   12     1.5 GiB         9  \
             4 KiB       0\n\
             b         blue   52:54:00:00:00:07  no driver    0    3    0         0 B         0    \
             0 B       0\n"
        );
    }

    #[test]
    fn hca_show_has_rates_limits_and_errors_by_kind() {
        let activity = json!({
            "doorbell": "trap", "weight": 3, "byte_rate_max": 1_000_000, "rate_pauses_total": 7,
            "waiting_requests": 2, "waiting_requests_max": 100, "queue_pair_states": {"error": 1, "ready to send": 257},
            "objects": {"event queues": {"count": 3, "max": 16}},
            "errors": {"remote access": 4},
            "rates": {"over_ms": 5200, "requests": 900, "request_bytes": 2048},
        });
        let shown = text(&hca(json!({"activity": activity})));
        for line in [
            "waiting requests     2 of 100",
            "event queues         3 of 16",
            "queue pair states    1 error, 257 ready to send",
            "doorbell             trap",
            "weight               3",
            "byte rate            1000000 bytes a second",
            "message rate         no limit",
            "pauses for the rate  7",
            "RATES A SECOND, over 5.2 s",
            "requests           900",
            "request bytes      2 KiB",
            "FAILED REQUESTS  COUNT",
            "remote access        4",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
        }
    }

    #[test]
    fn hca_show_has_limits_queue_pairs_and_counters() {
        let list = json!([
            {"number": 1, "type": "GSI", "state": "ready to send",
             "send_completion_queue": 2, "receive_completion_queue": 2},
            {"number": 5, "type": "RC", "state": "error", "peer": "02:00:00:00:00:09",
             "peer_queue_pair": 77, "send_completion_queue": 3, "receive_completion_queue": 4,
             "refusal": "the queue pair has no peer", "refusals": 3, "waits_for": "responder"},
        ]);
        let shown = text(&hca(json!({"queue_pair_list": list, "queue_pairs_omitted": 256})));
        let (head, rest) = shown.split_once("\n\n").unwrap();
        assert!(head.contains("queue pairs        258 of 4096\n"), "{shown}");
        assert!(head.contains("registered         1.5 GiB of 1 TiB\n"), "{shown}");
        assert!(head.ends_with("waiting requests   0 of 258"), "{shown}");
        assert_eq!(
            rest,
            "QP  TYPE  STATE          PEER               PEER QP  SEND CQ  RECEIVE CQ  WAITS      \
             REFUSAL\n \
             1  GSI   ready to send  -                        -        2           2  -          -\n \
             5  RC    error          02:00:00:00:00:09       77        3           4  responder  \
             the queue pair has no peer (3)\n\
             256 further queue pairs are not shown\n\n\
             COUNTER              VALUE\n\
             request_bytes_total   4096\n\
             requests_total           9\n"
        );
        assert!(!text(&hca(json!({}))).contains("QP"), "a list of an older daemon may be absent");
    }
}
