//! Formats a log record as one line: `level=… target=… msg="…" key=value …`.
//!
//! Values of ASCII from `!` to `~` without `"`, `=` and `\` are written plain; all others, as empty
//! values and those with a space, in quotes with escapes, so that bytes of guests and clients
//! cannot end the quotes or the line. A text of a message or value is cut at
//! [`LOG_VALUE_BYTES_MAX`] (2,048) bytes, the line at [`LOG_LINE_BYTES_MAX`] (8,192); `…` marks the
//! cut, and a cut line may lack its last quote and keys. Keys are not escaped: they are literals of
//! the code.
//!
//! `super` calls [`line()`] in the thread that called the log macro, for example a dispatcher, and
//! queues the result (`queue`) for the thread that writes to stderr. The function is pure and does
//! not fail.

use std::fmt::Write as _;

use causeway_model::date;
use log::Record;
use log::kv::{self, Key, Value, VisitSource};

use crate::limits::{LOG_LINE_BYTES_MAX, LOG_VALUE_BYTES_MAX};

/// Returns the line of a record, with its line feed. `at` is the time since 1970; `None` omits it.
pub fn line(record: &Record<'_>, at: Option<std::time::Duration>) -> String {
    let mut line = String::new();
    if let Some(at) = at {
        let _ = write!(line, "time={} ", utc(at.as_secs(), at.subsec_millis()));
    }
    write_record(&mut line, record);
    line
}

/// Appends level, target, message and values to a line, and ends it.
fn write_record(line: &mut String, record: &Record<'_>) {
    let level = record.level().as_str().to_ascii_lowercase();
    let _ = write!(line, "level={level} target=");
    write_value(line, record.target());
    line.push_str(" msg=\"");
    write_escaped(line, &record.args().to_string());
    line.push('"');
    let _ = record.key_values().visit(&mut Pairs(line));
    cut(line);
    line.push('\n');
}

/// Truncates a line to [`LOG_LINE_BYTES_MAX`] (8,192 bytes).
fn cut(line: &mut String) {
    if line.len() > LOG_LINE_BYTES_MAX {
        let end = (0..=LOG_LINE_BYTES_MAX).rev().find(|end| line.is_char_boundary(*end));
        line.truncate(end.unwrap_or(0));
        line.push('…');
    }
}

/// Appends each key and value to a line.
struct Pairs<'a>(&'a mut String);

impl<'kvs> VisitSource<'kvs> for Pairs<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        let _ = write!(self.0, " {key}=");
        write_value(self.0, &value.to_string());
        Ok(())
    }
}

/// Writes a plain value as it is, others in quotes.
fn write_value(line: &mut String, value: &str) {
    let plain = |c: char| c.is_ascii_graphic() && c != '"' && c != '=' && c != '\\';
    if !value.is_empty() && value.len() <= LOG_VALUE_BYTES_MAX && value.chars().all(plain) {
        line.push_str(value);
        return;
    }
    line.push('"');
    write_escaped(line, value);
    line.push('"');
}

/// Escapes a text, so that untrusted bytes cannot end the quotes or the line.
fn write_escaped(line: &mut String, text: &str) {
    let start = line.len();
    for c in text.chars() {
        if line.len() - start >= LOG_VALUE_BYTES_MAX {
            line.push('…');
            return;
        }
        match c {
            '"' | '\\' => {
                line.push('\\');
                line.push(c);
            }
            '\n' => line.push_str("\\n"),
            '\t' => line.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(line, "\\u{{{:x}}}", u32::from(c));
            }
            c => line.push(c),
        }
    }
}

/// Returns seconds since 1970 as `2026-11-21T20:34:05.123Z`.
fn utc(seconds: u64, millis: u32) -> String {
    let second = seconds % 86_400;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z", date(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: &str, pairs: &[(&str, &str)]) -> String {
        let mut line = String::new();
        write_record(
            &mut line,
            &Record::builder()
                .level(log::Level::Warn)
                .target("causeway_fabric::port")
                .args(format_args!("{message}"))
                .key_values(&pairs)
                .build(),
        );
        line
    }

    #[test]
    fn log_record_is_one_line_of_pairs() {
        assert_eq!(
            line("port closed", &[("port", "vm1-net"), ("reason", "bad head 9"), ("x", "")]),
            "level=warn target=causeway_fabric::port msg=\"port closed\" port=vm1-net \
             reason=\"bad head 9\" x=\"\"\n"
        );
    }

    #[test]
    fn log_escapes_hostile_text() {
        let text = line("a\"b\\\nlevel=error \u{1b}[2J", &[("k", "v\" level=error")]);
        assert_eq!(text.matches('\n').count(), 1);
        assert!(
            text.contains(r#"msg="a\"b\\\nlevel=error \u{1b}[2J" k="v\" level=error""#),
            "{text}"
        );
        assert!(line(&"x".repeat(100_000), &[]).len() < 2 * LOG_VALUE_BYTES_MAX);
        let long = "é".repeat(2000);
        let many = vec![("k", long.as_str()); 20];
        let text = line("x", &many);
        assert!(text.len() <= LOG_LINE_BYTES_MAX + "…\n".len(), "{}", text.len());
        assert!(text.ends_with("…\n"));
    }

    #[test]
    fn log_times_are_utc_dates() {
        assert_eq!(utc(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_400, 5), "2000-02-29T00:00:00.005Z");
        assert_eq!(utc(1_735_689_599, 999), "2024-12-31T23:59:59.999Z");
        assert_eq!(utc(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    }
}
