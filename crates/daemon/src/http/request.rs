//! Reads one HTTP request within bounds of size and time, independent of how the client splits it.
//!
//! Limits: [`REQUEST_BYTES_MAX`] (64 KiB) for head and body together, [`FILE_REQUEST_BYTES_MAX`] (8
//! MiB) for the paths that carry files, [`REQUEST_HEADERS_MAX`] (64) headers, and a deadline
//! for the last byte. A request over a limit becomes an error reply: 408 (late), 411 (chunked
//! body), 413 (too large) or 431 (head too large); one that is malformed or ends early becomes 400.
//! Its remaining bytes stay unread: [`super::server`] drains them. A connection that the client
//! closes without a byte is no error; a request without Content-Length has an empty body.
//!
//! Only the method, the path, the query, Accept and the body are kept. Headers other than
//! Accept, Content-Length, Transfer-Encoding and Expect are ignored, also Host and Content-Type; bytes
//! after the body are dropped. Path and body are not interpreted.
//!
//! [`read`] blocks the thread of its connection, which [`super::server`] starts; the request then
//! goes to [`crate::api`].

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use super::{HttpConnection, HttpReply};
use crate::limits::{FILE_REQUEST_BYTES_MAX, REQUEST_BYTES_MAX, REQUEST_HEADERS_MAX};

/// The paths whose requests carry whole files, or a report about many objects.
const FILE_PATHS: [&str; 4] = ["/v1/apply", "/v1/config/diff", "/v1/forwarder", "/v1/vnet"];

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
    /// The body; its length is that of Content-Length.
    pub body: Vec<u8>,
}

/// The request line and the headers, parsed.
#[derive(Debug)]
struct RequestHead {
    method: String,
    path: String,
    query: String,
    /// Value of the header Accept.
    accept: String,
    /// Bytes of the head.
    bytes: usize,
    /// Bytes of the body, by Content-Length.
    body: usize,
    /// Whether the client waits for `100 Continue` before it sends the body.
    waits: bool,
}

/// Reads a request until `deadline`. Returns `None` if the client closed without sending a byte.
///
/// # Errors
/// The request is malformed, too large or late; the error is the reply to send.
pub fn read(
    stream: &mut impl HttpConnection,
    deadline: Instant,
) -> Result<Option<HttpRequest>, HttpReply> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(head) = parse_head(&bytes)? {
            break head;
        }
        if bytes.len() >= REQUEST_BYTES_MAX {
            return Err(HttpReply::error(
                431,
                "too_large",
                "request head: expected less than 64 KiB",
            ));
        }
        if read_more(stream, &mut bytes, deadline)? == 0 {
            if bytes.is_empty() {
                return Ok(None);
            }
            return Err(HttpReply::error(400, "unfinished", "the request ended within its head"));
        }
    };
    let total = head.bytes.saturating_add(head.body);
    let most = if FILE_PATHS.contains(&head.path.as_str()) {
        FILE_REQUEST_BYTES_MAX
    } else {
        REQUEST_BYTES_MAX
    };
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
    let RequestHead { method, path, query, accept, .. } = head;
    Ok(Some(HttpRequest { method, path, query, accept, body }))
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
    Ok(Some(RequestHead { method, path, query, accept, bytes: size, body, waits }))
}

/// Parses the value of Content-Length: decimal digits only, without a sign.
fn content_length(value: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(value).ok()?;
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}
