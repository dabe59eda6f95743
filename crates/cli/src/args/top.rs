//! Command line of `causeway top`.
//!
//! An interval outside of 0.1 to 3600 s, and a filter of more than 64 characters, are refused with
//! exit status 2; so is a column that the view does not have, by `commands::top`, which uses the
//! values in the main thread.

use clap::{Args, ValueEnum};

use crate::limits::{TOP_FILTER_CHARS_MAX, TOP_INTERVAL_S_MAX, TOP_INTERVAL_S_MIN};

/// Text behind the options in the help of the command.
pub const EXAMPLES: &str = "\
Keys: Tab or 1-4 the view, up and down the selected line, < and > the column that sorts, r the
order, / the filter, Enter the reasons of drops, space pause, + and - the interval, ? help, q quit.
Rates of ports are the guest's: TX is sent by the guest. Rates need two samples, so the first line
of a batch follows after one interval. A daemon that ends is shown as lost, and its successor is
shown as soon as it answers. Without a terminal at standard output the report is a batch.

Examples:
  causeway top
  causeway top --view links -d 5
  causeway top --sort drops/s --filter blue
  causeway top -b -n 3 > rates.txt
  causeway top -n 1 -o json";

/// `causeway top`
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Time between two samples, in seconds, 0.1 to 3600
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: f64,
    /// Print plain text, a report for each interval, instead of the full-screen view
    #[arg(short, long)]
    pub batch: bool,
    /// End after this many reports
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// The view at the start; a batch has this view only [default: ports; all in a batch]
    #[arg(long, value_enum)]
    pub view: Option<TopView>,
    /// Column that sorts the view at the start, as its head names it: numbers begin with the
    /// largest
    #[arg(long, value_name = "COLUMN")]
    pub sort: Option<String>,
    /// Reverse the order
    #[arg(long, requires = "sort")]
    pub reverse: bool,
    /// Only lines that contain this text, such as the name of a group
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true,
          value_parser = filter)]
    pub filter: String,
}

/// A view of `causeway top`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TopView {
    /// Ports: state, rates, drops
    Ports,
    /// Links: state, rates, round trip, loss
    Links,
    /// Dispatchers: load, turns, stalls
    Dispatchers,
    /// AF_VSOCK connections: queued bytes and credit
    Connections,
}

/// Parses an interval in seconds.
fn interval(text: &str) -> Result<f64, String> {
    let range = TOP_INTERVAL_S_MIN..=TOP_INTERVAL_S_MAX;
    let seconds = text.parse().ok().filter(|seconds| range.contains(seconds));
    seconds.ok_or_else(|| {
        format!("expected {TOP_INTERVAL_S_MIN} to {TOP_INTERVAL_S_MAX} seconds, such as 0.5")
    })
}

/// Parses a filter.
fn filter(text: &str) -> Result<String, String> {
    let is_short = text.chars().count() <= TOP_FILTER_CHARS_MAX;
    is_short
        .then(|| text.to_owned())
        .ok_or_else(|| format!("expected at most {TOP_FILTER_CHARS_MAX} characters"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_interval_is_a_time_in_range() {
        assert_eq!((interval("0.1"), interval("2")), (Ok(0.1), Ok(2.0)));
        for text in ["0", "0.09", "3601", "nan", "inf", "-1", "x", ""] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
