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
    let cli = args::Cli::try_parse().unwrap_or_else(|error| {
        if error.use_stderr() && std::env::args().any(|word| word == "mpi-env") {
            // A shell evaluates the output.
            print!("{}", commands::EVALUATED_FAILURE);
        }
        error.exit()
    });
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("causeway: {error}");
            ExitCode::from(error.status())
        }
    }
}
