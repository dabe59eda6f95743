//! The NICs that an MPI program uses: choice, and a test attach to each.
//!
//! The choice is, in this order: `--board`, `--nic` and `--group`, `CAUSEWAY_MX`, all NICs of the
//! daemon. The daemon at the control socket lists its NICs. Only a process without access to the
//! control socket, as users of a cluster are, takes the sockets beside it. A daemon that does not
//! run or does not answer is an error.
//!
//! A test attach follows: the daemon must answer [`ClientMessage::Hello`] at the NIC's socket with
//! the protocol of this release. So permissions of the socket, `allowed_users` and a full NIC are
//! found before a rank starts. A NIC that was named must admit this user; of NICs that were not
//! named, those that do not are left out with a note. A NIC that does not answer, or has another
//! protocol, is an error in any case. NICs of several groups are refused, as far as the groups are
//! known, because no message passes between groups.
//!
//! `MpiEnvironment::find` calls [`choose`] for both verbs, in the main thread. Each attach is made
//! one after the other, waits for at most `--timeout` for the connect and as long for the answer,
//! and is given up at once: the NIC has no endpoint of this process afterwards.

use std::io::{ErrorKind, Read as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use causeway_wire::local::{ClientMessage, DaemonMessage, MESSAGE_BYTES, VERSION};
use serde::Serialize;

use super::CommandContext;
use super::provider::absolute;
use crate::args::MpiChoice;
use crate::client::{connect_within, view, write_until};
use crate::error::{Error, Result};
use crate::view::{PortView, cell};

/// The variable that lists the sockets of NICs.
const VARIABLE: &str = "CAUSEWAY_MX";

/// A NIC of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Nic {
    /// Socket of the NIC.
    pub socket: PathBuf,
    /// Name of the port, if the daemon listed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<String>,
    /// Group of the port, if the daemon listed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// Name by which other hosts know the NIC; empty before the test attach.
    name: String,
}

/// The NICs from which the program takes its own.
#[derive(Debug)]
struct Candidates {
    nics: Vec<Nic>,
    /// The user named each NIC, which must therefore be usable.
    is_named: bool,
    /// Place of the search, for the error of an empty list.
    searched: String,
}

/// Why a NIC cannot be used.
#[derive(Debug)]
enum Refusal {
    /// This user may not use it.
    User(String),
    /// It cannot be used by anyone.
    Nic(Error),
}

impl Nic {
    /// Returns the NIC of a socket of which nothing else is known.
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into(), port: None, group: None, name: String::new() }
    }

    /// Returns the NIC of a port.
    fn of(port: &PortView) -> Self {
        let known = |key| Some(cell(&port.spec, key));
        let nic = Self::at(cell(&port.spec, "socket"));
        Self { port: known("name"), group: known("group"), ..nic }
    }

    /// Returns the name of the port, or the path of the socket.
    fn label(&self) -> String {
        let socket = self.socket.display();
        self.port.as_ref().map_or_else(|| socket.to_string(), |port| format!("{port} ({socket})"))
    }
}

/// Returns the NICs of a choice, each after a test attach.
///
/// # Errors
/// No daemon answers, no NIC is found, this user may use none or not one that was named, or the
/// NICs belong to several groups.
pub fn choose(cx: &CommandContext, choice: &MpiChoice) -> Result<Vec<Nic>> {
    let candidates = candidates(cx, choice)?;
    let mut usable = Vec::new();
    let mut refused = Vec::new();
    for nic in candidates.nics {
        match attach(&nic, cx.client.timeout()) {
            Ok(name) => usable.push(Nic { socket: absolute(&nic.socket), name, ..nic }),
            Err(Refusal::User(text)) if !candidates.is_named => refused.push(text),
            Err(Refusal::User(text)) => return Err(Error::NoAccess(text)),
            Err(Refusal::Nic(error)) => return Err(error),
        }
    }
    if usable.is_empty() {
        return Err(match refused.into_iter().next() {
            Some(text) => Error::NoAccess(text),
            None => none(&candidates.searched),
        });
    }
    one_group(&usable)?;
    for text in refused {
        eprintln!("causeway: a NIC is left out: {text}");
    }
    Ok(usable)
}

