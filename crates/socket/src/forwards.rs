//! The list of forwards: `[[forward]]`, `/v1/forwards` and `/v1/forwarder`.
//!
//! The controller keeps the operator's forwards and the last report of the process `causeway
//! forward --all`, the forwarder. No socket is opened here: the forwarder asks for its
//! tasks every second, listens, and connects to host sockets of ports as any process does. It is
//! trusted as a client of the control socket is. Names of ports, and of VMs with one socket device,
//! are resolved to host sockets at each request, so that a port may be added after the forward, and
//! be replaced.
//!
//! One forwarder is served at a time: another is refused until the first ends or has not reported
//! for [`FORWARDER_TIME`] (5 s). While there is none, the forwards are shown as `no-forwarder`. A
//! forward is refused if its name or source address is in use, or [`FORWARDS_MAX`] exist. A report
//! about a forward that does not exist any more is ignored. The requests run in the threads of the
//! control socket, under the lock of the registry.

use std::collections::BTreeMap;
use std::time::Instant;

use causeway_fabric::Control;
use causeway_model::commands::forwards::{Add, Delete, List, Report, Show};
use causeway_model::counter::CounterDefinition;
use causeway_model::limits::FORWARDS_MAX;
use causeway_model::noun::name;
use causeway_model::port::{VM_KEY, vm_name};
use causeway_model::schema::{joined, values};
use causeway_model::{
    CommandError, FORWARD_FIELDS, ForwardAddress, ForwardReport, ForwardSpec, ForwardState,
    ForwardTask, ForwardView, ForwarderReport, Name, NounCall, NounError, NounResult, PortSpec,
    RequestDispatch, SectionDefinition, ServiceRequest, VsockSpec,
};

use crate::limits::{FORWARD_COUNTERS_MAX, FORWARD_REASON_BYTES_MAX, FORWARDER_TIME};

/// The section of forwards.
pub(crate) const SECTIONS: &[SectionDefinition] =
    &[SectionDefinition::new("forward", "[[forward]]", FORWARD_FIELDS, |values| {
        ForwardSpec::read(values).map(|spec| ServiceRequest::new(Add(spec)))
    })
    .with_list(|ask| {
        let forwards = ask(ServiceRequest::new(List))?.take::<List>()?;
        Ok(forwards.iter().map(|view| values(&view.spec)).collect())
    })
    .with_delete(|values| {
        ForwardSpec::read(values).map(|spec| ServiceRequest::new(Delete(spec.name)))
    })];

/// Counters of forwards.
pub(crate) const COUNTERS: &[CounterDefinition] = &[
    ("connections_total", "Connections that the forwarder accepted."),
    ("open_connections", "Connections that are open or being opened."),
    (
        "target_failures_total",
        "Connections that did not reach their target, or were refused there.",
    ),
    ("lost_connections_total", "Connections that failed after they were open."),
    ("target_bytes_total", "Bytes from clients to the target."),
    ("client_bytes_total", "Bytes from the target to clients."),
    ("starts_total", "Starts of the process that forwards."),
];

/// Answers `/v1/forwards`.
pub(crate) fn forwards(call: &NounCall<'_>) -> NounResult {
    match (call.path, call.method) {
        ([], "GET") => call.show(List),
        ([], "POST") => {
            let invalid = |problems: Vec<_>| NounError::invalid(joined("forward", &problems));
            call.add(Add(ForwardSpec::read(&call.body()?).map_err(invalid)?))
        }
        ([forward], "GET") => call.show(Show(name(forward)?)),
        ([forward], "DELETE") => call.execute(Delete(name(forward)?)),
        ([], _) => Err(NounError::Method("GET, POST")),
        ([_], _) => Err(NounError::Method("GET, DELETE")),
        _ => Err(NounError::Path),
    }
}

/// Answers `/v1/forwarder`.
pub(crate) fn forwarder(call: &NounCall<'_>) -> NounResult {
    match (call.path, call.method) {
        ([], "POST") => call.show(Report(call.body()?)),
        ([], _) => Err(NounError::Method("POST")),
        _ => Err(NounError::Path),
    }
}

/// A forward with its last report.
#[derive(Debug)]
struct Forward {
    spec: ForwardSpec,
    report: Option<ForwardReport>,
}

/// The process that forwards.
#[derive(Debug)]
struct Forwarder {
    pid: u32,
    instance: u64,
    heard: Instant,
}

/// The forwards of the daemon, by name.
#[derive(Debug, Default)]
pub(crate) struct Forwards {
    list: BTreeMap<Name, Forward>,
    forwarder: Option<Forwarder>,
}

impl Forwards {
    /// Answers the commands about forwards.
    pub fn ask(&mut self, control: &Control<'_>, request: RequestDispatch) -> RequestDispatch {
        request
            .on(|List| Ok(self.list.values().map(|forward| self.view(control, forward)).collect()))
            .on(|Show(name)| Ok(self.view(control, self.find(&name)?)))
            .on(|Add(spec)| self.add(control, spec))
            .on(|Delete(name)| {
                self.find(&name)?;
                self.list.remove(&name);
                Ok(())
            })
            .on(|Report(report)| self.report(control, report, Instant::now()))
    }

    fn find(&self, name: &Name) -> Result<&Forward, CommandError> {
        let missing = || CommandError::NotFound { what: "forward", name: name.to_string() };
        self.list.get(name).ok_or_else(missing)
    }

