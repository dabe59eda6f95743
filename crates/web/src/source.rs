//! The interface to causewayd: requests to its control socket, and findings about its state.
//!
//! `causeway` implements it with its client and the checks of `causeway doctor`. The page only
//! reads: the trait has no request that changes anything. The poller calls it in its thread, one
//! request at a time, and waits for each; how long, the implementation decides. An error fails the
//! sample, and the next interval tries again.

use causeway_model::{InfoView, Textual};
use serde::Serialize;
use serde_json::Value;

/// The state of a port, as a tool reads it.
pub type PortView = causeway_model::PortView<Textual>;
/// The state of a link, as a tool reads it.
pub type LinkView = causeway_model::LinkView<Textual>;

/// A request that the daemon did not answer with a value.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct SourceError {
    /// Whether the daemon refused the request itself: it has no such path or object, or nothing to
    /// answer about the object. Otherwise the same request may succeed later.
    pub is_refused: bool,
    /// The reason, with the remedy in a line of its own if there is one.
    pub text: String,
}

/// The weight of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// Something does not work.
    Fail,
    /// Something works less well than it could, or may fail later.
    Warn,
}

/// A problem of the daemon, a port or a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The weight.
    pub weight: Weight,
    /// The state that was found.
    pub text: String,
    /// What the operator can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The port or link with the problem: `port NAME` or `link NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

/// The source of the page: a daemon. Called on the thread of the poller alone.
pub trait ControlSource: Send {
    /// Returns the JSON of `GET path`.
    ///
    /// # Errors
    /// The daemon does not answer in time, or refuses.
    fn get(&self, path: &str) -> Result<Value, SourceError>;

    /// Returns a page of connections: `POST /v1/connections` with this filter, a query.
    ///
    /// # Errors
    /// As for [`ControlSource::get`].
    fn connections(&self, filter: &Value) -> Result<Value, SourceError>;

    /// Returns the problems of this state that need no further request.
    fn findings(&self, info: &InfoView, ports: &[PortView], links: &[LinkView]) -> Vec<Finding>;
}
