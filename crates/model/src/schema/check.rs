//! Checks the values of a table against its fields.
//!
//! The readers of tables ([`crate::port::read()`], [`super::read`], [`super::read_filled`]) call
//! [`check`] before they convert a table to a type; [`super::FieldInfo::read`] checks one value of
//! the command line of `causeway` by [`check_value`]. [`check`] reports all problems: unknown and
//! missing keys, values of another type, form or range, and keys without the key that they require.
//! JSON's `null` counts as not given. A required key with a misspelt key beside it is not reported
//! as missing too. The number of problems is not bounded; `daemon::config` shows the first 20.
//!
//! The module does not fill in defaults ([`super::fill`]), does not compare tables with each other
//! ([`super::Field::is_unique`]), and does not touch files: a path is checked for its form, and
//! that of a socket for its length. Conditions between values are checked by the type. The
//! functions are pure, and run in the thread of the reader.

use serde_json::{Map, Value};

use super::{DefaultValue, Field, ValueType, nearest};

/// The type of a problem with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// The table has no such key.
    Unknown,
    /// Only tables of another kind have the key. [`crate::port::read()`] reports it; [`check`]
    /// knows one kind alone, and does not.
    Foreign,
    /// The key must be given.
    Missing,
    /// The value is of another type, form or range.
    Wrong,
}

/// One problem of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Path of the key, such as `mtu`, `udp.listen` or `peers[0].mac`; empty for the table as a
    /// whole.
    pub path: String,
    /// The type of the problem.
    pub kind: ProblemKind,
    /// The expected form, as text.
    pub text: String,
}

impl Problem {
    /// Returns the problem of a value with an unexpected type, form or range.
    pub fn wrong(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), kind: ProblemKind::Wrong, text: text.into() }
    }

    /// Returns the last key of the path, without an index.
    pub fn key(&self) -> &str {
        let last = self.path.rsplit('.').next().unwrap_or_default();
        last.split('[').next().unwrap_or_default()
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, kind, text } = self;
        match kind {
            ProblemKind::Wrong if path.is_empty() => f.write_str(text),
            ProblemKind::Wrong | ProblemKind::Missing | ProblemKind::Foreign => {
                write!(f, "{path}: {text}")
            }
            ProblemKind::Unknown => write!(f, "unknown key {:?}; {text}", self.key()),
        }
    }
}

/// Returns all problems of the values of a table. JSON's `null` counts as not given.
pub fn check<'a>(
    fields: impl IntoIterator<Item = &'a Field>,
    values: &Map<String, Value>,
) -> Vec<Problem> {
    let fields: Vec<&Field> = fields.into_iter().collect();
    let mut problems = Vec::new();
    check_table("", &fields, values, &mut problems);
    problems
}

/// Appends the problems of a table whose keys begin with `prefix`.
fn check_table(
    prefix: &str,
    fields: &[&Field],
    values: &Map<String, Value>,
    problems: &mut Vec<Problem>,
) {
    let path = |key: &str| format!("{prefix}{key}");
    let keys = || fields.iter().map(|field| field.key);
    let mut misspelt = Vec::new();
    for key in values.keys().filter(|key| !keys().any(|known| known == key.as_str())) {
        let near = nearest(key, keys());
        misspelt.extend(near);
        let text = match near {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("expected one of {}", keys().collect::<Vec<_>>().join(", ")),
        };
        problems.push(Problem { path: path(key), kind: ProblemKind::Unknown, text });
    }
    let given = |key: &str| values.get(key).filter(|value| !value.is_null());
    for field in fields {
        match (given(field.key), field.default) {
            (Some(value), _) => {
                check_into(&path(field.key), &field.value, value, problems);
                // A disabled option requires no other key.
                let needed = field.requires.filter(|_| *value != Value::Bool(false));
                if let Some(other) = needed.filter(|other| given(other).is_none()) {
                    problems.push(Problem::wrong(
                        path(field.key),
                        format!("expected {other} beside it"),
                    ));
                }
            }
            (None, DefaultValue::Required(hint)) if !misspelt.contains(&field.key) => {
                let (path, kind) = (path(field.key), ProblemKind::Missing);
                problems.push(Problem { path, kind, text: hint.to_owned() });
            }
            (None, _) => {}
        }
    }
}

