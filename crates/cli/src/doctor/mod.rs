//! Checks of the host and the daemon: each finding has a severity, and a remedy if it is a problem.
//!
//! [`examine`] runs all checks in turn. A check reads files, asks the daemon, or runs a program for
//! at most [`PROGRAM_TIME_MAX`](crate::limits::PROGRAM_TIME_MAX) (5 s); none changes anything. A
//! check that lacks the daemon, or the right to read a file or the rules of the firewall, reports
//! that it was skipped; without access to /dev/kvm or without QEMU there is a warning. The checks
//! of the firewall and AppArmor are heuristics, which find usual mistakes, not all.
//!
//! `commands::doctor` calls [`examine`], in the main thread; `commands::web` calls [`problems`] in
//! a thread of its server, for a page. If one of the three requests to the daemon fails, its error
//! is a finding, and the checks that need the daemon become one skipped finding. Nothing is cached:
//! each call checks anew.

mod access;
mod daemon;
mod firewall;
mod host;

use causeway_model::InfoView;
use serde::Serialize;

use crate::client::{ControlClient, view};
use crate::error::Result;
use crate::view::{LinkView, PortView};

/// The weight of a finding, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// No problem.
    Ok,
    /// The check could not be made.
    Skipped,
    /// Something works less well than it could, or may fail later.
    Warn,
    /// Something does not work.
    Fail,
}

impl Severity {
    /// Returns the severity as text output has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject.
    pub check: &'static str,
    /// The weight.
    pub severity: Severity,
    /// The state that was found.
    pub text: String,
    /// What the operator can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The port or link with the problem: `port NAME` or `link NAME`.
    #[serde(skip)]
    pub object: Option<String>,
}

impl Finding {
    /// Reports that all is well.
    fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, severity: Severity::Ok, text: text.into(), remedy: None, object: None }
    }

    /// Reports that a check could not be made.
    fn skipped(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, severity: Severity::Skipped, text: text.into(), remedy: None, object: None }
    }

    /// Reports a problem with its remedy.
    fn warn(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { check, severity: Severity::Warn, text: text.into(), remedy, object: None }
    }

    /// Reports a failure with its remedy.
    fn fail(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Fail, ..Self::warn(check, text, remedy) }
    }

    /// Names the port or link with the problem.
    fn of(self, kind: &str, name: &str) -> Self {
        Self { object: Some(format!("{kind} {name}")), ..self }
    }
}

/// The state of the daemon.
#[derive(Debug)]
struct DaemonState {
    info: InfoView,
    ports: Vec<PortView>,
    links: Vec<LinkView>,
}

impl DaemonState {
    /// Asks the daemon.
    fn read(client: &ControlClient) -> Result<Self> {
        Ok(Self {
            info: view(&client.get("/v1/info")?)?,
            ports: view(&client.get("/v1/ports")?)?,
            links: view(&client.get("/v1/links")?)?,
        })
    }
}

/// Returns the problems of a state that the checks find without further requests, files and
/// programs.
pub fn problems(info: &InfoView, ports: &[PortView], links: &[LinkView]) -> Vec<Finding> {
    daemon::problems(info, ports, links)
}

/// Runs all checks. `user` is the user of QEMU.
pub fn examine(client: &ControlClient, user: Option<&str>) -> Vec<Finding> {
    let mut findings = vec![host::kvm(), host::qemu(), host::shared_memory(), host::huge_pages()];
    findings.push(host::clock());
    let state = DaemonState::read(client);
    findings.extend(daemon::reachable(&state));
    let run_dir = match &state {
        Ok(state) => state.info.run_dir.clone(),
        Err(_) => "/run/causeway".to_owned(),
    };
    findings.push(access::apparmor(&run_dir));
    match &state {
        Ok(state) => {
            findings.extend(access::sockets(state, user));
            findings.extend(access::keys(state));
            findings.extend(firewall::links(&state.links));
            findings.extend(daemon::state(state));
        }
        Err(_) => {
            let text = "sockets, keys, links and ports were not checked: no daemon answers";
            findings.push(Finding::skipped("daemon", text));
        }
    }
    findings
}
