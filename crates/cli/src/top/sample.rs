//! One sample of the daemon's state.
//!
//! [`Sample::take`] sends five requests one after the other, each bounded by `--timeout`; the first
//! failure ends the sample, and nothing is kept of it. Only the list of connections may be missing,
//! with an older daemon or one without the socket service. At most 1,000 connections are requested.
//! `commands::top` takes the first sample and those of a batch in the main thread, `session` the
//! others in the thread of the requests.

use std::time::Instant;

use causeway_model::{ConnectionPage, InfoView, Textual};
use serde_json::json;

use crate::client::{ControlClient, view};
use crate::error::{Error, Result};
use crate::limits::TOP_CONNECTIONS_MAX;
use crate::view::{ConnectionView, DispatcherView, LinkView, PortView};

/// The state of the daemon and of its objects. The parts are not of the same moment.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The daemon.
    pub info: InfoView,
    /// Time of the reply of `info`, by the clock of this process.
    pub taken: Instant,
    /// All ports.
    pub ports: Vec<PortView>,
    /// All links.
    pub links: Vec<LinkView>,
    /// All dispatchers.
    pub dispatchers: Vec<DispatcherView>,
    /// The first connections; `None` if the daemon does not list connections.
    pub connections: Option<Vec<ConnectionView>>,
    /// Whether there are more connections.
    pub has_more_connections: bool,
}

impl Sample {
    /// Requests a sample.
    ///
    /// # Errors
    /// No daemon answers in time, or it refuses a request.
    pub fn take(client: &ControlClient) -> Result<Self> {
        let info = view(&client.get("/v1/info")?)?;
        let taken = Instant::now();
        let ports = view(&client.get("/v1/ports")?)?;
        let links = view(&client.get("/v1/links")?)?;
        let dispatchers = view(&client.get("/v1/dispatchers")?)?;
        let page = connections(client)?;
        let has_more_connections = page.as_ref().is_some_and(|page| page.next.is_some());
        let connections = page.map(|page| page.connections);
        Ok(Self { info, taken, ports, links, dispatchers, connections, has_more_connections })
    }
}

/// Requests the first page of connections; `None` if the daemon has no such list.
fn connections(client: &ControlClient) -> Result<Option<ConnectionPage<Textual>>> {
    match client.post("/v1/connections", &json!({ "limit": TOP_CONNECTIONS_MAX })) {
        Ok(value) => view(&value).map(Some),
        // An older daemon, or a daemon without the socket service.
        Err(Error::Refused { kind, .. }) if kind == "no_such_path" || kind == "invalid" => Ok(None),
        Err(error) => Err(error),
    }
}
