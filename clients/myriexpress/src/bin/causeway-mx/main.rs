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

use clap::{CommandFactory as _, Parser as _};

use args::{CommandLine, ManArgs, ToolCommand};
use error::Error;

fn run(args: &CommandLine) -> Result<(), Error> {
    let library = || api::Api::load(args.library.as_deref());
    match &args.command {
        ToolCommand::Man(how) => pages(how),
        ToolCommand::Info(how) => info::run(&library()?, how),
        ToolCommand::Serve(how) => serve::run(&library()?, how),
        ToolCommand::Pingpong(how) => {
            measure::run(&library()?, how, bench_request::MessagePattern::Pingpong)
        }
        ToolCommand::Stream(how) => {
            let pattern = if how.both {
                bench_request::MessagePattern::Both
            } else {
                bench_request::MessagePattern::Stream
            };
            measure::run(&library()?, &how.measure, pattern)
        }
    }
}

/// Writes `causeway-mx.1`, and a page for each command.
fn pages(how: &ManArgs) -> Result<(), Error> {
    std::fs::create_dir_all(&how.folder)?;
    Ok(clap_mangen::generate_to(CommandLine::command(), &how.folder)?)
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
