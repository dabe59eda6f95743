//! The client of the control socket: sends an HTTP/1.1 request and reads the reply.
//!
//! Each request connects anew and blocks the thread. The reply must be complete within the timeout
//! of the client, counted from the beginning: connect, writes and reads share it. A reply has at most [`REPLY_BYTES_MAX`] bytes (64 MiB) and [`REPLY_HEADERS_MAX`]
//! (32) headers. A longer, malformed or incomplete reply is [`Error::Reply`]; a non-2xx status
//! becomes the [`Error`] of its `kind`. Requests are not repeated: after a timeout or a lost
//! connection, the daemon may have executed the command, or may still execute it.
//!
//! Notes of the daemon (headers `Causeway-Note`) are printed to stderr.
//!
//! Paths and bodies are the callers' text and are sent as they are; names need no escaping, because
//! names of objects have no characters that a path would not accept. There is no TCP and no chunked
//! transfer. [`view`] turns the JSON of a reply into a type of [`crate::view`].
//!
//! [`crate::commands`], [`crate::doctor`] and `main` are the callers, in the main thread; `top`
//! sends its requests in a thread of its own, and `commands::web` in a thread of its server.
//! `daemon::http` is the server.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::limits::{REPLY_BYTES_MAX, REPLY_HEADERS_MAX};

/// The control socket, and the time to wait for a reply.
#[derive(Debug, Clone)]
pub struct ControlClient {
    /// The control socket.
    path: PathBuf,
    /// Time within which the reply must be complete, counted from the connect.
    timeout: Duration,
}

/// Returns the default control socket: the system's, or for an ordinary user that in
/// `XDG_RUNTIME_DIR` if it exists.
pub fn default_control() -> PathBuf {
    let system = PathBuf::from("/run/causeway/control.sock");
    if rustix::process::geteuid().is_root() {
        return system;
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    let own = own.map(|dir| Path::new(&dir).join("causeway/control.sock"));
    own.filter(|path| path.exists()).unwrap_or(system)
}

impl ControlClient {
    /// Returns a client of the daemon at `path`; each request connects anew.
    pub fn new(path: PathBuf, timeout_s: u64) -> Self {
        Self { path, timeout: Duration::from_secs(timeout_s) }
    }

    /// Returns the path of the daemon's control socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the time within which a reply must be complete.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends `GET path`.
    ///
    /// # Errors
    /// No daemon answers in time, or it refuses.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.ask("GET", path, None)
    }

    /// Sends `GET path` and returns the text of the reply, of the type that `accept` names.
    ///
    /// # Errors
    /// No daemon answers in time, or it refuses.
    pub fn get_text(&self, path: &str, accept: &str) -> Result<String> {
        let reply = self.exchange("GET", path, accept, None)?;
        let (status, body) = parts(&reply)?;
        if !(200..300).contains(&status) {
            return Err(refusal(status, body));
        }
        let text = std::str::from_utf8(body);
        Ok(text.map_err(|error| Error::Reply(error.to_string()))?.to_owned())
    }

    /// Sends `POST path` with a body.
    ///
    /// # Errors
    /// No daemon answers in time, or it refuses.
    pub fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.ask("POST", path, Some(body))
    }

    /// Sends `DELETE path`.
    ///
    /// # Errors
    /// No daemon answers in time, or it refuses.
    pub fn delete(&self, path: &str) -> Result<Value> {
        self.ask("DELETE", path, None)
    }

    /// Sends a request and returns the JSON body of a successful reply; `Null` for an empty body.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        answer(&self.exchange(method, path, "application/json", body)?)
    }

    /// Sends a request and returns the reply.
    fn exchange(
        &self,
        method: &str,
        path: &str,
        accept: &str,
        body: Option<&Value>,
    ) -> Result<Vec<u8>> {
        let deadline = Instant::now() + self.timeout;
        let mut stream = self.connect()?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: causewayd\r\nAccept: {accept}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        // A daemon that refuses early may close before it has read the request; its reply has the
        // reason.
        let sent = write_until(&mut stream, request.as_bytes(), deadline);
        let reply = self.read(&mut stream, deadline)?;
        if let (Err(error), true) = (sent, reply.is_empty()) {
            return Err(self.lost(error));
        }
        for note in notes(&reply) {
            eprintln!("causeway: {note}");
        }
        Ok(reply)
    }

    /// Connects within the timeout.
    fn connect(&self) -> Result<UnixStream> {
        SocketAddrUnix::new(&self.path).map_err(|_| {
            Error::Usage(format!("--control {}: too long for a Unix socket", self.path.display()))
        })?;
        connect_within(&self.path, self.timeout).map_err(|error| self.lost(error))
    }

    /// Reads until the daemon closes the connection, at the latest at `deadline`.
    fn read(&self, stream: &mut UnixStream, deadline: Instant) -> Result<Vec<u8>> {
        let mut reply = Vec::new();
        let mut chunk = [0_u8; 16 * 1024];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(1));
            let read = stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut chunk));
            match read {
                Ok(0) => return Ok(reply),
                Ok(n) => reply.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // Bytes received before a reset are used if they are a whole reply.
                Err(e) if e.kind() == ErrorKind::ConnectionReset && !reply.is_empty() => {
                    return Ok(reply);
                }
                Err(e) => return Err(self.lost(e)),
            }
            if reply.len() > REPLY_BYTES_MAX {
                return Err(Error::Reply(format!("more than {REPLY_BYTES_MAX} bytes")));
            }
        }
    }

    /// Returns the error for a failed system call: a timeout, or an unreachable daemon.
    fn lost(&self, error: std::io::Error) -> Error {
        let path = self.path.clone();
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                Error::Timeout { path, seconds: self.timeout.as_secs() }
            }
            _ => Error::Unreachable { path, error },
        }
    }
}

