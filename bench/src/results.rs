//! The results of a run.
//!
//! `report` fills them row by row, in the main thread, and `index` shows them. The values are plain
//! data: nothing is written here.

use crate::row::Row;

/// The results so far.
#[derive(Debug)]
pub struct Results {
    /// Machine, date and effort, a line each.
    pub conditions: Vec<String>,
    /// Number of rows to measure.
    pub wanted: usize,
    /// The rows that were measured.
    pub rows: Vec<Row>,
    /// The rows that were left out, with the reason.
    pub missing: Vec<(String, String)>,
}

impl Results {
    /// Returns whether all rows have ended.
    pub fn is_complete(&self) -> bool {
        self.rows.len() + self.missing.len() == self.wanted
    }
}
