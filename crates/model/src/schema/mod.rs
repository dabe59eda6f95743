//! Keys of tables: their types, ranges, defaults and help, each stated once.
//!
//! A [`Field`] describes one key of a port, a link or another table. The configuration file, the
//! control API, the command line, manual pages and the printed configuration derive from it. The
//! macro [`table!`](macro@crate::schema::table) declares a struct and the fields of its table
//! together. The module checks a table ([`check`](fn@check)): unknown and missing keys, the type,
//! range and form of each value, and keys that require another. It fills in defaults ([`fill`]) and
//! converts tables to structs ([`read`]) and back ([`values`]). It reads no file, compares no two
//! tables, and does not know whether an object exists: the owners of the tables do. Neither the
//! number of keys of a table nor the length of its texts and lists is bounded here, except by a
//! form; a check descends as far as the fields nest.
//!
//! `causewayd` reads the tables of its configuration (main thread), of the state file (`lifecycle`)
//! and of requests (thread of the connection): [`crate::port::read()`],
//! [`crate::draft::LinkDraft::read`], [`crate::RouteSpec::read`],
//! [`crate::RuleSpec::read_with_index`], [`crate::ForwardSpec::read`], the module
//! [`crate::settings`] and, in the daemon, `config` and `api`. `causeway` reads its command line by
//! [`FieldInfo::read`] and [`read`], in its main thread. The thread `state` prints the state file
//! by [`to_toml`]. No dispatcher calls the module.
//!
//! ```
//! use causeway_model::schema::{self, DefaultValue, Field, ValueType};
//! use serde_json::json;
//!
//! const FIELDS: &[Field] = &[Field::new(
//!     "mtu",
//!     "Largest payload of a frame, in bytes.",
//!     ValueType::Integer { min: 68, max: 65535, unit: "BYTES" },
//!     DefaultValue::Number(1500),
//! )];
//! let given = json!({ "mtu": 67 });
//! let problems = schema::check(FIELDS.iter(), given.as_object().unwrap());
//! assert_eq!(problems[0].text, "expected an integer from 68 to 65535, found 67");
//! ```

mod check;
mod describe;
mod nearest;
mod print;
mod table;

use std::fmt::Display;
use std::str::FromStr;

use serde_json::{Map, Value, json};

use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use check::check_path;
pub use check::{Problem, ProblemKind, check, check_value};
pub use describe::{FieldInfo, TypeInfo};
pub use nearest::nearest;
pub use print::{quoted, to_toml};
pub use table::table;

/// One key of a table.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The key in the configuration file and the control API.
    pub key: &'static str,
    /// Meaning of the value, in a sentence or two. Operators read it in help texts and manual
    /// pages.
    pub help: &'static str,
    /// Type and range of the value.
    pub value: ValueType,
    /// The value if the operator gives none.
    pub default: DefaultValue,
    /// Another key that must be given together with this key.
    pub requires: Option<&'static str>,
    /// Whether the value must differ between two tables of one kind in one group.
    pub is_unique: bool,
}

