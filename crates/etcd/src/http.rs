//! A client of HTTP/1.1 over a blocking stream: requests with a JSON body, and replies whole or
//! line by line.
//!
//! The head of a reply is parsed by `httparse`; bodies with a length, chunked bodies (RFC 9112,
//! 7.1) and bodies until the end of the connection are decoded here, because a watch needs the
//! lines of a chunked body as they arrive, under a limit. Time limits are those of the stream for
//! each read and write; besides, [`EXCHANGE_TIME_MAX`] (10 s) after the request no further read
//! begins, except for lines. The module follows no redirection and compresses nothing, and reads no
//! interim reply (1xx). [`crate::client`], [`crate::watch`] and [`crate::control`] use it; runs in
//! the caller's thread, which it blocks.

use std::io::{Error, ErrorKind, Read, Write};
use std::time::Instant;

use crate::limits::{EXCHANGE_TIME_MAX, HEAD_BYTES_MAX, HEADERS_MAX};

/// The form of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyForm {
    Length(usize),
    /// Bytes left of the present chunk; `None` before a chunk's header.
    Chunked(Option<u64>),
    UntilEnd,
    Ended,
}

/// A connection to a server.
#[derive(Debug)]
pub struct Connection<S> {
    stream: S,
    /// Received bytes that are not used.
    received: Vec<u8>,
    body: BodyForm,
    closes: bool,
    /// When the exchange began; `None` for lines.
    begun: Option<Instant>,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct HttpCall<'a> {
    /// Method.
    pub method: &'a str,
    /// Path.
    pub path: &'a str,
    /// Value of the header `Host`.
    pub host: &'a str,
    /// Value of the header `Authorization`, if any.
    pub token: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
}

fn wrong(text: &str) -> Error {
    Error::new(ErrorKind::InvalidData, text.to_owned())
}

impl<S: Read + Write> Connection<S> {
    /// Returns a connection over a stream.
    pub const fn new(stream: S) -> Self {
        Self { stream, received: Vec::new(), body: BodyForm::Ended, closes: false, begun: None }
    }

    /// Returns whether a further request can be sent: the last reply was read to its end, and the
    /// server does not close the connection.
    pub fn is_reusable(&self) -> bool {
        !self.closes && self.body == BodyForm::Ended && self.received.is_empty()
    }

