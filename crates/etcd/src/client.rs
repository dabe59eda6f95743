//! A client of etcd over its JSON gateway (`/v3/…`): transactions, leases, and the messages of a
//! watch. [`crate::list`] adds lists.
//!
//! The gateway is part of every etcd 3.4 and later, and blocking requests suffice for a process
//! with one connection of each type; so no asynchronous runtime and no gRPC is needed. Requests go
//! to one endpoint until the caller takes the next ([`Etcd::next_endpoint`]), as the process does
//! after each failure; the verbs use the first. Every request but a watch is repeated once on a new
//! connection if it fails on a kept connection, so it may have its effect twice: a repeated
//! transaction fails on its revision, a repeated put has no further effect, and a lease that was
//! granted twice expires.
//!
//! Answers are bounded in size and time ([`crate::limits`]), but a watch waits without limit. An
//! answer that is not JSON is an error; a field that is absent reads as 0 or empty, and an entry
//! that cannot be decoded is left out. Runs in the caller's thread.

use std::io::ErrorKind;
use std::net::TcpStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_cluster::{KeyEvent, Write, key};
use causeway_model::Name;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::{Connection, HttpCall};
use crate::limits::{
    ETCD_TIME_MAX, LIST_BYTES_MAX, LIST_TIME_MAX, REASON_CHARS_MAX, REPLY_BYTES_MAX,
};
use crate::stream::{Endpoint, Security, Stream, open};

/// A failed request to etcd.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// The endpoint does not answer, or not with HTTP.
    #[error("{0}: {1}")]
    Io(Endpoint, #[source] std::io::Error),
    /// etcd refuses the request.
    #[error("{0}: status {1}: {2}")]
    Refused(Endpoint, u16, String),
    /// The answer has not the form of etcd.
    #[error("{0}: the answer is not that of etcd: {1}")]
    Form(Endpoint, #[source] serde_json::Error),
    /// The host has no room for a thread.
    #[error("cannot start the thread of a watch: {0}")]
    Thread(#[source] std::io::Error),
    /// The keys of a list are too long.
    #[error(
        "the keys below {0} have more than {LIST_BYTES_MAX} bytes with their values: delete those \
         that are no records with etcdctl"
    )]
    LongList(String),
    /// A list takes too long.
    #[error(
        "the keys below {0} are not listed within {seconds} s: etcd is slow, or has many keys there that \
         are no records",
        seconds = LIST_TIME_MAX.as_secs()
    )]
    SlowList(String),
    /// A page of a list begins before the page that it follows.
    #[error("the answer is not that of etcd: a page of a list does not follow the page before")]
    PageOrder,
    /// No endpoint is configured.
    #[error("no endpoint of etcd is given")]
    NoEndpoint,
}

impl EtcdError {
    /// Returns whether etcd answers, and refuses this request: for lack of a right, for its size, or
    /// because a lease has expired. An expired login and a failed member are not such refusals.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_, 400 | 402..=499, _))
    }

    /// Returns whether the reply was longer than [`REPLY_BYTES_MAX`] (16 MiB).
    pub(crate) fn is_long_reply(&self) -> bool {
        matches!(self, Self::Io(_, error) if error.kind() == ErrorKind::FileTooLarge)
    }

    /// Returns whether no connection was established, or no reply came, in time.
    fn is_late(&self) -> bool {
        let is_late = |kind| matches!(kind, ErrorKind::TimedOut | ErrorKind::WouldBlock);
        matches!(self, Self::Io(_, error) if is_late(error.kind()))
    }
}

/// The result of requests.
pub type Result<T> = std::result::Result<T, EtcdError>;

/// Returns the part of an answer at a JSON pointer (RFC 6901); null if there is none.
pub(crate) fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

/// A number of 64 bits, which the gateway writes as text; 0 for another value, also a negative one.
pub(crate) fn number(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.parse().unwrap_or(0),
        other => other.as_u64().unwrap_or(0),
    }
}

/// Returns the bytes of a text of the gateway.
pub(crate) fn bytes(value: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(value.as_str()?).ok()
}

pub(crate) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// Returns the first [`REASON_CHARS_MAX`] (256) characters of a text of etcd, with spaces in place
/// of control characters: reasons stand in log lines, on terminals and in every update of the
/// daemon.
fn cut(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(REASON_CHARS_MAX).map(printable).collect()
}

