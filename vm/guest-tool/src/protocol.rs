//! The control channel between host and agent: one JSON object a line.

use serde::{Deserialize, Serialize};

/// The agent's first line after each boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The guest kernel's release.
    pub kernel: String,
    /// Modules that were loaded.
    pub modules: usize,
    /// What did not work on the way here, in words; empty when all did.
    pub troubles: Vec<String>,
}

/// What the host asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Comes back in the reply.
    pub id: u64,
    /// What to do.
    pub ask: Ask,
}

/// The things the agent can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Run a command, killed after so many milliseconds.
    Run {
        /// Program and arguments.
        argv: Vec<String>,
        /// Time limit in milliseconds.
        limit_ms: u64,
    },
    /// Restart the guest; the next line is a new [`Hello`].
    Reboot,
}

/// How a command ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Exit code; none when a signal ended it or it never started.
    pub code: Option<i32>,
    /// Whether the time limit ended it.
    pub timed_out: bool,
    /// The end of what it printed.
    pub stdout: String,
    /// The end of what it complained of.
    pub stderr: String,
}

/// A line from the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// The guest is up.
    Hello(Hello),
    /// A command has ended.
    Reply {
        /// The request's number.
        id: u64,
        /// How it ended.
        ran: Ran,
    },
}
