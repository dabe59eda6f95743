//! Reads one HTTP request within bounds of size and time, independent of how the client splits it.
//!
//! Limits: [`RequestLimits`] for head and body together, [`REQUEST_HEADERS_MAX`] (64) headers, and
//! a deadline for the last byte. A request over a limit becomes an error reply: 408 (late), 411
//! (any Transfer-Encoding), 413 (too large) or 431 (head too large); one that is malformed or ends
//! early, or a read that fails, becomes 400. Remaining bytes stay unread: the server drains them
//! for a while. A connection that the client closes without a byte is no error; a request without
//! Content-Length has an empty body.
//!
//! The method, the path, the query, Accept, Host, If-None-Match and the body are kept. Further
//! headers than these, Content-Length, Transfer-Encoding and Expect are ignored, also Content-Type;
//! bytes after the body are dropped. Path, host and body are not interpreted.
//!
//! [`read`] blocks the thread of its connection, which a server starts.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use crate::limits::REQUEST_HEADERS_MAX;
use crate::{HttpConnection, HttpReply};

/// The sizes of a server's requests, head and body together.
#[derive(Debug, Clone, Copy)]
pub struct RequestLimits {
    /// Most bytes of a request. A head that is incomplete after as many is refused.
    pub bytes: usize,
    /// Most bytes of a request for a path of `file_paths`.
    pub file_bytes: usize,
    /// The paths that receive whole files.
    pub file_paths: &'static [&'static str],
}

/// A complete request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// `GET`, `POST`, `DELETE` or any other token; not checked.
    pub method: String,
    /// The path, without query.
    pub path: String,
    /// The text behind the first `?` of the target; empty without a query.
    pub query: String,
    /// Value of the header Accept; empty if there is none.
    pub accept: String,
    /// Value of the header Host.
    pub host: Option<String>,
    /// Value of the header If-None-Match.
    pub if_none_match: Option<String>,
    /// The body; its length is that of Content-Length.
    pub body: Vec<u8>,
}

/// The request line and the headers, parsed.
#[derive(Debug)]
struct RequestHead {
    /// The request without its body.
    request: HttpRequest,
    /// Bytes of the head.
    bytes: usize,
    /// Bytes of the body, by Content-Length.
    body: usize,
    /// Whether the client waits for `100 Continue` before it sends the body.
    waits: bool,
}

/// Reads a request of at most `limits` until `deadline`. Returns `None` if the client closed
/// without sending a byte.
///
/// # Errors
/// The request is malformed, larger than `limits` permit, or late; the error is the reply to send.
pub fn read(
    stream: &mut impl HttpConnection,
    limits: &RequestLimits,
    deadline: Instant,
) -> Result<Option<HttpRequest>, HttpReply> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(head) = parse_head(&bytes)? {
            break head;
        }
        if bytes.len() >= limits.bytes {
            let text = format!("request head: expected less than {} KiB", limits.bytes / 1024);
            return Err(HttpReply::error(431, "too_large", text));
        }
        if read_more(stream, &mut bytes, deadline)? == 0 {
            if bytes.is_empty() {
                return Ok(None);
            }
            return Err(HttpReply::error(400, "unfinished", "the request ended within its head"));
        }
    };
    let total = head.bytes.saturating_add(head.body);
    let is_file = limits.file_paths.contains(&head.request.path.as_str());
    let most = if is_file { limits.file_bytes } else { limits.bytes };
    if total > most {
        let text = format!("a request of {total} bytes: expected at most {most}");
        return Err(HttpReply::error(413, "too_large", text));
    }
    if head.waits {
        // If the client is gone, the next read reports it.
        let _ = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
    }
    while bytes.len() < total {
        if read_more(stream, &mut bytes, deadline)? == 0 {
            return Err(HttpReply::error(400, "unfinished", "the request ended within its body"));
        }
    }
    let body = bytes.get(head.bytes..total).unwrap_or_default().to_vec();
    Ok(Some(HttpRequest { body, ..head.request }))
}

/// Appends at most 4 KiB to `bytes` and returns their number: 0 at the end of the stream.
fn read_more(
    stream: &mut impl HttpConnection,
    bytes: &mut Vec<u8>,
    deadline: Instant,
) -> Result<usize, HttpReply> {
    let late = || HttpReply::error(408, "timeout", "the request did not come in time");
    let mut chunk = [0_u8; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left < Duration::from_millis(1) {
            return Err(late());
        }
        let read = stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut chunk));
        match read {
            Ok(n) => {
                bytes.extend_from_slice(&chunk[..n]);
                return Ok(n);
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(late());
            }
            Err(e) => return Err(HttpReply::error(400, "bad_request", format!("read: {e}"))),
        }
    }
}

/// Parses the head; returns `None` if it is incomplete.
fn parse_head(bytes: &[u8]) -> Result<Option<RequestHead>, HttpReply> {
    let mut headers = [httparse::EMPTY_HEADER; REQUEST_HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let wrong = |text: String| HttpReply::error(400, "bad_request", text);
    let size = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(size)) => size,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            let text = format!("expected at most {REQUEST_HEADERS_MAX} headers");
            return Err(HttpReply::error(431, "too_large", text));
        }
        Err(error) => return Err(wrong(format!("not an HTTP/1.1 request: {error}"))),
    };
    let (mut body, mut waits, mut accept) = (None, false, String::new());
    let (mut host, mut if_none_match) = (None, None);
    for header in parsed.headers.iter() {
        if header.name.eq_ignore_ascii_case("transfer-encoding") {
            let text = "Transfer-Encoding is not served: expected Content-Length";
            return Err(HttpReply::error(411, "bad_request", text));
        }
        if header.name.eq_ignore_ascii_case("expect") {
            waits = header.value.eq_ignore_ascii_case(b"100-continue");
        }
        if header.name.eq_ignore_ascii_case("accept") {
            accept = String::from_utf8_lossy(header.value).into_owned();
        }
        if header.name.eq_ignore_ascii_case("if-none-match") {
            if_none_match = Some(String::from_utf8_lossy(header.value).into_owned());
        }
        if header.name.eq_ignore_ascii_case("host") {
            let value = String::from_utf8_lossy(header.value).into_owned();
            // RFC 9112, section 3.2: a request with two hosts is refused.
            if host.replace(value).is_some() {
                return Err(wrong("Host: expected one header".into()));
            }
        }
        if header.name.eq_ignore_ascii_case("content-length") {
            let length = content_length(header.value)
                .filter(|n| body.is_none_or(|b| b == *n))
                .ok_or_else(|| wrong("Content-Length: expected one decimal number".into()))?;
            body = Some(length);
        }
    }
    let target = parsed.path.unwrap_or("");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (path, query) = (path.to_owned(), query.to_owned());
    let method = parsed.method.unwrap_or("").to_owned();
    let body = body.unwrap_or(0);
    let request =
        HttpRequest { method, path, query, accept, host, if_none_match, body: Vec::new() };
    Ok(Some(RequestHead { request, bytes: size, body, waits }))
}

/// Parses the value of Content-Length: decimal digits only, without a sign.
fn content_length(value: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(value).ok()?;
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}
