//! The sandbox: restricts the daemon's own threads before they serve.
//!
//! The main thread calls [`Sandbox::enter`] before any other thread starts, except the holder's
//! starter, because the threads that a thread starts inherit all parts:
//!
//! - no new privileges by execve(2), no core dump, no ptrace(2) by the same user (`privileges`);
//! - only the capabilities that are used; CAP_NET_RAW only with raw interfaces (`raw_sockets`);
//! - Landlock: the directories in which sockets are created, and those that are read (`files`);
//! - seccomp: the system calls that the daemon makes (`calls`). Dispatchers, which read guests'
//!   memory, get a second filter ([`Sandbox::enter_dispatcher`]).
//!
//! A restriction cannot be lifted, and none is added when the configuration changes at run time: a
//! later port outside the permitted directories is refused with a remedy ([`add_remedy`]). The
//! sandbox limits neither memory nor processor time, and it does not confine the network beyond
//! socket families. Parts that the kernel does not support are left out and reported.
//! `--no-sandbox` leaves out all parts, for debuggers and core dumps.
//!
//! [`crate::run`] enters the sandbox after the directories of sockets exist and accounts are
//! resolved; [`crate::fabric`] adds the remedy to a refusal, in the thread of the command.

mod calls;
mod files;
mod privileges;

use std::path::Path;
use std::sync::OnceLock;

use causeway_model::CommandError;

use crate::config::Config;

/// The requirements of the sandbox that this process has entered.
static ENTERED: OnceLock<Requirements> = OnceLock::new();

/// The reason why the sandbox cannot be entered. The daemon then does not start.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Privileges cannot be given up.
    #[error("the sandbox: cannot give up {what}: {error}; try --no-sandbox")]
    Privileges {
        /// The privilege.
        what: &'static str,
        /// Error of the system call.
        error: std::io::Error,
    },
    /// The system call filter is refused.
    #[error("the sandbox: the system call filter is not accepted: {0}; try --no-sandbox")]
    Calls(#[from] seccompiler::Error),
    /// The file system rules are refused.
    #[error("the sandbox: the file system rules are not accepted: {0}; try --no-sandbox")]
    Files(#[from] landlock::RulesetError),
}

/// Access that the daemon needs inside the sandbox, by its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requirements {
    /// Sockets on interfaces (AF_PACKET): as `raw_sockets` in `[daemon]` has it, else if a link or
    /// NIC of the configuration file has an interface.
    pub raw: bool,
}

impl Requirements {
    /// Returns the requirements of a configuration.
    pub fn of(config: &Config) -> Self {
        let raw = config.daemon.raw_sockets.unwrap_or_else(|| config.has_interface());
        Self { raw }
    }
}

/// Adds the remedy to an error that the sandbox may have caused.
pub fn add_remedy(error: CommandError) -> CommandError {
    match (error, ENTERED.get()) {
        (CommandError::Host(text), Some(requirements)) => match remedy(&text, *requirements) {
            Some(remedy) => CommandError::Host(format!("{text}; {remedy}")),
            None => CommandError::Host(text),
        },
        (other, _) => other,
    }
}

/// Returns the remedy for an error text, or `None` if the sandbox is not its likely cause.
fn remedy(text: &str, requirements: Requirements) -> Option<&'static str> {
    if text.contains("CAP_NET_RAW") && !requirements.raw {
        return Some(
            "the daemon gave it up because its configuration has no interface: if it was started \
             with it, set raw_sockets = true in [daemon] and restart",
        );
    }
    text.contains("Permission denied").then_some(
        "if users and permissions are right, the sandbox does not reach that directory: add it to \
         sandbox_paths in [daemon] and restart",
    )
}

/// The sandbox that the calling thread has entered.
#[derive(Debug)]
pub struct Sandbox {
    /// The parts that this kernel does not support: `change of capabilities`, `Landlock` or
    /// `seccomp`.
    lacks: Vec<&'static str>,
    requirements: Requirements,
}

impl Sandbox {
    /// Puts the calling thread, and the threads that it starts, into the sandbox. `file` is the
    /// file of the configuration.
    ///
    /// # Errors
    /// The kernel refuses a part that it supports.
    pub fn enter(config: &Config, file: &Path) -> Result<Self, SandboxError> {
        let requirements = Requirements::of(config);
        let mut lacks = Vec::new();
        if !privileges::drop_privileges(requirements)? {
            lacks.push("change of capabilities");
        }
        if !files::restrict(config, file)? {
            lacks.push("Landlock");
        }
        if !calls::restrict(requirements)? {
            lacks.push("seccomp");
        }
        ENTERED.get_or_init(|| requirements);
        Ok(Self { lacks, requirements })
    }

    /// Restricts the calling thread, and the threads that it starts, to the calls of dispatchers.
    ///
    /// # Errors
    /// The kernel refuses the filter.
    pub fn enter_dispatcher(&self) -> Result<(), SandboxError> {
        if !self.lacks.contains(&"seccomp") {
            calls::restrict_dispatcher()?;
        }
        Ok(())
    }

    /// Logs the parts that the kernel does not support, or an outer sandbox forbids.
    pub fn report(&self) {
        for lacks in &self.lacks {
            log::warn!(
                "the kernel or an outer sandbox does not permit {lacks}: this part of the sandbox is \
                 left out"
            );
        }
        log::debug!(raw_sockets = self.requirements.raw; "sandbox entered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandbox_adds_remedies_to_errors_that_it_may_cause() {
        let remedy = |text, raw| remedy(text, Requirements { raw }).unwrap_or_default();
        assert!(remedy("interface eth0: CAP_NET_RAW is needed", false).contains("raw_sockets"));
        assert_eq!(remedy("interface eth0: CAP_NET_RAW is needed", true), "");
        assert!(remedy("socket /x: Permission denied", true).contains("sandbox_paths"));
        assert_eq!(remedy("address in use", false), "");
    }
}
