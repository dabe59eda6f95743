//! `/v1/captures`: frames as they pass a port or a link, as a pcapng file in parts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_model::CaptureSpec;
use causeway_model::{Answer, Command};
use serde_json::json;

use super::{body, call, invalid, no_path, refused, unexpected};
use crate::fabric::Fabric;
use crate::http::{Reply, Request};

pub(super) fn captures(
    fabric: &dyn Fabric,
    request: &Request,
    rest: &[&str],
) -> Result<Reply, Reply> {
    let number = |text: &str| {
        text.parse::<u64>().map_err(|_| invalid(format!("capture {text:?}: expected its number")))
    };
    match (rest, request.method.as_str()) {
        ([], "POST") => {
            let spec: CaptureSpec = body(request)?;
            call(fabric, Command::CaptureBegin(spec), 201)
        }
        ([text], "GET") => fetch(fabric, number(text)?),
        ([text, "stop"], "POST") => call(fabric, Command::CaptureStop(number(text)?), 200),
        ([text], "DELETE") => call(fabric, Command::CaptureEnd(number(text)?), 200),
        ([], _) => Err(Reply::method_not_allowed("POST")),
        ([_], _) => Err(Reply::method_not_allowed("GET, DELETE")),
        ([_, "stop"], _) => Err(Reply::method_not_allowed("POST")),
        _ => Err(no_path(request)),
    }
}

fn fetch(fabric: &dyn Fabric, number: u64) -> Result<Reply, Reply> {
    match fabric.call(Command::CaptureFetch(number)).map_err(refused)? {
        Answer::Fetched(fetched) => Ok(Reply::json(
            200,
            &json!({
                "bytes": STANDARD.encode(&fetched.bytes),
                "frames_total": fetched.frames,
                "dropped_total": fetched.dropped,
                "closed": fetched.closed,
            }),
        )),
        other => Err(unexpected(&other)),
    }
}
