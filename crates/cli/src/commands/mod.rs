//! The verbs: each sends requests to the daemon and prints the replies, as text or as JSON (`-o
//! json`).
//!
//! [`run`] receives the parsed command line from `main`, selects the module of the noun, and
//! returns the first error. JSON output is the daemon's value, of which a verb may select or join
//! parts, or an object of the verb's own; text output is made from [`crate::view`]. Texts go to
//! stdout, warnings and remedies to stderr.
//!
//! A verb that sends several requests is not atomic: the state may change between them.
//! `--may-exist` and `--if-exists` make additions and deletions repeatable, and report `changed:
//! false`; `port add` and `link add` print the existing object instead. The modules undo nothing.
//!
//! All run in the main thread of the tool, which a request blocks until `--timeout` (10 s unless
//! given; [`crate::client`]). A failed request ends a verb: without a daemon or access with exit
//! status 4, without an answer in time with 5, for an object that does not exist with 3, for a
//! request that the daemon refuses, or a reply that is not understood, with 1; the text names the
//! remedy ([`crate::error`]). Exceptions are stated in `config`, `doctor`, `extcap`, `forward`,
//! `mpi`, `top` and `web`.

mod apply;
mod capture;
mod cluster;
mod config;
mod connection;
mod dispatcher;
mod doctor;
mod extcap;
mod forward;
mod group;
mod hca;
mod key;
mod link;
mod mpi;
mod nic;
mod pages;
mod peer;
mod port;
mod route;
mod rule;
mod stats;
mod top;
mod trace;
mod traffic;
mod vm;
mod vnet;
mod web;

pub use mpi::EVALUATED_FAILURE;

use std::fmt::Display;
use std::io::{Read, Write as _};
use std::path::Path;

use causeway_model::InfoView;
use serde_json::{Value, json};

use crate::args::{Cli, DeleteOptions, Format, Noun};
use crate::client::{ControlClient, changing, default_control, view};
use crate::error::{Error, Result};
use crate::table::{duration, pairs};

/// The state that every command uses.
#[derive(Debug)]
struct CommandContext {
    client: ControlClient,
    format: Format,
    /// Type of content of metrics, if these are requested.
    metrics: Option<&'static str>,
}

/// Runs a command line.
///
/// # Errors
/// The command fails; [`Error::status`] is the exit status.
pub fn run(cli: Cli) -> Result<()> {
    let common = cli.common;
    let control = common.control.unwrap_or_else(default_control);
    let cx = CommandContext {
        client: ControlClient::new(control, common.timeout),
        format: if common.json { Format::Json } else { common.output.of_values() },
        metrics: common.output.of_metrics().filter(|_| !common.json),
    };
    if cx.metrics.is_some() && !matches!(cli.noun, Noun::Stats(_)) {
        let text = "--output openmetrics and prometheus: expected `causeway stats`";
        return Err(Error::Usage(text.into()));
    }
    match cli.noun {
        Noun::Port(verb) => port::run(&cx, verb),
        Noun::Vm(verb) => vm::run(&cx, &verb),
        Noun::Group(verb) => group::run(&cx, verb),
        Noun::Rule(verb) => rule::run(&cx, verb),
        Noun::Cluster(verb) => cluster::run(&cx, verb),
        Noun::Peer(verb) => peer::run(&cx, verb),
        Noun::Nic(verb) => nic::run(&cx, verb),
        Noun::Hca(verb) => hca::run(&cx, verb),
        Noun::Dispatcher(verb) => dispatcher::run(&cx, verb),
        Noun::Link(verb) => link::run(&cx, verb),
        Noun::Route(verb) => route::run(&cx, verb),
        Noun::Connection(verb) => connection::run(&cx, &verb),
        Noun::Doctor(args) => doctor::run(&cx, &args),
        Noun::Traffic { group } => traffic::run(&cx, &group),
        Noun::Capture(args) => capture::run(&cx, &args),
        Noun::Extcap(args) => extcap::run(&cx, &args),
        Noun::MpiEnv(args) => mpi::env(&cx, &args),
        Noun::MpiRun(args) => mpi::run(&cx, &args),
        Noun::Forward(args) => forward::run(&cx, *args),
        Noun::Web(args) => web::run(&cx, &args),
        Noun::Key(verb) => key::run(&cx, verb),
        Noun::Apply(args) => apply::run(&cx, &args),
        Noun::Config(verb) => config::run(&cx, verb),
        Noun::Vnet(args) => vnet::run(&cx, &args),
        Noun::Stats(args) => stats::run(&cx, &args),
        Noun::Top(args) => top::run(&cx, &args),
        Noun::Trace(verb) => trace::run(&cx, verb),
        Noun::Info => info(&cx),
        Noun::Shutdown { release } => shutdown(&cx, release),
        Noun::Completion { shell } => pages::completion(shell),
        Noun::Man { dir } => pages::man(dir.as_deref()),
    }
}