/// Most bytes of one write: the kernel waits for room at most once in it.
const WRITE_BYTES: usize = 16 * 1024;

/// Writes all bytes to a socket, at the latest at `deadline`.
///
/// # Errors
/// Those of write(2); `WouldBlock` after `deadline`.
pub fn write_until(
    stream: &mut UnixStream,
    mut bytes: &[u8],
    deadline: Instant,
) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::WouldBlock.into());
        }
        // Less than 1 us would be no limit.
        stream.set_write_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.write(&bytes[..bytes.len().min(WRITE_BYTES)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Connects to a Unix stream socket within `limit`, which bounds later writes of the caller too.
///
/// # Errors
/// Those of socket(2) and connect(2); `WouldBlock` after `limit`.
pub fn connect_within(path: &Path, limit: Duration) -> std::io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    // Bounds the connect too: it blocks while the accept queue of the listener is full.
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    rustix::net::connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

/// Returns the path of a change that lasts until the next start of the daemon, if it is to.
pub fn changing(path: &str, is_ephemeral: bool) -> String {
    if is_ephemeral { format!("{path}?ephemeral=true") } else { path.to_owned() }
}

/// Returns the daemon's notes about the effect of a command, for example that the next start of the
/// daemon undoes it.
fn notes(reply: &[u8]) -> Vec<String> {
    let mut headers = [httparse::EMPTY_HEADER; REPLY_HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut headers);
    if parsed.parse(reply).is_err() {
        return Vec::new();
    }
    let notes = parsed.headers.iter().filter(|h| h.name.eq_ignore_ascii_case("causeway-note"));
    notes.map(|header| String::from_utf8_lossy(header.value).into_owned()).collect()
}

/// Returns the body of a successful reply, or the error of another.
fn answer(reply: &[u8]) -> Result<Value> {
    let (status, body) = parts(reply)?;
    if !(200..300).contains(&status) {
        return Err(refusal(status, body));
    }
    json(body)
}

/// Returns the status and the whole body of a reply.
fn parts(reply: &[u8]) -> Result<(u16, &[u8])> {
    let wrong = |text: &str| Error::Reply(text.to_owned());
    let mut headers = [httparse::EMPTY_HEADER; REPLY_HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut headers);
    let head = match parsed.parse(reply) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Err(wrong("it ended early")),
        Err(error) => return Err(Error::Reply(error.to_string())),
    };
    let status = parsed.code.unwrap_or(0);
    let length = parsed.headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|h| std::str::from_utf8(h.value).ok()?.parse().ok());
    let body = reply.get(head..).unwrap_or_default();
    if length.is_some_and(|n: usize| n != body.len()) {
        return Err(wrong("it ended early"));
    }
    Ok((status, body))
}

/// Reads a body as JSON; `Null` for an empty body.
fn json(body: &[u8]) -> Result<Value> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(body).map_err(|error| Error::Reply(error.to_string()))
}

/// Returns the error of a reply whose status is no success.
fn refusal(status: u16, body: &[u8]) -> Error {
    let value = match json(body) {
        Ok(value) => value,
        Err(error) => return error,
    };
    let text = |key| value["error"][key].as_str().unwrap_or_default().to_owned();
    let (kind, message) = (text("kind"), text("message"));
    match kind.as_str() {
        _ if value["changes"].is_array() => Error::Partial { message, value },
        "" => Error::Reply(format!("HTTP status {status}")),
        "not_found" => Error::NotFound(message),
        _ => Error::Refused { kind, message },
    }
}

/// Reads a reply's value into its view.
///
/// # Errors
/// A field is missing or has another type.
pub fn view<T: DeserializeOwned>(value: &Value) -> Result<T> {
    T::deserialize(value).map_err(|e| Error::Reply(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(reply: &str) -> Error {
        answer(reply.as_bytes()).unwrap_err()
    }

    #[test]
    fn client_replies_become_values_or_errors_with_their_status() {
        let good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]";
        assert_eq!(answer(good.as_bytes()).unwrap(), serde_json::json!([]));
        assert_eq!(answer(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap(), Value::Null);
        let gone = r#"{"error":{"kind":"not_found","message":"port \"x\" does not exist"}}"#;
        let gone = error(&format!("HTTP/1.1 404 Not Found\r\n\r\n{gone}"));
        assert_eq!((gone.status(), gone.to_string().as_str()), (3, "port \"x\" does not exist"));
        let taken = r#"{"error":{"kind":"conflict","message":"is there"}}"#;
        assert_eq!(error(&format!("HTTP/1.1 409 Conflict\r\n\r\n{taken}")).status(), 1);
    }

    #[test]
    fn hostile_daemon_that_reads_slowly_does_not_prolong_a_request() {
        let (mut near, _far) = UnixStream::pair().unwrap();
        near.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        let deadline = Instant::now() + Duration::from_millis(20);
        let error = write_until(&mut near, &vec![0; 8 << 20], deadline).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(write_until(&mut near, &[0], deadline).is_err(), "no time is left");
    }

    #[test]
    fn hostile_replies_are_refused() {
        for reply in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "SSH-2.0-OpenSSH_9.2\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[]",
            "HTTP/1.1 200 OK\r\n\r\n[",
            "HTTP/1.1 500 x\r\n\r\nnull",
            "HTTP/1.1 500 x\r\n\r\n",
        ] {
            assert!(matches!(error(reply), Error::Reply(_)), "{reply}");
        }
        let deep = format!("HTTP/1.1 200 OK\r\n\r\n{}", "[".repeat(1_000_000));
        assert!(matches!(error(&deep), Error::Reply(_)));
    }
}
