//! Warnings on stderr that changes at run time are lost when causewayd restarts, with the lines of
//! the configuration file that keep them.
//!
//! The tool neither reads nor writes the daemon's configuration file, and does not know whether the
//! lines are there already: the warning appears after each addition, also with JSON output.
//! Deletions, moves of shards, and additions that `--may-exist` found unnecessary cause no warning.
//!
//! The verbs that add objects call [`warn_not_kept`] after the daemon has accepted the request;
//! `apply` and `vnet` call [`warn_file_not_kept`].

use causeway_model::schema::to_toml;
use serde_json::{Map, Value};

/// Prints to stderr that an added object is not kept, and the lines of a configuration file that
/// keep it: a `[[table]]` with the requested values.
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

/// Returns the warning.
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
