//! `causeway port`: lists, shows, adds and deletes ports, and prints how a guest attaches.
//!
//! `add` sends the given options only, and the daemon fills in the defaults; the verb does not wait
//! for a guest. `add --may-exist` succeeds if a port of the name has all given values, and is
//! refused otherwise: a port cannot be changed in place. `del` disconnects the guest; on a terminal
//! and without JSON output the verb asks before if a guest is connected, unless `--force` is given.
//! `list --group` refuses a group that does not exist. `show --for` prints the options of a VMM
//! ([`super::vm::print_attachment`]) instead of the port. Text output omits counters of 0.
//!
//! `commands::run` is the caller; the requests go to `/v1/ports`. [`counters`] is also used by
//! `hca`, `link` and `stats`.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;

use causeway_model::Name;
use causeway_model::port::{KINDS, PORT_FIELDS, VM_KEY};
use causeway_model::schema::FieldInfo;
use serde_json::{Map, Value, json};

use super::vm::{load_kinds, print_attachment, vm_of};
use super::{CommandContext, hint, is_conflict};
use crate::args::options::{kinds, shown};
use crate::args::{AttachOptions, DeleteOptions, Format, PortAdd, PortVerb};
use crate::client::{changing, view};
use crate::error::{Error, Result};
use crate::table::{Align, TextTable, bytes, pairs};
use crate::view::{PortView, address_and_guest, cell, endpoint};

const SEE_PORTS: &str = "see `causeway port list`";
/// Keys that `port show` prints before the options.
const HEAD: [&str; 3] = ["name", "group", "socket"];

/// Runs `causeway port` and prints the result.
pub fn run(cx: &CommandContext, verb: PortVerb) -> Result<()> {
    match verb {
        PortVerb::List { group } => list(cx, group.as_ref()),
        PortVerb::Show { name, attach } => show(cx, &name, &attach),
        PortVerb::Add(args) => add(cx, *args),
        PortVerb::Del { name, force, options } => del(cx, &name, force, &options),
    }
}

/// Prints a line for each port, or for each port of a group.
fn list(cx: &CommandContext, group: Option<&Name>) -> Result<()> {
    let mut value = cx.client.get("/v1/ports")?;
    if let (Some(group), Some(ports)) = (group, value.as_array_mut()) {
        // A missing group is an error, not an empty list.
        let see = "see `causeway group list`";
        cx.client.get(&format!("/v1/groups/{group}")).map_err(|e| hint(e, "group", see))?;
        ports.retain(|port| port["group"] == group.as_str());
    }
    if cx.format == Format::Table {
        load_kinds(cx, value.as_array().map(Vec::as_slice).unwrap_or_default());
    }
    cx.show(&value, |value| {
        let ports: Vec<PortView> = view(value)?;
        let left = ["NAME", "GROUP", "KIND", "ADDRESS", "STATE"].map(|head| (head, Align::Left));
        let mut heads = left.to_vec();
        heads.extend([("FAULTS", Align::Right), ("VM", Align::Left), ("SOCKET", Align::Left)]);
        let mut table = TextTable::new(&heads);
        let mut cut_off = String::new();
        for port in ports {
            let of = |key| cell(&port.spec, key);
            let (address, faults) = (address_and_guest(&port.spec), port.faults_total.to_string());
            let (name, group, kind) = (of("name"), of("group"), of("kind"));
            let socket = endpoint(&port.spec);
            let vm = vm_of(&port).unwrap_or_else(|| "-".into());
            if let Some(reason) = &port.cut_off {
                cut_off.push_str(&format!("\n{name}: {reason}"));
            }
            let state = if port.cut_off.is_some() { "cut off".to_owned() } else { port.state };
            table.row(vec![name, group, kind, address, state, faults, vm, socket]);
        }
        if !cut_off.is_empty() {
            cut_off.push('\n');
        }
        Ok(table.render() + &cut_off)
    })
}

