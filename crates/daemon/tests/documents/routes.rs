//! docs/openapi.json: paths of the control API from the table below, bodies from the tables of the
//! model. The daemon's own answers prove that the table is complete: the refusal of an unknown path
//! lists all nouns, and the refusal of a method lists the methods of a path.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use causeway_daemon::services::{Registered, SERVICES};
use causeway_model::draft::link::LINK_FIELDS;
use causeway_model::port::PORT_FIELDS;
use causeway_model::schema::{Field, FieldInfo, TypeInfo};
use causeway_model::{FORWARD_FIELDS, GROUP_FIELDS, ROUTE_FIELDS, RULE_FIELDS};
use serde_json::{Map, Value, json};

use super::{UPDATE, read, root};
use crate::common;

const PAGE: &str = "docs/openapi.json";

/// Path, method, summary, schema of the body, status of success.
type Route = (&'static str, &'static str, &'static str, Option<&'static str>, u16);

const ROUTES: &[Route] = &[
    ("/v1/info", "get", "Version, process and paths of the daemon", None, 200),
    ("/v1/ports", "get", "All ports", None, 200),
    ("/v1/ports", "post", "Adds a port; it listens at once", Some("Port"), 201),
    ("/v1/ports/{name}", "get", "A port: state, faults, queues, counters", None, 200),
    ("/v1/ports/{name}", "delete", "Deletes a port and closes its connections", None, 204),
    ("/v1/groups", "get", "All groups", None, 200),
    ("/v1/groups", "post", "Adds a group", Some("Group"), 204),
    ("/v1/groups/{name}", "get", "A group", None, 200),
    ("/v1/groups/{name}", "delete", "Deletes a group without ports and links", None, 204),
    ("/v1/rules", "get", "All rules, in their order", None, 200),
    ("/v1/rules", "post", "Adds a rule", Some("Rule"), 201),
    ("/v1/rules/{index}", "delete", "Deletes a rule", None, 204),
    ("/v1/links", "get", "All links", None, 200),
    ("/v1/links", "post", "Adds a link", Some("Link"), 201),
    ("/v1/links/{name}", "get", "A link: state, round trip, loss, counters", None, 200),
    ("/v1/links/{name}", "delete", "Deletes a link and its routes", None, 204),
    ("/v1/routes", "get", "All routes, newest first", None, 200),
    ("/v1/routes", "post", "Adds a route", Some("Route"), 201),
    ("/v1/routes/{index}", "delete", "Deletes a route", None, 204),
    ("/v1/captures", "post", "Starts a capture at a port or a link", Some("Object"), 200),
    ("/v1/captures/{number}", "get", "The next bytes of a capture", None, 200),
    ("/v1/captures/{number}", "delete", "Ends a capture", None, 204),
    ("/v1/captures/{number}/stop", "post", "Stops copying; waiting frames stay", None, 204),
    ("/v1/forwards", "get", "All forwards: state, reason, counters", None, 200),
    ("/v1/forwards", "post", "Adds a forward", Some("Forward"), 201),
    ("/v1/forwards/{name}", "get", "A forward", None, 200),
    ("/v1/forwards/{name}", "delete", "Deletes a forward and closes its connections", None, 204),
    (
        "/v1/forwarder",
        "post",
        "Takes a forwarder's report, and lists its tasks",
        Some("Report"),
        200,
    ),
    ("/v1/cluster", "get", "The cluster: state, reason, numbers of hosts and addresses", None, 200),
    ("/v1/cluster/hosts", "get", "Other hosts of the site", None, 200),
    ("/v1/cluster/addresses", "get", "Addresses of other hosts", None, 200),
    (
        "/v1/cluster/local",
        "post",
        "Waits for a change of this host's addresses",
        Some("Object"),
        200,
    ),
    (
        "/v1/cluster/remote",
        "post",
        "Takes hosts and addresses of the site from causeway-directory",
        Some("Object"),
        200,
    ),
    ("/v1/traffic/{group}", "get", "Traffic by pairs of addresses", None, 200),
    ("/v1/apply", "post", "Changes the running state to that of a file", Some("Apply"), 200),
    ("/v1/vnet", "post", "Executes commands of the VNET language", Some("Vnet"), 200),
    ("/v1/config", "get", "The running state as a configuration file", None, 200),
    ("/v1/config/diff", "post", "Compares the running state with a file", Some("Diff"), 200),
    ("/v1/connections", "get", "AF_VSOCK connections, the first page", None, 200),
    ("/v1/connections", "post", "AF_VSOCK connections, by filter and page", Some("Object"), 200),
    ("/v1/kinds", "get", "Kinds of ports and their options", None, 200),
    ("/v1/nics", "get", "NICs of this host", None, 200),
    ("/v1/nics/{port}", "get", "A NIC with its processes, sessions and endpoints", None, 200),
    ("/v1/peers", "get", "NICs of other hosts", None, 200),
    ("/v1/hcas", "get", "Host channel adapters", None, 200),
    ("/v1/hcas/{port}", "get", "An adapter with its queue pairs", None, 200),
    ("/v1/dispatchers", "get", "Dispatchers and their shards", None, 200),
    ("/v1/dispatchers/{number}", "post", "Moves a group to a dispatcher", Some("Move"), 200),
    ("/v1/stats", "get", "Counters of all ports and links", None, 200),
    ("/v1/shutdown", "post", "Stops the daemon", Some("Shutdown"), 204),
    ("/v1/trace", "post", "Explains the way of a frame or a connect", Some("Object"), 200),
];

