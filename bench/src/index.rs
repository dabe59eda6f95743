//! `index.html` in the folder of the results: the table, the plots, and the rows that were left
//! out.
//!
//! `report` writes the page after each row and at the end, in the main thread; the page of an
//! earlier run is overwritten. The page of a run that has not ended says how many rows have. A peer
//! without a figure stands in its row, with the reason. The page needs no script and no other host:
//! it names the plots as files beside it. Texts of rows and errors are escaped. An error is that of
//! the file, and ends the run.

use std::fmt::Write;
use std::path::Path;

use crate::plot::escaped;
use crate::results::Results;
use crate::row::Row;
use crate::words;

const STYLE: &str = "body{font:15px/1.5 sans-serif;color:#1b1f24;max-width:1100px;margin:2em auto;\
padding:0 1em}table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:4px 10px;\
border-bottom:1px solid #d8dee4;vertical-align:top}td.n{text-align:right;white-space:nowrap}\
.s{color:#57606a}figure{margin:1em 0}img{width:100%;max-width:760px;border:1px solid #d8dee4}";

/// Writes the page.
///
/// # Errors
/// The file cannot be written.
pub fn write(results: &Results, plots: &[String], out: &Path) -> std::io::Result<()> {
    std::fs::write(out.join("index.html"), page(results, plots))
}

/// Returns the page.
fn page(results: &Results, plots: &[String]) -> String {
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Causeway benchmark</title>\n\
         <style>{STYLE}</style>\n<h1>Causeway benchmark</h1>\n"
    );
    for line in &results.conditions {
        let _ = writeln!(text, "<p class=\"s\">{}</p>", escaped(line));
    }
    if !results.is_complete() {
        let (done, all) = (results.rows.len() + results.missing.len(), results.wanted);
        let _ = writeln!(text, "<p><b>The run has not ended: {done} of {all} rows.</b></p>");
    }
    for plot in plots {
        let name = escaped(plot);
        let _ =
            writeln!(text, "<figure><a href=\"{name}\"><img src=\"{name}\" alt=\"\"></a></figure>");
    }
    text.push_str(
        "<table>\n<tr><th>row</th><th>median</th><th>range</th><th></th><th>Causeway is</th></tr>\n",
    );
    let mut kind = "";
    for row in &results.rows {
        if row.guest.name() != kind {
            kind = row.guest.name();
            let _ = writeln!(text, "<tr><th colspan=\"5\">{}</th></tr>", escaped(kind));
        }
        text.push_str(&line(row));
    }
    text.push_str("</table>\n");
    for (name, why) in &results.missing {
        let _ = writeln!(text, "<p class=\"s\">Left out: {}: {}</p>", escaped(name), escaped(why));
    }
    text
}

/// Returns the line of a row.
fn line(row: &Row) -> String {
    let better = if row.more_is_better { "higher is better" } else { "lower is better" };
    let mut ratios: Vec<String> = row
        .ratio_spreads
        .iter()
        .map(|(peer, of)| {
            let range = words::range(row.unit, of.min, of.max);
            escaped(&format!("{} {peer}{range}", words::compared(row.unit, of.median)))
        })
        .collect();
    let without = |(peer, why): (&String, &String)| {
        format!("<span class=\"s\">without {}: {}</span>", escaped(peer), escaped(why))
    };
    ratios.extend(row.left_out.iter().map(without));
    format!(
        "<tr><td>{}{}</td><td class=\"n\">{:.2}</td><td class=\"n s\">{:.2} to {:.2}</td>\
         <td>{} <span class=\"s\">{better}</span></td><td>{}</td></tr>\n",
        escaped(&row.name),
        if row.note.is_empty() {
            String::new()
        } else {
            format!("<br><span class=\"s\">{}</span>", escaped(row.note))
        },
        row.ours.median,
        row.ours.min,
        row.ours.max,
        escaped(row.unit),
        ratios.join("<br>")
    )
}
