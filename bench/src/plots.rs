//! A plot for each family of rows that differ in one parameter.
//!
//! `report` calls [`write()`] once, after all rows, in the main thread. A family is the plot name
//! of its rows; rows that were left out have no point. An SVG file of an earlier run is
//! overwritten. An error is that of the file system, and ends the run.

use std::collections::BTreeMap;
use std::path::Path;

use crate::plot::{Series, svg};
use crate::row::Row;

/// Returns the label of a family's horizontal axis.
fn axis(family: &str) -> &'static str {
    let known = ["ports", "pages", "connections", "rules", "routes", "addresses", "burst"];
    known.into_iter().find(|word| family.ends_with(word)).unwrap_or("bytes")
}

/// Writes `<family>.svg` for each family of `rows`.
pub fn write(rows: &[Row], out: &Path) -> std::io::Result<()> {
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
        let path = out.join(format!("{family}.svg"));
        std::fs::write(path, svg(family, axis(family), unit, &series))?;
    }
    Ok(())
}
