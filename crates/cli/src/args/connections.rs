//! Command line of `causeway connection`.
//!
//! A state that does not exist, or a limit of 0, is refused with exit status 2; whether the group
//! or the port exists is checked by the daemon. A limit beyond a page of the daemon (1,000) becomes
//! several requests. `commands::connection` uses the values, in the main thread.

use causeway_model::Name;
use clap::{Args, Subcommand, ValueEnum};

use crate::limits::CONNECTIONS_SHOWN_DEFAULT;

/// `causeway connection …`
#[derive(Debug, Subcommand)]
pub enum ConnectionVerb {
    /// List the connections: both ends, state, age, waiting bytes and credit
    #[command(after_help = "\
FROM connected, TO was called; `host` is a process of the host. QUEUED is data that the daemon
holds because its receiver has no room, CREDIT the data that may be sent before the receiver
must read: TO towards the called side, BACK towards the caller. A connection with bytes queued
and no credit waits for its reader.

Examples:
  causeway connection list
  causeway connection list --port vm1-vsock --state open
  causeway connection list --group blue --number 22 -o json")]
    List(ConnectionList),
}

/// `causeway connection list`
#[derive(Debug, Args)]
pub struct ConnectionList {
    /// Only connections of this group
    #[arg(long, value_name = "NAME")]
    pub group: Option<Name>,
    /// Only connections of this port, as caller or called side
    #[arg(long, value_name = "NAME")]
    pub port: Option<Name>,
    /// Only connections from or to this CID; 2 is the host
    #[arg(long)]
    pub cid: Option<u32>,
    /// Only connections from or to this port number
    #[arg(long, value_name = "N")]
    pub number: Option<u32>,
    /// Only connections in this state
    #[arg(long, value_enum)]
    pub state: Option<ConnectionStateArg>,
    /// Most connections to list
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS_SHOWN_DEFAULT,
          value_parser = limit)]
    pub limit: usize,
}

/// Parses a limit of at least 1.
fn limit(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "expected a number from 1".to_owned())
}

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConnectionStateArg {
    /// The called side has not answered
    Requested,
    /// Data may flow
    Open,
    /// A side has shut down or left
    Closing,
}

impl ConnectionStateArg {
    /// Returns the state as the daemon names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Open => "open",
            Self::Closing => "closing",
        }
    }
}
