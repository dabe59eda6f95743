//! Replies of the control socket: a status, a JSON body, and its encoding as HTTP/1.1.
//!
//! An error has the body `{"error":{"kind":…,"message":…}}`; `kind` is stable and meant for
//! programs, the message for operators. Every reply closes the connection.
//!
//! The module sets no timeout and retries nothing: [`HttpReply::write`] writes all bytes at once,
//! and the caller sets the write timeout of the socket or makes it non-blocking. A body has no size
//! limit. An error of the write may leave a part of the reply sent; the connection is then closed.
//! A value that cannot be serialised becomes an error 500.
//!
//! [`crate::api`] builds the replies, also [`super::request`] and [`crate::peer`] for refusals;
//! [`super::server`] writes them.

use std::io::{self, Write};

use serde::Serialize;

use crate::limits::NOTES_MAX;

/// A reply, sent before the connection closes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpReply {
    /// HTTP status code.
    pub status: u16,
    /// The JSON body; empty for status 204.
    pub body: String,
    /// For status 405: the methods that the path supports.
    pub allow: &'static str,
    /// The kind of an error, as in the body; empty for success. [`crate::refusals`] counts by it.
    pub kind: &'static str,
    /// Sentences for the operator about the effect of a successful command, sent as headers
    /// `Causeway-Note`; at most [`NOTES_MAX`] are sent.
    pub notes: Vec<String>,
}

impl HttpReply {
    /// Returns a reply with a value as JSON.
    pub fn json(status: u16, value: &impl Serialize) -> Self {
        match serde_json::to_string(value) {
            Ok(body) => Self { status, body, allow: "", kind: "", notes: Vec::new() },
            Err(error) => Self::error(500, "internal", error.to_string()),
        }
    }

    /// Returns the reply of a command without a result: 204.
    pub fn done() -> Self {
        Self { status: 204, body: String::new(), allow: "", kind: "", notes: Vec::new() }
    }

    /// Returns an error reply: `{"error":{"kind":…,"message":…}}`.
    pub fn error(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        let error = serde_json::json!({"error": {"kind": kind, "message": message.into()}});
        Self { status, body: error.to_string(), allow: "", kind, notes: Vec::new() }
    }

    /// Returns the reply for a path that exists but does not support the method.
    pub fn method_not_allowed(allow: &'static str) -> Self {
        let text = format!("expected the method {allow}");
        Self { allow, ..Self::error(405, "method_not_allowed", text) }
    }

    /// Writes the reply with a single write.
    ///
    /// # Errors
    /// The write fails or times out.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (status, reason) = (self.status, reason(self.status));
        let mut text = format!("HTTP/1.1 {status} {reason}\r\nConnection: close\r\n");
        if !self.allow.is_empty() {
            text.push_str(&format!("Allow: {}\r\n", self.allow));
        }
        for note in self.notes.iter().take(NOTES_MAX) {
            let note: String = note.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            text.push_str(&format!("Causeway-Note: {note}\r\n"));
        }
        if let Some(more @ 1..) = self.notes.len().checked_sub(NOTES_MAX) {
            text.push_str(&format!("Causeway-Note: {more} more notes are omitted\r\n"));
        }
        if self.status != 204 {
            let length = self.body.len() + 1;
            text.push_str(&format!(
                "Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{}\n",
                self.body
            ));
        } else {
            text.push_str("\r\n");
        }
        out.write_all(text.as_bytes())
    }
}

/// Returns the reason phrase of a status code, RFC 9110.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        413 => "Content Too Large",
        422 => "Unprocessable Content",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}
