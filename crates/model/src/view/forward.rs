//! Views of forwards, and the messages between the daemon and the process that forwards.
//!
//! `causeway forward --all` (the *forwarder*) sends a [`ForwarderReport`] every second by `POST
//! /v1/forwarder`, and the answer lists its [`ForwardTask`]s. The socket service keeps the last
//! report and fills [`ForwardView`] in for `GET /v1/forwards`; `causeway forward list` prints it.
//! The values are samples, at most a few seconds old. Counters count since the forwarder started;
//! the module holds values only. All of it runs in threads of control requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Typed, ViewForm};
use crate::{ForwardSpec, Name};

/// The state of a forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardState {
    /// No process forwards: `causeway forward --all` does not run, or did not report for 5 s.
    NoForwarder,
    /// The forwarder has not reported the forward yet.
    Starting,
    /// The forwarder listens, and the last connection reached its target, if there was one.
    Listening,
    /// The forwarder listens, and the last connection did not reach its target.
    TargetDown,
    /// The forwarder listens, and the guest refused the last connection.
    Refused,
    /// The forwarder does not listen; it tries again.
    Failed,
}

impl ForwardState {
    /// All states, by their names.
    pub const ALL: [(&'static str, Self); 6] = [
        ("no-forwarder", Self::NoForwarder),
        ("starting", Self::Starting),
        ("listening", Self::Listening),
        ("target-down", Self::TargetDown),
        ("refused", Self::Refused),
        ("failed", Self::Failed),
    ];
}

/// A forward with its state.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound(serialize = "", deserialize = "F::Spec<ForwardSpec>: Deserialize<'de>"))]
pub struct ForwardView<F: ViewForm = Typed> {
    /// The configuration.
    #[serde(flatten)]
    pub spec: F::Spec<ForwardSpec>,
    /// The state.
    pub state: F::Text<ForwardState>,
    /// Reason of the state, with the remedy; empty for a forward that works.
    #[serde(default)]
    pub reason: String,
    /// Counters by name, for example `connections_total`.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
}

/// The report of a forwarder.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwarderReport {
    /// Process of the forwarder.
    pub pid: u32,
    /// Random number of the process: two forwarders have different ones.
    pub instance: u64,
    /// The forwards of the process.
    pub forwards: Vec<ForwardReport>,
    /// The process ends: another forwarder may take its place at once.
    #[serde(default)]
    pub ends: bool,
}

/// The report of one forward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardReport {
    /// Name of the forward.
    pub name: Name,
    /// The state, as the forwarder sees it.
    pub state: ForwardState,
    /// Reason of the state.
    #[serde(default)]
    pub reason: String,
    /// Counters by name.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
}

/// A forward as the forwarder runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardTask {
    /// Name of the forward.
    pub name: Name,
    /// The source; ports of causewayd are replaced by their host sockets.
    pub from: String,
    /// The target, likewise.
    pub to: String,
    /// Most connections at a time.
    pub connections_max: u16,
}