/// Runs `causeway info`.
fn info(cx: &CommandContext) -> Result<()> {
    let value = cx.client.get("/v1/info")?;
    cx.show(&value, |value| {
        let info: InfoView = view(value)?;
        let mut list = vec![
            ("version", info.version),
            ("pid", info.pid.to_string()),
            ("uptime", duration(info.uptime_seconds)),
            ("control", info.control),
            ("run_dir", info.run_dir),
        ];
        list.extend(info.config.map(|file| ("config", file)));
        list.extend(info.state_file.map(|file| ("state_file", file)));
        list.extend(info.state_error.map(|error| ("changes are lost", error)));
        Ok(pairs(&list))
    })
}

/// Runs `causeway shutdown`. The daemon may still run when the command ends.
fn shutdown(cx: &CommandContext, release: bool) -> Result<()> {
    cx.client.post("/v1/shutdown", &json!({ "release": release }))?;
    cx.done(true, "causewayd stops")
}

impl CommandContext {
    /// Prints a value as JSON, or as the text that `table` returns.
    fn show(&self, value: &Value, table: impl FnOnce(&Value) -> Result<String>) -> Result<()> {
        match self.format {
            Format::Json => print(&format!("{value:#}\n")),
            Format::Table => print(&table(value)?),
        }
    }

    /// Prints that a change was made, or was not necessary.
    fn done(&self, changed: bool, text: &str) -> Result<()> {
        self.show(&json!({ "changed": changed }), |_| Ok(format!("{text}\n")))
    }

    /// Deletes the object `id` of a noun (`port`) and prints the result.
    fn delete(&self, noun: &str, id: &dyn Display, options: &DeleteOptions) -> Result<()> {
        match self.client.delete(&changing(&format!("/v1/{noun}s/{id}"), options.ephemeral)) {
            Ok(_) => self.done(true, &format!("{noun} {id} deleted")),
            Err(Error::NotFound(_)) if options.if_exists => {
                self.done(false, &format!("no {noun} {id}"))
            }
            Err(error) => Err(hint(error, noun, &format!("see `causeway {noun} list`"))),
        }
    }
}

/// Reads a text of at most `most` bytes from a file, or from standard input for `-`.
fn read_file(file: &Path, most: u64) -> Result<String> {
    let wrong = |text: String| Error::Usage(format!("{}: {text}", file.display()));
    let from: Box<dyn Read> = if file == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(file).map_err(|error| wrong(error.to_string()))?)
    };
    let mut text = String::new();
    from.take(most + 1).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
    if text.len() as u64 > most {
        return Err(wrong(format!("expected at most {most} bytes")));
    }
    Ok(text)
}

/// Writes to stdout and flushes.
fn print(text: &str) -> Result<()> {
    print_bytes(text.as_bytes())
}

/// Writes bytes to stdout and flushes.
fn print_bytes(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|error| Error::Output { what: "stdout".into(), error })
}

/// Adds the remedy `hint` to an error about a missing object of type `what`, for example `group`;
/// returns other errors unchanged.
fn hint(error: Error, what: &str, hint: &str) -> Error {
    match error {
        Error::NotFound(text) if text.starts_with(what) => {
            Error::NotFound(format!("{text}; {hint}"))
        }
        other => other,
    }
}

/// Returns whether the daemon refused an addition as a conflict: the object exists already, or
/// another object has its address or path. A full table is no conflict (kind `full`). With
/// `--may-exist` the caller then looks the object up: a missing object, or one with other values,
/// leaves the error.
fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Refused { kind, .. } if kind == "conflict")
}
