//! causeway-holder: keeps frontends connected while causewayd is away.
//!
//! The program parses its options, starts the log, leaves the session of its parent, and runs
//! [`causeway_holder::holder::Holder`] on the main thread until SIGTERM, SIGINT, or (without
//! `--stay`) the release of all ports by causewayd, 60 s without causewayd and frontends, or the
//! removal of its control socket while nothing is connected. SIGHUP is ignored. A thread waits for
//! the signals.
//!
//! It reads no configuration file, enters no sandbox, and forwards no traffic: causewayd sends it
//! the ports over the control connection of `--dir`. A second holder of a directory exits with
//! status 1, as after any other error. Limits are those of
//! `causeway_holder::limits`.
//!
//! causewayd starts it through [`causeway_daemon::held_ports::HolderStarter`]; a service manager
//! may start it instead.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use causeway_daemon::lifecycle::StartError;
use causeway_daemon::{lifecycle, logger};
use causeway_holder::holder::{Holder, HolderOptions};
use clap::{CommandFactory as _, Parser};
use log::LevelFilter;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Keeps virtual machines connected while causewayd is away. causewayd starts it by itself; as a
/// service of its own it also outlives causewayd's service.
#[derive(Debug, Parser)]
#[command(name = "causeway-holder", version, after_help = EXAMPLES)]
struct HolderArgs {
    /// Directory "held" in causewayd's run_dir, through which causewayd finds the holder
    #[arg(long, value_name = "DIR", required_unless_present = "man")]
    dir: Option<PathBuf>,
    /// Do not exit when no port is held any more
    #[arg(long)]
    stay: bool,
    /// Print the manual page (roff) and exit
    #[arg(long, exclusive = true)]
    man: bool,
}

const EXAMPLES: &str = "\
Examples:
  causeway-holder --dir /run/causeway/held --stay   hold ports until SIGTERM

causewayd uses a holder that runs for its run_dir and does not start another. SIGTERM and
SIGINT end the holder and disconnect the guests whose connections it keeps.

Exit status: 0 stopped, 1 error, 2 wrong usage.";

fn main() -> ExitCode {
    let args = HolderArgs::parse();
    let done = match args.dir {
        // Without a directory clap accepts the manual page alone.
        None => man_page().map_err(StartError::from),
        Some(dir) => run(dir, args.stay),
    };
    match done {
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

/// Prints the manual page in roff.
fn man_page() -> std::io::Result<()> {
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(HolderArgs::command()).section("8");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    let examples = EXAMPLES.replace('\\', "\\e").replace('-', "\\-");
    write!(page, ".SH EXAMPLES\n.nf\n{examples}\n.fi\n.SH \"SEE ALSO\"\n.BR causewayd (8)\n")?;
    std::io::stdout().write_all(&page)
}

/// Holds ports until a signal, or until no port is held.
fn run(dir: PathBuf, stay: bool) -> Result<(), StartError> {
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
