//! Replies: a status, a body (JSON or text), and its encoding as HTTP/1.1.
//!
//! An error has the body `{"error":{"kind":…,"message":…}}`; `kind` is stable and meant for
//! programs, the message for operators. Every reply closes the connection.
//!
//! The module sets no timeout and retries nothing: [`HttpReply::write`] writes all bytes, and the
//! caller sets the write timeout of the socket or makes it non-blocking. A body has no size limit.
//! An error of the write may leave a part of the reply sent; the connection is then closed. A value
//! that cannot be serialised becomes an error 500.
//!
//! Handlers build the replies, [`crate::request`] those of refused requests, and the server of the
//! control socket those of refused connections; servers write them. Replies are built and written
//! in the thread of the connection, those of refused connections in the acceptor thread.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;

use crate::limits::NOTES_MAX;

/// A reply, sent before the connection closes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpReply {
    /// HTTP status code.
    pub status: u16,
    /// The body; not sent with status 204 and 304.
    pub body: ReplyBody,
    /// For status 405: the methods that the path supports.
    pub allow: &'static str,
    /// The kind of an error, as in the body; empty for success.
    pub kind: &'static str,
    /// Sentences for the operator about the effect of a successful command, sent as headers
    /// `Causeway-Note`; at most [`NOTES_MAX`] (8) are sent.
    pub notes: Vec<String>,
    /// Further headers, each a name and a value of visible characters; a server's own text only,
    /// as the module does not check them.
    pub headers: Vec<(&'static str, Cow<'static, str>)>,
}

/// The body of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyBody {
    /// JSON, without the final line feed.
    Json(String),
    /// Text of another type, which replies to several clients share.
    Text {
        /// The text.
        text: Arc<str>,
        /// Its type, as the header Content-Type has it.
        content_type: &'static str,
    },
}

impl HttpReply {
    /// Returns a reply with a value as JSON.
    pub fn json(status: u16, value: &impl Serialize) -> Self {
        match serde_json::to_string(value) {
            Ok(body) => Self { status, body: ReplyBody::Json(body), ..Self::done() },
            Err(error) => Self::error(500, "internal", error.to_string()),
        }
    }

    /// Returns the reply of a command without a result: 204.
    pub fn done() -> Self {
        Self {
            status: 204,
            body: ReplyBody::Json(String::new()),
            allow: "",
            kind: "",
            notes: Vec::new(),
            headers: Vec::new(),
        }
    }

    /// Returns a reply (200) with a text.
    pub fn text(text: Arc<str>, content_type: &'static str) -> Self {
        Self { status: 200, body: ReplyBody::Text { text, content_type }, ..Self::done() }
    }

    /// Returns the reply that the client's copy is current: 304, with the tag of the copy.
    pub fn not_modified(tag: String) -> Self {
        Self { status: 304, headers: vec![("ETag", tag.into())], ..Self::done() }
    }

    /// Returns an error reply: `{"error":{"kind":…,"message":…}}`.
    pub fn error(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        let error = serde_json::json!({"error": {"kind": kind, "message": message.into()}});
        Self { status, body: ReplyBody::Json(error.to_string()), kind, ..Self::done() }
    }

    /// Returns the reply for a path that exists but does not support the method.
    pub fn method_not_allowed(allow: &'static str) -> Self {
        let text = format!("expected the method {allow}");
        Self { allow, ..Self::error(405, "method_not_allowed", text) }
    }

    /// Writes the reply: JSON with a single write, a text after the head.
    ///
    /// # Errors
    /// The write fails or times out.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (status, reason) = (self.status, reason(self.status));
        let mut head = format!("HTTP/1.1 {status} {reason}\r\nConnection: close\r\n");
        if !self.allow.is_empty() {
            head.push_str(&format!("Allow: {}\r\n", self.allow));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        for note in self.notes.iter().take(NOTES_MAX) {
            let note: String = note.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            head.push_str(&format!("Causeway-Note: {note}\r\n"));
        }
        if let Some(more @ 1..) = self.notes.len().checked_sub(NOTES_MAX) {
            head.push_str(&format!("Causeway-Note: {more} more notes are omitted\r\n"));
        }
        if matches!(status, 204 | 304) {
            return out.write_all((head + "\r\n").as_bytes());
        }
        let content = |content_type: &str, length: usize| {
            format!("Content-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n")
        };
        match &self.body {
            ReplyBody::Json(body) => {
                let content = content("application/json", body.len() + 1);
                out.write_all(format!("{head}{content}{body}\n").as_bytes())
            }
            ReplyBody::Text { text, content_type } => {
                head.push_str(&content(content_type, text.len()));
                out.write_all(head.as_bytes())?;
                out.write_all(text.as_bytes())
            }
        }
    }
}

/// Returns the reason phrase of a status code, RFC 9110.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        413 => "Content Too Large",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}