/// Type and range of a value.
#[derive(Debug, Clone, Copy)]
pub enum ValueType {
    /// `true` or `false`.
    Boolean,
    /// An integer in a range.
    Integer {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
        /// Placeholder for the value in help texts: its unit, or `N`.
        unit: &'static str,
    },
    /// A word of a fixed list.
    Word(&'static [&'static str]),
    /// A text of a given form.
    Text(Form),
    /// An integer, or a text of a given form; the form reads both.
    NumberOrText(Form),
    /// An absolute path.
    Path,
    /// An absolute path of a Unix socket, with its largest length in bytes.
    SocketPath(usize),
    /// A list of texts of a given form.
    Texts(Form),
    /// A table within the table.
    Table(&'static [Field]),
    /// A list of tables within the table.
    Tables(&'static [Field]),
    /// A table with exactly one of the keys; on the command line `KEY:VALUE`.
    Choice(&'static [Field]),
}

/// The form of a text.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// Placeholder for the value in help texts.
    pub placeholder: &'static str,
    /// Returns an error with the expected form if the text does not have it.
    pub check: fn(&str) -> Result<(), String>,
}

/// The default of a key.
#[derive(Debug, Clone, Copy)]
pub enum DefaultValue {
    /// The key must be given; the text states the expected value.
    Required(&'static str),
    /// No value.
    None,
    /// No value; the text describes the effect.
    NoneMeans(&'static str),
    /// A boolean.
    Boolean(bool),
    /// An integer.
    Number(u64),
    /// A word or text.
    Text(&'static str),
    /// A value that depends on others; the text describes it.
    Derived(&'static str),
}

impl Field {
    /// Returns a key without further conditions.
    pub const fn new(
        key: &'static str,
        help: &'static str,
        value: ValueType,
        default: DefaultValue,
    ) -> Self {
        Self { key, help, value, default, requires: None, is_unique: false }
    }

    /// Returns the key, with values that are unique within kind and group.
    #[must_use]
    pub const fn unique(self) -> Self {
        Self { is_unique: true, ..self }
    }

    /// Returns the key, which requires another key.
    #[must_use]
    pub const fn with(self, key: &'static str) -> Self {
        Self { requires: Some(key), ..self }
    }

    /// Returns the key with another default.
    #[must_use]
    pub const fn or(self, default: DefaultValue) -> Self {
        Self { default, ..self }
    }

    /// Returns whether the key must be given.
    pub const fn is_required(&self) -> bool {
        matches!(self.default, DefaultValue::Required(_))
    }
}

impl DefaultValue {
    /// Returns the value that is filled in, or `None` if there is none or it is derived.
    pub fn value(self) -> Option<Value> {
        match self {
            Self::Boolean(yes) => Some(json!(yes)),
            Self::Number(number) => Some(json!(number)),
            Self::Text(text) => Some(json!(text)),
            Self::Required(_) | Self::None | Self::NoneMeans(_) | Self::Derived(_) => None,
        }
    }

    /// Returns the default as help texts show it.
    pub fn shown(self) -> Option<String> {
        match self {
            Self::Required(_) | Self::None => None,
            Self::Boolean(yes) => Some(yes.to_string()),
            Self::Number(number) => Some(number.to_string()),
            Self::Text(text) | Self::Derived(text) | Self::NoneMeans(text) => Some(text.to_owned()),
        }
    }
}

impl ValueType {
    /// Returns the placeholder for the value in help texts.
    pub fn placeholder(&self) -> String {
        match self {
            Self::Boolean => "",
            Self::Integer { unit, .. } => unit,
            Self::Word(_) => "WORD",
            Self::Text(form) | Self::NumberOrText(form) | Self::Texts(form) => form.placeholder,
            Self::Path | Self::SocketPath(_) => "PATH",
            Self::Table(_) | Self::Tables(_) => "JSON",
            Self::Choice(fields) => {
                let forms = fields.iter().map(|f| format!("{}:{}", f.key, f.value.placeholder()));
                return forms.collect::<Vec<_>>().join("|");
            }
        }
        .to_owned()
    }
}

/// Checks that `text` parses as a `T`.
///
/// # Errors
/// The type's own error.
pub fn parses<T: FromStr<Err: Display>>(text: &str) -> Result<(), String> {
    text.parse::<T>().map(drop).map_err(|error| error.to_string())
}

/// Returns the type of a text that parses as a `T`.
pub const fn text<T: FromStr<Err: Display>>(placeholder: &'static str) -> ValueType {
    ValueType::Text(Form { placeholder, check: parses::<T> })
}

/// Reads the struct of a table. JSON's `null` counts as not given; defaults are not filled in.
///
/// # Errors
/// All problems of the values. If they have none, the first error of the conversion.
pub fn read<T: DeserializeOwned>(
    fields: &[Field],
    values: &Map<String, Value>,
) -> Result<T, Vec<Problem>> {
    let problems = check(fields, values);
    if !problems.is_empty() {
        return Err(problems);
    }
    build(values.clone())
}

/// Reads the struct of a table, with the defaults of keys that are not given.
///
/// # Errors
/// As [`read`].
pub fn read_filled<T: DeserializeOwned>(
    fields: &[Field],
    values: &Map<String, Value>,
) -> Result<T, Vec<Problem>> {
    let problems = check(fields, values);
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut values = values.clone();
    fill(fields, &mut values);
    build(values)
}

fn build<T: DeserializeOwned>(mut values: Map<String, Value>) -> Result<T, Vec<Problem>> {
    values.retain(|_, value| !value.is_null());
    serde_json::from_value(Value::Object(values))
        .map_err(|error| vec![Problem::wrong("", error.to_string())])
}

/// Returns the problems as one line that starts with `place`.
pub fn joined(place: &str, problems: &[Problem]) -> String {
    let prefix = format!("{place}: ");
    let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let text = all.join("; ");
    if text.starts_with(&prefix) { text } else { prefix + &text }
}

/// Returns the problems of a table of this section as one line that starts with its name.
pub fn named(section: &str, values: &Map<String, Value>, problems: &[Problem]) -> String {
    let name = values.get("name").and_then(Value::as_str).unwrap_or("?");
    joined(&format!("{section} {name}"), problems)
}

/// Returns the values of the struct of a table, by key.
pub fn values<T: Serialize>(table: &T) -> Map<String, Value> {
    match serde_json::to_value(table) {
        Ok(Value::Object(values)) => values,
        // A struct with named members is always an object.
        _ => Map::new(),
    }
}

/// Fills in the defaults of keys that are not given, or null. Tables within the table, and derived
/// defaults, stay as they are.
pub fn fill<'a>(fields: impl IntoIterator<Item = &'a Field>, values: &mut Map<String, Value>) {
    for field in fields {
        let is_given = values.get(field.key).is_some_and(|value| !value.is_null());
        if let (false, Some(value)) = (is_given, field.default.value()) {
            values.insert(field.key.to_owned(), value);
        }
    }
}