    fn add(
        &mut self,
        control: &Control<'_>,
        spec: ForwardSpec,
    ) -> Result<ForwardView, CommandError> {
        let name = spec.name.clone();
        if self.list.contains_key(&name) {
            return Err(CommandError::Conflict(format!("forward {name} exists already")));
        }
        if let Some(other) = self.list.values().find(|other| other.spec.from == spec.from) {
            return Err(CommandError::Conflict(format!(
                "forward {name}: {} is the source of forward {} already: give it another address, \
                 or delete that forward",
                spec.from, other.spec.name
            )));
        }
        if self.list.len() >= FORWARDS_MAX {
            let text = format!("there are {FORWARDS_MAX} forwards already");
            return Err(CommandError::Full(text));
        }
        self.list.insert(name.clone(), Forward { spec, report: None });
        Ok(self.view(control, self.find(&name)?))
    }

    /// Returns the forwarder that reports, if there is one.
    fn live_forwarder(&self, now: Instant) -> Option<&Forwarder> {
        let is_live = |forwarder: &&Forwarder| {
            now.saturating_duration_since(forwarder.heard) < FORWARDER_TIME
        };
        self.forwarder.as_ref().filter(is_live)
    }

    fn view(&self, control: &Control<'_>, forward: &Forward) -> ForwardView {
        let spec = forward.spec.clone();
        let state = |state, reason: String| (state, reason, BTreeMap::new());
        let (state, reason, counters) = match (task(control, &spec), &forward.report) {
            _ if self.live_forwarder(Instant::now()).is_none() => state(
                ForwardState::NoForwarder,
                "no forwarder runs: start `causeway forward --all`, or enable the service \
                 causeway-forward"
                    .into(),
            ),
            (Err(reason), _) => state(ForwardState::Failed, reason),
            (Ok(_), None) => state(ForwardState::Starting, String::new()),
            (Ok(_), Some(report)) => (report.state, report.reason.clone(), report.counters.clone()),
        };
        ForwardView { spec, state, reason, counters }
    }

    /// Takes a report, and returns the tasks of the forwarder.
    fn report(
        &mut self,
        control: &Control<'_>,
        report: ForwarderReport,
        now: Instant,
    ) -> Result<Vec<ForwardTask>, CommandError> {
        if let Some(other) = self.live_forwarder(now)
            && other.instance != report.instance
        {
            return Err(CommandError::Conflict(format!(
                "process {} forwards already: stop it first, or wait {} s after its end",
                other.pid,
                FORWARDER_TIME.as_secs()
            )));
        }
        let ForwarderReport { pid, instance, forwards, ends } = report;
        self.forwarder = (!ends).then_some(Forwarder { pid, instance, heard: now });
        for mut report in forwards.into_iter().take(FORWARDS_MAX) {
            let Some(forward) = self.list.get_mut(&report.name) else { continue };
            let fits = |at: &usize| report.reason.is_char_boundary(*at);
            let most = FORWARD_REASON_BYTES_MAX.min(report.reason.len());
            let end = (0..=most).rev().find(fits).unwrap_or_default();
            report.reason.truncate(end);
            while report.counters.len() > FORWARD_COUNTERS_MAX {
                report.counters.pop_last();
            }
            forward.report = Some(report);
        }
        Ok(self.list.values().filter_map(|forward| task(control, &forward.spec).ok()).collect())
    }
}

/// Returns the task of a forward, or the reason why it cannot be forwarded now.
fn task(control: &Control<'_>, spec: &ForwardSpec) -> Result<ForwardTask, String> {
    let ForwardSpec { name, from, to, connections_max } = spec;
    Ok(ForwardTask {
        name: name.clone(),
        from: resolved(control, from)?,
        to: resolved(control, to)?,
        connections_max: *connections_max,
    })
}

/// Returns the port of a name, or the only socket device of the VM of that name.
fn port_of<'a>(control: &'a Control<'_>, name: &Name) -> Option<&'a PortSpec> {
    if let Ok((port, _)) = control.port(name) {
        return Some(port);
    }
    let is_of_vm = |port: &&PortSpec| {
        let vm = port.kind.options().get(VM_KEY).and_then(|vm| vm.as_str());
        port.kind.get::<VsockSpec>().is_some() && vm_name(port.name.as_str(), vm) == name.as_str()
    };
    let mut ports = control.ports().filter(is_of_vm);
    ports.next().filter(|_| ports.next().is_none())
}

/// Returns an address with the host socket of its port, if it names a port or a VM.
fn resolved(control: &Control<'_>, address: &ForwardAddress) -> Result<String, String> {
    let (Some(port), ForwardAddress::Vsock { cid, port: number, .. }) =
        (address.port_name(), address)
    else {
        return Ok(address.to_string());
    };
    let port_name: Name = port.parse().map_err(|_| format!("{port:?} is no name of a port"))?;
    let port = port_of(control, &port_name).ok_or_else(|| {
        format!("port {port_name} does not exist: add it (`causeway port add {port_name} …`)")
    })?;
    let port_name = &port.name;
    let options = port.kind.get::<VsockSpec>();
    let options = options.ok_or_else(|| format!("port {port_name} is not of kind vsock"))?;
    let path = options.host_socket.ok_or_else(|| {
        format!(
            "port {port_name} has no host_socket, by which host processes reach its guest: add \
             the key"
        )
    })?;
    match (options.processes, cid) {
        (true, None) => Err(format!(
            "port {port_name} is one for processes, and has no guest: name a guest by its CID, as \
             vsock:CID@{port_name}:{number}"
        )),
        (false, Some(cid)) => Err(format!(
            "port {port_name} is not one for processes, so CID {cid} is not reached through it: add a \
             port of kind vsock with the key processes"
        )),
        (false, None) => Ok(format!("vsock:{}:{number}", path.display())),
        (true, Some(cid)) => Ok(format!("vsock:{cid}@{}:{number}", path.display())),
    }
}
