//! `causeway-mx`: what boards are here, and how fast messages go to a peer.
//!
//! It uses whichever library of the MX API it finds ([`api`]), so that others can be held beside
//! ours. `serve` answers; `pingpong` and `stream` ask it for what they measure ([`order`]).
#![allow(unsafe_code, reason = "the C ABI of the MX API")]

mod api;
mod args;
mod endpoint;
mod error;
mod info;
mod measure;
mod order;
mod play;
mod report;
mod serve;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Command};
use error::Error;

fn run(args: &Args) -> Result<(), Error> {
    let api = api::Api::load(args.library.as_deref())?;
    match &args.command {
        Command::Info(how) => info::run(&api, how),
        Command::Serve(how) => serve::run(&api, how),
        Command::Pingpong(how) => measure::run(&api, how, order::Play::Pingpong),
        Command::Stream(how) => {
            let play = if how.both { order::Play::Both } else { order::Play::Stream };
            measure::run(&api, &how.measure, play)
        }
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("causeway-mx: {error}");
            ExitCode::FAILURE
        }
    }
}
