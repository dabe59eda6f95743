//! causewayd, the host daemon: parses the command line, runs [`causeway_daemon::run::run`], prints
//! its error, and flushes the log.
//!
//! The exit status is 0 after a stop or a successful check, 1 after an error, and 2 for a wrong
//! command line, which clap reports. All other code is in the library, so that tests can drive it
//! without a process.
//!
//! The main thread runs it; a panic of this thread is logged and ends the process with the status
//! of a panic (101).

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
