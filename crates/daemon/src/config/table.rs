//! A TOML table as JSON values with the position of each key, for the tables that the model checks.
//!
//! [`TomlTable::read`] converts, and reports values that JSON does not have (dates) and integers of
//! more than 64 bits; `causeway_model::schema` then checks keys, types, ranges and defaults;
//! [`TomlTable::report`] translates each problem back to a byte range of the file. The module knows
//! no key itself. Nested tables have dotted paths, as in [`Problem::path`].
//!
//! `config::read` reads every table of a configuration file by this module, `config::state` those
//! of the state file, in the thread that reads the text. The functions add to the caller's
//! `Problems` and go on: a value that cannot be converted is left out of its table. A table that
//! the model refuses yields `None`, or, by [`TomlTable::parse_valid`], the values of its other
//! keys.

use std::collections::BTreeMap;
use std::ops::Range;

use causeway_model::schema::{Problem, ProblemKind};
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file_value::FileValue;
use super::problem::Problems;

/// Byte ranges of a key and of its value in the file.
#[derive(Debug, Clone)]
struct KeySpans {
    key: Range<usize>,
    value: Range<usize>,
}

/// A table of the file.
#[derive(Debug)]
pub struct TomlTable {
    /// Title in messages: `[[port]]`.
    title: &'static str,
    /// The values.
    values: Map<String, Value>,
    /// Positions by path, in the form of [`Problem::path`].
    spans: BTreeMap<String, KeySpans>,
    /// Byte range of the table.
    whole: Range<usize>,
}

impl TomlTable {
    /// Reads a table; reports a value of another type.
    pub fn read(
        title: &'static str,
        value: &Spanned<DeValue<'_>>,
        problems: &mut Problems,
    ) -> Option<Self> {
        let whole = value.span();
        let DeValue::Table(table) = value.get_ref() else {
            let found = value.get_ref().type_str();
            problems.add(whole, format!("expected a table {title}, found {found}"));
            return None;
        };
        let mut spans = BTreeMap::new();
        let values = map(table, "", &mut spans, problems);
        Some(Self { title, values, spans, whole })
    }

    /// Reads a table that the file may omit; a value of another type is reported and counts as
    /// omitted.
    pub fn optional(
        title: &'static str,
        value: Option<&Spanned<DeValue<'_>>>,
        problems: &mut Problems,
    ) -> Self {
        let table = value.and_then(|value| Self::read(title, value, problems));
        let (values, spans) = Default::default();
        table.unwrap_or(Self { title, values, spans, whole: 0..0 })
    }

    /// Reports a problem at the position of its key.
    pub fn report(&self, problem: &Problem, problems: &mut Problems) {
        let (title, key, text) = (self.title, problem.key(), &problem.text);
        let place = self.spans.get(&problem.path);
        match problem.kind {
            ProblemKind::Unknown | ProblemKind::Foreign => {
                let span = place.map_or_else(|| self.whole.clone(), |place| place.key.clone());
                let is_foreign = problem.kind == ProblemKind::Foreign;
                let text = if is_foreign {
                    format!("key {key:?}: {text}")
                } else {
                    format!("{title}: unknown key {key:?}; {text}")
                };
                problems.add(span, text);
            }
            ProblemKind::Missing => {
                let table = problem.path.rsplit_once('.').map(|(table, _)| table);
                let span = table.map_or_else(|| self.whole.clone(), |table| self.span(table));
                problems.add(span, format!("{title}: key {key:?} is missing: {text}"));
            }
            ProblemKind::Wrong if problem.path.is_empty() => {
                problems.add(self.whole.clone(), format!("{title}: {text}"));
            }
            ProblemKind::Wrong => {
                problems.add(self.span(&problem.path), format!("key {key:?}: {text}"));
            }
        }
    }

    /// Returns the byte range of a value, or of the table if the key is not given.
    fn span(&self, path: &str) -> Range<usize> {
        self.spans.get(path).map_or_else(|| self.whole.clone(), |place| place.value.clone())
    }

    /// Reads the table with a function of the model; reports the problems that it returns.
    pub fn parse<T>(
        self,
        read: impl FnOnce(&Map<String, Value>) -> Result<T, Vec<Problem>>,
        problems: &mut Problems,
    ) -> Option<FileValue<T>> {
        match read(&self.values) {
            Ok(value) => Some(self.with_spans(value)),
            Err(found) => {
                found.iter().for_each(|problem| self.report(problem, problems));
                None
            }
        }
    }

    /// Reads a table all of whose keys are optional: keys with problems are reported, and count as
    /// not given.
    pub fn parse_valid<T>(
        mut self,
        read: impl Fn(&Map<String, Value>) -> Result<T, Vec<Problem>>,
        problems: &mut Problems,
    ) -> Option<FileValue<T>> {
        for problem in read(&self.values).err().into_iter().flatten() {
            self.report(&problem, problems);
            let key = problem.path.split(['.', '[']).next().unwrap_or_default();
            self.values.remove(key);
        }
        let value = read(&self.values).ok()?;
        Some(self.with_spans(value))
    }

    /// Returns a value that was read from this table, with the positions of its keys.
    fn with_spans<T>(self, value: T) -> FileValue<T> {
        let spans = self.spans.into_iter().map(|(path, place)| (path, place.value)).collect();
        FileValue { value, spans, whole: self.whole }
    }
}

/// Returns a table as JSON. Adds the positions of its keys to `spans`.
fn map(
    table: &DeTable<'_>,
    prefix: &str,
    spans: &mut BTreeMap<String, KeySpans>,
    problems: &mut Problems,
) -> Map<String, Value> {
    let mut values = Map::new();
    for (key, value) in table {
        let path = format!("{prefix}{}", key.get_ref());
        spans.insert(path.clone(), KeySpans { key: key.span(), value: value.span() });
        if let Some(json) = json(value, &path, spans, problems) {
            values.insert(key.get_ref().to_string(), json);
        }
    }
    values
}

/// Returns a value as JSON; reports dates and integers of more than 64 bits.
fn json(
    value: &Spanned<DeValue<'_>>,
    path: &str,
    spans: &mut BTreeMap<String, KeySpans>,
    problems: &mut Problems,
) -> Option<Value> {
    Some(match value.get_ref() {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Boolean(yes) => Value::from(*yes),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) => Value::from(number),
            Err(_) => {
                let text = format!("key {path:?}: expected a smaller integer, found {integer}");
                problems.add(value.span(), text);
                return None;
            }
        },
        DeValue::Float(float) => Value::from(float.as_str().parse::<f64>().unwrap_or(f64::NAN)),
        DeValue::Datetime(_) => {
            problems.add(value.span(), format!("key {path:?}: expected no date or time"));
            return None;
        }
        DeValue::Array(items) => {
            let mut array = Vec::new();
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                spans.insert(path.clone(), KeySpans { key: item.span(), value: item.span() });
                array.extend(json(item, &path, spans, problems));
            }
            Value::Array(array)
        }
        DeValue::Table(table) => Value::Object(map(table, &format!("{path}."), spans, problems)),
    })
}
