//! The columns of the four views, and their lines of a report.
//!
//! `app` and `commands::top` call [`listing`], `commands::top` also [`column_names`] for `--sort`.
//! The functions are pure and neither sort nor filter; `top::listing` does. Cells and details are
//! cleaned of control characters. The heads are the names of `--sort`, in any case.

use super::listing::{Cell, Column, Line, Listing, Tone, clean, short};
use super::report::{DispatcherReport, LinkReport, PortReport, Reason, Report, TrafficRates};
use crate::args::TopView;
use crate::limits::TOP_CONNECTIONS_MAX;
use crate::table::{Align, bytes, duration};
use crate::view::{ConnectionEnd, ConnectionView};

/// Declares columns: alignment, rank, head.
macro_rules! columns {
    ($($align:ident $rank:literal $head:literal),+ $(,)?) => {
        &[$(Column { head: $head, align: Align::$align, rank: $rank }),+]
    };
}

const PORTS: &[Column] = columns![
    Left 0 "NAME", Left 5 "GROUP", Left 3 "KIND", Left 0 "STATE", Right 0 "TX-PPS",
    Right 0 "TX-BIT/S", Right 0 "RX-PPS", Right 0 "RX-BIT/S", Right 0 "DROPS/S",
    Right 4 "WAITS/S", Right 2 "FAULTS", Right 6 "CONNECTS",
];
const LINKS: &[Column] = columns![
    Left 0 "NAME", Left 5 "GROUP", Left 4 "KIND", Left 0 "STATE", Left 2 "CRYPT",
    Right 0 "TX-PPS", Right 0 "TX-BIT/S", Right 0 "RX-PPS", Right 0 "RX-BIT/S",
    Right 1 "DROPS/S", Right 0 "RTT", Right 0 "LOSS",
];
const DISPATCHERS: &[Column] = columns![
    Right 0 "NUMBER", Left 0 "CPU", Right 0 "BUSY", Right 0 "TURNS/S", Right 0 "MEAN-US",
    Right 0 "P99-US", Right 0 "STALLS/S", Right 0 "STALLED-MS/S", Right 2 "STALLS", Right 1 "PORTS",
];
const CONNECTIONS: &[Column] = columns![
    Left 0 "FROM", Left 0 "TO", Left 3 "GROUP", Left 4 "TYPE", Left 0 "STATE", Right 0 "AGE",
    Right 0 "QUEUED-TO", Right 2 "CREDIT-TO", Right 0 "QUEUED-BACK", Right 2 "CREDIT-BACK",
];

/// Returns the columns of a view.
const fn columns(view: TopView) -> &'static [Column] {
    match view {
        TopView::Ports => PORTS,
        TopView::Links => LINKS,
        TopView::Dispatchers => DISPATCHERS,
        TopView::Connections => CONNECTIONS,
    }
}

/// Returns the heads of a view's columns, in lower case.
pub fn column_names(view: TopView) -> Vec<String> {
    columns(view).iter().map(|column| column.head.to_lowercase()).collect()
}

/// Returns the table of a view.
pub fn listing(report: &Report, view: TopView) -> Listing {
    let (lines, remark) = match view {
        TopView::Ports => (report.ports.iter().map(port).collect(), None),
        TopView::Links => (report.links.iter().map(link).collect(), None),
        TopView::Dispatchers => (report.dispatchers.iter().map(dispatcher).collect(), None),
        TopView::Connections => connections(report),
    };
    Listing { columns: columns(view), lines, remark }
}

/// Returns the cells of transmitted and received packets and bits.
fn traffic(rates: &TrafficRates) -> [Cell; 5] {
    let bits = |bytes: Option<f64>| bytes.map(|bytes| bytes * 8.0);
    [
        rates.transmit_packets_per_second,
        bits(rates.transmit_bytes_per_second),
        rates.receive_packets_per_second,
        bits(rates.receive_bytes_per_second),
        rates.drops_per_second,
    ]
    .map(|rate| Cell::number(rate, short))
}

/// Returns a cell of a count.
fn count(n: u64) -> Cell {
    Cell::number(Some(n as f64), |_| n.to_string())
}

/// Returns lines about the reasons of drops and waits.
fn reasons(reasons: &[Reason]) -> Vec<String> {
    let line = |reason: &Reason| {
        let rate = reason.per_second.map_or_else(|| "-".into(), short);
        format!("{rate:>6}/s {:>14} in all  {}", reason.total, clean(&reason.counter))
    };
    reasons.iter().map(line).collect()
}