/// Returns the error for an empty list.
fn none(searched: &str) -> Error {
    Error::NotFound(format!(
        "no NIC of this host is found in {searched}; add a port of kind mx (`causeway port add mx0 \
         --kind mx --group GROUP`), or name its socket with --board or {VARIABLE}"
    ))
}

/// Checks that NICs with a known group belong to the same group.
fn one_group(nics: &[Nic]) -> Result<()> {
    let group = |nic: &Nic| nic.group.clone();
    let mut groups = nics.iter().filter_map(group);
    let first = groups.next();
    if groups.all(|group| Some(&group) == first.as_ref()) {
        return Ok(());
    }
    let named = |nic: &Nic| {
        let (port, group) = (nic.port.as_deref()?, nic.group.as_deref()?);
        Some(format!("{port} of group {group}"))
    };
    let list: Vec<String> = nics.iter().filter_map(named).collect();
    Err(Error::Usage(format!(
        "the NICs belong to several groups, between which no message passes: {}; choose with \
         --group or --nic",
        list.join(", ")
    )))
}

/// Returns the NICs that the choice names or leaves open.
fn candidates(cx: &CommandContext, choice: &MpiChoice) -> Result<Candidates> {
    let of_paths = |paths: Vec<PathBuf>, searched: &str| Candidates {
        nics: paths.into_iter().map(Nic::at).collect(),
        is_named: true,
        searched: searched.into(),
    };
    if !choice.board.is_empty() {
        return Ok(of_paths(choice.board.clone(), "--board"));
    }
    let is_open = choice.nic.is_empty() && choice.group.is_none();
    match std::env::var_os(VARIABLE) {
        Some(paths) if is_open => {
            let paths = std::env::split_paths(&paths).filter(|p| !p.as_os_str().is_empty());
            Ok(of_paths(paths.collect(), VARIABLE))
        }
        _ => of_daemon(cx, choice),
    }
}

/// Returns the NICs of the daemon at the control socket, or those beside it for a user without
/// access to it.
fn of_daemon(cx: &CommandContext, choice: &MpiChoice) -> Result<Candidates> {
    let control = cx.client.path();
    let refusal = match cx.client.get("/v1/ports") {
        Ok(value) => {
            let ports: Vec<PortView> = view(&value)?;
            return listed(&ports, choice, &format!("the daemon at {}", control.display()));
        }
        Err(error) if error.is_no_access() => error,
        Err(error) => return Err(error),
    };
    if let Some(group) = &choice.group {
        return Err(Error::NoAccess(format!(
            "the NICs of group {group} are not known: {refusal}; or name the NICs with --nic"
        )));
    }
    let folder = control.parent().unwrap_or(Path::new("/"));
    let named = choice.nic.iter().map(|name| folder.join(format!("{name}.sock")));
    let is_named = !choice.nic.is_empty();
    let paths: Vec<PathBuf> = if is_named { named.collect() } else { beside(folder) };
    if paths.is_empty() {
        let folder = folder.display();
        let text = "and no socket mx*.sock of a NIC is found in";
        return Err(Error::NoAccess(format!("{refusal}\n{text} {folder}")));
    }
    let searched = folder.display().to_string();
    Ok(Candidates { nics: paths.into_iter().map(Nic::at).collect(), is_named, searched })
}

