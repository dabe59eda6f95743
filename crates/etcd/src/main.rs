//! causeway-directory: connects a daemon to etcd, and the operator's verbs about a site.
//!
//! Every verb runs in the main thread; `run` ends with SIGTERM or SIGINT, which
//! the thread `signals` passes to the main thread. The files of TLS and of the password are read
//! first, for every verb; `run` then reads or makes its signing key, and enters the sandbox before
//! it starts threads. `release` writes the file `release` in the state directory, and asks neither
//! etcd nor the process. Exit status: 0 done, 1 error, 2 wrong usage, 3 not found.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use causeway_etcd::args::{DirectoryArgs, EXAMPLES, EtcdArgs, GroupVerb, RunArgs, TokenVerb, Verb};
use causeway_etcd::client::{Etcd, Login};
use causeway_etcd::message::ProcessMessage;
use causeway_etcd::process::{Process, Settings};
use causeway_etcd::records::VerbError;
use causeway_etcd::stream::{Security, SecurityFiles};
use causeway_etcd::{groups, host_name, init, join, keys, sandbox, tokens, verbs};
use causeway_model::ClusterTunnel;
use clap::{CommandFactory as _, Parser as _};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args = DirectoryArgs::parse();
    let done = match (args.man, args.verb) {
        (true, _) => man_page().map_err(Failure::from),
        (false, Some(verb)) => run(&args.etcd, verb),
        (false, None) => {
            let text = "expected a verb, for example run; see --help";
            let kind = clap::error::ErrorKind::MissingSubcommand;
            DirectoryArgs::command().error(kind, text).exit();
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("causeway-directory: {error}");
            let is_absent = matches!(error.downcast_ref(), Some(VerbError::NotFound(_)));
            ExitCode::from(if is_absent { 3 } else { 1 })
        }
    }
}

/// Prints the manual page in roff.
fn man_page() -> std::io::Result<()> {
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(DirectoryArgs::command()).section("8");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    man.render_subcommands_section(&mut page)?;
    let examples = EXAMPLES.replace('\\', "\\e").replace('-', "\\-");
    write!(page, ".SH EXAMPLES\n.nf\n{examples}\n.fi\n.SH \"SEE ALSO\"\n.BR causewayd (8)\n")?;
    std::io::stdout().write_all(&page)
}

/// Returns a client of etcd. The files of the options are read here.
fn client(args: &EtcdArgs) -> Result<Etcd, Failure> {
    let certificate = args.etcd_cert.clone().zip(args.etcd_key.clone());
    let files = SecurityFiles { authorities: args.etcd_ca.clone(), certificate };
    let security = Security::read(&files)?;
    let login = match (&args.etcd_user, &args.etcd_password_file) {
        (Some(user), Some(file)) => {
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
            let password = zeroize::Zeroizing::new(text.trim_end().to_owned());
            Some(Login { user: user.clone(), password })
        }
        _ => None,
    };
    Ok(Etcd::new(args.etcd.clone(), security, login))
}

fn run(args: &EtcdArgs, verb: Verb) -> Result<(), Failure> {
    let mut args = args.clone();
    if let Verb::Join(options) = &verb
        && !options.url.is_empty()
    {
        args.etcd.clone_from(&options.url);
    }
    let (mut etcd, site) = (client(&args)?, &args.site);
    if !matches!(verb, Verb::Run(_) | Verb::Release { .. }) {
        etcd.find_endpoint();
    }
    match verb {
        Verb::Init(options) => {
            write!(std::io::stdout(), "{}", init::init(&mut etcd, site, &options)?)?;
        }
        Verb::Token(TokenVerb::Create { host, ttl }) => {
            let token = tokens::create(&mut etcd, site, host, ttl)?;
            writeln!(std::io::stdout(), "{}", token.to_text().as_str())?;
        }
        Verb::Token(TokenVerb::List) => print(&tokens::list(&mut etcd, site)?)?,
        Verb::Token(TokenVerb::Delete { id }) => tokens::delete(&mut etcd, site, &id)?,
        Verb::Join(options) => join::join(&mut etcd, &args, &options)?,
        Verb::Run(run) => return connect(&args, run, etcd),
        Verb::Group(GroupVerb::Add { name, vni }) => groups::add(&mut etcd, site, name, vni)?,
        Verb::Group(GroupVerb::Del { name }) => groups::delete(&mut etcd, site, &name)?,
        Verb::Group(GroupVerb::Set(options)) => {
            groups::set(&mut etcd, site, options.name.clone(), &options.change()?)?;
        }
        Verb::Group(GroupVerb::Show { name }) => print(&groups::show(&mut etcd, site, &name)?)?,
        Verb::Group(GroupVerb::List) => print(&groups::list(&mut etcd, site)?)?,
        Verb::Evict { host, reason } => verbs::evict(&mut etcd, site, host, &reason)?,
        Verb::Readmit { host } => verbs::readmit(&mut etcd, site, &host)?,
        Verb::Release { state } => {
            let file = state.join("release");
            let made = std::fs::write(&file, b"");
            made.map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Verb::Export => print(&verbs::export(&mut etcd, site)?)?,
        Verb::Import { file } => {
            let count = verbs::import(&mut etcd, site, &file)?;
            eprintln!("causeway-directory: {count} records written");
        }
    }
    Ok(())
}

fn print(value: &serde_json::Value) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)?;
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

/// Connects the host to the site until a signal.
fn connect(args: &EtcdArgs, run: RunArgs, etcd: Etcd) -> Result<(), Failure> {
    let host = run.host.map_or_else(host_name::own, host_name::checked)?;
    let port = run.local.port();
    let endpoints: Result<Vec<SocketAddr>, String> =
        run.endpoint.iter().map(|text| endpoint(text, port)).collect();
    std::fs::create_dir_all(&run.state)
        .map_err(|error| format!("{}: {error}", run.state.display()))?;
    let signing = keys::read_or_make(&run.state.join("signing.key"))?;
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    if !run.no_sandbox && !sandbox::enter(&run.state, &args.etcd)? {
        eprintln!(
            "causeway-directory: the kernel does not support Landlock: files are not restricted"
        );
    }
    let settings = Settings {
        site: args.site.clone(),
        host,
        control: run.control,
        state: run.state,
        endpoints: endpoints?,
        tunnel: ClusterTunnel { local: run.local, private_key: run.key, idle: run.idle },
    };
    let mut process = Process::new(settings, signing, etcd);
    let stop = process.stopper();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if signals.forever().next().is_some() {
            // The main thread has ended if there is no receiver.
            let _ = stop.send(ProcessMessage::Stop);
        }
    })?;
    process.run();
    Ok(())
}

/// Reads an endpoint, with or without a port.
fn endpoint(text: &str, port: u16) -> Result<SocketAddr, String> {
    let address = text.parse::<SocketAddr>();
    let address = address.or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port)));
    let address = address.map_err(|_| {
        format!("--endpoint {text}: expected an IP address, with or without a port")
    })?;
    if address.ip().is_unspecified() || address.port() == 0 {
        return Err(format!("--endpoint {text}: expected an address of this host"));
    }
    Ok(address)
}