/// Returns the end of the range of all keys with a prefix.
pub(crate) fn range_end(prefix: &str) -> String {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        // Prefixes end with `/`.
        *last = last.saturating_add(1);
    }
    encoded(end)
}

/// Returns the key and value of an answer as an event.
pub(crate) fn event_of(kv: &Value) -> Option<KeyEvent> {
    let key = bytes(at(kv, "/key"))?;
    let value = if at(kv, "/value").is_null() { Some(Vec::new()) } else { bytes(at(kv, "/value")) };
    Some(KeyEvent { key, value, revision: number(at(kv, "/mod_revision")) })
}

/// The outcome of a transaction.
#[derive(Debug)]
pub enum WriteOutcome {
    /// The write has its effect, at this revision.
    Done(u64),
    /// The key has another revision: its present content.
    Failed(KeyEvent),
}

/// The number of keys with a prefix, and the revision of the newest change of one of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RangeState {
    /// Keys that exist.
    pub keys: u64,
    /// Revision of the newest change of a key that exists; 0 without a key.
    pub newest: u64,
}

/// A message of a watch.
#[derive(Debug)]
pub enum WatchMessage {
    /// Changes, up to a revision.
    Events(Vec<KeyEvent>, u64),
    /// The watch ended: the revision was compacted, etcd cancelled the watch, the connection ended,
    /// or a message was malformed. With the reason.
    Cancelled(String),
}

/// User and password of etcd.
#[derive(Clone)]
pub struct Login {
    /// User.
    pub user: String,
    /// Password.
    pub password: zeroize::Zeroizing<String>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Login({})", self.user)
    }
}

/// A client of one etcd.
#[derive(Debug)]
pub struct Etcd {
    endpoints: Vec<Endpoint>,
    /// Index of the endpoint in use.
    at: usize,
    security: Security,
    login: Option<Login>,
    token: Option<String>,
    connection: Option<Connection<Stream>>,
    /// The last request was sent over an open connection.
    is_connected: bool,
}

/// The text of a refusal.
#[derive(Deserialize, Default)]
#[serde(default)]
struct ErrorText {
    error: String,
    message: String,
}

impl Etcd {
    /// Returns a client; it connects with the first request.
    pub const fn new(endpoints: Vec<Endpoint>, security: Security, login: Option<Login>) -> Self {
        Self {
            endpoints,
            at: 0,
            security,
            login,
            token: None,
            connection: None,
            is_connected: false,
        }
    }

    /// Returns the endpoint in use.
    ///
    /// # Errors
    /// There is none.
    fn endpoint(&self) -> Result<Endpoint> {
        self.endpoints.get(self.at).or(self.endpoints.first()).cloned().ok_or(EtcdError::NoEndpoint)
    }

    /// Uses the next endpoint from now on.
    pub fn next_endpoint(&mut self) {
        self.connection = None;
        self.token = None;
        self.at = self.at.wrapping_add(1).checked_rem(self.endpoints.len()).unwrap_or(0);
    }

    /// Uses the first endpoint that answers, for a verb that is not repeated. Without an answer, or
    /// with one endpoint only, the endpoint stays, and the next request has the error.
    pub fn find_endpoint(&mut self) {
        for _ in 1..self.endpoints.len() {
            let answer = self.get(key::ROOT);
            if !matches!(answer, Err(EtcdError::Io(..) | EtcdError::Refused(_, 500.., _))) {
                return;
            }
            self.next_endpoint();
        }
    }

    /// Returns whether the last request failed because its reply did not come in time, from an etcd
    /// that accepts connections.
    pub(crate) fn is_slow(&self, error: &EtcdError) -> bool {
        self.is_connected && error.is_late()
    }

    /// Logs in, if a user is given.
    fn authenticate(&mut self) -> Result<()> {
        let Some(Login { user, password }) = self.login.clone() else { return Ok(()) };
        if self.token.is_none() {
            let body = json!({ "name": user, "password": password.as_str() });
            let answer = self.post("/v3/auth/authenticate", &body)?;
            self.token = at(&answer, "/token").as_str().map(str::to_owned);
        }
        Ok(())
    }