    /// Sends a request and reads the head of the reply. Returns the status.
    ///
    /// # Errors
    /// Those of the stream, and a malformed reply.
    pub fn send(&mut self, request: &HttpCall<'_>) -> Result<u16, Error> {
        let HttpCall { method, path, host, token, body } = request;
        let token = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
        let length = body.len();
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{token}Content-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n"
        )
        .into_bytes();
        text.extend_from_slice(body);
        self.begun = Some(Instant::now());
        self.stream.write_all(&text)?;
        self.stream.flush()?;
        self.read_head()
    }

    fn read_head(&mut self) -> Result<u16, Error> {
        loop {
            let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
            let mut reply = httparse::Response::new(&mut headers);
            let parsed = reply.parse(&self.received);
            if let httparse::Status::Complete(len) = parsed.map_err(|_| wrong("malformed reply"))? {
                let status = reply.code.unwrap_or(0);
                let value = |name: &str| {
                    let mut found = reply.headers.iter();
                    let found = found.find(|header| header.name.eq_ignore_ascii_case(name))?;
                    std::str::from_utf8(found.value).ok()
                };
                let is_chunked = value("transfer-encoding")
                    .is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
                let length = value("content-length").and_then(|value| value.parse().ok());
                let closes =
                    value("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
                let body = match length {
                    _ if is_chunked => BodyForm::Chunked(None),
                    Some(0) => BodyForm::Ended,
                    Some(length) => BodyForm::Length(length),
                    None if status == 204 => BodyForm::Ended,
                    None => BodyForm::UntilEnd,
                };
                (self.body, self.closes) = (body, closes || body == BodyForm::UntilEnd);
                self.received.drain(..len);
                return Ok(status);
            }
            if self.received.len() > HEAD_BYTES_MAX {
                return Err(wrong("the head of the reply is too long"));
            }
            if self.receive()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Receives further bytes.
    fn receive(&mut self) -> Result<usize, Error> {
        let mut chunk = [0; 16 * 1024];
        if self.begun.is_some_and(|begun| begun.elapsed() >= EXCHANGE_TIME_MAX) {
            return Err(Error::new(ErrorKind::TimedOut, "the reply takes too long"));
        }
        loop {
            match self.stream.read(&mut chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(n) => {
                    self.received.extend_from_slice(chunk.get(..n).unwrap_or_default());
                    return Ok(n);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Appends the next decoded bytes of the body to `out`, and blocks until there are some.
    /// Returns false at the end of the body.
    ///
    /// # Errors
    /// Those of the stream, and a malformed or incomplete body.
    pub fn read_some(&mut self, out: &mut Vec<u8>) -> Result<bool, Error> {
        loop {
            let form = self.body;
            match form {
                BodyForm::Ended => return Ok(false),
                BodyForm::Length(left) if !self.received.is_empty() => {
                    let taken = self.take(left, out);
                    let left = left.saturating_sub(taken);
                    self.body = if left == 0 { BodyForm::Ended } else { BodyForm::Length(left) };
                    return Ok(true);
                }
                BodyForm::UntilEnd if !self.received.is_empty() => {
                    out.append(&mut self.received);
                    return Ok(true);
                }
                BodyForm::Chunked(None) if self.begin_chunk()? => continue,
                // The line feed behind a chunk.
                BodyForm::Chunked(Some(0)) if self.received.len() >= 2 => {
                    self.received.drain(..2);
                    self.body = BodyForm::Chunked(None);
                    continue;
                }
                BodyForm::Chunked(Some(left)) if left > 0 && !self.received.is_empty() => {
                    let most = usize::try_from(left).unwrap_or(usize::MAX);
                    let taken = self.take(most, out) as u64;
                    self.body = BodyForm::Chunked(Some(left.saturating_sub(taken)));
                    return Ok(true);
                }
                _ => {}
            }
            if self.receive()? == 0 {
                let is_end = self.body == BodyForm::UntilEnd;
                self.body = BodyForm::Ended;
                self.closes = true;
                return if is_end { Ok(false) } else { Err(ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    /// Moves up to `most` received bytes to `out`.
    fn take(&mut self, most: usize, out: &mut Vec<u8>) -> usize {
        let count = most.min(self.received.len());
        out.extend(self.received.drain(..count));
        count
    }

    /// Reads the header of a chunk. Returns false if more bytes are needed.
    fn begin_chunk(&mut self) -> Result<bool, Error> {
        let parsed = httparse::parse_chunk_size(&self.received);
        match parsed.map_err(|_| wrong("malformed chunk"))? {
            httparse::Status::Complete((len, 0)) => {
                // Trailers are not sent by the servers that are asked; the connection ends here.
                self.received.drain(..len);
                let is_plain_end = self.received.starts_with(b"\r\n");
                self.received.drain(..if is_plain_end { 2 } else { 0 });
                self.closes |= !is_plain_end;
                self.body = BodyForm::Ended;
                Ok(true)
            }
            httparse::Status::Complete((len, size)) => {
                self.received.drain(..len);
                self.body = BodyForm::Chunked(Some(size));
                Ok(true)
            }
            httparse::Status::Partial if self.received.len() > HEAD_BYTES_MAX => {
                Err(wrong("the header of a chunk is too long"))
            }
            httparse::Status::Partial => Ok(false),
        }
    }

    /// Reads the rest of the body, of at most `most` bytes.
    ///
    /// # Errors
    /// As of [`Self::read_some`]; [`ErrorKind::FileTooLarge`] for a longer body.
    pub fn read_all(&mut self, most: usize) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        while self.read_some(&mut out)? {
            if out.len() > most {
                return Err(Error::new(ErrorKind::FileTooLarge, "the reply is too long"));
            }
        }
        Ok(out)
    }

    /// Reads the next line of the body, of at most `most` bytes, with bytes of later lines kept in
    /// `pending`. Returns `None` at the end.
    ///
    /// # Errors
    /// As of [`Self::read_some`]; a longer line is malformed.
    pub fn read_line(
        &mut self,
        pending: &mut Vec<u8>,
        most: usize,
    ) -> Result<Option<Vec<u8>>, Error> {
        self.begun = None;
        let mut searched = 0;
        loop {
            let rest = pending.get(searched..).unwrap_or_default();
            if let Some(found) = rest.iter().position(|byte| *byte == b'\n') {
                let end = searched.saturating_add(found);
                let mut line: Vec<u8> = pending.drain(..=end).collect();
                line.pop();
                return Ok(Some(line));
            }
            searched = pending.len();
            if searched > most {
                return Err(wrong("a line of the reply is too long"));
            }
            if !self.read_some(pending)? {
                return Ok((!pending.is_empty()).then(|| std::mem::take(pending)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A stream that returns one byte at a time, or all at once.
    struct Script(Cursor<Vec<u8>>, usize);

    impl Read for Script {
        fn read(&mut self, out: &mut [u8]) -> Result<usize, Error> {
            let most = out.len().min(self.1);
            self.0.read(&mut out[..most])
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> Result<(), Error> {
            Ok(())
        }
    }

    const ASK: HttpCall<'_> =
        HttpCall { method: "POST", path: "/", host: "x", token: None, body: b"{}" };

    fn reply(text: &str, step: usize) -> Result<(u16, Vec<u8>, bool), Error> {
        let script = Script(Cursor::new(text.as_bytes().to_vec()), step);
        let mut connection = Connection::new(script);
        let status = connection.send(&ASK)?;
        let body = connection.read_all(1_000)?;
        Ok((status, body, connection.is_reusable()))
    }

    #[test]
    fn http_bodies_are_decoded_however_they_arrive() {
        for step in [1, 2, 3, 7, 1_000] {
            let sized = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
            assert_eq!(reply(sized, step).unwrap(), (200, b"hello".to_vec(), true));
            let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                           3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n";
            assert_eq!(reply(chunked, step).unwrap().1, b"hello".to_vec());
            let closed = "HTTP/1.1 500 no\r\nConnection: close\r\n\r\nhello";
            assert_eq!(reply(closed, step).unwrap(), (500, b"hello".to_vec(), false));
        }
    }

    #[test]
    fn http_hostile_replies_are_refused() {
        let long = format!("HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n{}", "x".repeat(2_000));
        let head = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        for text in [
            "",
            "SSH-2.0-x\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
            &long,
            &head,
        ] {
            assert!(reply(text, 7).is_err(), "{text}");
        }
    }

    #[test]
    fn http_slow_replies_are_refused() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe\nlo";
        let mut connection = Connection::new(Script(Cursor::new(text.as_bytes().to_vec()), 1));
        connection.send(&ASK).unwrap();
        connection.begun = Instant::now().checked_sub(EXCHANGE_TIME_MAX);
        assert_eq!(connection.read_all(100).unwrap_err().kind(), ErrorKind::TimedOut);
        // A watch has no limit.
        let line = connection.read_line(&mut Vec::new(), 100).unwrap();
        assert_eq!(line, Some(b"he".to_vec()));
    }

    #[test]
    fn http_lines_are_read_one_by_one() {
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                    4\r\na\nbc\r\n3\r\n\nd\n\r\n0\r\n\r\n";
        let mut connection = Connection::new(Script(Cursor::new(text.as_bytes().to_vec()), 3));
        connection.send(&ASK).unwrap();
        let mut pending = Vec::new();
        let mut lines = Vec::new();
        while let Some(line) = connection.read_line(&mut pending, 100).unwrap() {
            lines.push(String::from_utf8(line).unwrap());
        }
        assert_eq!(lines, ["a", "bc", "d"]);
    }
}