/// Prints a port, or the options that attach its guest.
fn show(cx: &CommandContext, name: &Name, attach: &AttachOptions) -> Result<()> {
    let value =
        cx.client.get(&format!("/v1/ports/{name}")).map_err(|e| hint(e, "port", SEE_PORTS))?;
    if let Some(vmm) = attach.vmm() {
        return print_attachment(cx, vmm, &[view(&value)?], attach);
    }
    if cx.format == Format::Table {
        load_kinds(cx, std::slice::from_ref(&value));
    }
    cx.show(&value, |value| Ok(text(&view(value)?)))
}

/// Returns the full description of a port.
fn text(port: &PortView) -> String {
    let of = |key| (key, cell(&port.spec, key));
    let mut list = vec![of("name"), of("group"), of("kind"), ("state", port.state.clone())];
    list.extend(port.cut_off.iter().map(|reason| ("cut off", reason.clone())));
    if port.faults_total > 0 {
        let reason = port.fault.as_deref().unwrap_or("unknown");
        let when = when(port.fault_age_seconds, port.fault_of.as_deref());
        list.push(("last fault", format!("{reason} ({when}{} in all)", port.faults_total)));
    }
    if let Some(notice) = &port.notice {
        let when = when(port.notice_age_seconds, port.notice_of.as_deref());
        list.push(("last notice", format!("{notice} ({})", when.trim_end_matches(", "))));
    }
    if let Some(reason) = &port.host_fault {
        list.push(("host fault", format!("{reason} ({} in all)", port.host_faults_total)));
    }
    if let Some(reason) = &port.connect_error {
        list.push(("connect error", format!("{reason}; the port tries again")));
    }
    if port.refused_users_total > 0 {
        let user = port.refused_user.map_or("unknown".into(), |user| user.to_string());
        let total = port.refused_users_total;
        list.push(("refused users", format!("user {user} ({total} in all)")));
    }
    list.extend(port.warnings.iter().map(|warning| ("warning", warning.clone())));
    let kind = kinds().into_iter().find(|kind| port.spec.text("kind") == Some(&kind.name));
    let has_frontend = kind.as_ref().is_none_or(|kind| kind.has_frontend);
    let (socket, place) = (cell(&port.spec, "socket"), endpoint(&port.spec));
    if has_frontend && socket == place {
        list.push(("socket", socket));
    }
    if let Some(vm) = vm_of(port) {
        list.push(("vm", vm));
        if port.state == "listening" {
            let name = cell(&port.spec, "name");
            list.push(("attach", format!("causeway port show {name} --for VMM")));
        }
    }
    if port.held {
        list.push(("held", "yes: its guest stays connected while causewayd is replaced".into()));
    }
    list.push(("dispatcher", port.dispatcher.to_string()));
    let common = PORT_FIELDS.iter().filter(|field| !HEAD.contains(&field.key));
    let common: Vec<FieldInfo> = common.map(FieldInfo::from).collect();
    let own = kind.as_ref().map(|kind| &kind.options[..]).unwrap_or_default();
    let own = own.iter().filter(|field| field.key != VM_KEY);
    let options = shown(own.chain(&common), &port.spec.0);
    list.extend(options.iter().map(|(key, value)| (key.as_str(), value.clone())));
    if kind.as_ref().is_none_or(|kind| kind.has_guest) {
        if is_virtio(port) {
            list.push(("features", port.features.clone()));
        }
        list.push(("memory", bytes(port.memory_bytes)));
    }
    if has_frontend {
        list.push(("connects", port.connects_total.to_string()));
    }
    let mut out = pairs(&list);
    if is_virtio(port) && !port.queues.is_empty() {
        out.push_str(&format!("\n{}", queues(port)));
    }
    out + &counters(&port.counters)
}