/// Checks the page, and the table against the answers of the API.
pub fn check() {
    let text = serde_json::to_string_pretty(&document()).unwrap() + "\n";
    if std::env::var_os("CAUSEWAY_UPDATE_DOCUMENTS").is_some() {
        std::fs::write(root().join(PAGE), &text).unwrap();
    }
    assert!(read(PAGE) == text, "{PAGE} differs from the code: run {UPDATE}");
    let (control, _kept) = common::serve_kept(Arc::new(common::model::Model::default()), "");
    let (_, refusal) = common::send(&control.socket, "GET", "/v1/no-such-noun", "");
    let refusal = refusal["error"]["message"].as_str().unwrap().to_owned();
    let nouns = refusal.split_once("one of ").unwrap().1;
    let nouns: BTreeSet<&str> = nouns.split(", ").collect();
    let listed = ROUTES.iter().filter_map(|(path, ..)| path.split('/').nth(2));
    assert_eq!(listed.collect::<BTreeSet<&str>>(), nouns);
    for (path, methods) in by_path() {
        let example = path.replace("{name}", "x").replace("{port}", "x").replace("{group}", "x");
        let example = example.replace("{index}", "1").replace("{number}", "1");
        assert_eq!(allowed(&control.socket, &example), methods, "{path}");
    }
}

/// Returns the methods of each path, in capitals.
fn by_path() -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut paths: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (path, method, ..) in ROUTES {
        paths.entry(*path).or_default().insert(method.to_uppercase());
    }
    paths
}

/// Returns the methods in the refusal of another method.
fn allowed(socket: &Path, path: &str) -> BTreeSet<String> {
    let mut stream = UnixStream::connect(socket).unwrap();
    let request = format!("PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let allow = reply.lines().find_map(|line| line.strip_prefix("Allow: "));
    let allow = allow.unwrap_or_else(|| panic!("PUT {path}: {reply}"));
    allow.split(", ").map(|method| method.trim().to_owned()).collect()
}

/// Returns the description of the API.
fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for (path, method, summary, body, status) in ROUTES {
        let entry = paths.entry(*path).or_insert_with(|| json!({ "parameters": parameters(path) }));
        entry[*method] = operation(path, method, summary, *body, *status);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Causeway control API",
            "version": "1",
            "description": "HTTP/1.1 on a Unix socket, one request per connection. \
                Fields may be added to replies; none is changed or removed within /v1. \
                docs/control-api.md describes the fields of replies.",
            "license": { "name": "Apache-2.0 OR MIT" },
        },
        "servers": [{ "url": "http://causewayd", "description": "the socket /run/causeway/control.sock" }],
        "paths": paths,
        "components": { "schemas": schemas() },
    })
}

