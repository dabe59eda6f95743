//! Errors of the guest harness, with the failing component and its output.
//!
//! All modules of the crate, and the tests that use them, return [`Error`]. The text names the
//! component, the failure and, for a missing program, its installation; the last lines of a console
//! or log follow, because the guest or daemon is gone when the error is read. Nothing is retried by
//! the harness.

use std::io;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the guest harness.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program or package is not installed.
    #[error("{what}; {remedy}")]
    Missing {
        /// The missing program or package.
        what: String,
        /// Its installation.
        remedy: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation and its object.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// A host command failed.
    #[error("`{command}` failed: {said}")]
    Command {
        /// The command line.
        command: String,
        /// The end of its output.
        said: String,
    },
    /// A guest failed.
    #[error("guest {guest}: {what}\n--- console of {guest} ---\n{console}")]
    Guest {
        /// The guest's name.
        guest: String,
        /// The failure.
        what: String,
        /// The last lines of its console.
        console: String,
    },
    /// The daemon failed.
    #[error("causewayd: {what}\n--- log of causewayd ---\n{log}")]
    Daemon {
        /// The failure.
        what: String,
        /// The last lines of its log.
        log: String,
    },
    /// An exchange failed, or its content changed in transit.
    #[error("{what}")]
    Traffic {
        /// The exchange and its failure.
        what: String,
    },
}

impl Error {
    /// Returns a function for `map_err` that adds the operation to the operating system's error.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
