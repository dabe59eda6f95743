//! What can go wrong, and what to do about it.

/// Why a command ends without success.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no library.
    #[error("no library of the MX API: {0}; give one with --library, or set LD_LIBRARY_PATH")]
    Library(#[from] libloading::Error),
    /// A call failed.
    #[error("{call}: {text}{hint}")]
    Call { call: &'static str, text: String, hint: &'static str },
    /// A message ended badly.
    #[error("a message ended with \"{0}\": the peer has gone, or cannot be reached")]
    Status(String),
    /// Nothing came.
    #[error("the peer has been silent for {0} s")]
    Silent(u32),
    /// The peer's answer is none.
    #[error("the peer answers what is no answer: is it causeway-mx serve, of this version?")]
    Answer,
    /// A message was altered on its way.
    #[error("byte {at} of a message of {len} bytes is wrong")]
    Altered { at: usize, len: usize },
    /// No such peer.
    #[error("\"{0}\" is no board that is known here: see causeway-mx info and causeway peer list")]
    Peer(String),
    /// The core cannot be used.
    #[error("core {0} cannot be used: {1}")]
    Core(usize, rustix::io::Errno),
    /// Nobody reads.
    #[error("cannot write: {0}")]
    Write(#[from] std::io::Error),
}
