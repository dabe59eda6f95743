//! `causeway stats`: counters of ports and links, as totals or as rates between two samples.
//!
//! Without `--interval` and `--count` the verb prints the totals once, with the refusals at the
//! control interfaces. Otherwise it samples every `--interval` seconds (default 1) and prints the
//! rates per second between consecutive samples, `--count` times or until it is ended; a failed
//! request ends it. Rates use the daemon's uptime as the clock; after a restart of the daemon, or
//! for a re-created port, counters count from 0.
//!
//! `-o openmetrics` and `-o prometheus` print the text that the daemon serves at `/metrics`, and
//! refuse the options of the verb with exit status 2. Rates have no refusals. Deleted ports are
//! left out, and nothing is averaged over more than two samples. `--port` selects a port and omits
//! links and refusals; a missing port is an error of exit status 3. `commands::run` is the caller;
//! the request goes to `/v1/stats`.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use causeway_model::RefusalStats;
use serde_json::{Value, json};

use super::port::counters;
use super::{CommandContext, print};
use crate::args::{Format, StatsArgs};
use crate::client::view;
use crate::error::{Error, Result};
use crate::rates::Period;
use crate::table::{Align, TextTable};
use crate::view::{ObjectStats, StatsView};

/// Runs `causeway stats` and prints the result.
pub fn run(cx: &CommandContext, args: &StatsArgs) -> Result<()> {
    if let Some(accept) = cx.metrics {
        return metrics(cx, args, accept);
    }
    let Some(interval) = args.interval.or(args.count.map(|_| 1)) else {
        let value = sample(cx, args)?;
        return cx.show(&value, |value| Ok(totals(&view(value)?)));
    };
    let mut before: StatsView = view(&sample(cx, args)?)?;
    let mut taken = Instant::now();
    let mut left = args.count;
    while left != Some(0) {
        sleep(Duration::from_secs(interval));
        let now: StatsView = view(&sample(cx, args)?)?;
        let elapsed = std::mem::replace(&mut taken, Instant::now()).elapsed();
        let [ports, links] = rates(&before, &now, elapsed);
        match cx.format {
            Format::Json => print(&format!("{}\n", rates_json(&now, &ports, &links)))?,
            Format::Table => {
                let table = both(rates_table(&ports), !links.is_empty(), || rates_table(&links));
                print(&format!("{table}\n"))?;
            }
        }
        before = now;
        left = left.map(|n| n - 1);
    }
    Ok(())
}

/// Prints the metrics as the daemon serves them at `/metrics`.
fn metrics(cx: &CommandContext, args: &StatsArgs, accept: &str) -> Result<()> {
    if args.interval.is_some() || args.count.is_some() || args.port.is_some() {
        let text = "metrics have totals of all objects: expected no --interval, --count or --port";
        return Err(Error::Usage(text.into()));
    }
    print(&cx.client.get_text("/metrics", accept)?)
}

/// Returns the daemon's current counters, of all ports or of the requested port.
fn sample(cx: &CommandContext, args: &StatsArgs) -> Result<Value> {
    let mut value = cx.client.get("/v1/stats")?;
    if let (Some(name), Some(ports)) = (&args.port, value["ports"].as_array_mut()) {
        ports.retain(|port| port["name"] == name.as_str());
        let none = ports.is_empty();
        value["links"] = json!([]);
        value["doors"] = json!([]);
        if none {
            let text = format!("port \"{name}\" does not exist; see `causeway port list`");
            return Err(Error::NotFound(text));
        }
    }
    Ok(value)
}

/// Returns the five sums of the table: received and sent packets and bytes, and dropped frames or
/// rejected connects.
fn sums<T: Copy + Default + std::iter::Sum>(counters: &BTreeMap<String, T>) -> [T; 5] {
    let counter = |name: &str| counters.get(name).copied().unwrap_or_default();
    let dropped = counters
        .iter()
        .filter(|(name, _)| name.starts_with("drop_") || name.starts_with("reject_"));
    [
        counter("receive_packets_total"),
        counter("receive_bytes_total"),
        counter("transmit_packets_total"),
        counter("transmit_bytes_total"),
        dropped.map(|(_, n)| *n).sum(),
    ]
}

