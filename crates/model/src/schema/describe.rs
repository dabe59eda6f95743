//! Fields as data of the control API, so that an older client can use the kinds of ports of a newer
//! daemon.
//!
//! `GET /v1/kinds` returns [`FieldInfo`]s; `causeway` derives options, help and completions from
//! them, and converts a text of the command line by [`FieldInfo::read`]. A client without the field
//! itself checks types, words and ranges alone; the daemon checks the value again, with its form.
//! The conversions run in the thread of a request (`GET /v1/kinds`), and in the main thread of the
//! tool. The module sends nothing and describes a single key at a time; a type of a newer daemon
//! that [`TypeInfo`] lacks makes the whole reply unreadable.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{DefaultValue, Field, ValueType, check_value};

/// The type of a value, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TypeInfo {
    /// `true` or `false`.
    Boolean,
    /// An integer.
    Integer,
    /// A word of a fixed list.
    Word,
    /// A text.
    Text,
    /// An integer or a text.
    NumberOrText,
    /// An absolute path.
    Path,
    /// A list of texts.
    Texts,
    /// A table.
    Table,
    /// A list of tables.
    Tables,
    /// A table with exactly one of the keys in `words`.
    Choice,
}

/// One key of a table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FieldInfo {
    /// The key.
    pub key: String,
    /// Type of the value.
    #[serde(rename = "type")]
    pub value: TypeInfo,
    /// Smallest integer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    /// Largest integer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// The accepted words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
    /// Placeholder for the value in help texts.
    #[serde(default)]
    pub placeholder: String,
    /// Whether the key must be given.
    #[serde(default)]
    pub required: bool,
    /// The default, as help texts show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Another key that must be given together with this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires: Option<String>,
    /// Meaning of the value.
    #[serde(default)]
    pub help: String,
    /// The field itself, if this process has it.
    #[serde(skip)]
    pub field: Option<&'static Field>,
}

impl FieldInfo {
    /// Returns the value of a text from the command line.
    ///
    /// # Errors
    /// The expected form.
    pub fn read(&self, text: &str) -> Result<Value, String> {
        let value = match self.value {
            TypeInfo::Boolean => match text {
                "true" => true.into(),
                "false" => false.into(),
                _ => return Err("expected true or false".into()),
            },
            TypeInfo::Integer => self.read_integer(text)?,
            TypeInfo::NumberOrText => text.parse::<u64>().map_or_else(|_| text.into(), Value::from),
            TypeInfo::Word if !self.words.iter().any(|word| word == text) => {
                return Err(format!("expected one of {}", self.words.join(", ")));
            }
            TypeInfo::Word | TypeInfo::Text | TypeInfo::Path => text.into(),
            TypeInfo::Texts => text.split(',').collect(),
            TypeInfo::Table | TypeInfo::Tables => {
                serde_json::from_str(text).map_err(|error| format!("expected JSON: {error}"))?
            }
            TypeInfo::Choice => {
                let choice =
                    text.split_once(':').filter(|(key, _)| self.words.iter().any(|k| k == key));
                let (key, value) = choice
                    .ok_or_else(|| format!("expected {}", self.placeholder.replace('|', " or ")))?;
                json!({ key: value })
            }
        };
        let problem = self.field.and_then(|field| check_value(field, &value).pop());
        problem.map_or(Ok(value), |problem| Err(problem.text))
    }

    fn read_integer(&self, text: &str) -> Result<Value, String> {
        let (min, max) = (self.min.unwrap_or(0), self.max.unwrap_or(u64::MAX));
        let number = text.parse::<u64>().ok().filter(|number| (min..=max).contains(number));
        number.map(Value::from).ok_or_else(|| format!("expected an integer from {min} to {max}"))
    }
}

impl From<&'static Field> for FieldInfo {
    fn from(field: &'static Field) -> Self {
        let value = match field.value {
            ValueType::Boolean => TypeInfo::Boolean,
            ValueType::Integer { .. } => TypeInfo::Integer,
            ValueType::Word(_) => TypeInfo::Word,
            ValueType::Text(_) => TypeInfo::Text,
            ValueType::NumberOrText(_) => TypeInfo::NumberOrText,
            ValueType::Path | ValueType::SocketPath(_) => TypeInfo::Path,
            ValueType::Texts(_) => TypeInfo::Texts,
            ValueType::Table(_) => TypeInfo::Table,
            ValueType::Tables(_) => TypeInfo::Tables,
            ValueType::Choice(_) => TypeInfo::Choice,
        };
        let (min, max) = match field.value {
            ValueType::Integer { min, max, .. } => (Some(min), Some(max)),
            _ => (None, None),
        };
        let words = match field.value {
            ValueType::Word(words) => words.iter().map(ToString::to_string).collect(),
            ValueType::Choice(fields) => fields.iter().map(|field| field.key.to_owned()).collect(),
            _ => Vec::new(),
        };
        let default = match field.default {
            DefaultValue::Boolean(false) => None,
            other => other.shown(),
        };
        Self {
            key: field.key.to_owned(),
            value,
            min,
            max,
            words,
            placeholder: field.value.placeholder(),
            required: field.is_required(),
            default,
            requires: field.requires.map(ToOwned::to_owned),
            help: sentence(field.help),
            field: Some(field),
        }
    }
}

/// Joins the lines of a documentation comment into a single line.
fn sentence(help: &str) -> String {
    help.split_whitespace().collect::<Vec<_>>().join(" ")
}
