//! Counters of an adapter or NIC, as the operator's tool shows them: evidence that the port carried a
//! program's traffic.
//!
//! Tests take a sample before and after a program and compare; each sample runs `causeway`
//! as a child process against the test's daemon. Counters start at the addition of the port and do
//! not fall, except by a new daemon, whose counters begin at 0. A counter that the adapter does not
//! have, and one whose value is no number, reads as 0. A sample fails if the tool does, or prints
//! no counters; it is not repeated, and the counters of a program that still runs may be between
//! two updates.

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

    /// Returns a counter; 0 if the adapter has none of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns the growth of a counter since an earlier sample.
    #[must_use]
    pub fn since(&self, earlier: &Self, name: &str) -> u64 {
        self.get(name).saturating_sub(earlier.get(name))
    }
}
