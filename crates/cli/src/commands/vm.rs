//! `causeway vm`: lists guests with their ports, and prints how a guest attaches to all of them.
//!
//! The daemon has ports and no VMs: this module groups the ports of `/v1/ports` by the name that
//! `causeway_model::port::vm_name` returns. Ports for processes belong to no VM. `show --for` and
//! `port show --for` print the options of a VMM ([`crate::vmm`]) for people, as lines or as JSON;
//! notes go to stderr where the output has no comments.
//!
//! A daemon that cannot be reached, and a port view that cannot be read, end the command with an
//! error (exit status and remedy in [`crate::error`]); nothing is printed then. `commands::run`
//! calls [`run`]; `commands::port` calls [`load_kinds`], [`vm_of`] and [`print_attachment`] for a
//! single port. All run in the main thread of the tool.

use std::collections::BTreeMap;

use causeway_model::Name;
use causeway_model::port::{VM_KEY, vm_name};
use serde_json::{Value, json};

use super::{CommandContext, print};
use crate::args::options::{add_kinds, is_known, kinds};
use crate::args::{AttachOptions, Format, VmVerb};
use crate::client::view;
use crate::error::{Error, Result};
use crate::table::{Align, TextTable, bytes};
use crate::view::{PortView, address, address_and_guest, cell};
use crate::vmm::{Device, FramePort, Machine, TapPort, Vmm, attach, attach_frames, attach_tap};

/// Runs `causeway vm` and prints the result.
pub fn run(cx: &CommandContext, verb: &VmVerb) -> Result<()> {
    let vms = vms(cx)?;
    match verb {
        VmVerb::List => list(cx, &vms),
        VmVerb::Show { vm, attach } => {
            let ports = vms.get(vm.as_str()).ok_or_else(|| missing(vm, &vms))?;
            match attach.vmm() {
                Some(vmm) => print_attachment(cx, vmm, &views(ports)?, attach),
                None => show(cx, vm, ports),
            }
        }
    }
}

/// Ports in the daemon's form, by VM.
type Vms = BTreeMap<String, Vec<Value>>;

/// Returns the ports of guests by VM.
fn vms(cx: &CommandContext) -> Result<Vms> {
    let ports: Vec<Value> = view(&cx.client.get("/v1/ports")?)?;
    load_kinds(cx, &ports);
    let mut vms = Vms::new();
    for port in ports {
        if let Some(vm) = vm_of(&view(&port)?) {
            vms.entry(vm).or_default().push(port);
        }
    }
    Ok(vms)
}

/// Requests the daemon's kinds if a port is of a kind that this release does not have, and adds
/// them to the kinds of the process ([`kinds`]). The first reply is kept for the process: a further
/// call repeats the request and changes nothing. If the request fails, ports of such kinds belong
/// to no VM, and their options are omitted.
pub fn load_kinds(cx: &CommandContext, ports: &[Value]) {
    let is_newer = |port: &Value| port["kind"].as_str().is_some_and(|kind| !is_known(kind));
    if ports.iter().any(is_newer)
        && let Ok(kinds) = cx.client.get("/v1/kinds").and_then(|value| view(&value))
    {
        add_kinds(kinds);
    }
}

/// Returns the VM of a port, or `None` if the port is for processes or of an unknown kind.
pub fn vm_of(port: &PortView) -> Option<String> {
    let kind = port.spec.text("kind")?;
    kinds().iter().find(|known| known.name == kind).filter(|known| known.has_guest)?;
    Some(vm_name(port.spec.text("name")?, port.spec.text(VM_KEY)).to_owned())
}

/// Returns the error for a VM without ports.
fn missing(vm: &Name, vms: &Vms) -> Error {
    let known = vms.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let known = if known.is_empty() { "no port has a guest".to_owned() } else { known };
    Error::NotFound(format!(
        "no port belongs to VM \"{vm}\"; see `causeway vm list` ({known}). The key vm of a port \
         names its VM"
    ))
}

fn views(ports: &[Value]) -> Result<Vec<PortView>> {
    ports.iter().map(view).collect()
}

