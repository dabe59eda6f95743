//! Problems of a configuration file: collected while it is read, then printed with their lines.
//!
//! [`Problems::add`] never fails and keeps every problem; [`Problems::render`] prints the first
//! [`PROBLEMS_MAX`] (20) in the order of the file, each with the line (cut to [`SHOWN_CHARS_MAX`]
//! (100) characters) and a mark under it, and the number of the others. Positions are byte ranges
//! of the source text; a range outside of it is clamped. Equal problems are not merged: reporters
//! avoid them.
//!
//! The parts of `config` that read and check a text add problems, in the thread that reads it;
//! `Config::parse` renders them into its error, `config::state` the first line of those of a table.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use causeway_model::schema::nearest;

use crate::limits::PROBLEMS_MAX;

/// Most characters of a line that are printed: of a longer line, those around the problem.
const SHOWN_CHARS_MAX: usize = 100;

/// A problem and its byte range.
#[derive(Debug, Clone)]
struct FileProblem {
    span: Range<usize>,
    text: String,
}

/// All problems of one file; printed in the order of the lines.
#[derive(Debug, Clone, Default)]
pub struct Problems {
    list: Vec<FileProblem>,
}

impl Problems {
    /// Adds a problem of the bytes of `span`; `text` names the key and the expected value.
    pub fn add(&mut self, span: Range<usize>, text: impl Into<String>) {
        self.list.push(FileProblem { span, text: text.into() });
    }

    /// Returns whether there are no problems.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the problems as text: `file:line:column: problem`, then the line, then marks under
    /// it.
    pub fn render(&self, file: &Path, source: &str) -> String {
        let mut list = self.list.clone();
        list.sort_by_key(|p| p.span.start);
        let mut out = String::new();
        for problem in list.iter().take(PROBLEMS_MAX) {
            render_one(&mut out, problem, file, source);
        }
        if let Some(more @ 1..) = list.len().checked_sub(PROBLEMS_MAX) {
            let _ = writeln!(out, "{}: {more} more problems not shown", file.display());
        }
        out
    }
}

/// Returns the text of the problem of an unknown table in `place`.
pub fn unknown(place: &str, name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("{place}: unknown key {name:?}; did you mean {near:?}?"),
        None => {
            format!("{place}: unknown key {name:?}; expected one of {}", known.join(", "))
        }
    }
}

/// Returns the line number of a byte, from 1.
pub fn line_of(source: &str, at: usize) -> usize {
    let before = source.as_bytes().get(..at.min(source.len())).unwrap_or_default();
    1 + before.iter().filter(|b| **b == b'\n').count()
}

/// Appends a problem with its position, its line and the marks.
fn render_one(out: &mut String, problem: &FileProblem, file: &Path, source: &str) {
    let start = floor_boundary(source, problem.span.start);
    let line = line_of(source, start);
    let line_start = source[..start].rfind('\n').map_or(0, |n| n + 1);
    let text = source[line_start..].lines().next().unwrap_or("");
    let column = 1 + source[line_start..start].chars().count();
    // The problem may be at the end of a line, which is no part of the line's text.
    let text_end = start.max(line_start + text.len());
    let end = floor_boundary(source, problem.span.end).clamp(start, text_end);
    let length = source[start..end].chars().count();

    // A line too long for a terminal is printed from shortly before the problem.
    let skip = if column < SHOWN_CHARS_MAX { 0 } else { column - 20 };
    let shown = text.chars().skip(skip).take(SHOWN_CHARS_MAX);
    let shown: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
    let indent = column - 1 - skip;
    let marks = "^".repeat(length.clamp(1, SHOWN_CHARS_MAX - indent));

    let _ = writeln!(out, "{}:{line}:{column}: {}", file.display(), problem.text);
    let number = line.to_string();
    let _ = writeln!(out, "  {number} | {shown}");
    let _ = writeln!(out, "  {:w$} | {:indent$}{marks}", "", "", w = number.len());
}

/// Returns the nearest character boundary at or before `at`.
fn floor_boundary(source: &str, at: usize) -> usize {
    let mut at = at.min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_may_be_at_the_end_of_a_line() {
        for source in ["ab\r\ncd", "ab\ncd", "ab\r\n", "ab"] {
            for at in 0..=source.len() {
                let mut problems = Problems::default();
                problems.add(at..at + 1, "wrong");
                let text = problems.render(Path::new("c.toml"), source);
                assert!(text.contains("wrong") && text.contains('^'), "{text}");
            }
        }
    }

    #[test]
    fn problem_is_printed_with_marks_under_the_value() {
        let source = "[daemon]\nlog = \"lood\"\n";
        let mut problems = Problems::default();
        let at = source.find("\"lood\"").unwrap();
        problems.add(at..at + 6, "key \"log\": expected error, warn, info or debug");
        assert_eq!(
            problems.render(Path::new("c.toml"), source),
            "c.toml:2:7: key \"log\": expected error, warn, info or debug\n  \
             2 | log = \"lood\"\n    |       ^^^^^^\n"
        );
    }

    #[test]
    fn problem_outside_the_text_is_printed() {
        let mut problems = Problems::default();
        problems.add(100..200, "beyond");
        problems.add(1..2, "inside a letter");
        assert!(problems.render(Path::new("c"), "é").contains("beyond"));
        assert!(problems.render(Path::new("c"), "").contains("inside"));
    }
}
