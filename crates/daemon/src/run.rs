//! Starts causewayd: from the command line to the serving threads.
//!
//! [`run`] executes one of the modes of [`crate::args::Args`]: it prints the manual page,
//! completions or the configuration, checks the configuration, or serves until the daemon is
//! stopped. The order of the steps matters: accounts are looked up and the holder's starter thread
//! is created before the sandbox is entered, and the sandbox before the threads that inherit it.
//!
//! Serving, the calling thread waits for the dispatchers; the thread `start` only starts them, and
//! `lifecycle` runs [`crate::lifecycle`]. The module neither handles signals nor forks into the
//! background: a service manager does. It writes to stdout only when it prints or checks, and the
//! warnings of a check to stderr; errors are returned, and `main` prints them.
//!
//! Before: `main` parses the command line. After: the process ends, because threads of the watchdog
//! and of open sessions are not joined.

use std::io::Write as _;
use std::sync::Arc;
use std::thread;

use causeway_fabric::{Fabric, Options, ServiceRegistration};
use causeway_model::SectionOrder;

use crate::accounts;
use crate::args::{Args, ManualPage};
use crate::config::environment::HostFindings;
use crate::config::{Config, ConfigContext};
use crate::held_ports::HolderStarter;
use crate::lifecycle::{Daemon, StartError, StartOptions, make_dirs};
use crate::logger;
use crate::manual;
use crate::sandbox::Sandbox;
use crate::services::Registered;

/// Runs causewayd as the command line requests, until it is stopped.
///
/// `services` are the services of the daemon and define kinds of ports, sections and nouns. The
/// calling thread enters the sandbox, and the threads that it starts inherit it. It should
/// therefore be the first thread of the process; other threads stay outside the sandbox.
///
/// # Errors
/// The daemon cannot start, or fails while it serves: a sentence for the operator.
pub fn run(args: &Args, services: &'static [ServiceRegistration]) -> Result<(), StartError> {
    if let Some(page) = args.man {
        return match page {
            ManualPage::Causewayd => print(&Args::man_page()?),
            ManualPage::Configuration => {
                print(manual::configuration_page(Registered::of(services)).as_bytes())
            }
        };
    }
    if let Some(shell) = args.completion {
        return print(&Args::completions(shell));
    }
    let registered = Registered::of(services);
    let mut config = Config::load(&args.config, &ConfigContext::of_process(registered))
        .map_err(|error| format!("the configuration cannot be used\n{error}"))?;
    if let Some(file) = &args.state {
        config.daemon.state_file = std::path::absolute(file)?;
    }
    if args.print_config {
        return print(config.to_toml().as_bytes());
    }
    if args.check_config {
        let file = args.config.display();
        let HostFindings { errors, warnings } = config.check_host();
        for warning in warnings {
            eprintln!("causewayd: {file}: {warning}: the link is down until that is there");
        }
        if !errors.is_empty() {
            let text = errors.join("\n");
            return Err(format!("the configuration cannot be used on this host\n{text}").into());
        }
        let text = format!("{file}: ok: {}\n", counts(&config, registered));
        return print(text.as_bytes());
    }
    make_dirs(&config)?;
    // Before the sandbox: directory services may need more than the sandbox allows.
    resolve_accounts(&config);
    // Before the sandbox, which forbids starting programs.
    let starter = HolderStarter::new(config.daemon.hold)?;
    let config_file = std::path::absolute(&args.config)?;
    // Before the threads that inherit it.
    let sandbox = (!args.no_sandbox).then(|| Sandbox::enter(&config, &config_file)).transpose()?;
    logger::start(config.daemon.log)?;
    match &sandbox {
        Some(sandbox) => sandbox.report(),
        None => log::warn!("--no-sandbox: this process is not confined"),
    }
    let options = StartOptions { config_file, is_ephemeral: args.ephemeral };
    serve(config, (services, registered), (args.keep, options), sandbox, starter)
}

/// Returns the numbers of the objects of a configuration that belong to its groups.
fn counts(config: &Config, registered: Registered) -> String {
    let Config { groups, ports, rules, objects, .. } = config;
    let (groups, ports, rules) = (groups.len(), ports.len(), rules.len());
    let mut text = format!("{groups} groups, {ports} ports, {rules} rules");
    for section in registered.sections.iter().filter(|one| one.order != SectionOrder::Last) {
        let count = objects.iter().filter(|object| object.section == section).count();
        text.push_str(&format!(", {count} {}s", section.name));
    }
    text
}

/// Looks up the users and groups that the configuration file names; unknown names are reported
/// later.
fn resolve_accounts(config: &Config) {
    let daemon = &config.daemon;
    let access = || config.ports.iter().map(|port| &port.access);
    let owners = access().flat_map(|a| [&a.socket_owner, &a.host_socket_owner]).flatten();
    let lists = access().flat_map(|a| [&a.allowed_users, &a.host_allowed_users]).flatten();
    let users = owners.chain(lists.flatten());
    let groups = access()
        .flat_map(|a| [&a.socket_group, &a.host_socket_group])
        .chain([&daemon.control_group, &daemon.socket_group]);
    accounts::resolve_ahead(users.map(String::as_str), groups.flatten().map(String::as_str));
}

/// Claims the control socket, starts the dispatchers and the thread `lifecycle`, and waits for
/// both.
fn serve(
    config: Config,
    (services, registered): (&'static [ServiceRegistration], Registered),
    (keep, start): (bool, StartOptions),
    sandbox: Option<Sandbox>,
    starter: HolderStarter,
) -> Result<(), StartError> {
    // Before the dispatchers, whose restrictions their own threads inherit.
    services.iter().filter_map(|service| service.start).for_each(|start| start());
    let options = config.daemon.dispatch.clone();
    let daemon = Daemon::claim(config, registered, start)?;
    let fabric = start_fabric(services, options, sandbox)?;
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

/// Starts the dispatchers. A thread passes its restrictions on to the threads that it starts, so a
/// thread of its own takes on those of dispatchers and starts them.
fn start_fabric(
    services: &'static [ServiceRegistration],
    options: Options,
    sandbox: Option<Sandbox>,
) -> Result<Fabric, StartError> {
    let start = move || -> Result<Fabric, StartError> {
        if let Some(sandbox) = sandbox {
            sandbox.enter_dispatcher()?;
        }
        Ok(Fabric::start(services, options)?)
    };
    let started = thread::Builder::new().name("start".into()).spawn(start)?;
    started.join().map_err(|_| "the thread that starts the dispatchers failed")?
}

/// Writes to stdout.
fn print(bytes: &[u8]) -> Result<(), StartError> {
    Ok(std::io::stdout().write_all(bytes)?)
}
