//! Errors of the tool: sentences with a remedy, and the exit status of each.
//!
//! [`crate::client`] maps a refused request to an error by the `kind` of the reply, the verbs add
//! remedies, and `main` prints the text to stderr and exits with [`Error::status`]: 1 refused, an
//! unexpected reply, a failed output, a failed socket of `forward`, a difference or a failed check,
//! 2 usage or an unusable file, 3 not found, 4 no daemon or no access, 5 timeout, 65 partial
//! (`apply` alone), 126 and 127 a command that cannot be executed or does not exist (`mpi-run`
//! alone). The statuses are a contract with scripts; the texts are not. Usage errors that clap
//! finds exit with 2 before. No error is retried or logged, and with JSON output errors are still
//! text.

use std::io;
use std::path::PathBuf;

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No process listens on the control socket, or this user may not connect.
    #[error("{}", unreachable_text(.path, .error))]
    Unreachable {
        /// The control socket.
        path: PathBuf,
        /// Error of the connect.
        error: io::Error,
    },
    /// The daemon did not answer in time.
    #[error(
        "the daemon at {path} did not answer within {seconds} s; try again, or wait longer with \
         --timeout"
    )]
    Timeout {
        /// The control socket.
        path: PathBuf,
        /// The time waited, in seconds.
        seconds: u64,
    },
    /// The object that the command names does not exist; the text is the daemon's, with a remedy.
    #[error("{0}")]
    NotFound(String),
    /// The daemon refused the request.
    #[error("{message}{}", hint(.kind))]
    Refused {
        /// Kind of the refusal: `conflict`, `invalid` and so on.
        kind: String,
        /// The daemon's error text.
        message: String,
    },
    /// The daemon made only a part of the changes.
    #[error("{message}")]
    Partial {
        /// The daemon's error text.
        message: String,
        /// The changes, each with whether it was made.
        value: serde_json::Value,
    },
    /// The compared states differ; the differences were printed.
    #[error("the states differ")]
    Differs,
    /// The reply is malformed.
    #[error("unexpected reply from the daemon: {0}; are causeway and causewayd of one version?")]
    Reply(String),
    /// An argument, or a file that it names, is invalid.
    #[error("{0}")]
    Usage(String),
    /// A socket of `causeway forward` failed.
    #[error("{0}")]
    Forward(causeway_forward::ForwardError),
    /// A check of `doctor` failed.
    #[error("{0}")]
    Unhealthy(String),
    /// This user may not use a NIC or a file that the command needs.
    #[error("{0}")]
    NoAccess(String),
    /// The command of `mpi-run` could not be executed.
    #[error("cannot execute {}: {error}; nothing was started", .program.display())]
    Execute {
        /// The program.
        program: PathBuf,
        /// The program, or the interpreter of the script, does not exist.
        is_missing: bool,
        /// Error of the system call.
        error: io::Error,
    },
    /// Output could not be written.
    #[error("{what}: {error}")]
    Output {
        /// The file or stream.
        what: String,
        /// Error of the system call.
        error: io::Error,
    },
}

impl Error {
    /// Returns the exit status of the process.
    pub fn status(&self) -> u8 {
        match self {
            Self::Refused { .. }
            | Self::Reply(_)
            | Self::Output { .. }
            | Self::Forward(_)
            | Self::Differs
            | Self::Unhealthy(_) => 1,
            Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
            Self::Unreachable { .. } | Self::NoAccess(_) => 4,
            Self::Timeout { .. } => 5,
            Self::Partial { .. } => 65,
            // As shells and env(1) report it.
            Self::Execute { is_missing: false, .. } => 126,
            Self::Execute { is_missing: true, .. } => 127,
        }
    }

    /// Returns whether the daemon may run, and this user has no access to its control socket.
    pub fn is_no_access(&self) -> bool {
        match self {
            Self::Unreachable { error, .. } => error.kind() == io::ErrorKind::PermissionDenied,
            Self::Refused { kind, .. } => kind == "forbidden",
            _ => false,
        }
    }

    /// Returns whether the error is only a closed pipe, as in `causeway … | head`.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output { error, .. } if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Returns the text for a failed connect, with the remedy for missing access or a missing daemon.
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

/// Returns the remedy for a kind of refusal; empty if its message has the remedy.
fn hint(kind: &str) -> &'static str {
    match kind {
        "busy" => "; try again",
        "no_such_path" => "; are causeway and causewayd of one version?",
        _ => "",
    }
}

/// Result of a command of this tool.
pub type Result<T> = std::result::Result<T, Error>;