/// Returns an empty table with these five columns of numbers.
fn table(numbers: [&'static str; 5]) -> TextTable {
    let mut heads = vec![("NAME", Align::Left), ("STATE", Align::Left)];
    heads.extend(numbers.map(|head| (head, Align::Right)));
    heads.push(("FAULTS", Align::Right));
    TextTable::new(&heads)
}

/// A port or a link, with its state and its faults.
#[derive(Debug, Clone, Copy)]
struct CountedObject<'a> {
    object: &'a ObjectStats,
    state: &'a str,
    faults_total: u64,
}

/// Returns the ports of a sample.
fn ports_of(stats: &StatsView) -> Vec<CountedObject<'_>> {
    let port = stats.ports.iter().map(|port| CountedObject {
        object: &port.object,
        state: &port.state,
        faults_total: port.faults_total,
    });
    port.collect()
}

/// Returns the links; a link has no faults.
fn links_of(stats: &StatsView) -> Vec<CountedObject<'_>> {
    let link = stats.links.iter().map(|link| CountedObject {
        object: &link.object,
        state: &link.state,
        faults_total: 0,
    });
    link.collect()
}

/// Returns the table of ports, and the table of links if there are any.
fn totals(stats: &StatsView) -> String {
    let ports =
        both(totals_of(&ports_of(stats)), !stats.links.is_empty(), || totals_of(&links_of(stats)));
    ports + &refusals(&stats.doors)
}

/// Returns the refusals at the control interfaces; empty if there are none.
fn refusals(doors: &[RefusalStats]) -> String {
    let mut out = String::new();
    for RefusalStats { name, counters: all } in doors {
        let all = counters(all);
        if !all.is_empty() {
            out.push_str(&format!("\nRefused at the {name}:{all}"));
        }
    }
    out
}

/// Returns the table of ports, followed by that of links if there are `links`.
fn both(ports: String, links: bool, of_links: impl FnOnce() -> String) -> String {
    if links {
        format!("{ports}\nLinks: received from the peer, sent to it\n{}", of_links())
    } else {
        ports
    }
}

/// Returns the table of totals of ports, or of links.
fn totals_of(all: &[CountedObject<'_>]) -> String {
    let mut table = table(["RX-PACKETS", "RX-BYTES", "TX-PACKETS", "TX-BYTES", "DROPPED"]);
    for port in all {
        let mut row = vec![port.object.name.clone(), port.state.to_owned()];
        row.extend(sums(&port.object.counters).iter().map(u64::to_string));
        row.push(port.faults_total.to_string());
        table.row(row);
    }
    table.render()
}

/// Counters of a port or link per second.
#[derive(Debug, Clone)]
struct Rates {
    name: String,
    state: String,
    faults_total: u64,
    /// Growth of each counter per second, by the counter's name.
    per_second: BTreeMap<String, f64>,
}

/// Returns the rates of the present ports and links. `elapsed` is the time between the samples by
/// the clock of this process.
fn rates(before: &StatsView, now: &StatsView, elapsed: Duration) -> [Vec<Rates>; 2] {
    let period = Period::between(before.uptime_seconds, now.uptime_seconds, elapsed);
    [
        rates_of(&ports_of(before), &ports_of(now), period),
        rates_of(&links_of(before), &links_of(now), period),
    ]
}

/// Returns the rates of objects; counters of a new or re-created object begin at 0.
fn rates_of(before: &[CountedObject<'_>], now: &[CountedObject<'_>], period: Period) -> Vec<Rates> {
    let rate = |port: &CountedObject<'_>| {
        let old = before.iter().find(|p| p.object.name == port.object.name);
        let per_second = port.object.counters.iter().map(|(name, n)| {
            let old = old.and_then(|p| p.object.counters.get(name)).copied();
            (name.clone(), period.rate(old, *n))
        });
        Rates {
            name: port.object.name.clone(),
            state: port.state.to_owned(),
            faults_total: port.faults_total,
            per_second: per_second.collect(),
        }
    };
    now.iter().map(rate).collect()
}