/// Returns the table of a port's queues.
fn queues(port: &PortView) -> String {
    let heads = [("QUEUE", Align::Right), ("SIZE", Align::Right), ("FORMAT", Align::Left)];
    let more = [("RUNNING", Align::Left), ("MODE", Align::Left), ("WHY", Align::Left)];
    let mut table = TextTable::new(&[&heads[..], &more].concat());
    for queue in &port.queues {
        let running = if queue.running { "yes" } else { "no" };
        let (index, size) = (queue.index.to_string(), queue.size.to_string());
        let (mode, why) = (queue.mode.clone(), queue.mode_reason.clone());
        table.row(vec![index, size, queue.format.clone(), running.to_owned(), mode, why]);
    }
    table.render()
}

/// Returns whether a port has virtio features and queues. The queues of an adapter (`hca`) are the
/// driver's own: `causeway hca show` prints them.
fn is_virtio(port: &PortView) -> bool {
    port.spec.text("kind") != Some("hca")
}

/// Returns the time of an event and whether an earlier frontend caused it, followed by a comma.
fn when(age_seconds: Option<u64>, of: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(age) = age_seconds {
        text.push_str(&format!("{} ago, ", age_of(age)));
    }
    if of == Some("former") {
        text.push_str("by an earlier frontend, ");
    }
    text
}

