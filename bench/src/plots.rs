//! A plot for each family of rows that differ in one parameter.
//!
//! `report` calls [`write()`] after each row and at the end, in the main thread. A family is the
//! plot name of its rows; rows that were left out have no point, and a family without a line, which
//! needs two points, has no plot. An SVG file of an earlier run is overwritten, and stays if this
//! run draws no plot of its name. An error is that of the file system, and ends the run.
//!
//! Where the figures of a family, with their spreads, differ by a factor of 50 or more, a second
//! plot (`<family>-relative.svg`) shows the peers relative to Causeway, because a logarithmic axis
//! hides a factor of two. A peer that differs from Causeway by more than [`FACTOR_MAX`] (20) in a
//! round of any row is left out of the whole second plot.

use std::collections::BTreeMap;
use std::path::Path;

use crate::plot::{Plot, Point, Series};
use crate::row::Row;
use crate::stats::Spread;

#[cfg(test)]
mod published;

/// Parameters at the end of the names of families, and their labels. The parameter of other
/// families is a number of bytes.
const PARAMETERS: [(&str, &str); 7] = [
    ("ports", "pairs of ports"),
    ("pages", "pages of a region"),
    ("connections", "connections"),
    ("rules", "rules"),
    ("routes", "routes"),
    ("addresses", "addresses"),
    ("burst", "frames in a burst"),
];

/// Titles of families. Others have their name as title, with blanks for dashes.
const TITLES: [(&str, &str); 17] = [
    ("mx-latency", "MX messages between two processes: half a round trip"),
    ("socket-stream", "AF_VSOCK stream between two ports"),
    ("socket-latency", "AF_VSOCK between two ports: half a round trip, polling"),
    ("socket-connections", "AF_VSOCK by open connections"),
    ("connect-rules", "AF_VSOCK connects by rules"),
    ("ethernet-frames", "Ethernet frames between two ports, packed rings"),
    ("ethernet-burst", "Ethernet frames of 64 B by burst"),
    ("ethernet-ports", "Ethernet frames of 64 B by busy ports"),
    ("ethernet-addresses", "Ethernet frames of 64 B by learnt addresses"),
    ("switch-split", "Ethernet frames between two ports, split rings"),
    ("switch-packed", "Ethernet frames between two ports, packed rings"),
    ("switch-split-burst", "Ethernet frames of 64 B by burst, split rings"),
    ("switch-packed-burst", "Ethernet frames of 64 B by burst, packed rings"),
    ("routes", "A route among others"),
    ("rdma-write-latency", "RDMA WRITE between two adapters: half a round trip, polling"),
    ("rdma-send-latency", "RDMA SEND between two adapters: half a round trip, polling"),
    ("rdma-bandwidth", "RDMA WRITE between two adapters"),
];

/// Returns the title of a family.
fn title(family: &str) -> String {
    let known = TITLES.iter().find(|(name, _)| *name == family).map(|(_, title)| *title);
    known.map_or_else(|| family.replace('-', " "), str::to_owned)
}

/// Writes `<family>.svg`, and `<family>-relative.svg` where needed, for each family of `rows` into
/// the folder `out`, and returns the names of the files.
///
/// # Errors
/// A file cannot be written.
pub fn write(rows: &[Row], conditions: &[String], out: &Path) -> std::io::Result<Vec<String>> {
    let mut families: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        if let Some((family, _)) = row.at {
            families.entry(family).or_default().push(row);
        }
    }
    let mut names = Vec::new();
    for (family, rows) in families {
        let absolute = plot(family, &rows, conditions);
        let relative = absolute.differs_by_decades().then(|| relative(family, &rows, conditions));
        let plots = [(family.to_owned(), Some(absolute)), (format!("{family}-relative"), relative)];
        for (name, plot) in plots {
            if let Some(svg) = plot.and_then(|plot| plot.svg()) {
                let name = format!("{name}.svg");
                std::fs::write(out.join(&name), svg)?;
                names.push(name);
            }
        }
    }
    Ok(names)
}

/// Returns the plot of a family.
fn plot(family: &str, rows: &[&Row], conditions: &[String]) -> Plot {
    let ours = rows.iter().map(|row| point(row, &row.ours)).collect();
    let mut series = vec![Series { name: "Causeway".into(), points: ours }];
    for name in peers(rows) {
        let of = |row: &&Row| row.peers.get(name).map(|peer| point(row, peer));
        series.push(Series { name: name.clone(), points: rows.iter().filter_map(of).collect() });
    }
    let unit = rows.first().map_or("", |row| row.unit).into();
    Plot { unit, series, ..empty(family, rows, conditions) }
}

/// Largest factor between Causeway and a peer in a relative plot: others would flatten the lines.
const FACTOR_MAX: f64 = 20.0;

/// Returns the plot of a family's peers relative to Causeway, of each round.
fn relative(family: &str, rows: &[&Row], conditions: &[String]) -> Plot {
    let more = rows.first().is_some_and(|row| row.more_is_better);
    let one = |row: &&Row| point(row, &Spread { min: 1.0, median: 1.0, max: 1.0 });
    let ours = rows.iter().map(one).collect();
    let mut series = vec![Series { name: "Causeway (1)".into(), points: ours }];
    let is_near = |name: &&String| {
        let mut ratios = rows.iter().filter_map(|row| row.ratio_spreads.get(*name));
        ratios.all(|of| of.max <= FACTOR_MAX && of.min >= 1.0 / FACTOR_MAX)
    };
    for name in peers(rows).into_iter().filter(is_near) {
        let of = |row: &&Row| {
            let Spread { min, median, max } = *row.ratio_spreads.get(name)?;
            // A ratio is above 1 where Causeway is better.
            let rate = Spread { min: 1.0 / max, median: 1.0 / median, max: 1.0 / min };
            Some(point(row, &if more { rate } else { Spread { min, median, max } }))
        };
        series.push(Series { name: name.clone(), points: rows.iter().filter_map(of).collect() });
    }
    let unit = if more { "share of Causeway's figure" } else { "times Causeway's figure" };
    Plot { unit: unit.into(), series, ..empty(family, rows, conditions) }
}

/// Returns the names of all peers, in the order of the rows.
fn peers<'a>(rows: &[&'a Row]) -> Vec<&'a String> {
    let mut names: Vec<&String> = Vec::new();
    for name in rows.iter().flat_map(|row| row.peers.keys()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn point(row: &Row, spread: &Spread) -> Point {
    let x = row.at.map_or(f64::NAN, |(_, x)| x);
    Point { x, min: spread.min, y: spread.median, max: spread.max }
}

/// Returns the plot of a family without unit and lines.
fn empty(family: &str, rows: &[&Row], conditions: &[String]) -> Plot {
    let parameter = PARAMETERS.iter().find(|(word, _)| family.ends_with(word));
    Plot {
        title: title(family),
        x_name: parameter.map_or("bytes", |(_, label)| label).into(),
        is_bytes: parameter.is_none(),
        unit: String::new(),
        more_is_better: rows.first().is_some_and(|row| row.more_is_better),
        conditions: conditions.to_vec(),
        series: Vec::new(),
    }
}
