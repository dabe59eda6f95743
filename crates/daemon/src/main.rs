//! causewayd, the host daemon.

use std::process::ExitCode;

use causeway_daemon::args::Args;
use causeway_daemon::logger;
use causeway_daemon::run::run;
use causeway_daemon::services::SERVICES;
use clap::Parser as _;

fn main() -> ExitCode {
    match run(&Args::parse(), SERVICES) {
        Ok(()) => {
            logger::flush();
            ExitCode::SUCCESS
        }
        Err(error) => {
            logger::write_last(&format!("causewayd: {error}"));
            ExitCode::FAILURE
        }
    }
}