    /// Sends a request and returns the answer.
    pub(crate) fn call(&mut self, path: &str, body: &Value) -> Result<Value> {
        self.authenticate()?;
        match self.post(path, body) {
            // A token expires.
            Err(EtcdError::Refused(_, 401, _)) if self.login.is_some() => {
                self.token = None;
                self.authenticate()?;
                self.post(path, body)
            }
            answer => answer,
        }
    }

    fn post(&mut self, path: &str, body: &Value) -> Result<Value> {
        let body = body.to_string();
        let kept = self.connection.take().filter(Connection::is_reusable);
        if let Some(connection) = kept {
            match self.exchange(connection, path, body.as_bytes()) {
                Err(error @ EtcdError::Io(..)) if !error.is_long_reply() => {}
                answer => return answer,
            }
        }
        let at = self.endpoint()?;
        self.is_connected = false;
        let opened = open(&at, &self.security, ETCD_TIME_MAX);
        let (stream, _) = opened.map_err(|error| EtcdError::Io(at, error))?;
        self.is_connected = true;
        self.exchange(Connection::new(stream), path, body.as_bytes())
    }

    fn exchange(
        &mut self,
        mut connection: Connection<Stream>,
        path: &str,
        body: &[u8],
    ) -> Result<Value> {
        let at = self.endpoint()?;
        let io = |error| EtcdError::Io(at.clone(), error);
        let host = format!("{}:{}", at.host, at.port);
        let (method, token) = ("POST", self.token.as_deref());
        let request = HttpCall { method, path, host: &host, token, body };
        let status = connection.send(&request).map_err(io)?;
        let answer = connection.read_all(REPLY_BYTES_MAX).map_err(io)?;
        self.connection = Some(connection).filter(Connection::is_reusable);
        if status != 200 {
            let text: ErrorText = serde_json::from_slice(&answer).unwrap_or_default();
            let text = if text.message.is_empty() { text.error } else { text.message };
            return Err(EtcdError::Refused(at, status, cut(&text)));
        }
        serde_json::from_slice(&answer).map_err(|error| EtcdError::Form(at, error))
    }

    /// Returns the number of keys with a prefix, and the revision of their newest change. A deletion
    /// changes the number only.
    ///
    /// # Errors
    /// etcd does not answer or refuses.
    pub fn state(&mut self, prefix: &str) -> Result<RangeState> {
        let range = json!({
            "key": encoded(prefix), "range_end": range_end(prefix), "limit": "1",
            "keys_only": true, "sort_order": "DESCEND", "sort_target": "MOD",
        });
        let answer = self.call("/v3/kv/range", &range)?;
        let newest = number(at(&answer, "/kvs/0/mod_revision"));
        Ok(RangeState { keys: number(at(&answer, "/count")), newest })
    }

    /// Returns a key with its value and revision; `None` if it does not exist.
    ///
    /// # Errors
    /// etcd does not answer or refuses.
    pub fn get(&mut self, path: &str) -> Result<Option<KeyEvent>> {
        let answer = self.call("/v3/kv/range", &json!({ "key": encoded(path) }))?;
        Ok(event_of(at(&answer, "/kvs/0")))
    }

    /// Writes a key if it has the expected revision.
    ///
    /// # Errors
    /// etcd does not answer or refuses.
    pub fn write(&mut self, site: &Name, write: &Write) -> Result<WriteOutcome> {
        self.replace(write.key.path(site), write.expected, write.value.as_deref(), None)
    }

    /// Replaces the value of a key if it has the expected revision, 0 if it must not exist; with a
    /// lease if one is given. No value deletes the key.
    ///
    /// # Errors
    /// etcd does not answer or refuses.
    pub fn replace(
        &mut self,
        path: String,
        expected: u64,
        value: Option<&[u8]>,
        lease: Option<u64>,
    ) -> Result<WriteOutcome> {
        let key = encoded(&path);
        let done = match value {
            Some(value) => json!({ "request_put": {
                "key": key, "value": encoded(value), "lease": lease.unwrap_or(0).to_string(),
            }}),
            None => json!({ "request_delete_range": { "key": key } }),
        };
        let body = json!({
            "compare": [{
                "key": key, "target": "MOD", "result": "EQUAL",
                "mod_revision": expected.to_string(),
            }],
            "success": [done],
            "failure": [{ "request_range": { "key": key } }],
        });
        let answer = self.call("/v3/kv/txn", &body)?;
        let revision = number(at(&answer, "/header/revision"));
        if at(&answer, "/succeeded").as_bool() == Some(true) {
            return Ok(WriteOutcome::Done(revision));
        }
        let now = event_of(at(&answer, "/responses/0/response_range/kvs/0"));
        let absent = KeyEvent { key: path.into_bytes(), value: None, revision };
        Ok(WriteOutcome::Failed(now.unwrap_or(absent)))
    }

