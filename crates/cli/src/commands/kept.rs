//! What is added at run time is lost when causewayd restarts: the tool answers so, and prints the
//! lines that keep it.

use serde_json::{Map, Value};

/// Prints to stderr that `wanted` is not kept, and the lines of a configuration file that keep it.
pub fn warn_not_kept(table: &str, wanted: &Value) {
    let nothing = Map::new();
    eprint!("{}", note(table, wanted.as_object().unwrap_or(&nothing)));
}

/// Prints to stderr that what a file changed is not kept.
pub fn warn_file_not_kept() {
    eprintln!(
        "causeway: these changes are not kept across a restart of causewayd, which reads its own \
         configuration file (--config) and no other"
    );
}

fn note(table: &str, wanted: &Map<String, Value>) -> String {
    let mut out = format!(
        "causeway: this {table} is not kept across a restart of causewayd; to keep it, add these \
         lines to its configuration file:\n[[{table}]]\n"
    );
    // The name first, as in every example.
    let (first, rest): (Vec<_>, Vec<_>) = wanted.iter().partition(|(key, _)| *key == "name");
    for (key, value) in first.into_iter().chain(rest).filter(|(_, value)| !value.is_null()) {
        out.push_str(&format!("{key} = {}\n", toml(value)));
    }
    out
}

/// A value in TOML. Its strings take all that JSON's are written with, and nothing here is null.
fn toml(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("{key} = {}", toml(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_to_keep_a_route_are_toml() {
        let route = json!({
            "group": "blue", "destination": "any", "to": { "edge": "to \"b\"" }, "from": null,
        });
        let text = note("route", route.as_object().unwrap());
        let (_, lines) = text.split_once(":\n").unwrap();
        assert!(lines.starts_with("[[route]]\n"), "{text}");
        assert!(lines.contains("to = { edge = \"to \\\"b\\\"\" }\n"), "{text}");
        assert!(!lines.contains("from"), "{text}");
    }
}