/// Returns all problems of one value.
pub fn check_value(field: &Field, value: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    check_into(field.key, &field.value, value, &mut problems);
    problems
}

/// Appends the problems of the value at `path`, and of tables within it.
fn check_into(path: &str, wanted: &ValueType, value: &Value, problems: &mut Vec<Problem>) {
    let result = match (wanted, value) {
        (ValueType::Table(fields), Value::Object(table)) => {
            let fields: Vec<&Field> = fields.iter().collect();
            return check_table(&format!("{path}."), &fields, table, problems);
        }
        (ValueType::Tables(fields), Value::Array(tables)) => {
            let fields: Vec<&Field> = fields.iter().collect();
            for (index, table) in tables.iter().enumerate() {
                let path = format!("{path}[{index}]");
                match table {
                    Value::Object(table) => {
                        check_table(&format!("{path}."), &fields, table, problems);
                    }
                    other => problems.push(Problem::wrong(path, expected("a table", other))),
                }
            }
            return;
        }
        (ValueType::Choice(fields), Value::Object(table)) => {
            let before = problems.len();
            let fields: Vec<&Field> = fields.iter().collect();
            check_table(&format!("{path}."), &fields, table, problems);
            if problems.len() == before && table.values().filter(|v| !v.is_null()).count() != 1 {
                let form = |f: &&Field| format!("{{ {} = \"{}\" }}", f.key, f.value.placeholder());
                let forms: Vec<String> = fields.iter().map(form).collect();
                problems.push(Problem::wrong(path, format!("expected {}", forms.join(" or "))));
            }
            return;
        }
        (ValueType::Texts(form), Value::Array(texts)) => {
            for (index, text) in texts.iter().enumerate() {
                let checked = match text {
                    Value::String(text) => (form.check)(text),
                    other => Err(expected("a string", other)),
                };
                let wrong = |text| Problem::wrong(format!("{path}[{index}]"), text);
                problems.extend(checked.err().map(wrong));
            }
            return;
        }
        (wanted, value) => check_plain(wanted, value),
    };
    problems.extend(result.err().map(|text| Problem::wrong(path, text)));
}

/// Checks a value that contains no table.
fn check_plain(wanted: &ValueType, value: &Value) -> Result<(), String> {
    match (wanted, value) {
        (ValueType::Boolean, Value::Bool(_)) => Ok(()),
        (ValueType::Integer { min, max, .. }, Value::Number(number)) if !number.is_f64() => {
            let fits = number.as_u64().is_some_and(|n| (*min..=*max).contains(&n));
            let text = || format!("expected an integer from {min} to {max}, found {number}");
            if fits { Ok(()) } else { Err(text()) }
        }
        (ValueType::Word(words), Value::String(word)) => {
            let text = || format!("expected one of {}; found {word:?}", words.join(", "));
            if words.contains(&word.as_str()) { Ok(()) } else { Err(text()) }
        }
        (ValueType::Text(form) | ValueType::NumberOrText(form), Value::String(text)) => {
            (form.check)(text)
        }
        (ValueType::NumberOrText(form), Value::Number(number)) => (form.check)(&number.to_string()),
        (ValueType::Path, Value::String(path)) => check_path(path, usize::MAX),
        (ValueType::SocketPath(most), Value::String(path)) => check_path(path, *most),
        (wanted, other) => Err(expected(&wanted.expected(), other)),
    }
}

/// Checks that a path is absolute, without NUL bytes, and has at most `most` bytes:
/// [`usize::MAX`] for a [`ValueType::Path`].
pub(crate) fn check_path(path: &str, most: usize) -> Result<(), String> {
    if !path.starts_with('/') || path.contains('\0') {
        return Err(format!("expected an absolute path, found {path:?}"));
    }
    let bytes = path.len();
    if bytes > most {
        return Err(format!("a path of {bytes} bytes: expected at most {most} for a Unix socket"));
    }
    Ok(())
}

