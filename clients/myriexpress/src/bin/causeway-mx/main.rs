//! `causeway-mx`: shows the NICs of this host, and measures messages to a peer.
//!
//! The tool loads any library of the MX API ([`api`]), so that different libraries can be compared.
//! `pingpong` and `stream` send their parameters to a peer that runs `serve` ([`bench_request`]).
//! One thread does all work. An error ends the command with a non-zero status; nothing is retried,
//! except a connect. The tool talks to NICs through the library alone, and to causewayd not at all.
#![allow(unsafe_code, reason = "the C ABI of the MX API")]

mod api;
mod args;
mod bench_request;
mod endpoint;
mod error;
mod info;
mod measure;
mod report;
mod serve;
mod traffic;

use std::process::ExitCode;

use clap::Parser as _;

use args::{CommandLine, ToolCommand};
use error::Error;

fn run(args: &CommandLine) -> Result<(), Error> {
    let api = api::Api::load(args.library.as_deref())?;
    match &args.command {
        ToolCommand::Info(how) => info::run(&api, how),
        ToolCommand::Serve(how) => serve::run(&api, how),
        ToolCommand::Pingpong(how) => {
            measure::run(&api, how, bench_request::MessagePattern::Pingpong)
        }
        ToolCommand::Stream(how) => {
            let pattern = if how.both {
                bench_request::MessagePattern::Both
            } else {
                bench_request::MessagePattern::Stream
            };
            measure::run(&api, &how.measure, pattern)
        }
    }
}

fn main() -> ExitCode {
    match run(&CommandLine::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("causeway-mx: {error}");
            ExitCode::FAILURE
        }
    }
}
