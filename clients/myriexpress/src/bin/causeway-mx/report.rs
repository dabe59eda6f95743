//! Results as a table or as JSON.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::error::Error;
use crate::order::{Order, Play};

/// What was measured for one length.
#[derive(Debug)]
pub struct Row {
    len: u32,
    count: u32,
    /// Half a round trip, or what each message took, in microseconds: least, median, most.
    us: [f64; 3],
    /// Bytes that crossed, both ways together, in MB/s.
    mb_s: f64,
}

impl Row {
    /// Of the seconds that the parts of a run took.
    pub fn new(order: &Order, parts: &[f64]) -> Self {
        let ways = if order.play == Play::Stream { 1.0 } else { 2.0 };
        let each = match order.play {
            Play::Pingpong => f64::from((order.count / crate::measure::PARTS).max(1)),
            _ => f64::from(order.count),
        };
        let mut us: Vec<f64> = parts.iter().map(|s| s * 1e6 / each / ways).collect();
        us.sort_by(f64::total_cmp);
        let at = |index: usize| us.get(index).copied().unwrap_or(f64::NAN);
        let median = at(us.len() / 2);
        let one_way = if order.play == Play::Pingpong { median } else { median * ways };
        let carried = f64::from(order.len) * if order.play == Play::Both { 2.0 } else { 1.0 };
        let us = [at(0), median, at(us.len().saturating_sub(1))];
        Self { len: order.len, count: order.count, us, mb_s: carried / one_way }
    }

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

/// What is shown.
#[derive(Debug)]
pub struct Report {
    peer: String,
    play: Play,
    /// What was measured, where all is shown at the end.
    rows: Option<Vec<Value>>,
}

impl Report {
    /// Begins one.
    pub fn new(peer: &str, play: Play, json: bool) -> Self {
        let report = Self { peer: peer.to_owned(), play, rows: json.then(Vec::new) };
        if !json {
            let what = if play == Play::Pingpong { "half round trip" } else { "per message" };
            println!("{:>10} {:>10}  {:>32} {:>12}", "", "", format!("{what}, us"), "");
            let heads = ["min", "median", "max"];
            let [min, median, max] = heads;
            println!(
                "{:>10} {:>10}  {min:>10} {median:>10} {max:>10} {:>12}",
                "bytes", "messages", "MB/s"
            );
        }
        report
    }

    /// Adds a row.
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

    /// Shows what is left to show.
    pub fn end(self) -> Result<(), Error> {
        let Some(rows) = self.rows else { return Ok(()) };
        let play = match self.play {
            Play::Pingpong => "pingpong",
            Play::Stream => "stream",
            Play::Both => "stream both ways",
            Play::End => "",
        };
        let all = json!({ "peer": self.peer, "play": play, "rows": rows });
        Ok(writeln!(std::io::stdout().lock(), "{all:#}")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_of_the_median_part() {
        let order =
            Order { play: Play::Pingpong, len: 1000, count: 210, sync: false, verify: false };
        let mut parts = vec![40e-6; 19];
        parts.extend([20e-6, 80e-6]);
        let row = Row::new(&order, &parts);
        assert_eq!(row.us.map(|us| us.round()), [1.0, 2.0, 4.0]);
        assert_eq!(row.mb_s.round(), 500.0);
        let stream = Order { play: Play::Stream, ..order };
        assert_eq!(Row::new(&stream, &[210e-6]).mb_s.round(), 1000.0);
        let both = Order { play: Play::Both, ..order };
        assert_eq!(Row::new(&both, &[210e-6]).mb_s.round(), 2000.0);
    }
}
