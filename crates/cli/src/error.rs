//! What can go wrong, in sentences that say what to do, and the exit status of each.

use std::io;
use std::path::PathBuf;

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens on the control socket, or we may not connect.
    #[error("{}", unreachable_text(.path, .error))]
    Unreachable {
        /// The control socket.
        path: PathBuf,
        /// Why the connection failed.
        error: io::Error,
    },
    /// The daemon did not answer in time.
    #[error(
        "the daemon at {path} did not answer within {seconds} s; try again, or wait longer with --timeout"
    )]
    Timeout {
        /// The control socket.
        path: PathBuf,
        /// How long we waited.
        seconds: u64,
    },
    /// The thing that was asked for does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The daemon refused.
    #[error("{message}{}", hint(.kind))]
    Refused {
        /// `conflict`, `invalid` and so on.
        kind: String,
        /// The daemon's sentence.
        message: String,
    },
    /// The daemon stopped half-way.
    #[error("{message}")]
    Partial {
        /// The daemon's sentence.
        message: String,
        /// What was done and what is left.
        value: serde_json::Value,
    },
    /// The reply makes no sense.
    #[error("unexpected reply from the daemon: {0}; are causeway and causewayd of one version?")]
    Reply(String),
    /// An option's value does not fit.
    #[error("{0}")]
    Usage(String),
    /// Output could not be written.
    #[error("{what}: {error}")]
    Output {
        /// What was written.
        what: String,
        /// Why it failed.
        error: io::Error,
    },
}

impl Error {
    /// The exit status; see the manual.
    pub fn status(&self) -> u8 {
        match self {
            Self::Refused { .. } | Self::Reply(_) | Self::Output { .. } => 1,
            Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
            Self::Unreachable { .. } => 4,
            Self::Timeout { .. } => 5,
            Self::Partial { .. } => 65,
        }
    }

    /// Whether only the reader of our output has gone, as `causeway … | head` does.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output { error, .. } if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

fn unreachable_text(path: &std::path::Path, error: &io::Error) -> String {
    let path = path.display();
    if error.kind() == io::ErrorKind::PermissionDenied {
        return format!(
            "no access to the daemon's control socket {path}: {error}\n\
             run this as root, or as a member of the group that owns the socket \
             (control_group in causewayd's configuration)"
        );
    }
    format!(
        "no daemon serves {path}: {error}\n\
         start it with `systemctl start causewayd` or `causewayd --config FILE`; if it serves \
         another control socket, name it with --control PATH or CAUSEWAY_CONTROL"
    )
}

fn hint(kind: &str) -> &'static str {
    match kind {
        "busy" => "; try again",
        "no_such_path" => "; are causeway and causewayd of one version?",
        _ => "",
    }
}

/// Short for the results of this tool.
pub type Result<T> = std::result::Result<T, Error>;
