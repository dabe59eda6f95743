//! causeway-holder: keeps frontends connected while causewayd is away.
//!
//! The program parses its options, starts the log, leaves the session of its parent, and runs
//! [`causeway_holder::holder::Holder`] on the main thread until SIGTERM, SIGINT, or (without
//! `--stay`) the release of all ports by causewayd, or 60 s without causewayd and frontends. SIGHUP
//! is ignored. A thread waits for the signals.
//!
//! It reads no configuration file, enters no sandbox, and forwards no traffic: causewayd sends it
//! the ports over the control connection of `--dir`. A second holder of a directory exits with
//! status 1.
//!
//! causewayd starts it through [`causeway_daemon::held_ports::HolderStarter`]; a service manager
//! may start it instead.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use causeway_daemon::lifecycle::StartError;
use causeway_daemon::{lifecycle, logger};
use causeway_holder::holder::{Holder, HolderOptions};
use clap::Parser;
use log::LevelFilter;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Keeps virtual machines connected while causewayd is away. causewayd starts it by itself; as a
/// service of its own it also outlives causewayd's service.
#[derive(Debug, Parser)]
#[command(name = "causeway-holder", version)]
struct HolderArgs {
    /// Directory "held" in causewayd's run_dir, through which causewayd finds the holder
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Do not exit when no port is held any more
    #[arg(long)]
    stay: bool,
}

fn main() -> ExitCode {
    match run(HolderArgs::parse()) {
        Ok(()) => {
            logger::flush();
            ExitCode::SUCCESS
        }
        Err(error) => {
            logger::write_last(&format!("causeway-holder: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Holds ports until a signal, or until no port is held.
fn run(HolderArgs { dir, stay }: HolderArgs) -> Result<(), StartError> {
    // A session of its own, so that the end of causewayd's session does not end this process. The
    // call fails if the process leads one already.
    let _ = rustix::process::setsid();
    logger::start(LevelFilter::Info)?;
    lifecycle::raise_descriptor_limit();
    causeway_holder::client::make_dir(&dir)?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let holder = Holder::new(HolderOptions { dir, stay })?;
    let stop = holder.stopper();
    let wait = move || {
        // SIGHUP of a closed terminal must not stop the holder.
        if signals.forever().any(|signal| signal != SIGHUP) {
            stop.stop();
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait)?;
    causeway_daemon::service_manager::ServiceManager::of_process().send("READY=1");
    Ok(holder.run()?)
}
