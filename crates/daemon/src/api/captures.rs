//! `/v1/captures`: frames that pass a port or a link, as a pcapng file in several replies.

use causeway_model::commands::captures::{Begin, End, Fetch, Stop};
use serde_json::json;

use super::{ApiCall, invalid, no_path, refused};
use crate::fabric::ask;
use crate::http::HttpReply;

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

fn fetch(call: &ApiCall<'_>, number: u64) -> Result<HttpReply, HttpReply> {
    let fetched = ask(call.fabric, Fetch(number)).map_err(refused)?;
    Ok(HttpReply::json(200, &json!(fetched)))
}
