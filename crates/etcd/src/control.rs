//! Requests to the daemon, over its control socket.
//!
//! Each request connects anew and blocks its thread: at most [`CONTROL_TIME_MAX`] (5 s) for a
//! write, [`LOCAL_WAIT`] (1 s) longer for a read. The daemon's refusals are errors with its text.
//! Nothing is repeated here; the callers in [`crate::process`] ask again.

use std::io::Error;
use std::os::unix::net::UnixStream;
use std::path::Path;

use causeway_model::{ClusterLocal, ClusterLocalQuery, ClusterUpdate};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::at;
use crate::http::{Connection, HttpCall};
use crate::limits::{CONTROL_TIME_MAX, LOCAL_WAIT, REPLY_BYTES_MAX};

/// A failed request to the daemon.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The daemon does not answer.
    #[error("causewayd does not answer: {0}")]
    Io(#[from] Error),
    /// The daemon refuses.
    #[error("causewayd refuses: {0}")]
    Refused(String),
    /// The answer has not the expected form.
    #[error("the answer of causewayd is not understood: {0}")]
    Form(#[from] serde_json::Error),
}

/// Sends a request and reads its answer.
fn ask<T: DeserializeOwned>(
    socket: &Path,
    (method, path): (&str, &str),
    body: &impl Serialize,
) -> Result<T, ControlError> {
    let stream = UnixStream::connect(socket)?;
    let limit = CONTROL_TIME_MAX.saturating_add(LOCAL_WAIT);
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(CONTROL_TIME_MAX))?;
    let mut connection = Connection::new(stream);
    let body = serde_json::to_vec(body)?;
    let request = HttpCall { method, path, host: "causewayd", token: None, body: &body };
    let status = connection.send(&request)?;
    let answer = connection.read_all(REPLY_BYTES_MAX)?;
    if !(200..300).contains(&status) {
        let value: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let text = at(&value, "/error/message").as_str().unwrap_or("no reason given");
        return Err(ControlError::Refused(format!("{text} (status={status})")));
    }
    Ok(serde_json::from_slice(&answer)?)
}

/// Asks for the addresses of this host. The thread that follows them calls it.
///
/// # Errors
/// The daemon does not answer or refuses, or its answer is malformed.
pub fn local(socket: &Path, query: &ClusterLocalQuery) -> Result<ClusterLocal, ControlError> {
    ask(socket, ("POST", "/v1/cluster/local"), query)
}

/// Sends hosts and addresses of the site, and the state of the process. The main thread calls it.
///
/// # Errors
/// The daemon does not answer or refuses, or its answer is malformed.
pub fn update(socket: &Path, update: &ClusterUpdate) -> Result<(), ControlError> {
    ask::<Value>(socket, ("POST", "/v1/cluster/remote"), update).map(drop)
}
