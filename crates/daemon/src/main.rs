//! causewayd, the host daemon.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use causeway_daemon::args::Args;
use causeway_daemon::config::{Config, Surroundings};
use causeway_daemon::life::{Daemon, StartError};
use causeway_daemon::logger;
use causeway_ethernet::Ethernet;
use causeway_fabric::{Fabric, Maker};
use causeway_link::io::service::Links;
use causeway_mx::Messages;
use causeway_socket::Socket;
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
    let config = Config::load(&args.config, &Surroundings::of_process())
        .map_err(|error| format!("the configuration cannot be used\n{error}"))?;
    if args.print_config {
        return print(config.to_toml().as_bytes());
    }
    if args.check_config {
        let Config { groups, ports, rules, links, routes, .. } = &config;
        let (groups, ports, rules) = (groups.len(), ports.len(), rules.len());
        let (links, routes) = (links.len(), routes.len());
        let file = args.config.display();
        let text = format!(
            "{file}: ok: {groups} groups, {ports} ports, {rules} rules, {links} links, {routes} \
             routes\n"
        );
        return print(text.as_bytes());
    }
    logger::start(config.daemon.log)?;
    serve(config, args.keep)
}

/// Runs the dispatchers, and the rest beside them.
fn serve(config: Config, keep: bool) -> Result<(), StartError> {
    let options = config.daemon.dispatch.clone();
    let daemon = Daemon::claim(config)?;
    let services: [Maker; 4] = [
        || Box::new(Ethernet::new()),
        || Box::new(Socket::new()),
        || Box::new(Links::new()),
        || Box::new(Messages::new()),
    ];
    let fabric = Fabric::start(&services, options)?;
    let handle = fabric.handle();
    let control = thread::Builder::new().name("lifecycle".into()).spawn(move || {
        let served = daemon.serve(Arc::new(handle.clone()), keep);
        handle.stop();
        served
    })?;
    // Its end without a stop is an error; the lifecycle thread then ends with the process.
    fabric.wait().map_err(|error| format!("a dispatcher failed: {error}"))?;
    control.join().map_err(|_| "the lifecycle thread failed")?
}

fn print(bytes: &[u8]) -> Result<(), StartError> {
    Ok(std::io::stdout().write_all(bytes)?)
}
