//! causewayd with an additional service.
//!
//! The program is causewayd but for the list of services, which has [`causeway_loopback::SERVICE`]
//! at its end. The crate's test starts it. An error of the daemon is printed, and the exit status
//! is 1.

use std::process::ExitCode;

use causeway_daemon::services::SERVICES;
use causeway_daemon::{args::Args, run::run};
use causeway_fabric::ServiceRegistration;
use clap::Parser as _;

const OTHERS: usize = SERVICES.len();
const ALL: &[ServiceRegistration] = &{
    // The only line that adds the service.
    let mut all = [causeway_loopback::SERVICE; OTHERS + 1];
    let mut index = 0;
    while index < OTHERS {
        all[index] = SERVICES[index];
        index += 1;
    }
    all
};

fn main() -> ExitCode {
    match run(&Args::parse(), ALL) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("causewayd-loopback: {error}");
            ExitCode::FAILURE
        }
    }
}