    /// Writes a key, with a lease if one is given, at any revision of the key. Returns the revision
    /// of the write.
    ///
    /// # Errors
    /// etcd does not answer or refuses, for example because the lease has expired.
    pub fn put(&mut self, path: &str, value: &[u8], lease: Option<u64>) -> Result<u64> {
        let mut body = json!({ "key": encoded(path), "value": encoded(value) });
        if let (Some(lease), Some(body)) = (lease, body.as_object_mut()) {
            body.insert("lease".into(), lease.to_string().into());
        }
        let answer = self.call("/v3/kv/put", &body)?;
        Ok(number(at(&answer, "/header/revision")))
    }

    /// Deletes a key. Returns whether it existed.
    ///
    /// # Errors
    /// etcd does not answer or refuses.
    pub fn delete(&mut self, path: &str) -> Result<bool> {
        let answer = self.call("/v3/kv/deleterange", &json!({ "key": encoded(path) }))?;
        Ok(number(at(&answer, "/deleted")) > 0)
    }

    /// Grants a lease of this length, in seconds. Returns its number.
    ///
    /// # Errors
    /// etcd does not answer or refuses.
    pub fn grant(&mut self, seconds: u64) -> Result<u64> {
        let answer = self.call("/v3/lease/grant", &json!({ "TTL": seconds.to_string() }))?;
        Ok(number(at(&answer, "/ID")))
    }

    /// Renews a lease. Returns false if it has expired.
    ///
    /// # Errors
    /// etcd does not answer or refuses.
    pub fn renew(&mut self, lease: u64) -> Result<bool> {
        let answer = self.call("/v3/lease/keepalive", &json!({ "ID": lease.to_string() }))?;
        Ok(number(at(&answer, "/result/TTL")) > 0)
    }

    /// Revokes a lease; its keys are deleted.
    ///
    /// # Errors
    /// etcd does not answer or refuses.
    pub fn revoke(&mut self, lease: u64) -> Result<()> {
        self.call("/v3/lease/revoke", &json!({ "ID": lease.to_string() })).map(drop)
    }

    /// Returns the time that a lease has left, in seconds; 0 if it has expired.
    ///
    /// # Errors
    /// etcd does not answer or refuses.
    pub fn time_left(&mut self, lease: u64) -> Result<u64> {
        let answer = self.call("/v3/lease/timetolive", &json!({ "ID": lease.to_string() }))?;
        Ok(number(at(&answer, "/TTL")))
    }

    /// Begins a watch of all keys with a prefix from a revision on, over a connection of its own,
    /// without a limit of time for its reads. Returns the connection, and a handle to end it from
    /// another thread.
    ///
    /// # Errors
    /// etcd does not answer or refuses.
    pub fn watch(
        &mut self,
        prefix: &str,
        revision: u64,
    ) -> Result<(Connection<Stream>, TcpStream)> {
        self.authenticate()?;
        let at = self.endpoint()?;
        let io = |error| EtcdError::Io(at.clone(), error);
        let (stream, handle) = open(&at, &self.security, ETCD_TIME_MAX).map_err(io)?;
        let mut connection = Connection::new(stream);
        let body = json!({ "create_request": {
            "key": encoded(prefix), "range_end": range_end(prefix),
            "start_revision": revision.to_string(),
        }});
        let (body, host) = (body.to_string(), format!("{}:{}", at.host, at.port));
        let (method, path, token) = ("POST", "/v3/watch", self.token.as_deref());
        let request = HttpCall { method, path, host: &host, token, body: body.as_bytes() };
        let status = connection.send(&request).map_err(io)?;
        if status != 200 {
            return Err(EtcdError::Refused(at, status, "watch".into()));
        }
        // A quiet watch is no failure; probes find a dead one.
        handle.set_read_timeout(None).map_err(io)?;
        Ok((connection, handle))
    }
}

