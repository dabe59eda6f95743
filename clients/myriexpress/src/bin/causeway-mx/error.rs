//! Errors of the tool; the text names the remedy where there is one.
//!
//! The commands return an error to `main`, which prints it to standard error and exits with status
//! 1; a closed pipe at stdout is a success. Wrong arguments are not errors of this type: `clap`
//! exits with status 2. Errors of the library carry its own text. `serve` prints the errors of a
//! peer and goes on; with `--once` it returns them, but still prints and ignores an invalid request
//! ([`Error::Answer`]). All in the only thread.

/// Reason of a failed command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library cannot be loaded.
    #[error(
        "cannot load a library of the MX API: {0}; install the package libmyriexpress, name the library with --library, or set LD_LIBRARY_PATH"
    )]
    Library(#[from] libloading::Error),
    /// A call failed.
    #[error("{call}: {text}{hint}")]
    Call { call: &'static str, text: String, hint: &'static str },
    /// A message failed.
    #[error("a message failed with \"{0}\": the peer has ended, or cannot be reached")]
    Status(String),
    /// No message arrived.
    #[error("the peer has been silent for {0} s")]
    Silent(u32),
    /// The answer of the peer is invalid.
    #[error("the answer of the peer is invalid: is it causeway-mx serve of the same version?")]
    Answer,
    /// A message was altered on its path.
    #[error("a message of {len} bytes was altered on its path: byte {at} is wrong")]
    Altered { at: usize, len: usize },
    /// The peer is not known.
    #[error("\"{0}\" is not a known NIC: see causeway-mx info and causeway peer list")]
    Peer(String),
    /// The core cannot be used.
    #[error("core {0} cannot be used: {1}")]
    Core(usize, rustix::io::Errno),
    /// Standard output, or the folder of the manual pages, cannot be written.
    #[error("cannot write: {0}")]
    Write(#[from] std::io::Error),
}

impl Error {
    /// Returns whether the error is only a closed pipe, as in `causeway-mx ... | head`.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Write(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}
