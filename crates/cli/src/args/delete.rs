//! Options that every verb `del` of an object of the daemon has.

use clap::Args;

/// Options of a deletion.
#[derive(Debug, Args)]
pub struct DeleteOptions {
    /// Succeed if the object does not exist
    #[arg(long)]
    pub if_exists: bool,
    /// Only until the next start of causewayd: the object stays in its state file
    #[arg(long)]
    pub ephemeral: bool,
}
