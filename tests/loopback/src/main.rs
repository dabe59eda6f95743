//! causewayd with an additional service.

use std::process::ExitCode;

use causeway_daemon::services::SERVICES;
use causeway_daemon::{args::Args, run::run};
use causeway_fabric::ServiceRegistration;
use clap::Parser as _;

const ALL: &[ServiceRegistration] = &{
    let [a, b, c, d, e, f] = *SERVICES else { panic!("expected the services of the daemon") };
    // The only line that adds the service.
    [a, b, c, d, e, f, causeway_loopback::SERVICE]
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
