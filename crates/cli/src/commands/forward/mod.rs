//! `causeway forward`: forwards connections between TCP, Unix sockets and guests' AF_VSOCK ports.
//!
//! | form | module |
//! |---|---|
//! | `--from`, `--to`, `--file`, `--stdio`: forwards by hand | this one |
//! | `list`, `add`, `del`: the daemon's forwards | [`list`] |
//! | `--all`: runs the daemon's forwards | [`forwarder`], a [`worker`] process each |
//!
//! By hand, the verb looks the host sockets of named ports and VMs up at the daemon, opens the
//! listeners, restricts the process (not with `--no-sandbox`), and serves with
//! [`causeway_forward::Relay`] until SIGINT or SIGTERM. The daemon is not needed afterwards: while
//! it restarts, connections to guests are refused, and later ones succeed again. Failed connections
//! are reported on stderr, at most one in a second for each forward; counters go to stdout with
//! `--stats`, and at the end with `-o json`. `--stdio` has no listener, no sandbox and no counters:
//! the verb connects once, copies ([`causeway_forward::stdio`]), and ends with the target's data.
//!
//! `commands::run` is the caller. The end of the process ends all connections.

mod forwarder;
mod list;
mod worker;

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use causeway_forward::{Address, Counters, Event, Forward, ForwardError, Relay, SocketAddress};
use causeway_forward::{sandbox, stdio};
use causeway_model::ForwardState;
use serde::Deserialize;
use serde_json::{Value, json};

use self::worker::WorkerStatus;
use super::vm::vm_of;
use super::{CommandContext, print, read_file};
use crate::args::{Format, ForwardArgs};
use crate::client::view;
use crate::error::{Error, Result};
use crate::limits::{FILE_BYTES_MAX, FORWARDER_INTERVAL};

/// A file of forwards.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForwardFile {
    forward: Vec<ForwardTable>,
}

/// `[[forward]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForwardTable {
    from: String,
    to: String,
}

/// Runs `causeway forward`.
pub fn run(cx: &CommandContext, args: ForwardArgs) -> Result<()> {
    if args.verb.is_some() && args.has_own_options() {
        let text = "expected a verb (list, add, del), or options of the form without a verb, such \
                    as --from and --all: not both; see `causeway forward --help`";
        return Err(Error::Usage(text.into()));
    }
    if let Some(verb) = args.verb {
        return list::run(cx, verb);
    }
    if args.all {
        return forwarder::run(cx, args.no_sandbox);
    }
    if let Some(to) = &args.stdio {
        return stdio::run(&resolve(cx, to)?).map_err(failed);
    }
    let result = forward(cx, &args);
    if let (Err(error), true) = (&result, args.report) {
        // The forwarder reports it on its stderr, once.
        return WorkerStatus::failed(error.to_string()).print();
    }
    result
}

/// Forwards until a signal.
fn forward(cx: &CommandContext, args: &ForwardArgs) -> Result<()> {
    let pairs = pairs(args)?;
    let mut forwards = Vec::new();
    for (from, to) in &pairs {
        if from.has_cid() {
            let text = format!("{from}: a source has no CID; expected vsock:NAME:PORT, say");
            return Err(Error::Usage(text));
        }
        forwards.push(Forward { from: resolve(cx, from)?, to: resolve(cx, to)? });
    }
    // Before the sockets: a signal in between removes their files.
    let (stop, stopper) = stop_signal()?;
    let mut relay = Relay::open(forwards.clone()).map_err(failed)?;
    if let Some(connections) = args.connections_max {
        relay.set_connections_max(connections.into());
    }
    if args.report {
        std::thread::spawn(move || wait_for_end(stopper));
    }
    if !args.no_sandbox && !restrict(&forwards)? && !args.report {
        eprintln!(
            "causeway: the kernel does not support Landlock: files are not restricted (forwards={})",
            forwards.len()
        );
    }
    if args.report {
        return serve_reporting(&mut relay, &stop);
    }
    for forward in &forwards {
        eprintln!("causeway: forwarding {} to {}", forward.from, forward.to);
    }
    serve(cx, args, &mut relay, &stop)
}