/// Returns the table of rates of ports, or of links.
fn rates_table(rates: &[Rates]) -> String {
    let mut table = table(["RX-PPS", "RX-MBIT/S", "TX-PPS", "TX-MBIT/S", "DROPS/S"]);
    for port in rates {
        let [rx, rx_bytes, tx, tx_bytes, drops] = sums(&port.per_second);
        let mbit = |bytes: f64| format!("{:.2}", bytes * 8.0 / 1e6);
        table.row(vec![
            port.name.clone(),
            port.state.clone(),
            format!("{rx:.0}"),
            mbit(rx_bytes),
            format!("{tx:.0}"),
            mbit(tx_bytes),
            format!("{drops:.1}"),
            port.faults_total.to_string(),
        ]);
    }
    table.render()
}

/// Returns the rates as JSON, in a single line: `NAME_total` becomes `NAME_per_second`.
fn rates_json(now: &StatsView, ports: &[Rates], links: &[Rates]) -> Value {
    let rates_of_port = |port: &Rates| {
        let rate = |(name, n): (&String, &f64)| {
            let name = name.strip_suffix("_total").unwrap_or(name);
            (format!("{name}_per_second"), json!(n))
        };
        let rates: serde_json::Map<String, Value> = port.per_second.iter().map(rate).collect();
        json!({ "name": port.name, "state": port.state, "faults_total": port.faults_total, "rates": rates })
    };
    let ports: Vec<Value> = ports.iter().map(rates_of_port).collect();
    let links: Vec<Value> = links.iter().map(rates_of_port).collect();
    json!({ "uptime_seconds": now.uptime_seconds, "ports": ports, "links": links })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(uptime: f64, ports: &[(&str, u64)]) -> StatsView {
        let port = |(name, n): &(&str, u64)| {
            let counters = [
                ("receive_bytes_total", *n),
                ("drop_a_total", 1),
                ("reject_b_total", 2),
                ("transmit_packets_total", 5),
            ];
            let counters = BTreeMap::from(counters);
            json!({
                "name": name, "group": "g", "kind": "net", "state": "running", "counters": counters,
            })
        };
        let ports: Vec<Value> = ports.iter().map(port).collect();
        view(&json!({"uptime_seconds": uptime, "ports": ports})).unwrap()
    }

    #[test]
    fn stats_totals_sum_drops_and_rejects_of_every_reason() {
        let text = totals(&stats(1.0, &[("a", 7)]));
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["a", "running", "0", "7", "5", "0", "3", "0"]);
    }

    #[test]
    fn stats_show_refusals_if_there_are_any() {
        let door = |name: &str, n| RefusalStats {
            name: name.into(),
            counters: [("refused_password_total", n), ("refused_busy_total", 0)]
                .map(|(name, n)| (name.to_owned(), n))
                .into(),
        };
        assert_eq!(refusals(&[door("control socket", 0)]), "");
        let text = refusals(&[door("control socket", 0), door("VNET control", 3)]);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines[1..3], ["Refused at the VNET control:", "COUNTER                 VALUE"]);
        assert_eq!(lines[3..], ["refused_password_total      3"]);
    }

    #[test]
    fn stats_rates_are_per_second_of_the_daemons_clock() {
        let before = stats(10.0, &[("a", 1_000_000), ("gone", 1), ("again", 500)]);
        let now = stats(12.0, &[("a", 3_000_000), ("new", 400), ("again", 100)]);
        let [rates, links] = rates(&before, &now, Duration::from_secs(2));
        assert!(links.is_empty());
        let received = |n: usize| rates[n].per_second["receive_bytes_total"];
        assert_eq!((received(0), received(1), received(2)), (1e6, 200.0, 50.0));
        assert!(rates_table(&rates).contains("8.00"));
        let json = rates_json(&now, &rates, &rates[..1]);
        assert_eq!(json["ports"][0]["rates"]["receive_bytes_per_second"], 1e6);
        assert_eq!(json["links"][0]["rates"]["receive_bytes_per_second"], 1e6);
    }

    #[test]
    fn stats_rates_after_a_restart_count_from_zero() {
        let (before, now) = (stats(5000.0, &[("a", 10)]), stats(2.0, &[("a", 400)]));
        let [rates, _] = rates(&before, &now, Duration::from_secs(1));
        assert_eq!(rates[0].per_second["receive_bytes_total"], 200.0);
    }
}