/// Prints a line for each VM.
fn list(cx: &CommandContext, vms: &Vms) -> Result<()> {
    let rows: Vec<(&String, Vec<PortView>)> =
        vms.iter().map(|(vm, ports)| Ok((vm, views(ports)?))).collect::<Result<_>>()?;
    let value = rows.iter().map(|(vm, ports)| {
        let ports = ports.iter().map(|port| {
            let of = |key| cell(&port.spec, key);
            json!({
                "name": of("name"), "group": of("group"), "kind": of("kind"),
                "address": address(&port.spec), "state": port.state,
                "socket": of("socket"),
            })
        });
        json!({ "vm": vm, "ports": ports.collect::<Vec<_>>() })
    });
    let value: Value = value.collect();
    cx.show(&value, |_| {
        let heads = ["VM", "GROUPS", "RUNNING", "PORTS", "ADDRESSES"];
        let mut table = TextTable::new(&heads.map(|head| (head, Align::Left)));
        for (vm, ports) in &rows {
            let of = |key: &str| ports.iter().map(|port| cell(&port.spec, key)).collect::<Vec<_>>();
            let mut groups = of("group");
            groups.sort();
            groups.dedup();
            let running = ports.iter().filter(|port| port.state == "running").count();
            let addresses =
                ports.iter().map(|port| address_and_guest(&port.spec)).collect::<Vec<_>>();
            table.row(vec![
                (*vm).clone(),
                groups.join(" "),
                format!("{running} of {}", ports.len()),
                of("name").join(" "),
                addresses.join(", "),
            ]);
        }
        Ok(table.render())
    })
}

/// Prints the ports of a VM.
fn show(cx: &CommandContext, vm: &Name, ports: &[Value]) -> Result<()> {
    cx.show(&json!({ "vm": vm, "ports": ports }), |_| {
        let left = ["PORT", "GROUP", "KIND", "ADDRESS", "STATE"].map(|head| (head, Align::Left));
        let more = [("MEMORY", Align::Right), ("SOCKET", Align::Left)];
        let mut table = TextTable::new(&[&left[..], &more].concat());
        for port in views(ports)? {
            let of = |key| cell(&port.spec, key);
            let (name, group, kind, socket) = (of("name"), of("group"), of("kind"), of("socket"));
            let (address, memory) = (address_and_guest(&port.spec), bytes(port.memory_bytes));
            table.row(vec![name, group, kind, address, port.state.clone(), memory, socket]);
        }
        let hint = format!("\nattach its guest: causeway vm show {vm} --for VMM\n");
        Ok(table.render() + &hint)
    })
}

/// Prints the options that attach a guest of a VMM to ports.
///
/// # Errors
/// The VMM cannot attach a port, or the options have no form with an argument a line.
pub fn print_attachment(
    cx: &CommandContext,
    vmm: Vmm,
    ports: &[PortView],
    options: &AttachOptions,
) -> Result<()> {
    let refused = |message: String| Error::Refused { kind: "unsupported".into(), message };
    let only = if let [port] = ports { Some(port) } else { None };
    let attachment = if let Some(port) = only.and_then(FramePort::of) {
        attach_frames(vmm, &port, options.qemu_target())
    } else if let Some(port) = only.and_then(TapPort::of) {
        attach_tap(vmm, &port)
    } else {
        let devices = ports.iter().map(Device::of).collect::<std::result::Result<Vec<_>, _>>();
        let machine = devices.map(|devices| Machine::new(devices, options.memory));
        machine.and_then(|machine| attach(vmm, &machine, options.qemu_target()))
    };
    let attachment = attachment.map_err(|error| refused(error.to_string()))?;
    if cx.format == Format::Json {
        if options.lines {
            return Err(Error::Usage("--lines: expected no -o json beside it".into()));
        }
        return print(&format!("{:#}\n", attachment.json()));
    }
    if !options.lines {
        return print(&attachment.text());
    }
    let lines = attachment.lines().ok_or_else(|| {
        Error::Usage(
            "--lines: XML, and paths with line feeds, are no arguments of a line each; use -o json"
                .into(),
        )
    })?;
    attachment.notes.iter().for_each(|note| eprintln!("causeway: {note}"));
    print(&lines)
}