/// Serves until a signal.
fn serve(
    cx: &CommandContext,
    args: &ForwardArgs,
    relay: &mut Relay,
    stop: &UnixStream,
) -> Result<()> {
    let every = args.stats.map(Duration::from_secs);
    loop {
        let until = every.map(|every| Instant::now() + every);
        let stopped = relay.run(Some(stop.as_fd()), until, &mut report).map_err(failed)?;
        if every.is_some() || (stopped && matches!(cx.format, Format::Json)) {
            show(cx, &relay.counters())?;
        }
        if stopped {
            return Ok(());
        }
    }
}

/// Serves a single forward until stdin or a signal ends it, and prints its status after changes.
fn serve_reporting(relay: &mut Relay, stop: &UnixStream) -> Result<()> {
    let mut last = None;
    loop {
        let counters = relay.counters().first().map(|(_, counters)| *counters).unwrap_or_default();
        let failure = relay.failure(0);
        let state = match failure {
            None => ForwardState::Listening,
            Some(failure) if failure.is_refusal => ForwardState::Refused,
            Some(_) => ForwardState::TargetDown,
        };
        let reason = failure.map(|failure| failure.reason.clone()).unwrap_or_default();
        let status = WorkerStatus { state, reason, counters: worker::counters_of(&counters) };
        if last.as_ref() != Some(&status) {
            status.print()?;
            last = Some(status);
        }
        let until = Instant::now() + FORWARDER_INTERVAL / 2;
        if relay.run(Some(stop.as_fd()), Some(until), &mut report).map_err(failed)? {
            return Ok(());
        }
    }
}

/// Waits for the end of stdin, and requests the stop: the forwarder has ended, or ends the forward.
fn wait_for_end(mut stopper: UnixStream) {
    // The forwarder sends nothing; an error is an end too.
    let _ = std::io::stdin().lock().read(&mut [0]);
    let _ = std::io::Write::write(&mut stopper, &[0]);
}

/// Reports a failed connection on stderr.
fn report(event: Event<'_>) {
    let Event::Failed { forward, error, unreported } = event;
    let others = match unreported {
        0 => String::new(),
        count => format!(" ({count} failures before were not reported)"),
    };
    eprintln!("causeway: connection closed: {error} (from={}{others})", forward.from);
}

/// Prints the counters: a line, or a JSON object in a line, for each forward.
fn show(cx: &CommandContext, all: &[(&Forward, Counters)]) -> Result<()> {
    let mut text = String::new();
    for (forward, counters) in all {
        let (from, to) = (forward.from.to_string(), forward.to.to_string());
        let Counters { accepted_total, open, refused_total, lost_total, .. } = counters;
        let (out, back) = (counters.to_target_bytes, counters.to_source_bytes);
        text.push_str(&match cx.format {
            Format::Json => format!(
                "{}\n",
                json!({
                    "from": from, "to": to, "open": open, "accepted_total": accepted_total,
                    "refused_total": refused_total, "lost_total": lost_total,
                    "to_target_bytes_total": out, "to_source_bytes_total": back,
                })
            ),
            Format::Table => format!(
                "{from} -> {to}: {open} open, {accepted_total} accepted, {refused_total} refused, \
                 {lost_total} lost, {out} bytes to the target, {back} bytes back\n"
            ),
        });
    }
    print(&text)
}

/// Returns the pairs of the command line or the file.
fn pairs(args: &ForwardArgs) -> Result<Vec<(Address, Address)>> {
    if let Some(file) = &args.file {
        return read_pairs(file);
    }
    if args.from.len() != args.to.len() {
        return Err(Error::Usage(format!(
            "{} times --from and {} times --to: each --from needs a --to",
            args.from.len(),
            args.to.len()
        )));
    }
    Ok(args.from.iter().cloned().zip(args.to.iter().cloned()).collect())
}

