//! Errors of the guest harness, with the failing component and its output.
//!
//! Most functions of the crate that can fail return [`Error`], and the demo, the matrix and tests
//! use it. The text names the component and the failure, and the remedy for a missing part. The
//! last lines of the console or log follow for a guest or daemon, which may be gone when the error
//! is read.

use std::io;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the guest harness.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program, package, file or privilege is missing.
    #[error("{what}; {remedy}")]
    Missing {
        /// The missing part, or the operation that lacks a privilege.
        what: String,
        /// The remedy, such as an installation.
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
    /// An exchange, a program in a guest or a command of a monitor failed, or content changed in
    /// transit.
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