/// Returns the ports of kind mx that the choice selects.
fn listed(ports: &[PortView], choice: &MpiChoice, searched: &str) -> Result<Candidates> {
    let is_nic = |port: &&PortView| port.spec.text("kind") == Some("mx");
    let all: Vec<Nic> = ports.iter().filter(is_nic).map(Nic::of).collect();
    let names: Vec<&str> = all.iter().filter_map(|nic| nic.port.as_deref()).collect();
    for wanted in &choice.nic {
        if !names.contains(&wanted.as_str()) {
            let known = if names.is_empty() { "none".into() } else { names.join(", ") };
            return Err(Error::NotFound(format!(
                "NIC {wanted} does not exist in {searched}, whose NICs are: {known}; add it with \
                 `causeway port add {wanted} --kind mx --group GROUP`"
            )));
        }
    }
    let is_wanted = |nic: &Nic| {
        let has = |name: &String| choice.nic.iter().any(|wanted| wanted.as_str() == name);
        let of = |group: &String| choice.group.as_ref().is_none_or(|g| g.as_str() == group);
        (choice.nic.is_empty() || nic.port.as_ref().is_some_and(has))
            && nic.group.as_ref().is_some_and(of)
    };
    let nics: Vec<Nic> = all.into_iter().filter(is_wanted).collect();
    if nics.is_empty()
        && let Some(group) = &choice.group
    {
        return Err(Error::NotFound(format!(
            "no chosen NIC belongs to group {group} in {searched}; add one with `causeway port add \
             mx0 --kind mx --group {group}`, or choose another group"
        )));
    }
    Ok(Candidates { nics, is_named: !choice.nic.is_empty(), searched: searched.into() })
}

/// Returns the sockets in `folder` with the conventional names of NICs: `mx*.sock`.
fn beside(folder: &Path) -> Vec<PathBuf> {
    let is_nic = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("mx") && name.ends_with(".sock"))
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_nic).collect();
    paths.sort();
    paths
}

/// Attaches to a NIC as a process does, and detaches. Returns the name by which other hosts know
/// the NIC.
fn attach(nic: &Nic, limit: Duration) -> std::result::Result<String, Refusal> {
    let (label, user) = (nic.label(), rustix::process::geteuid().as_raw());
    let deadline = Instant::now() + limit;
    let reply = connect_within(&nic.socket, limit).and_then(|socket| greet(socket, deadline));
    let bytes = match reply {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            return Err(Refusal::User(format!(
                "NIC {label}: the daemon refuses user {user}; add the user to allowed_users of the \
                 port, or end other processes of this user if the NIC is full"
            )));
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(Refusal::User(format!(
                "NIC {label}: {error} for user {user}; give the socket a group of this user \
                 (socket_group and socket_mode of the port)"
            )));
        }
        Err(error) => return Err(Refusal::Nic(unusable(nic, &error, limit))),
    };
    match DaemonMessage::parse(&bytes) {
        Ok(DaemonMessage::Welcome { version: VERSION, name, .. }) => Ok(name.as_str().to_owned()),
        Ok(DaemonMessage::Welcome { version, .. }) => Err(Refusal::Nic(Error::Reply(format!(
            "NIC {label} has version {version} of the protocol, this release version {VERSION}"
        )))),
        Ok(other) => Err(Refusal::Nic(Error::Reply(format!("NIC {label} sent {other:?}")))),
        Err(error) => Err(Refusal::Nic(Error::Reply(format!(
            "{label} is not the socket of a NIC (port of kind mx): {error}"
        )))),
    }
}

/// Returns the error of a socket that does not connect or does not answer.
fn unusable(nic: &Nic, error: &std::io::Error, limit: Duration) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Error::Timeout { path: nic.socket.clone(), seconds: limit.as_secs() }
        }
        _ => Error::NotFound(format!(
            "NIC {}: {error}; is it the socket of a port of kind mx, and does causewayd run?",
            nic.label()
        )),
    }
}

/// Greets the daemon and returns its answer; `None` if it closes the connection instead.
fn greet(
    mut socket: UnixStream,
    deadline: Instant,
) -> std::io::Result<Option<[u8; MESSAGE_BYTES]>> {
    let hello = ClientMessage::Hello { version: VERSION, direct: 0 }.emit();
    let is_closed = |error: &std::io::Error| {
        matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
    };
    match write_until(&mut socket, &hello, deadline) {
        Err(error) if is_closed(&error) => return Ok(None),
        sent => sent?,
    }
    let mut reply = [0; MESSAGE_BYTES];
    let mut filled = 0;
    while let Some(rest) = reply.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let left = deadline.saturating_duration_since(Instant::now());
        socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match socket.read(rest) {
            Ok(0) => return Ok(None),
            Ok(count) => filled = filled.saturating_add(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if is_closed(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(reply))
}
