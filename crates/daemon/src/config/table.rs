//! A TOML table as JSON values with the position of each key, for tables that the model checks.

use std::collections::BTreeMap;
use std::ops::Range;

use causeway_model::schema::{Problem, ProblemKind};
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::check::Sited;
use super::problem::Problems;

/// Byte ranges of a key and of its value in the file.
#[derive(Debug, Clone)]
struct Place {
    key: Range<usize>,
    value: Range<usize>,
}

/// A table of the file.
#[derive(Debug)]
pub struct Table {
    /// Title in messages: `[[port]]`.
    title: &'static str,
    /// The values.
    pub values: Map<String, Value>,
    /// Positions by path, in the form of [`Problem::path`].
    places: BTreeMap<String, Place>,
    whole: Range<usize>,
}

impl Table {
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
        let mut places = BTreeMap::new();
        let values = map(table, "", &mut places, problems);
        Some(Self { title, values, places, whole })
    }

    /// Reports a problem at the position of its key.
    pub fn report(&self, problem: &Problem, problems: &mut Problems) {
        let (title, key, text) = (self.title, problem.key(), &problem.text);
        let place = self.places.get(&problem.path);
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
        self.places.get(path).map_or_else(|| self.whole.clone(), |place| place.value.clone())
    }

    /// Returns a value that was read from this table, with the positions of its keys.
    pub fn sited<T>(self, value: T) -> Sited<T> {
        let spans = self.places.into_iter().map(|(path, place)| (path, place.value)).collect();
        Sited { value, spans, whole: self.whole }
    }
}

fn map(
    table: &DeTable<'_>,
    prefix: &str,
    places: &mut BTreeMap<String, Place>,
    problems: &mut Problems,
) -> Map<String, Value> {
    let mut values = Map::new();
    for (key, value) in table {
        let path = format!("{prefix}{}", key.get_ref());
        places.insert(path.clone(), Place { key: key.span(), value: value.span() });
        if let Some(json) = json(value, &path, places, problems) {
            values.insert(key.get_ref().to_string(), json);
        }
    }
    values
}

fn json(
    value: &Spanned<DeValue<'_>>,
    path: &str,
    places: &mut BTreeMap<String, Place>,
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
                places.insert(path.clone(), Place { key: item.span(), value: item.span() });
                array.extend(json(item, &path, places, problems));
            }
            Value::Array(array)
        }
        DeValue::Table(table) => Value::Object(map(table, &format!("{path}."), places, problems)),
    })
}
