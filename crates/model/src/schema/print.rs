//! Prints values as TOML.
//!
//! `daemon::config::print` and `daemon::config::state` print the configuration and the state file
//! with these functions, in the daemon's main thread, in threads of the control socket and in the
//! thread `state`. Tables within tables become inline tables, each value a single line; comments
//! and the order of the operator's file are not kept. Keys are printed as they are: they must be
//! bare TOML keys. Values of JSON's `null` are omitted. Nothing is checked: the values were, when
//! they were read.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Appends `key = value` lines to `out` in the order of `keys`; omits keys that are not given.
pub fn to_toml<'a>(
    out: &mut String,
    keys: impl IntoIterator<Item = &'a str>,
    values: &Map<String, Value>,
) {
    for key in keys {
        if let Some(value) = values.get(key).filter(|value| !value.is_null()) {
            let _ = writeln!(out, "{key} = {}", inline(value));
        }
    }
}

/// Returns a value as a single line.
fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let shown = fields.iter().filter(|(_, value)| !value.is_null());
            let shown: Vec<String> =
                shown.map(|(key, value)| format!("{key} = {}", inline(value))).collect();
            format!("{{ {} }}", shown.join(", "))
        }
        other => other.to_string(),
    }
}

/// Returns a basic TOML string (TOML 1.0, "String").
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn toml_lines_have_the_order_of_the_keys() {
        let values = json!({
            "name": "a\"b", "udp": { "listen": "x", "peers": ["y"] }, "mtu": 1500, "none": null,
        });
        let mut out = String::new();
        to_toml(&mut out, ["mtu", "name", "none", "absent", "udp"], values.as_object().unwrap());
        assert_eq!(
            out,
            "mtu = 1500\nname = \"a\\\"b\"\nudp = { listen = \"x\", peers = [\"y\"] }\n"
        );
    }
}
