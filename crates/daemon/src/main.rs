//! causewayd, the host daemon.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use causeway_daemon::args::Args;
use causeway_daemon::config::environment::Findings;
use causeway_daemon::config::{Config, Surroundings};
use causeway_daemon::hold::Starter;
use causeway_daemon::life::{Daemon, StartError, make_dirs};
use causeway_daemon::logger;
use causeway_daemon::sandbox::Sandbox;
use causeway_daemon::services::SERVICES;
use causeway_model::port::KINDS;
use causeway_fabric::{Fabric, Options};
use clap::Parser as _;

fn main() -> ExitCode {
    match run(&Args::parse()) {
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

fn run(args: &Args) -> Result<(), StartError> {
    if args.man {
        return print(&Args::man_page()?);
    }
    if let Some(shell) = args.completion {
        return print(&Args::completions(shell));
    }
    let config = Config::load(&args.config, &Surroundings::of_process(&KINDS))
        .map_err(|error| format!("the configuration cannot be used\n{error}"))?;
    if args.print_config {
        return print(config.to_toml().as_bytes());
    }
    if args.check_config {
        let Config { groups, ports, rules, links, routes, .. } = &config;
        let (groups, ports, rules) = (groups.len(), ports.len(), rules.len());
        let (links, routes) = (links.len(), routes.len());
        let file = args.config.display();
        let Findings { errors, warnings } = config.look_around();
        for warning in warnings {
            eprintln!("causewayd: {file}: {warning}: the link is down until that is there");
        }
        if !errors.is_empty() {
            let text = errors.join("\n");
            return Err(format!("the configuration cannot be used on this host\n{text}").into());
        }
        let text = format!(
            "{file}: ok: {groups} groups, {ports} ports, {rules} rules, {links} links, {routes} \
             routes\n"
        );
        return print(text.as_bytes());
    }
    make_dirs(&config)?;
    // Before the sandbox, which has no place for other programs.
    let starter = Starter::new(config.daemon.hold)?;
    // Before any thread that it is for.
    let sandbox = (!args.no_sandbox).then(|| Sandbox::enter(&config)).transpose()?;
    logger::start(config.daemon.log)?;
    match &sandbox {
        Some(sandbox) => sandbox.report(),
        None => log::warn!("started without the sandbox (--no-sandbox)"),
    }
    serve(config, args.keep, sandbox, starter)
}

/// Runs the dispatchers, and the rest beside them.
fn serve(
    config: Config,
    keep: bool,
    sandbox: Option<Sandbox>,
    starter: Starter,
) -> Result<(), StartError> {
    // Before the dispatchers, whose restrictions their own threads inherit.
    causeway_link::io::names::start();
    let options = config.daemon.dispatch.clone();
    let daemon = Daemon::claim(config, &KINDS)?;
    let fabric = start_fabric(options, sandbox)?;
    let handle = fabric.handle();
    let control = thread::Builder::new().name("lifecycle".into()).spawn(move || {
        let served = daemon.serve(Arc::new(handle.clone()), keep, starter);
        handle.stop();
        served
    })?;
    // Its end without a stop is an error; the lifecycle thread then ends with the process.
    fabric.wait().map_err(|error| format!("a dispatcher failed: {error}"))?;
    control.join().map_err(|_| "the lifecycle thread failed")?
}

/// Starts the dispatchers. A thread that starts another one hands its restrictions on, so a thread
/// of its own takes on those of dispatchers and starts them.
fn start_fabric(options: Options, sandbox: Option<Sandbox>) -> Result<Fabric, StartError> {
    let start = move || -> Result<Fabric, StartError> {
        if let Some(sandbox) = sandbox {
            sandbox.enter_dispatcher()?;
        }
        Ok(Fabric::start(SERVICES, options)?)
    };
    let started = thread::Builder::new().name("start".into()).spawn(start)?;
    started.join().map_err(|_| "the thread that starts the dispatchers failed")?
}

fn print(bytes: &[u8]) -> Result<(), StartError> {
    Ok(std::io::stdout().write_all(bytes)?)
}
