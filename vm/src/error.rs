//! What can go wrong around a guest, with the culprit and what it said.

use std::io;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something about a guest did not work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program or package is not there.
    #[error("{what}; {remedy}")]
    Missing {
        /// What is missing.
        what: String,
        /// How to get it.
        remedy: String,
    },
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, on what.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A host command failed.
    #[error("`{command}` failed: {said}")]
    Command {
        /// The command line.
        command: String,
        /// The end of what it printed.
        said: String,
    },
    /// A guest did not do what it should.
    #[error("guest {guest}: {what}\n--- console of {guest} ---\n{console}")]
    Guest {
        /// The guest's name.
        guest: String,
        /// What happened.
        what: String,
        /// The last lines of its console.
        console: String,
    },
    /// The daemon did not do what it should.
    #[error("causewayd: {what}\n--- log of causewayd ---\n{log}")]
    Daemon {
        /// What happened.
        what: String,
        /// The last lines of its log.
        log: String,
    },
    /// An exchange failed, or its content changed on the way.
    #[error("{what}")]
    Traffic {
        /// Which exchange, and how.
        what: String,
    },
}

impl Error {
    /// For `map_err`: the operating system's reason, with what was tried.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