/// Returns the line of a port.
fn port(port: &PortReport) -> Line {
    let [tx, tx_bits, rx, rx_bits, drops] = traffic(&port.rates);
    let notes = port.notes.iter().map(|note| clean(note));
    let details: Vec<String> = notes.chain(reasons(&port.reasons)).collect();
    let nothing = || vec!["no drops and no waits since the port was added".to_owned()];
    Line {
        key: port.name.clone(),
        cells: vec![
            Cell::text(&port.name),
            Cell::text(&port.group),
            Cell::text(&port.kind),
            Cell::text(&port.state),
            tx,
            tx_bits,
            rx,
            rx_bits,
            drops,
            Cell::number(port.rates.waits_per_second, short),
            count(port.faults_total),
            count(port.connects_total),
        ],
        details: if details.is_empty() { nothing() } else { details },
        tone: match port.state.as_str() {
            "running" => Tone::Good,
            "faulted" | "cut off" => Tone::Bad,
            _ => Tone::Idle,
        },
    }
}

/// Returns microseconds with a unit.
fn microseconds(n: f64) -> String {
    if n < 10_000.0 { format!("{n:.0}us") } else { format!("{:.1}ms", n / 1000.0) }
}

/// Returns the line of a link.
fn link(link: &LinkReport) -> Line {
    let [tx, tx_bits, rx, rx_bits, drops] = traffic(&link.rates);
    let loss = link.loss_percent.map(f64::from);
    let state = format!("{}: {}", clean(&link.state), clean(&link.reason));
    Line {
        key: link.name.clone(),
        cells: vec![
            Cell::text(&link.name),
            Cell::text(&link.group),
            Cell::text(&link.kind),
            Cell::text(&link.state),
            Cell::text(link.encryption.as_deref().unwrap_or("none")),
            tx,
            tx_bits,
            rx,
            rx_bits,
            drops,
            Cell::number(link.rtt_us, microseconds),
            Cell::number(loss, |n| format!("{n:.0}%")),
        ],
        details: std::iter::once(state).chain(reasons(&link.reasons)).collect(),
        tone: if link.state == "down" { Tone::Bad } else { Tone::Good },
    }
}

/// Returns the line of a dispatcher.
fn dispatcher(of: &DispatcherReport) -> Line {
    let whole = |n: f64| format!("{n:.0}");
    Line {
        key: of.number.to_string(),
        cells: vec![
            count(of.number as u64),
            Cell::text(&of.cpu.map_or("any".into(), |cpu| cpu.to_string())),
            Cell::number(Some(f64::from(of.busy_percent)), |n| format!("{n:.0}%")),
            Cell::number(of.turns_per_second, short),
            Cell::number(of.turn_mean_us, |n| format!("{n:.1}")),
            Cell::number(of.turn_p99_us.map(|n| n as f64), whole),
            Cell::number(of.stalls_per_second, short),
            Cell::number(of.stalled_ms_per_second, |n| format!("{n:.1}")),
            count(of.stalls_total),
            count(of.ports as u64),
        ],
        details: of.shards.iter().map(|shard| clean(shard)).collect(),
        tone: if of.busy_percent >= 95 { Tone::Bad } else { Tone::Plain },
    }
}

/// Returns the lines of connections, and a remark if there are none or not all.
fn connections(report: &Report) -> (Vec<Line>, Option<String>) {
    match &report.connections {
        None => (Vec::new(), Some("This daemon does not list connections.".into())),
        Some(all) => {
            let remark = format!(
                "Only the first {TOP_CONNECTIONS_MAX} connections; `causeway connection list` has more."
            );
            let remark = report.has_more_connections.then_some(remark);
            (all.iter().map(connection).collect(), remark)
        }
    }
}

/// Returns the line of a connection.
fn connection(of: &ConnectionView) -> Line {
    let size = |n: u64| Cell::number(Some(n as f64), |_| bytes(n));
    let ConnectionView { group, kind, state, age_seconds, caller, callee } = of;
    let side = |name: &str, end: &ConnectionEnd| {
        format!(
            "{name}: CID {}, port {}; {} delivered and not read",
            end.cid,
            end.number,
            bytes(end.unread_bytes.into())
        )
    };
    let stands_still = |end: &ConnectionEnd| end.queued_bytes > 0 && end.credit_bytes == 0;
    Line {
        key: format!("{group} {} {}", caller.label(), callee.label()),
        cells: vec![
            Cell::text(&caller.label()),
            Cell::text(&callee.label()),
            Cell::text(group),
            Cell::text(kind),
            Cell::text(state),
            Cell::number(Some(*age_seconds), duration),
            size(callee.queued_bytes),
            size(callee.credit_bytes.into()),
            size(caller.queued_bytes),
            size(caller.credit_bytes.into()),
        ],
        details: vec![side("caller", caller), side("callee", callee)],
        tone: match stands_still(caller) || stands_still(callee) {
            true => Tone::Bad,
            false if state == "open" => Tone::Good,
            false => Tone::Idle,
        },
    }
}