impl ValueType {
    /// Returns the description of the type, for values of another type.
    fn expected(&self) -> String {
        match self {
            Self::Boolean => "true or false".into(),
            Self::Integer { min, max, .. } => format!("an integer from {min} to {max}"),
            Self::Word(_) | Self::Text(_) | Self::Path | Self::SocketPath(_) => "a string".into(),
            Self::NumberOrText(_) => "a number or a string".into(),
            Self::Texts(_) => "an array of strings".into(),
            Self::Table(_) | Self::Choice(_) => "a table".into(),
            Self::Tables(_) => "an array of tables".into(),
        }
    }
}

/// Returns the text "expected …, found …".
fn expected(wanted: &str, found: &Value) -> String {
    let found = match found {
        Value::Null => "nothing",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "table",
    };
    format!("expected {wanted}, found {found}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Form, parses};
    use super::*;

    const PEER: &[Field] = &[Field::new(
        "mac",
        "",
        ValueType::Text(Form { placeholder: "MAC", check: parses::<crate::Mac> }),
        DefaultValue::Required("an address"),
    )];
    const FIELDS: &[Field] = &[
        Field::new(
            "cid",
            "",
            ValueType::Integer { min: 3, max: 9, unit: "N" },
            DefaultValue::Required("3 or more"),
        ),
        Field::new("learn", "", ValueType::Boolean, DefaultValue::Boolean(false)),
        Field::new("mode", "", ValueType::Word(&["a", "b"]), DefaultValue::Text("a")).with("learn"),
        Field::new("socket", "", ValueType::SocketPath(9), DefaultValue::None),
        Field::new("peers", "", ValueType::Tables(PEER), DefaultValue::None),
    ];

    fn problems(value: Value) -> Vec<String> {
        check(FIELDS, value.as_object().unwrap()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn schema_accepts_values_that_fit() {
        let none: [&str; 0] = [];
        assert_eq!(problems(json!({ "cid": 3 })), none);
        let all = json!({
            "cid": 9, "learn": true, "mode": "b", "socket": "/a",
            "peers": [{ "mac": "02:00:00:00:00:01" }],
        });
        assert_eq!(problems(all), none);
        assert_eq!(problems(json!({ "cid": 3, "learn": null })), none, "null is not given");
    }

    #[test]
    fn schema_problems_name_the_key_and_the_expected_form() {
        for (value, expected) in [
            (json!({}), "cid: 3 or more"),
            (json!({ "cid": 2 }), "cid: expected an integer from 3 to 9, found 2"),
            (json!({ "cid": -3 }), "cid: expected an integer from 3 to 9, found -3"),
            (json!({ "cid": 3.5 }), "cid: expected an integer from 3 to 9, found float"),
            (json!({ "cid": 3, "learn": 1 }), "learn: expected true or false, found integer"),
            (json!({ "cid": 3, "lern": true }), "unknown key \"lern\"; did you mean \"learn\"?"),
            (
                json!({ "cid": 3, "learn": true, "mode": "c" }),
                "mode: expected one of a, b; found \"c\"",
            ),
            (json!({ "cid": 3, "mode": "a" }), "mode: expected learn beside it"),
            (json!({ "cid": 3, "socket": "a" }), "socket: expected an absolute path, found \"a\""),
            (
                json!({ "cid": 3, "socket": "/23456789a" }),
                "socket: a path of 10 bytes: expected at most 9 for a Unix socket",
            ),
            (json!({ "cid": 3, "peers": 3 }), "peers: expected an array of tables, found integer"),
            (json!({ "cid": 3, "peers": [{}] }), "peers[0].mac: an address"),
            (json!({ "cid": 3, "peers": [3] }), "peers[0]: expected a table, found integer"),
        ] {
            assert_eq!(problems(value.clone()), [expected], "{value}");
        }
        assert_eq!(
            problems(json!({ "cdi": 3 })),
            ["unknown key \"cdi\"; did you mean \"cid\"?"],
            "not also as missing"
        );
    }
}
