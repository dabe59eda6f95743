//! Keys of tables: their types, ranges, defaults and help, each stated once.
//!
//! A [`Field`] describes one key of a port, a link or another table. The configuration file, the
//! control API, the command line, manual pages and the printed configuration derive from it. The
//! macro [`table!`](macro@crate::schema::table) declares a struct and the fields of its table together.
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

pub use check::{Problem, ProblemKind, check, check_value};
pub use describe::{FieldInfo, TypeInfo};
pub use nearest::nearest;
pub use print::{quoted, to_toml};
pub use table::table;

/// One key of a table.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The key, as the configuration file and the control API have it.
    pub key: &'static str,
    /// What the value means, in a sentence or two.
    pub help: &'static str,
    /// Type and range.
    pub value: ValueType,
    /// The value where the operator gives none.
    pub default: DefaultValue,
    /// Another key that must be given beside this one.
    pub requires: Option<&'static str>,
    /// Whether two tables of one kind in one group must differ in the value.
    pub is_unique: bool,
}

/// Type and range of a value.
#[derive(Debug, Clone, Copy)]
pub enum ValueType {
    /// `true` or `false`.
    Boolean,
    /// An integer of a range.
    Integer {
        /// Least value.
        min: u64,
        /// Largest value.
        max: u64,
        /// What help texts call the value: its unit, or `N`.
        unit: &'static str,
    },
    /// One of some words.
    Word(&'static [&'static str]),
    /// A text of one form.
    Text(Form),
    /// An integer, or a text of one form; both are read by the form.
    NumberOrText(Form),
    /// An absolute path.
    Path,
    /// An absolute path of at most so many bytes, of a Unix socket.
    SocketPath(usize),
    /// A list of texts of one form.
    Texts(Form),
    /// A table within the table.
    Table(&'static [Field]),
    /// A list of tables within the table.
    Tables(&'static [Field]),
}

/// The form of a text.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// What help texts call the value.
    pub placeholder: &'static str,
    /// Returns what was expected if a text has another form.
    pub check: fn(&str) -> Result<(), String>,
}

/// The value of a key that is not given.
#[derive(Debug, Clone, Copy)]
pub enum DefaultValue {
    /// The key must be given; the text says what is expected.
    Required(&'static str),
    /// None.
    None,
    /// None; the text describes the effect.
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
    /// A key without further conditions.
    pub const fn new(
        key: &'static str,
        help: &'static str,
        value: ValueType,
        default: DefaultValue,
    ) -> Self {
        Self { key, help, value, default, requires: None, is_unique: false }
    }

    /// The same key, unique within its kind and group.
    #[must_use]
    pub const fn unique(self) -> Self {
        Self { is_unique: true, ..self }
    }

    /// The same key, which needs another one beside it.
    #[must_use]
    pub const fn with(self, key: &'static str) -> Self {
        Self { requires: Some(key), ..self }
    }

    /// The same key with another default.
    #[must_use]
    pub const fn or(self, default: DefaultValue) -> Self {
        Self { default, ..self }
    }

    /// Whether the key must be given.
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

/// Returns an error text if `text` is not of type `T`.
///
/// # Errors
/// The type's own error.
pub fn parses<T: FromStr<Err: Display>>(text: &str) -> Result<(), String> {
    text.parse::<T>().map(drop).map_err(|error| error.to_string())
}

/// A text that is read as a `T`.
pub const fn text<T: FromStr<Err: Display>>(placeholder: &'static str) -> ValueType {
    ValueType::Text(Form { placeholder, check: parses::<T> })
}

/// Fills in the defaults of keys that are not given.
pub fn fill<'a>(fields: impl IntoIterator<Item = &'a Field>, values: &mut Map<String, Value>) {
    for field in fields {
        let is_given = values.get(field.key).is_some_and(|value| !value.is_null());
        if let (false, Some(value)) = (is_given, field.default.value()) {
            values.insert(field.key.to_owned(), value);
        }
    }
}