/// Reads a line of a watch. Returns also by how many keys their number grew, negative if it shrank.
///
/// # Errors
/// The line is not JSON. JSON of another form reads as a message without events, of revision 0.
pub fn watch_message(line: &[u8]) -> serde_json::Result<(WatchMessage, i64)> {
    let value: Value = serde_json::from_slice(line)?;
    let result = at(&value, "/result");
    if !at(&value, "/error").is_null() || at(result, "/canceled").as_bool() == Some(true) {
        let reason = match number(at(result, "/compact_revision")) {
            0 => format!("{}{}", at(&value, "/error/message"), at(result, "/cancel_reason")),
            at => format!("the revision was compacted (compacted={at})"),
        };
        return Ok((WatchMessage::Cancelled(cut(&reason)), 0));
    }
    let events = at(result, "/events").as_array().map(Vec::as_slice).unwrap_or_default();
    let event = |event: &Value| {
        let is_deletion = at(event, "/type").as_str() == Some("DELETE");
        let event = event_of(at(event, "/kv"))?;
        Some(if is_deletion { KeyEvent { value: None, ..event } } else { event })
    };
    let growth = |event: &Value| {
        let (made, changed) = (at(event, "/kv/create_revision"), at(event, "/kv/mod_revision"));
        match at(event, "/type").as_str() {
            Some("DELETE") => -1,
            _ => i64::from(number(made) == number(changed)),
        }
    };
    let growth = events.iter().map(growth).fold(0_i64, i64::saturating_add);
    let events = events.iter().filter_map(event).collect();
    Ok((WatchMessage::Events(events, number(at(result, "/header/revision"))), growth))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_a_request_are_not_failures_of_etcd() {
        let refused = |status| {
            let at = "http://127.0.0.1:2379".parse().unwrap();
            EtcdError::Refused(at, status, String::new()).is_refusal()
        };
        assert!([400, 403, 404, 429].into_iter().all(refused));
        assert!(![401, 500, 503, 504].into_iter().any(refused));
    }

    #[test]
    fn watch_messages_are_read() {
        let line = br#"{"result":{"header":{"revision":"9"},"events":[
            {"kv":{"key":"YQ==","create_revision":"5","mod_revision":"8","value":"Yg=="}},
            {"type":"DELETE","kv":{"key":"Yw==","mod_revision":"9"}}]}}"#;
        let Ok((WatchMessage::Events(events, 9), -1)) = watch_message(line) else { panic!() };
        let put = KeyEvent { key: b"a".to_vec(), value: Some(b"b".to_vec()), revision: 8 };
        let gone = KeyEvent { key: b"c".to_vec(), value: None, revision: 9 };
        assert_eq!(events, [put, gone]);
        let line = br#"{"result":{"header":{"revision":"9"},"events":[
            {"kv":{"key":"YQ==","create_revision":"8","mod_revision":"8","value":"Yg=="}},
            {"kv":{"key":"Yw==","create_revision":"9","mod_revision":"9"}}]}}"#;
        assert!(matches!(watch_message(line), Ok((WatchMessage::Events(_, 9), 2))));
        let line = br#"{"result":{"canceled":true,"compact_revision":"7"}}"#;
        assert!(matches!(watch_message(line), Ok((WatchMessage::Cancelled(_), 0))));
        let line = format!(r#"{{"error":{{"message":"{}"}}}}"#, "\u{e9}".repeat(100_000));
        let Ok((WatchMessage::Cancelled(reason), 0)) = watch_message(line.as_bytes()) else {
            panic!()
        };
        assert_eq!(reason, "\"".to_owned() + &"\u{e9}".repeat(255));
        for line in [&b""[..], b"[", b"\xff"] {
            assert!(watch_message(line).is_err());
        }
        let Ok((WatchMessage::Events(none, 0), 0)) = watch_message(b"[]") else { panic!() };
        assert!(none.is_empty());
    }
}
