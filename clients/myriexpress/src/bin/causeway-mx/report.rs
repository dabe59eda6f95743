//! Results of a measurement, as a table or as JSON.
//!
//! Times are in microseconds per message (half round trips for a ping-pong), throughput in MB/s of
//! 10^6 bytes. A table row is printed as soon as its length is measured; JSON is printed at the
//! end, and not at all after an error. Output goes to standard output; an output that cannot be
//! written ends the command ([`Error::Write`]). `measure` creates the report and adds the rows.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::bench_request::{BenchRequest, MessagePattern};
use crate::error::Error;

/// Result for one length.
#[derive(Debug)]
pub struct Row {
    /// Length of a message, in bytes.
    len: u32,
    /// Number of messages.
    count: u32,
    /// Half round trip, or time per message, in microseconds: minimum, median, maximum.
    us: [f64; 3],
    /// Throughput of both directions together in MB/s.
    mb_s: f64,
}

impl Row {
    /// Computes the result from the durations of the parts in seconds.
    pub fn new(order: &BenchRequest, parts: &[f64]) -> Self {
        let ways = if order.pattern == MessagePattern::Stream { 1.0 } else { 2.0 };
        let each = f64::from(order.part().unwrap_or(order.count));
        let mut us: Vec<f64> = parts.iter().map(|s| s * 1e6 / each / ways).collect();
        us.sort_by(f64::total_cmp);
        let at = |index: usize| us.get(index).copied().unwrap_or(f64::NAN);
        let median = at(us.len() / 2);
        let one_way =
            if order.pattern == MessagePattern::Pingpong { median } else { median * ways };
        let carried =
            f64::from(order.len) * if order.pattern == MessagePattern::Both { 2.0 } else { 1.0 };
        let us = [at(0), median, at(us.len().saturating_sub(1))];
        Self { len: order.len, count: order.count, us, mb_s: carried / one_way }
    }

    /// Returns the row as a JSON object.
    fn json(&self) -> Value {
        let [min, median, max] = self.us;
        json!({
            "bytes": self.len,
            "count": self.count,
            "us": { "min": min, "median": median, "max": max },
            "mb_per_s": self.mb_s,
            "messages_per_s": 1e6 / median,
        })
    }
}

/// The report of a measurement.
#[derive(Debug)]
pub struct MeasureReport {
    peer: String,
    pattern: MessagePattern,
    /// Results for a report in JSON, which is printed at the end.
    rows: Option<Vec<Value>>,
}

impl MeasureReport {
    /// Creates a report. Prints the head of the table.
    ///
    /// # Errors
    /// Standard output is closed.
    pub fn new(peer: &str, pattern: MessagePattern, json: bool) -> Result<Self, Error> {
        let report = Self { peer: peer.to_owned(), pattern, rows: json.then(Vec::new) };
        if !json {
            let what =
                if pattern == MessagePattern::Pingpong { "half round trip" } else { "per message" };
            let mut out = std::io::stdout().lock();
            writeln!(out, "{:>10} {:>10}  {:>32} {:>12}", "", "", format!("{what}, us"), "")?;
            let [min, median, max] = ["min", "median", "max"];
            writeln!(
                out,
                "{:>10} {:>10}  {min:>10} {median:>10} {max:>10} {:>12}",
                "bytes", "messages", "MB/s"
            )?;
        }
        Ok(report)
    }

    /// Adds a result, and prints its row of the table.
    pub fn row(&mut self, row: Row) -> Result<(), Error> {
        if let Some(rows) = &mut self.rows {
            rows.push(row.json());
            return Ok(());
        }
        let Row { len, count, us: [min, median, max], mb_s } = row;
        let mut out = std::io::stdout().lock();
        writeln!(
            out,
            "{len:>10} {count:>10}  {min:>10.3} {median:>10.3} {max:>10.3} {mb_s:>12.1}"
        )?;
        Ok(out.flush()?)
    }

    /// Prints the report in JSON.
    pub fn end(self) -> Result<(), Error> {
        let Some(rows) = self.rows else { return Ok(()) };
        let play = match self.pattern {
            MessagePattern::Pingpong => "pingpong",
            MessagePattern::Stream => "stream",
            MessagePattern::Both => "stream both ways",
            MessagePattern::End => "",
        };
        let all = json!({ "peer": self.peer, "play": play, "rows": rows });
        Ok(writeln!(std::io::stdout().lock(), "{all:#}")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_rows_have_the_median_part() {
        let order = BenchRequest {
            pattern: MessagePattern::Pingpong,
            len: 1000,
            count: 210,
            sync: false,
            verify: false,
        };
        let mut parts = vec![40e-6; 19];
        parts.extend([20e-6, 80e-6]);
        let row = Row::new(&order, &parts);
        assert_eq!(row.us.map(|us| us.round()), [1.0, 2.0, 4.0]);
        assert_eq!(row.mb_s.round(), 500.0);
        let stream = BenchRequest { pattern: MessagePattern::Stream, ..order };
        assert_eq!(Row::new(&stream, &[210e-6]).mb_s.round(), 1000.0);
        let both = BenchRequest { pattern: MessagePattern::Both, ..order };
        assert_eq!(Row::new(&both, &[210e-6]).mb_s.round(), 2000.0);
    }
}