/// Reads a file of forwards.
fn read_pairs(file: &Path) -> Result<Vec<(Address, Address)>> {
    let wrong = |text: String| Error::Usage(format!("{}: {text}", file.display()));
    let text = read_file(file, FILE_BYTES_MAX)?;
    let found: ForwardFile = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let parse = |text: &str| {
        text.parse::<Address>().map_err(|error: causeway_model::SpecError| wrong(error.to_string()))
    };
    found.forward.iter().map(|table| Ok((parse(&table.from)?, parse(&table.to)?))).collect()
}

/// Resolves an address; the daemon is asked for the host socket of a named port.
fn resolve(cx: &CommandContext, address: &Address) -> Result<SocketAddress> {
    let path = address.port_name().map(|name| host_socket(cx, name)).transpose()?;
    SocketAddress::resolve(address, |_| path.clone()).map_err(failed)
}

/// Returns the host socket of a port, or of the only socket device of a VM.
fn host_socket(cx: &CommandContext, name: &str) -> Result<PathBuf> {
    let value = match cx.client.get(&format!("/v1/ports/{name}")) {
        Err(Error::NotFound(text)) => socket_device_of(cx, name)?.ok_or_else(|| {
            Error::NotFound(format!(
                "{text}, nor a VM {name:?} with one port of kind vsock; see `causeway port list`"
            ))
        })?,
        port => port?,
    };
    let name = value["name"].as_str().unwrap_or(name);
    match value["host_socket"].as_str() {
        Some(path) => Ok(path.into()),
        None if value["kind"] == "vsock" => Err(Error::Usage(format!(
            "port {name} has no host_socket, by which host processes reach its guest: add the key \
             (`causeway port add … --host-socket PATH`)"
        ))),
        None => Err(Error::Usage(format!("port {name} is not of kind vsock"))),
    }
}

/// Returns the port of a VM's only socket device; `None` if it has none, or several.
fn socket_device_of(cx: &CommandContext, vm: &str) -> Result<Option<Value>> {
    let ports: Vec<Value> = view(&cx.client.get("/v1/ports")?)?;
    let mut found = Vec::new();
    for port in ports.into_iter().filter(|port| port["kind"] == "vsock") {
        if vm_of(&view(&port)?).as_deref() == Some(vm) {
            found.push(port);
        }
    }
    Ok(found.pop().filter(|_| found.is_empty()))
}

/// Returns a socket that becomes readable on SIGINT and SIGTERM, and its other end, a byte of which
/// has the same effect.
pub fn stop_signal() -> Result<(UnixStream, UnixStream)> {
    let wrong = |error| Error::Output { what: "signals".into(), error };
    let (reader, writer) = UnixStream::pair().map_err(wrong)?;
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let writer = writer.try_clone().map_err(wrong)?;
        signal_hook::low_level::pipe::register(signal, writer).map_err(wrong)?;
    }
    Ok((reader, writer))
}

/// Restricts the process to what `forwards` need. Returns false if the kernel has no Landlock.
///
/// # Errors
/// The kernel refuses a part of the sandbox.
pub(super) fn restrict(forwards: &[Forward]) -> Result<bool> {
    let wrong = |error: sandbox::SandboxError| {
        let error = std::io::Error::other(format!("{error}; try --no-sandbox"));
        Error::Output { what: "the sandbox".into(), error }
    };
    sandbox::enter(forwards).map_err(wrong)
}

/// Returns the tool's error: wrong usage, or a failed socket.
fn failed(error: ForwardError) -> Error {
    match error {
        ForwardError::HostSocket(_) | ForwardError::TooMany(_) => Error::Usage(error.to_string()),
        error => Error::Forward(error),
    }
}
