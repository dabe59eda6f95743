//! Warnings that changes at run time are lost when causewayd restarts, with the lines of the
//! configuration file that keep them.

use causeway_model::schema::to_toml;
use serde_json::{Map, Value};

/// Prints to stderr that an added object is not kept, and the lines of a configuration file that
/// keep it.
pub fn warn_not_kept(table: &str, wanted: &Value) {
    let nothing = Map::new();
    eprint!("{}", note(table, wanted.as_object().unwrap_or(&nothing)));
}

/// Prints to stderr that the changes of a file are not kept.
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
    // The name first, as in the examples.
    let rest = wanted.keys().map(String::as_str).filter(|key| *key != "name");
    to_toml(&mut out, std::iter::once("name").chain(rest), wanted);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kept_lines_of_a_route_are_toml() {
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
