//! `/v1/captures`: frames that pass a port or a link, as a pcapng file in several replies.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_model::commands::captures::{Begin, End, Fetch, Stop};
use serde_json::json;

use super::{Call, invalid, no_path, refused};
use crate::fabric::ask;
use crate::http::Reply;

pub(super) fn captures(call: &Call<'_>, rest: &[&str]) -> Result<Reply, Reply> {
    let number = |text: &str| {
        text.parse::<u64>().map_err(|_| invalid(format!("capture {text:?}: expected its number")))
    };
    match (rest, call.method()) {
        ([], "POST") => call.ask(Begin(call.body()?), 201),
        ([text], "GET") => fetch(call, number(text)?),
        ([text, "stop"], "POST") => call.tell(Stop(number(text)?)),
        ([text], "DELETE") => call.tell(End(number(text)?)),
        ([], _) => Err(Reply::method_not_allowed("POST")),
        ([_], _) => Err(Reply::method_not_allowed("GET, DELETE")),
        ([_, "stop"], _) => Err(Reply::method_not_allowed("POST")),
        _ => Err(no_path(call.request)),
    }
}

fn fetch(call: &Call<'_>, number: u64) -> Result<Reply, Reply> {
    let fetched = ask(call.fabric, Fetch(number)).map_err(refused)?;
    Ok(Reply::json(
        200,
        &json!({
            "bytes": STANDARD.encode(&fetched.bytes),
            "frames_total": fetched.frames,
            "dropped_total": fetched.dropped,
            "closed": fetched.closed,
        }),
    ))
}
