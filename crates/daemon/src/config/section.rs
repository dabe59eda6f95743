//! Reads a table of the file key by key, and collects its problems.
//!
//! A [`Section`] knows the permitted keys of its table and reports unknown keys, with the nearest
//! known key. Each method reads a key as a type and returns its value with its byte range; `None`
//! is an absent key or a reported problem, so that callers fill in the default in both cases.
//! Values are checked by type and range only: relations between keys are the callers' part.
//!
//! `config::read`, `config::dispatch` and `config::links` use it for the tables that have no
//! schema; ports and links use `config::table`.

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::str::FromStr;

use causeway_model::schema::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::Problems;
use causeway_model::limits::SOCKET_PATH_BYTES_MAX;

/// A value and its byte range in the file.
#[derive(Debug, Clone)]
pub struct SpannedValue<T> {
    /// The value.
    pub value: T,
    /// Byte range of the value.
    pub span: Range<usize>,
}

/// A `[table]` or `[[table]]`.
#[derive(Debug)]
pub struct Section<'a, 'i> {
    /// Title in messages: `[daemon]`, `[[port]]`.
    title: &'static str,
    /// Byte range of the table, for problems of missing keys.
    pub span: Range<usize>,
    table: &'a DeTable<'i>,
    known: &'static [&'static str],
}

