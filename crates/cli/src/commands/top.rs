//! `causeway top`: ports, links, dispatchers and connections with their rates, live.
//!
//! On a terminal the verb shows the full-screen view ([`crate::top`]). With `--batch` or JSON
//! output, and without a terminal at standard output, it prints a report after each interval. A
//! first failed request ends the verb with the exit status of other verbs; a later failure is
//! reported (as JSON, an object with the key `error`), and the verb tries again. The verb changes
//! nothing. `commands::run` is the caller; a batch sends its requests in the main thread, the
//! full-screen view in another.

use std::io::IsTerminal as _;
use std::thread::sleep;
use std::time::Duration;

use serde_json::json;

use super::{CommandContext, print};
use crate::args::{Format, TopArgs, TopView};
use crate::error::{Error, Result};
use crate::table::duration;
use crate::top::app::{App, VIEWS};
use crate::top::report::Report;
use crate::top::sample::Sample;
use crate::top::{column_names, listing, session};

/// Runs `causeway top`.
pub fn run(cx: &CommandContext, args: &TopArgs) -> Result<()> {
    let view = args.view.unwrap_or(TopView::Ports);
    let column = args.sort.as_deref().map(|name| column(view, name)).transpose()?;
    let first = Sample::take(&cx.client)?;
    if args.batch || cx.format == Format::Json || !std::io::stdout().is_terminal() {
        return batch(cx, args, column, first);
    }
    let mut app = App::new(first, args.interval);
    (app.view, app.filter) = (view, args.filter.clone());
    if let Some(column) = column {
        app.sort(column, args.reverse);
    }
    session::run(&cx.client, &mut app, args.count)
}

/// Returns the number of a column by its head, in any case.
fn column(view: TopView, name: &str) -> Result<usize> {
    let names = column_names(view);
    let found = names.iter().position(|known| known.eq_ignore_ascii_case(name));
    found.ok_or_else(|| Error::Usage(format!("--sort {name}: expected {}", names.join(", "))))
}

/// Prints a report after each interval.
fn batch(
    cx: &CommandContext,
    args: &TopArgs,
    column: Option<usize>,
    mut before: Sample,
) -> Result<()> {
    let mut left = args.count;
    while left != Some(0) {
        sleep(Duration::from_secs_f64(args.interval));
        match Sample::take(&cx.client) {
            Ok(now) => {
                let report = Report::new(Some(&before), &now);
                before = now;
                match cx.format {
                    Format::Json => print(&format!("{}\n", json!(report)))?,
                    Format::Table => print(&text(args, column, &report))?,
                }
            }
            Err(error) => {
                let text = error.to_string();
                let text = text.lines().next().unwrap_or_default();
                match cx.format {
                    Format::Json => print(&format!("{}\n", json!({ "error": text })))?,
                    Format::Table => print(&format!("no data, trying again: {text}\n\n"))?,
                }
            }
        }
        left = left.map(|n| n.saturating_sub(1));
    }
    Ok(())
}

/// Returns the text of a report: a line about the daemon, and a table for each view.
fn text(args: &TopArgs, column: Option<usize>, report: &Report) -> String {
    let seconds = report.period_seconds.unwrap_or_default();
    let restarted = if report.restarted { ", restarted" } else { "" };
    let up = duration(report.uptime_seconds);
    let mut out = format!("causeway top: daemon up {up}{restarted}, rates over {seconds:.1} s\n");
    for view in VIEWS.into_iter().filter(|view| args.view.is_none_or(|wanted| wanted == *view)) {
        let mut listing = listing(report, view);
        listing.filter(&args.filter);
        let is_sorted = view == args.view.unwrap_or(TopView::Ports);
        let column = column.filter(|_| is_sorted);
        listing.sort(column.unwrap_or(0), args.reverse && column.is_some());
        if view != TopView::Ports && listing.lines.is_empty() && args.view.is_none() {
            continue;
        }
        out.push_str(&format!("\n{}", listing.render()));
    }
    out.push('\n');
    out
}
