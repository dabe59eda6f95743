//! causeway, the operator's tool.
//!
//! [`args`] is the grammar, [`client`] asks the daemon, [`commands`] does what
//! each verb says, [`table`] prints for people.

mod args;
mod attach;
mod client;
mod commands;
mod error;
mod limits;
mod qemu;
mod table;
mod view;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match commands::run(args::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("causeway: {error}");
            ExitCode::from(error.status())
        }
    }
}