impl<'a, 'i> Section<'a, 'i> {
    /// Returns a section; reports a value that is no table, and every key that is not in `known`.
    pub fn new(
        title: &'static str,
        value: &'a Spanned<DeValue<'i>>,
        known: &'static [&'static str],
        problems: &mut Problems,
    ) -> Option<Self> {
        let span = value.span();
        match value.get_ref() {
            DeValue::Table(table) => {
                let section = Self { title, span, table, known };
                section.refuse_unknown(problems);
                Some(section)
            }
            other => {
                let found = other.type_str();
                problems.add(span, format!("expected a table {title}, found {found}"));
                None
            }
        }
    }

    fn find(&self, key: &str) -> Option<&'a Spanned<DeValue<'i>>> {
        self.table.get(key)
    }

    fn wrong(&self, key: &str, value: &Spanned<DeValue<'_>>, expected: &str, p: &mut Problems) {
        let found = value.get_ref().type_str();
        p.add(value.span(), format!("key {key:?}: expected {expected}, found {found}"));
    }

    fn refuse_unknown(&self, problems: &mut Problems) {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if !self.known.contains(&name) {
                problems.add(key.span(), unknown(self.title, name, self.known));
            }
        }
    }

    /// Returns whether a reported unknown key is probably a misspelt `key`.
    fn misspelt(&self, key: &str) -> bool {
        let mut names = self.table.keys().map(|k| k.get_ref().as_ref());
        names.any(|n| {
            !self.known.contains(&n) && nearest(n, self.known.iter().copied()) == Some(key)
        })
    }

    /// Reports `key` if it is missing.
    pub fn require(&self, key: &str, expected: &str, problems: &mut Problems) {
        if self.find(key).is_none() && !self.misspelt(key) {
            let title = self.title;
            problems.add(self.span.clone(), format!("{title}: key {key:?} is missing: {expected}"));
        }
    }

    /// Reads a nested table.
    pub fn table(
        &self,
        key: &'static str,
        known: &'static [&'static str],
        problems: &mut Problems,
    ) -> Option<Self> {
        let value = self.find(key)?;
        if let DeValue::Table(_) = value.get_ref() {
            return Self::new(key, value, known, problems);
        }
        self.wrong(key, value, "a table", problems);
        None
    }

    /// Reads a string.
    pub fn string(&self, key: &str, problems: &mut Problems) -> Option<SpannedValue<String>> {
        let value = self.find(key)?;
        match value.get_ref() {
            DeValue::String(text) => {
                Some(SpannedValue { value: text.to_string(), span: value.span() })
            }
            _ => {
                self.wrong(key, value, "a string", problems);
                None
            }
        }
    }

    /// Reads a string and parses it; the parser's error states the expected form.
    pub fn parsed<T: FromStr<Err: Display>>(
        &self,
        key: &str,
        problems: &mut Problems,
    ) -> Option<SpannedValue<T>> {
        parse(key, self.string(key, problems)?, problems)
    }

    /// Reads an array of strings and parses each.
    pub fn all_parsed<T: FromStr<Err: Display>>(
        &self,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Vec<T>> {
        let value = self.find(key)?;
        let DeValue::Array(all) = value.get_ref() else {
            self.wrong(key, value, "an array of strings", problems);
            return None;
        };
        let one = |value: &Spanned<DeValue<'_>>| {
            let parsed = match value.get_ref() {
                DeValue::String(text) => text.parse().map_err(|e: T::Err| e.to_string()),
                other => Err(format!("expected a string, found {}", other.type_str())),
            };
            parsed.map_err(|e| problems.add(value.span(), format!("key {key:?}: {e}"))).ok()
        };
        let parsed: Vec<Option<T>> = all.iter().map(one).collect();
        parsed.into_iter().collect()
    }

    /// Reads a word of a fixed list.
    pub fn word(
        &self,
        key: &str,
        words: &[&'static str],
        problems: &mut Problems,
    ) -> Option<SpannedValue<&'static str>> {
        let SpannedValue { value, span } = self.string(key, problems)?;
        if let Some(word) = words.iter().find(|w| **w == value) {
            return Some(SpannedValue { value: word, span });
        }
        let words = words.join(", ");
        problems.add(span, format!("key {key:?}: expected one of {words}; found {value:?}"));
        None
    }

    /// Reads an integer in a range.
    pub fn integer(
        &self,
        key: &str,
        range: RangeInclusive<u32>,
        problems: &mut Problems,
    ) -> Option<SpannedValue<u32>> {
        let value = self.find(key)?;
        let expected = format!("an integer from {} to {}", range.start(), range.end());
        let DeValue::Integer(integer) = value.get_ref() else {
            self.wrong(key, value, &expected, problems);
            return None;
        };
        match u32::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) if range.contains(&number) => {
                Some(SpannedValue { value: number, span: value.span() })
            }
            _ => {
                let text = format!("key {key:?}: expected {expected}, found {integer}");
                problems.add(value.span(), text);
                None
            }
        }
    }

    /// Reads `true` or `false`.
    pub fn boolean(&self, key: &str, problems: &mut Problems) -> Option<bool> {
        let value = self.find(key)?;
        if let DeValue::Boolean(yes) = value.get_ref() {
            return Some(*yes);
        }
        self.wrong(key, value, "true or false", problems);
        None
    }

    /// Reads an absolute path.
    pub fn path(&self, key: &str, problems: &mut Problems) -> Option<SpannedValue<PathBuf>> {
        let SpannedValue { value, span } = self.string(key, problems)?;
        if !value.starts_with('/') || value.contains('\0') {
            problems.add(span, format!("key {key:?}: expected an absolute path, found {value:?}"));
            return None;
        }
        Some(SpannedValue { value: value.into(), span })
    }

    /// Reads an absolute path short enough for a Unix socket.
    pub fn socket_path(&self, key: &str, problems: &mut Problems) -> Option<SpannedValue<PathBuf>> {
        let at = self.path(key, problems)?;
        let bytes = at.value.as_os_str().len();
        if bytes > SOCKET_PATH_BYTES_MAX {
            let text = format!(
                "key {key:?}: a path of {bytes} bytes: expected at most {SOCKET_PATH_BYTES_MAX} \
                 for a Unix socket"
            );
            problems.add(at.span, text);
            return None;
        }
        Some(at)
    }

    /// Reads file permission bits such as `"0660"`.
    pub fn mode(&self, key: &str, problems: &mut Problems) -> Option<u32> {
        let SpannedValue { value, span } = self.string(key, problems)?;
        match u32::from_str_radix(&value, 8) {
            Ok(mode) if mode <= 0o777 && value.starts_with('0') => Some(mode),
            _ => {
                let expected = "expected octal permissions in quotes, as \"0660\"";
                problems.add(span, format!("key {key:?}: {expected}; found {value:?}"));
                None
            }
        }
    }
}

/// Returns the text of the problem of an unknown key or table in `place`.
pub fn unknown(place: &str, name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("{place}: unknown key {name:?}; did you mean {near:?}?"),
        None => {
            format!("{place}: unknown key {name:?}; expected one of {}", known.join(", "))
        }
    }
}

/// Parses a value, or reports the expected form.
fn parse<T: FromStr<Err: Display>>(
    key: &str,
    SpannedValue { value, span }: SpannedValue<String>,
    problems: &mut Problems,
) -> Option<SpannedValue<T>> {
    match value.parse() {
        Ok(value) => Some(SpannedValue { value, span }),
        Err(error) => {
            problems.add(span, format!("key {key:?}: {error}"));
            None
        }
    }
}
