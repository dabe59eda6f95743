//! `POST /v1/apply`: changes the running state to that of a file.

use std::sync::Arc;

use crate::common::{ControlSocket, model::Model, send, serve};
use serde_json::{Value, json};

const FILE: &str = r#"
[[group]]
name = "blue"
[[port]]
name = "a"
group = "blue"
kind = "net"
[[rule]]
action = "reject"
to = "*/*:22"
[[link]]
name = "l"
group = "blue"
kind = "vnet"
remote = "far.example"
[[route]]
group = "blue"
to = { edge = "l" }
from = { interface = "a" }
"#;

fn start() -> (Arc<Model>, ControlSocket) {
    let model = Arc::new(Model::default());
    (model.clone(), serve(model))
}

fn apply(control: &ControlSocket, text: &str, dry_run: bool) -> (u16, Value) {
    let body = json!({ "text": text, "file": "c.toml", "dry_run": dry_run });
    send(&control.socket, "POST", "/v1/apply", &body.to_string())
}

/// Returns the changes as `+group`, `~link` and so on.
fn signs(value: &Value) -> Vec<String> {
    let sign = |change: &Value| {
        let sign = match change["action"].as_str().unwrap() {
            "add" => "+",
            "delete" => "-",
            _ => "~",
        };
        format!("{sign}{}", change["what"].as_str().unwrap())
    };
    value["changes"].as_array().unwrap().iter().map(sign).collect()
}

#[test]
fn apply_of_the_same_file_again_changes_nothing() {
    let (model, control) = start();
    let all = ["+group", "+rule", "+port", "+link", "+route"];
    let (status, dry) = apply(&control, FILE, true);
    assert_eq!((status, signs(&dry)), (200, all.map(str::to_owned).to_vec()));
    assert_eq!((model.changes(), &dry["changes"][0]["done"]), (0, &json!(false)));
    let (status, real) = apply(&control, FILE, false);
    assert_eq!((status, signs(&real).len(), model.changes()), (200, 5, 5), "{real}");
    assert_eq!(real["changes"][3]["after"]["remote"], "10.0.0.9:9000");
    let (status, again) = apply(&control, FILE, false);
    assert_eq!((status, &again["changes"], model.changes()), (200, &json!([]), 5));
}

#[test]
fn apply_replaces_objects_and_those_that_name_them() {
    let (_, control) = start();
    apply(&control, FILE, false);
    let changed = FILE.replace("far.example", "10.0.0.3").replace("*/*:22", "*/*:23");
    let (status, value) = apply(&control, &changed, false);
    assert_eq!(
        (status, signs(&value)),
        (200, ["-rule", "+rule", "~link", "~route"].map(str::to_owned).to_vec())
    );
    let (_, link) = send(&control.socket, "GET", "/v1/links/l", "");
    assert_eq!(link["remote"], "10.0.0.3:9000");
    assert_eq!(send(&control.socket, "GET", "/v1/routes", "").1.as_array().unwrap().len(), 1);
    let (_, value) = apply(&control, "", false);
    assert_eq!(signs(&value), ["-group", "-rule", "-port", "-link", "-route"]);
    assert_eq!(send(&control.socket, "GET", "/v1/groups", "").1, json!([]));
}

#[test]
fn apply_failure_reports_the_changes_made_and_not_made() {
    let (model, control) = start();
    model.fail_after(2);
    let (status, value) = apply(&control, FILE, false);
    assert_eq!(status, 500, "{value}");
    let done: Vec<bool> =
        value["changes"].as_array().unwrap().iter().map(|c| c["done"] == true).collect();
    assert_eq!(done, [true, true, false, false, false]);
    let message = value["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("add port a: the host ran out"), "{message}");
    assert!(message.contains("2 of 5 changes were made"), "{message}");
    model.succeed_again();
    let (status, value) = apply(&control, FILE, false);
    assert_eq!((status, signs(&value).len()), (200, 3), "only what was left");
}

#[test]
fn hostile_files_change_nothing() {
    let (model, control) = start();
    apply(&control, FILE, false);
    let before = model.changes();
    for (text, expected) in [
        ("[[group]\n", "c.toml:1:9"),
        ("[[route]]\ngroup = \"x\"\nto = { edge = \"l\" }", "c.toml:2:9: key \"group\""),
        (&FILE.replace("far.example", "nobody"), "host \"nobody\" cannot be resolved"),
        (&"[[rule]]\naction=\"accept\"\n".repeat(4097), "4097 tables [[rule]]"),
    ] {
        let (status, value) = apply(&control, text, false);
        let message = value["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(status, 422, "{value}");
        assert!(message.contains(expected), "{message:.300}");
    }
    assert_eq!(send(&control.socket, "GET", "/v1/apply", "").0, 405);
    assert_eq!(send(&control.socket, "POST", "/v1/apply", r#"{"txt":""}"#).0, 422);
    let (status, _) = apply(&control, &"#".repeat(9 << 20), false);
    assert_eq!((status, model.changes()), (413, before));
    // The request may be longer than the text, which a JSON encoding lengthens.
    assert_eq!(apply(&control, &"#".repeat(4 << 20), true).0, 200);
    let (status, value) = apply(&control, &"#".repeat((4 << 20) + 1), false);
    let message = value["error"]["message"].as_str().unwrap();
    assert_eq!((status, model.changes()), (422, before), "{value}");
    assert!(message.contains("c.toml: expected a configuration of at most 4194304"), "{message}");
}
