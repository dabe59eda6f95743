//! `causeway web`: serves the read-only web page of the daemon.
//!
//! The verb binds its address, restricts the process as `causeway forward` does, and serves with
//! [`causeway_web::WebServer`] until SIGINT or SIGTERM. The daemon need not run: the page shows why
//! it does not answer, and shows its state once it does. `commands::run` is the caller. The main
//! thread waits for the signal; browsers and the daemon are served by threads of the server. An
//! address that cannot be bound is an error of exit status 1; an address of another interface
//! without `--allow-remote`, or too many names, one of 2.

use std::io::Read as _;
use std::net::TcpListener;
use std::time::Duration;

use causeway_model::InfoView;
use causeway_web::limits::HOST_NAMES_MAX;
use causeway_web::source::{ControlSource, Finding, LinkView, PortView, SourceError, Weight};
use causeway_web::{WebOptions, WebServer};
use serde_json::Value;

use super::CommandContext;
use super::forward::{restrict, stop_signal};
use crate::args::WebArgs;
use crate::client::ControlClient;
use crate::doctor::{self, Severity};
use crate::error::{Error, Result};

/// Runs `causeway web`.
pub fn run(cx: &CommandContext, args: &WebArgs) -> Result<()> {
    check(args)?;
    let failed = |error| Error::Output { what: format!("cannot listen at {}", args.listen), error };
    let listener = TcpListener::bind(args.listen).map_err(failed)?;
    let (mut stop, _writer) = stop_signal()?;
    let options = WebOptions {
        host_names: args.host_name.clone(),
        interval: Duration::from_secs(args.interval),
        host: host_name(),
    };
    // Before the threads: each inherits the restrictions of the thread that starts it.
    if !args.no_sandbox && !restrict(&[])? {
        eprintln!("causeway: the kernel does not support Landlock: files are not restricted");
    }
    let mut server =
        WebServer::start(listener, options, Box::new(Daemon(cx.client.clone()))).map_err(failed)?;
    let address = server.address().map_err(failed)?;
    if !address.ip().is_loopback() {
        eprintln!(
            "causeway: the page at {address} has no password and no encryption: every host that \
             reaches the address can read it"
        );
    }
    eprintln!("causeway: serving http://{address}/ of {}", cx.client.path().display());
    let mut byte = [0];
    while let Err(error) = stop.read(&mut byte) {
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(Error::Output { what: "signals".into(), error });
        }
    }
    server.stop();
    Ok(())
}

/// Returns the name of this host, for display; the kernel always has one.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "this host".to_owned(),
        name => name.to_owned(),
    }
}

/// Checks the address and the names.
fn check(args: &WebArgs) -> Result<()> {
    if !args.listen.ip().is_loopback() && !args.allow_remote {
        return Err(Error::Usage(format!(
            "--listen {}: other hosts reach this address, and the page has no password: use an \
             address of the loopback interface and forward it by ssh, or give --allow-remote",
            args.listen
        )));
    }
    if args.host_name.len() > HOST_NAMES_MAX {
        return Err(Error::Usage(format!("--host-name: expected at most {HOST_NAMES_MAX} names")));
    }
    Ok(())
}

/// The daemon behind the control socket.
#[derive(Debug)]
struct Daemon(ControlClient);

impl ControlSource for Daemon {
    fn get(&self, path: &str) -> std::result::Result<Value, SourceError> {
        self.0.get(path).map_err(source_error)
    }

    fn connections(&self, filter: &Value) -> std::result::Result<Value, SourceError> {
        self.0.post("/v1/connections", filter).map_err(source_error)
    }

    fn findings(&self, info: &InfoView, ports: &[PortView], links: &[LinkView]) -> Vec<Finding> {
        let shown = |finding: doctor::Finding| Finding {
            weight: if finding.severity == Severity::Fail { Weight::Fail } else { Weight::Warn },
            text: finding.text,
            remedy: finding.remedy,
            object: finding.object,
        };
        let found = doctor::problems(info, ports, links);
        // The order of the page: failures first.
        let mut found: Vec<Finding> = found.into_iter().map(shown).collect();
        found.sort_by_key(|finding| finding.weight);
        found
    }
}

/// Returns the error of a failed request: an older daemon lacks some paths, and a group without
/// ports has no traffic.
fn source_error(error: Error) -> SourceError {
    let is_refused = match &error {
        Error::NotFound(_) => true,
        Error::Refused { kind, .. } => {
            matches!(kind.as_str(), "no_such_path" | "invalid" | "conflict")
        }
        _ => false,
    };
    SourceError { is_refused, text: error.to_string() }
}