/// Returns a duration in its two largest units.
pub(super) fn age_of(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// Returns the counters that are not 0, after a blank line; JSON output has all.
pub(super) fn counters(counters: &BTreeMap<String, u64>) -> String {
    let mut table = TextTable::new(&[("COUNTER", Align::Left), ("VALUE", Align::Right)]);
    let counted: Vec<_> = counters.iter().filter(|(_, value)| **value > 0).collect();
    for (name, value) in &counted {
        table.row(vec![(*name).clone(), value.to_string()]);
    }
    if counted.is_empty() { String::new() } else { format!("\n{}", table.render()) }
}

/// Adds a port and prints its socket.
fn add(cx: &CommandContext, args: PortAdd) -> Result<()> {
    let (name, may_exist) = (args.name.clone(), args.may_exist);
    let mut wanted = args.values.0;
    wanted.insert("name".into(), json!(name));
    let group = wanted.get("group").and_then(Value::as_str).unwrap_or_default().to_owned();
    let path = changing("/v1/ports", args.ephemeral);
    let value = match cx.client.post(&path, &Value::Object(wanted.clone())) {
        Ok(value) => value,
        Err(error) if may_exist && is_conflict(&error) => existing(cx, &name, &wanted, error)?,
        Err(error) if is_conflict(&error) => return Err(error),
        Err(error) => {
            let see = format!("add it with `causeway group add {group}`");
            return Err(hint(error, "group", &see));
        }
    };
    cx.show(&value, |value| {
        let port: PortView = view(value)?;
        let (name, socket) = (cell(&port.spec, "name"), endpoint(&port.spec));
        if port.spec.text("socket").is_none() && socket == cell(&port.spec, "socket") {
            let error = port.connect_error.as_ref();
            let error = error.map(|error| format!(": {error}; the port tries again"));
            return Ok(format!("port {name} is {}{}\n", port.state, error.unwrap_or_default()));
        }
        let connects = port.spec.0.get("connect") == Some(&Value::Bool(true));
        let verb = if connects { "connects to" } else { "listens on" };
        Ok(format!("port {name} {verb} {socket}\n"))
    })
}

/// Returns the existing port if it has all requested values.
fn existing(
    cx: &CommandContext,
    name: &Name,
    wanted: &Map<String, Value>,
    refusal: Error,
) -> Result<Value> {
    let there = match cx.client.get(&format!("/v1/ports/{name}")) {
        Ok(value) => value,
        // The conflict is with another object: a socket or an address.
        Err(Error::NotFound(_)) => return Err(refusal),
        Err(other) => return Err(other),
    };
    match wanted.iter().find(|(key, value)| there[key.as_str()] != **value) {
        None => Ok(there),
        Some((key, value)) => Err(Error::Refused {
            kind: "conflict".into(),
            message: format!(
                "port {name} exists with {key} {}: expected {value}; delete it first",
                there[key.as_str()]
            ),
        }),
    }
}

/// Deletes a port. On a terminal, the deletion of a port with a guest needs a confirmation.
fn del(cx: &CommandContext, name: &Name, force: bool, options: &DeleteOptions) -> Result<()> {
    let path = format!("/v1/ports/{name}");
    let has_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if has_terminal && !force && cx.format == Format::Table {
        // A missing port is the subject of the deletion itself.
        let shown = cx.client.get(&path).and_then(|value| view::<PortView>(&value));
        if let Some(question) = shown.ok().as_ref().and_then(question)
            && !is_confirmed(&question)?
        {
            let message = format!("port {name} was not deleted");
            return Err(Error::Refused { kind: "declined".into(), message });
        }
    }
    cx.delete("port", name, options)
}

/// Returns the question before the deletion of a port; `None` if no guest would lose its device.
fn question(port: &PortView) -> Option<String> {
    let guest = match port.state.as_str() {
        "running" => "a running guest",
        "connected" => "a connected guest",
        _ => return None,
    };
    let (name, kind) = (cell(&port.spec, "name"), cell(&port.spec, "kind"));
    let vm = vm_of(port).map(|vm| format!(" of VM {vm}")).unwrap_or_default();
    let known = KINDS.iter().find(|known| known.name == kind);
    let connections = port.counters.get("connections").copied().unwrap_or(0);
    let loss = match kind.as_str() {
        "net" => "its network device: its traffic stops".to_owned(),
        "vsock" => format!("its socket device: {connections} open connections are reset"),
        "hca" => "its RDMA adapter: its queue pairs fail".to_owned(),
        "mx" => "its NIC: its endpoints and their messages are lost".to_owned(),
        _ => "this device".to_owned(),
    };
    let remedy = if known.is_some_and(|known| !known.has_guest) {
        "Its processes must open endpoints again, after the port is added again."
    } else if known.is_some_and(|known| known.loses_frontend) {
        "Its VMM does not reconnect this device: the guest has none until it is restarted, even if the \
         port is added again."
    } else {
        "A VMM that reconnects gets the device back if the port is added again."
    };
    Some(format!(
        "port {name} serves {guest}{vm}, which loses {loss}.\n{remedy}\nDelete port {name}? [y/N] "
    ))
}

/// Asks a question on the terminal, and returns whether the answer is yes.
fn is_confirmed(question: &str) -> Result<bool> {
    let failed = |error| Error::Output { what: "terminal".into(), error };
    let mut answer = String::new();
    eprint!("{question}");
    std::io::stdin().read_line(&mut answer).map_err(failed)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::{age_of, question, when};
    use crate::client::view;

    #[test]
    fn port_event_ages_have_two_units_and_name_an_earlier_frontend() {
        let ages = [7, 61, 3_661, 90_061].map(age_of);
        assert_eq!(ages, ["7 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
        assert_eq!(when(Some(7), Some("former")), "7 s ago, by an earlier frontend, ");
        assert_eq!(when(Some(7), Some("present")), "7 s ago, ");
        assert_eq!(when(None, None), "", "an older daemon reports neither");
    }

    #[test]
    fn port_deletion_asks_only_while_a_guest_is_connected() {
        let of = |kind: &str, state: &str| {
            let value = serde_json::json!({
                "name": "vm1", "group": "g", "kind": kind, "socket": "/s", "state": state,
                "counters": {"connections": 3},
            });
            view(&value).unwrap()
        };
        let port = |state: &str| of("net", state);
        assert!(question(&port("running")).unwrap().contains("port vm1 serves a running guest"));
        assert!(question(&port("connected")).is_some());
        let text = question(&port("running")).unwrap();
        assert!(text.contains("network device") && text.contains("VMM that reconnects"), "{text}");
        let text = question(&of("vsock", "running")).unwrap();
        assert!(text.contains("3 open connections are reset"), "{text}");
        assert!(text.contains("none until it is restarted"), "{text}");
        assert_eq!([question(&port("listening")), question(&port("faulted"))], [None, None]);
    }
}
