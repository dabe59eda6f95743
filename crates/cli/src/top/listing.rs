//! A table that can be sorted, filtered and fitted to a width.
//!
//! Texts come from the daemon; control characters in them are replaced, so that no text moves the
//! cursor of a terminal. Widths count characters. A table that is too wide loses columns by their
//! rank and then characters of the widest column; if the columns that always stay need more, it is
//! wider than asked for.
//!
//! `tables` fills a [`Listing`] of a report; `commands::top` sorts, filters and prints it as text,
//! `app` sorts and filters it, and `screen` draws it, all in the main thread. A column that does
//! not exist leaves the lines in their order.

use std::cmp::Ordering;

use crate::table::{Align, TextTable};

/// Characters between two columns of the screen.
const GAP: usize = 1;
/// Fewest characters of a column that is cut because the table does not fit.
const CUT_MIN: usize = 4;

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Head of the column.
    pub head: &'static str,
    /// Alignment: numbers are right, and sort with the largest first.
    pub align: Align,
    /// The columns with the largest number are left out first if the table does not fit; columns
    /// with 0 always stay.
    pub rank: u8,
}

/// A cell: its text, and the number by which it sorts if it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The text.
    pub text: String,
    /// The number; cells without a number sort below all numbers.
    pub number: Option<f64>,
}

impl Cell {
    /// Returns a cell that sorts by its text.
    pub fn text(text: &str) -> Self {
        Self { text: clean(text), number: None }
    }

    /// Returns a cell that sorts by `number`, with the text that `format` returns, or `-` without a
    /// number.
    pub fn number(number: Option<f64>, format: impl FnOnce(f64) -> String) -> Self {
        Self { text: number.map_or_else(|| "-".to_owned(), format), number }
    }
}

/// A line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Identifies the object of the line in the next report.
    pub key: String,
    /// A cell for each column.
    pub cells: Vec<Cell>,
    /// Lines of text about the object, for the selected line.
    pub details: Vec<String>,
    /// Whether the object needs the operator's attention.
    pub tone: Tone,
}

/// The state of a line's object, as a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// It works.
    Good,
    /// It is idle: no guest is attached.
    Idle,
    /// It does not work.
    Bad,
    /// No state.
    Plain,
}

/// A table of objects of one type.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// The columns.
    pub columns: &'static [Column],
    /// The lines.
    pub lines: Vec<Line>,
    /// Text below an empty or incomplete table. The full-screen view shows it only if the table is
    /// empty.
    pub remark: Option<String>,
}

impl Listing {
    /// Keeps the lines of which a cell contains `filter`, in any case.
    pub fn filter(&mut self, filter: &str) {
        let filter = filter.to_lowercase();
        let fits = |cell: &Cell| cell.text.to_lowercase().contains(&filter);
        self.lines.retain(|line| filter.is_empty() || line.cells.iter().any(fits));
    }

    /// Sorts by a column: numbers with the largest first, texts in their order. `is_reversed`
    /// inverts both. Equal lines are in the order of their keys.
    pub fn sort(&mut self, column: usize, is_reversed: bool) {
        let is_number = self.columns.get(column).is_some_and(|c| c.align == Align::Right);
        self.lines.sort_by(|a, b| {
            let (Some(x), Some(y)) = (a.cells.get(column), b.cells.get(column)) else {
                return Ordering::Equal;
            };
            let order = compare(x, y);
            let order = if is_number != is_reversed { order.reverse() } else { order };
            order.then_with(|| a.key.cmp(&b.key))
        });
    }

    /// Returns the columns that fit into `width`, each with its width. Columns are left out by
    /// their rank; then the widest text is cut.
    pub fn fit(&self, width: usize) -> Vec<(usize, usize)> {
        let mut kept: Vec<(usize, usize)> =
            (0..self.columns.len()).map(|index| (index, self.width(index))).collect();
        let sum = |kept: &[(usize, usize)]| {
            kept.iter().map(|(_, width)| width + GAP).sum::<usize>().saturating_sub(GAP)
        };
        let rank = |index: usize| self.columns.get(index).map_or(0, |column| column.rank);
        while sum(&kept) > width {
            let last = kept.iter().map(|(index, _)| rank(*index)).max().unwrap_or(0);
            if last == 0 {
                break;
            }
            kept.retain(|(index, _)| rank(*index) != last);
        }
        while sum(&kept) > width {
            let Some((_, widest)) = kept.iter_mut().max_by_key(|(_, width)| *width) else { break };
            if *widest <= CUT_MIN {
                break;
            }
            *widest -= 1;
        }
        kept
    }

    /// Returns the width of a column: that of its widest cell, or of its head with the mark of the
    /// order.
    fn width(&self, index: usize) -> usize {
        let cells = self.lines.iter().filter_map(|line| line.cells.get(index));
        let widest = cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0);
        widest.max(self.columns.get(index).map_or(0, |column| column.head.len()))
    }

    /// Returns the table as plain text.
    pub fn render(&self) -> String {
        let heads: Vec<_> = self.columns.iter().map(|column| (column.head, column.align)).collect();
        let mut table = TextTable::new(&heads);
        for line in &self.lines {
            table.row(line.cells.iter().map(|cell| cell.text.clone()).collect());
        }
        let remark = self.remark.as_ref().map(|remark| format!("{remark}\n")).unwrap_or_default();
        table.render() + &remark
    }
}

/// Compares cells: by number, then by text. A cell without a number is below all numbers.
fn compare(a: &Cell, b: &Cell) -> Ordering {
    let by_number = match (a.number, b.number) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    };
    by_number.then_with(|| a.text.cmp(&b.text))
}

/// Replaces control characters by a question mark.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Returns a number with at most four characters and a decimal unit, such as `1.25M`.
pub fn short(number: f64) -> String {
    let number = number.max(0.0);
    if number < 0.05 {
        return "0".into();
    }
    let (mut value, mut unit) = (number, "");
    for next in ["k", "M", "G", "T", "P", "E"] {
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    let decimals = match value {
        _ if unit.is_empty() && value < 9.95 => 1,
        _ if unit.is_empty() => 0,
        _ if value < 9.995 => 2,
        _ if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{unit}")
}
