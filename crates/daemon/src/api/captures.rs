//! `/v1/captures`: frames that pass a port or a link, as a pcapng file in several replies.
//!
//! `POST /v1/captures` begins a capture and answers with its number, `GET /v1/captures/N` takes the
//! bytes captured since the previous request, `POST /v1/captures/N/stop` ends the recording and
//! keeps the bytes, `DELETE /v1/captures/N` ends the capture and frees them.
//!
//! Bytes are delivered once: those of a reply that the client does not receive are lost. A client
//! that fetches too slowly loses frames, which `dropped_total` counts; guests are not slowed. A
//! capture belongs to no connection: it ends when no client has fetched for 30 s. The `ethernet`
//! service buffers and limits: 16 captures of a group and 64 in all (a further one is refused with
//! 409; a capture that has ended, or an unknown port or link, with 404), 8 MiB of frames that wait
//! in each, and 1 MiB per reply.
//!
//! `super::answer` dispatches here on the thread of a connection; `causeway capture` is the client.

use causeway_model::commands::captures::{Begin, End, Fetch, Stop};
use serde_json::json;

use super::{ApiCall, invalid, no_path, refused};
use crate::fabric::ask;
use crate::http::HttpReply;

/// Answers `/v1/captures`; `rest` holds the path segments after it.
pub(super) fn captures(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    let number = |text: &str| {
        text.parse::<u64>().map_err(|_| invalid(format!("capture {text:?}: expected its number")))
    };
    match (rest, call.method()) {
        ([], "POST") => call.ask(Begin(call.body()?), 201),
        ([text], "GET") => fetch(call, number(text)?),
        ([text, "stop"], "POST") => call.execute(Stop(number(text)?)),
        ([text], "DELETE") => call.execute(End(number(text)?)),
        ([], _) => Err(HttpReply::method_not_allowed("POST")),
        ([_], _) => Err(HttpReply::method_not_allowed("GET, DELETE")),
        ([_, "stop"], _) => Err(HttpReply::method_not_allowed("POST")),
        _ => Err(no_path(call.request)),
    }
}

/// Takes the next bytes of a capture, in base64.
fn fetch(call: &ApiCall<'_>, number: u64) -> Result<HttpReply, HttpReply> {
    let fetched = ask(call.fabric, Fetch(number)).map_err(refused)?;
    Ok(HttpReply::json(200, &json!(fetched)))
}
