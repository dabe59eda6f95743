//! Control channel between host and agent: a JSON object on each line.
//!
//! The agent sends a [`Hello`] after each boot, then a reply for each [`Operation::Run`], in the
//! order in which the commands end; a reboot has no reply. The types check nothing. There is no
//! version: the host builds the agent that it boots. A line that is no request is printed on the
//! guest's console and not answered, and so is a request beyond 512 KiB; a line that is not UTF-8
//! ends the agent. The host's end is `vm::control`, the guest's [`agent`](crate::agent).

use serde::{Deserialize, Serialize};

/// The agent's first line after each boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The guest kernel's release.
    pub kernel: String,
    /// Number of loaded modules.
    pub modules: usize,
    /// Errors during start-up; empty when there were none.
    pub troubles: Vec<String>,
}

/// A request of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Number of the request, repeated in the reply.
    pub id: u64,
    /// The operation.
    pub ask: Operation,
}

/// Operations of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Run a command, killed after its time limit; its children are not.
    Run {
        /// Program and arguments.
        argv: Vec<String>,
        /// Time limit in milliseconds.
        limit_ms: u64,
    },
    /// Restart the guest; the next line is a new [`Hello`].
    Reboot,
}

/// Result of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandResult {
    /// Exit code; `None` when a signal or the time limit ended the command, or it did not start.
    pub code: Option<i32>,
    /// Whether the time limit ended it.
    pub timed_out: bool,
    /// The last 32 KiB of its standard output.
    pub stdout: String,
    /// The last 32 KiB of its standard error; the reason if the command did not start.
    pub stderr: String,
}

/// A line from the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// The guest is up.
    Hello(Hello),
    /// A command has finished.
    Reply {
        /// The request's number.
        id: u64,
        /// The command's result.
        ran: CommandResult,
    },
}
