//! Replies to requests that the API or the fabric refuses: their status and kind, in one place for
//! all paths. Nothing here reads a request.

use causeway_model::{Answer, CommandError};

use crate::http::HttpReply;

/// Returns the reply for an invalid value: 422.
pub(crate) fn invalid(text: String) -> HttpReply {
    HttpReply::error(422, "invalid", text)
}

/// Returns the reply for a body that is no JSON (400) or does not fit (422).
pub(crate) fn wrong_body(error: &serde_json::Error) -> HttpReply {
    let (status, kind) = if error.is_data() { (422, "invalid") } else { (400, "bad_request") };
    HttpReply::error(status, kind, format!("body: {error}"))
}

/// Returns the reply for an answer of another type than that of the command: 500. It is a bug.
pub(crate) fn unexpected(answer: &Answer) -> HttpReply {
    log::error!(answer:? = answer; "the fabric returned an answer of an unexpected type");
    HttpReply::error(500, "internal", "the fabric returned an answer of an unexpected type")
}

/// Returns the status and kind of a refused command.
pub(crate) fn kind_of(error: &CommandError) -> (u16, &'static str) {
    match error {
        CommandError::NotFound { .. } => (404, "not_found"),
        CommandError::Conflict(_) => (409, "conflict"),
        CommandError::Full(_) => (409, "full"),
        CommandError::Invalid(_) => (422, "invalid"),
        CommandError::Host(_) => (500, "host"),
    }
}

/// Returns the reply for a command that the fabric or a service refused.
pub(crate) fn refused(error: CommandError) -> HttpReply {
    let (status, kind) = kind_of(&error);
    HttpReply::error(status, kind, error.to_string())
}
