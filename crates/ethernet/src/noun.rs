//! Nouns of the control API: `/v1/captures`, `/v1/routes` and `/v1/traffic`.
//!
//! | request | effect |
//! |---|---|
//! | `POST /v1/captures` | begins a capture, and replies with its number |
//! | `GET /v1/captures/N` | takes the bytes captured since the previous request, in base64 |
//! | `POST /v1/captures/N/stop` | ends the recording and keeps the bytes |
//! | `DELETE /v1/captures/N` | ends the capture and frees its bytes |
//! | `GET /v1/routes` | lists the routes of all groups, newest first |
//! | `POST /v1/routes` | adds a route, and replies with it |
//! | `DELETE /v1/routes/N` | deletes the route with this number |
//! | `GET /v1/traffic/GROUP` | shows the traffic matrix of a group, the busiest pair first |
//!
//! Bytes of a capture are delivered once: those of a reply that the client does not receive are
//! lost. A client that fetches too slowly loses frames, which `dropped_total` counts; guests are
//! not slowed. A capture belongs to no connection: it ends when no client has fetched for 30 s. A
//! group has at most 16 captures and the daemon 64 (a further one is 409), at most 8 MiB of frames
//! wait in each, and a reply has at most 1 MiB of them. Numbers of routes start at 1 and are not
//! reused while the daemon runs; a route beyond [`ROUTES_MAX`](causeway_model::limits::ROUTES_MAX)
//! (16,384) and a duplicate are 409. The traffic matrix is [`causeway_fabric::traffic`]; the
//! request resets no counter. A capture, route, group, port or link that does not exist is 404.
//!
//! The daemon calls the handlers on the thread of a connection; the controller (`crate::control`)
//! answers their commands.

use causeway_model::commands::captures::{Begin, End, Fetch, Stop};
use causeway_model::commands::{routes, traffic};
use causeway_model::noun::name;
use causeway_model::{NounCall, NounDefinition, NounError, NounResult, RouteSpec, schema};

/// The nouns of the service.
pub(crate) const NOUNS: &[NounDefinition] = &[
    NounDefinition::new("captures", captures),
    NounDefinition::new("routes", routes),
    NounDefinition::new("traffic", traffic),
];

/// Reads the number of an object in the path.
fn number(object: &str, text: &str, expected: &str) -> Result<u64, NounError> {
    text.parse().map_err(|_| NounError::invalid(format!("{object} {text:?}: expected {expected}")))
}

/// Answers `/v1/captures`.
fn captures(call: &NounCall<'_>) -> NounResult {
    let number = |text| number("capture", text, "its number");
    match (call.path, call.method) {
        ([], "POST") => call.add(Begin(call.body()?)),
        ([text], "GET") => call.show(Fetch(number(text)?)),
        ([text, "stop"], "POST") => call.execute(Stop(number(text)?)),
        ([text], "DELETE") => call.execute(End(number(text)?)),
        ([], _) => Err(NounError::Method("POST")),
        ([_], _) => Err(NounError::Method("GET, DELETE")),
        ([_, "stop"], _) => Err(NounError::Method("POST")),
        _ => Err(NounError::Path),
    }
}

/// Answers `/v1/routes`.
fn routes(call: &NounCall<'_>) -> NounResult {
    match (call.path, call.method) {
        ([], "GET") => call.show(routes::List),
        ([], "POST") => {
            let spec = RouteSpec::read(&call.body()?);
            let invalid = |problems: Vec<_>| NounError::invalid(schema::joined("route", &problems));
            call.add(routes::Add(spec.map_err(invalid)?))
        }
        ([text], "DELETE") => {
            call.execute(routes::Delete(number("route", text, "its number, from 1")?))
        }
        ([], _) => Err(NounError::Method("GET, POST")),
        ([_], _) => Err(NounError::Method("DELETE")),
        _ => Err(NounError::Path),
    }
}

/// Answers `/v1/traffic`.
fn traffic(call: &NounCall<'_>) -> NounResult {
    match (call.path, call.method) {
        ([group], "GET") => call.show(traffic::Show(name(group)?)),
        ([_], _) => Err(NounError::Method("GET")),
        _ => Err(NounError::Path),
    }
}
