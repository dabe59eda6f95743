//! Running the rows, and what is written of them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::options::Options;
use crate::plot::{Series, svg};
use crate::stats::Spread;
use crate::{ethernet, floor, idle, peers, sockets};

/// Times that a row is measured again when the floor moved under it.
const REPEATS: usize = 3;
/// Floors that differ by more than this factor are two different machines.
const FLOOR_DRIFT: f64 = 1.4;

/// One row as written to JSON.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    unit: &'static str,
    /// Whether more is better; else less is.
    more_is_better: bool,
    ours: Spread,
    /// Half round trip of a cache line between the two cores, before and after, in microseconds.
    floor_us: [f64; 2],
    peers: BTreeMap<String, Spread>,
    /// Ours against each peer; above 1 means that ours is better.
    ratios: BTreeMap<String, f64>,
    /// The size that the row is plotted at.
    #[serde(skip)]
    at: Option<(&'static str, f64)>,
}

type Measure = Box<dyn Fn() -> f64>;

/// A row to measure.
struct Plan {
    name: String,
    unit: &'static str,
    more_is_better: bool,
    ours: Measure,
    peers: Vec<(&'static str, Measure)>,
    at: Option<(&'static str, f64)>,
}

impl Plan {
    fn new(name: String, unit: &'static str, ours: impl Fn() -> f64 + 'static) -> Self {
        let more_is_better = unit != "us" && unit != "%";
        Self { name, unit, more_is_better, ours: Box::new(ours), peers: Vec::new(), at: None }
    }

    fn beside(mut self, name: &'static str, peer: impl Fn() -> f64 + 'static) -> Self {
        self.peers.push((name, Box::new(peer)));
        self
    }

    fn at(mut self, plot: &'static str, x: usize) -> Self {
        self.at = Some((plot, x as f64));
        self
    }

    /// Measures, again if the floor moved meanwhile.
    fn measure(&self, runs: usize) -> Row {
        let mut tries = 0;
        loop {
            let before = floor::cache_line_us();
            let spread = |m: &Measure| Spread::of((0..runs).map(|_| m()).collect());
            let ours = spread(&self.ours);
            let peers: BTreeMap<String, Spread> =
                self.peers.iter().map(|(name, m)| ((*name).to_owned(), spread(m))).collect();
            let after = floor::cache_line_us();
            tries += 1;
            if before.max(after) / before.min(after) > FLOOR_DRIFT && tries < REPEATS {
                eprintln!("  the floor moved from {before:.3} to {after:.3} us: once more");
                continue;
            }
            let ratio = |peer: &Spread| {
                if self.more_is_better {
                    ours.median / peer.median
                } else {
                    peer.median / ours.median
                }
            };
            let ratios = peers.iter().map(|(name, peer)| (name.clone(), ratio(peer))).collect();
            let floor_us = [before, after];
            let (name, unit, at) = (self.name.clone(), self.unit, self.at);
            let more_is_better = self.more_is_better;
            return Row { name, unit, more_is_better, ours, floor_us, peers, ratios, at };
        }
    }
}

/// All rows, in the order they are shown.
fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for write in [64, 4 << 10, 16 << 10, 64 << 10] {
        let plan = Plan::new(format!("socket stream, {write} B writes"), "GB/s", move || {
            sockets::stream_gbps(write)
        });
        let plan = plan
            .beside("AF_UNIX", move || peers::unix_stream_gbps(write))
            .beside("TCP loopback", move || peers::tcp_stream_gbps(write))
            .beside("memcpy", move || floor::memcpy_gbps(write));
        plans.push(plan.at("socket-stream", write));
    }
    for bytes in [64, 1 << 10, 16 << 10] {
        let name = format!("socket half round trip, {bytes} B, polling");
        let plan = Plan::new(name, "us", move || sockets::half_trip_us(bytes, false));
        plans.push(plan.beside("cache line", floor::cache_line_us).at("socket-latency", bytes));
    }
    let plan = Plan::new("socket half round trip, 64 B, parked".into(), "us", || {
        sockets::half_trip_us(64, true)
    });
    plans.push(
        plan.beside("eventfd", floor::eventfd_us)
            .beside("AF_UNIX", || peers::unix_half_trip_us(64))
            .beside("TCP loopback", || peers::tcp_half_trip_us(64)),
    );
    for len in [64, 256, 1500] {
        let name = format!("Ethernet frames, {len} B, burst 32");
        plans.push(
            Plan::new(name, "Mpps", move || ethernet::rate(len, 32, 1).mpps)
                .at("ethernet-frames", len),
        );
    }
    for burst in [1, 4] {
        let name = format!("Ethernet frames, 64 B, burst {burst}");
        plans.push(Plan::new(name, "Mpps", move || ethernet::rate(64, burst, 1).mpps));
    }
    for pairs in [4, 16] {
        let name = format!("Ethernet frames, 64 B, {} busy ports", u32::from(pairs) * 2);
        plans.push(
            Plan::new(name, "Mpps", move || ethernet::rate(64, 32, pairs).mpps)
                .at("ethernet-ports", usize::from(pairs) * 2),
        );
    }
    let name = "Ethernet segments, 64 KiB".to_owned();
    let plan = Plan::new(name, "GB/s", || ethernet::rate(65_000, 8, 1).gbps);
    plans.push(plan.beside("memcpy", || floor::memcpy_gbps(65_000)));
    let name = "processor time of 100 idle ports".to_owned();
    plans.push(Plan::new(name, "%", idle::hundred_ports_percent));
    plans
}

/// Runs what `options` ask for, prints a table, and writes JSON and plots.
pub fn run(options: &Options) -> Result<(), String> {
    let wanted = |plan: &Plan| plan.name.contains(&options.only);
    let plans: Vec<Plan> = plans().into_iter().filter(wanted).collect();
    let mut rows = Vec::new();
    for (index, plan) in plans.iter().enumerate() {
        eprintln!("- {}/{} {}", index + 1, plans.len(), plan.name);
        rows.push(plan.measure(options.runs));
    }
    print!("{}", table(&rows));
    let failed = |e: std::io::Error| format!("{}: {e}", options.out.display());
    std::fs::create_dir_all(&options.out).map_err(failed)?;
    let json = serde_json::to_string_pretty(&rows).map_err(|e| e.to_string())?;
    std::fs::write(options.out.join("bench.json"), json).map_err(failed)?;
    plots(&rows, &options.out).map_err(failed)?;
    println!("\nWritten to {}: bench.json and plots.", options.out.display());
    Ok(())
}

fn table(rows: &[Row]) -> String {
    let mut out = format!(
        "\n{:<46} {:>9} {:>19}  {:<5} {:>9}  against peers (above 1: better)\n",
        "", "median", "min..max", "", "floor us"
    );
    for row in rows {
        let spread = format!("{:.2}..{:.2}", row.ours.min, row.ours.max);
        let [before, after] = row.floor_us;
        let ratios: Vec<String> =
            row.ratios.iter().map(|(peer, ratio)| format!("{peer} {ratio:.2}x")).collect();
        out.push_str(&format!(
            "{:<46} {:>9.2} {spread:>19}  {:<5} {:>9.3}  {}\n",
            row.name,
            row.ours.median,
            row.unit,
            f64::midpoint(before, after),
            ratios.join(", ")
        ));
    }
    out
}

/// One plot for each family of rows that differ in size.
fn plots(rows: &[Row], out: &Path) -> std::io::Result<()> {
    let mut families: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        if let Some((family, _)) = row.at {
            families.entry(family).or_default().push(row);
        }
    }
    for (family, rows) in families {
        let point = |row: &Row, y: f64| (row.at.map_or(f64::NAN, |(_, x)| x), y);
        let ours = rows.iter().map(|r| point(r, r.ours.median)).collect();
        let mut series = vec![Series { name: "causeway".into(), points: ours }];
        let names: Vec<&String> = rows.iter().flat_map(|r| r.peers.keys()).collect();
        for name in names {
            if series.iter().all(|s| s.name != *name) {
                let of = |r: &&Row| r.peers.get(name).map(|peer| point(r, peer.median));
                let points = rows.iter().filter_map(of).collect();
                series.push(Series { name: name.clone(), points });
            }
        }
        let unit = rows.first().map_or("", |r| r.unit);
        let x = if family.ends_with("ports") { "ports" } else { "bytes" };
        std::fs::write(out.join(format!("{family}.svg")), svg(family, x, unit, &series))?;
    }
    Ok(())
}
