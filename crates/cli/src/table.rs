//! Aligned tables and lists of `key value` lines for people, and numbers with units.
//!
//! Widths count characters, not terminal columns: wide characters misalign. Nothing is cut, wrapped
//! or escaped, and the width of the terminal is not considered. A cell must not contain a line
//! feed; a row must have a cell for each column. The format is no interface for programs, which use
//! the JSON output.
//!
//! The functions are pure. The verbs in [`crate::commands`] fill tables from [`crate::view`] and
//! print the text; [`crate::top`] and `doctor` use the columns and the units. All run in the main
//! thread.

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table with a header line and columns as wide as their widest cells.
#[derive(Debug, Clone)]
pub struct TextTable {
    /// Title and alignment of each column.
    heads: Vec<(&'static str, Align)>,
    /// Cells of each row, a cell for each column.
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Returns a table with these columns and no rows.
    pub fn new(heads: &[(&'static str, Align)]) -> Self {
        Self { heads: heads.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with a cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.heads.len());
        self.rows.push(cells);
    }

    /// Returns the lines of the table.
    pub fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|c| c.chars().count()).max().unwrap_or(0);
            widest.max(self.heads.get(column).map_or(0, |(head, _)| head.len()))
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let padded =
                cells.zip(&self.heads).zip(&widths).map(
                    |((cell, (_, align)), width)| match align {
                        Align::Left => format!("{cell:<width$}"),
                        Align::Right => format!("{cell:>width$}"),
                    },
                );
            let line = padded.collect::<Vec<_>>().join("  ");
            format!("{}\n", line.trim_end())
        };
        let mut out = line(&mut self.heads.iter().map(|(head, _)| *head));
        for row in &self.rows {
            out.push_str(&line(&mut row.iter().map(String::as_str)));
        }
        out
    }
}

/// Returns aligned `key  value` lines; further lines of a value are indented.
pub fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for (key, value) in pairs {
        let mut key = *key;
        for line in value.lines().chain(value.is_empty().then_some("-")) {
            out.push_str(format!("{key:<width$}  {line}").trim_end());
            out.push('\n');
            key = "";
        }
    }
    out
}

/// Returns a number of bytes with a binary unit, such as `1.5 GiB`.
pub fn bytes(n: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (n as f64, "B");
    for next in units {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" || value.fract() < 0.05 {
        format!("{value:.0} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}

/// Returns seconds as `1d 2h 3m 4s`, without leading zero parts; fractions are dropped, negative
/// numbers are 0.
pub fn duration(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    let parts = [(s / 86_400, 'd'), (s / 3_600 % 24, 'h'), (s / 60 % 60, 'm'), (s % 60, 's')];
    let first = parts.iter().position(|(n, _)| *n > 0).unwrap_or(3);
    parts.iter().skip(first).map(|(n, unit)| format!("{n}{unit}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_columns_are_as_wide_as_their_widest_cell() {
        let mut table = TextTable::new(&[("NAME", Align::Left), ("N", Align::Right)]);
        table.row(vec!["vm1-vsock".into(), "7".into()]);
        table.row(vec!["é".into(), "1234".into()]);
        assert_eq!(table.render(), "NAME          N\nvm1-vsock     7\né          1234\n");
    }

    #[test]
    fn table_pairs_units_and_times() {
        assert_eq!(
            pairs(&[("a", "1\n2".into()), ("long", String::new())]),
            "a     1\n      2\nlong  -\n"
        );
        assert_eq!(
            (bytes(512), bytes(1024), bytes(1 << 30)),
            ("512 B".into(), "1 KiB".into(), "1 GiB".into())
        );
        assert_eq!(bytes(1_610_612_736), "1.5 GiB");
        assert_eq!((duration(0.4), duration(61.0)), ("0s".into(), "1m 1s".into()));
        assert_eq!(duration(90_000.0), "1d 1h 0m 0s");
    }
}