fn parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| {
        let value = if matches!(name, "index" | "number") { "integer" } else { "string" };
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": value } })
    };
    names.map(parameter).collect()
}

fn operation(path: &str, method: &str, summary: &str, body: Option<&str>, status: u16) -> Value {
    let words = path.split('/').skip(2).map(|part| part.trim_matches(['{', '}']));
    let id = format!("{method}_{}", words.collect::<Vec<_>>().join("_"));
    let success = match status {
        204 => json!({ "description": "done" }),
        _ => json!({ "description": summary, "content": { "application/json": {} } }),
    };
    let refusal = json!({
        "description": "refused",
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Refusal" } } },
    });
    let mut operation = json!({
        "summary": summary,
        "operationId": id,
        "responses": { status.to_string(): success, "default": refusal },
    });
    if let Some(body) = body {
        let schema = json!({ "$ref": format!("#/components/schemas/{body}") });
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    operation
}

fn schemas() -> Value {
    let text = json!({ "type": "string" });
    let kinds: Vec<&Field> =
        Registered::of(SERVICES).kinds.iter().flat_map(|kind| kind.fields()).collect();
    let names: Vec<&str> = Registered::of(SERVICES).kinds.iter().map(|kind| kind.name).collect();
    let mut port = table(PORT_FIELDS.iter());
    port["properties"]["kind"] = json!({ "enum": names });
    port["required"].as_array_mut().unwrap().push("kind".into());
    for (key, value) in table(kinds.into_iter())["properties"].as_object().unwrap() {
        port["properties"][key] = value.clone();
    }
    json!({
        "Port": port,
        "Group": table(GROUP_FIELDS.iter()),
        "Rule": table(RULE_FIELDS.iter()),
        "Link": table(LINK_FIELDS.iter()),
        "Route": table(ROUTE_FIELDS.iter()),
        "Forward": table(FORWARD_FIELDS.iter()),
        "Report": object(
            json!({
                "pid": { "type": "integer" }, "instance": { "type": "integer" },
                "forwards": { "type": "array", "items": { "type": "object" } },
                "ends": { "type": "boolean" },
            }),
            &["pid", "instance", "forwards"],
        ),
        "Object": { "type": "object" },
        "Apply": object(json!({ "text": text, "file": text, "dry_run": { "type": "boolean" } }), &["text"]),
        "Diff": object(json!({ "text": text, "file": text }), &["text"]),
        "Vnet": object(
            json!({ "group": text, "text": text, "file": text, "dry_run": { "type": "boolean" } }),
            &["group", "text"],
        ),
        "Move": object(json!({ "group": text, "service": text }), &["group"]),
        "Shutdown": object(json!({ "release": { "type": "boolean" } }), &[]),
        "Refusal": object(
            json!({ "error": object(json!({ "kind": text, "message": text }), &["kind", "message"]) }),
            &["error"],
        ),
    })
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}

/// Returns the schema of a table of the model.
fn table(fields: impl Iterator<Item = &'static Field>) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for field in fields {
        let info = FieldInfo::from(field);
        if info.required {
            required.push(info.key.clone());
        }
        properties.insert(info.key.clone(), property(&info));
    }
    json!({ "type": "object", "properties": properties, "required": required })
}

fn property(info: &FieldInfo) -> Value {
    let mut schema = match info.value {
        TypeInfo::Boolean => json!({ "type": "boolean" }),
        TypeInfo::Integer => json!({ "type": "integer", "minimum": info.min, "maximum": info.max }),
        TypeInfo::Word => json!({ "enum": info.words }),
        TypeInfo::Text | TypeInfo::Path => json!({ "type": "string" }),
        TypeInfo::NumberOrText => json!({ "type": ["integer", "string"] }),
        TypeInfo::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        TypeInfo::Table | TypeInfo::Choice => json!({ "type": "object" }),
        TypeInfo::Tables => json!({ "type": "array", "items": { "type": "object" } }),
    };
    schema["description"] = info.help.clone().into();
    schema
}
