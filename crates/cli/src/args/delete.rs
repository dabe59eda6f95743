//! Options that every verb `del` of an object of the daemon has.
//!
//! The definitions of ports, groups, links, routes, rules and forwards include them;
//! `CommandContext::delete` sends the request, in the main thread. Whether the object exists is the
//! daemon's answer: without `--if-exists` a missing one is an error of exit status 3.

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
