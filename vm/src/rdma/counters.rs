//! Counters of an adapter or port, as the operator's tool shows them: evidence that the port
//! carried a program's traffic.
//!
//! Tests, the demo and [`Pair`](super::Pair) take a sample before and after a program and compare;
//! each sample runs `causeway` as a child process against their daemon. A new daemon begins its
//! counters at 0; values that are states, such as `guest_sessions`, also fall. A counter that the
//! port does not have, and a value that is no whole number, reads as 0. A sample fails if the tool
//! does, or prints no counters, and is not repeated. The counters of a program that still runs may
//! be between two updates.

use crate::daemon::Daemon;
use crate::error::{Error, Result};
use std::collections::BTreeMap;

/// A sample of all counters of an adapter or NIC, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Returns a sample of the adapter of a port, by `causeway hca show`.
    ///
    /// # Errors
    /// When the tool fails, or prints no counters.
    pub fn sample(daemon: &Daemon, port: &str) -> Result<Self> {
        Self::of_command(daemon, ["hca", "show", port])
    }

    /// Returns a sample of the counters of any port, by `causeway port show`.
    ///
    /// # Errors
    /// As [`Self::sample`].
    pub fn sample_port(daemon: &Daemon, port: &str) -> Result<Self> {
        Self::of_command(daemon, ["port", "show", port])
    }

    fn of_command(daemon: &Daemon, command: [&str; 3]) -> Result<Self> {
        let text = daemon.cli(&[&["-o", "json"], command.as_slice()].concat())?;
        let view: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let counters = view.get("counters").and_then(serde_json::Value::as_object);
        let counters = counters.ok_or_else(|| Error::Traffic {
            what: format!("`causeway {}` printed no counters: {text}", command.join(" ")),
        })?;
        let value = |(name, value): (&String, &serde_json::Value)| {
            value.as_u64().map(|value| (name.clone(), value))
        };
        Ok(Self(counters.iter().filter_map(value).collect()))
    }

    /// Returns a counter; 0 if the port has none of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns the growth of a counter since an earlier sample; 0 if it fell.
    #[must_use]
    pub fn since(&self, earlier: &Self, name: &str) -> u64 {
        self.get(name).saturating_sub(earlier.get(name))
    }
}
