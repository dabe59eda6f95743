//! Arguments of QEMU that attach the devices of a guest.
//!
//! Shared memory is printed once for all devices. Without a version, options that differ between
//! versions (`reconnect`, `vectors=0`) are left out. An adapter needs QEMU 10.1: an older version
//! is refused by [`check`], and without a version the adapter is printed. The installed QEMU reads
//! the arguments in the tests of `crates/cli/tests/tool/fabric.rs`.
//!
//! [`super::attach`] is the caller of [`attachment`]; [`super::libvirt`] uses [`check`],
//! [`adapter`] and [`chardev`], because libvirt passes some devices on to QEMU.

use super::device::{Device, DeviceKind, NetDevice};
use super::output::{Argument, Attachment, Parts};
use super::quote;
use super::version::{QemuChoice, QemuVersion};
use super::{AttachError, Machine};

/// Options of a device for a guest that attaches XDP programs, which would drop frames with pending
/// offloads. QEMU reads them from the device's arguments.
const NO_OFFLOADS: &str = ",guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off";

/// Returns the arguments of a machine, to append to `qemu-system-x86_64`.
///
/// # Errors
/// [`AttachError`]: the version has no device of a kind.
pub fn attachment(machine: &Machine, choice: &QemuChoice) -> Result<Attachment, AttachError> {
    let version = choice.version();
    check(machine, version)?;
    let size = machine.memory();
    let memory = format!("memory-backend-memfd,id=causeway-mem,size={size},share=on");
    let mut arguments = vec![
        Argument::new("-object", memory),
        Argument::new("-machine", "memory-backend=causeway-mem"),
    ];
    for device in &machine.devices {
        arguments.extend(of_device(device, version));
    }
    let version = version.map(|version| version.to_string());
    let notes = notes(machine, choice);
    Ok(Attachment { vmm: "qemu", version, notes, parts: Parts::Arguments(arguments) })
}

/// Refuses devices that a version lacks.
///
/// # Errors
/// [`AttachError`]: the version has no device of a kind.
pub fn check(machine: &Machine, version: Option<QemuVersion>) -> Result<(), AttachError> {
    let old = version.filter(|version| !version.has_vfio_user());
    let adapter = machine.devices.iter().find(|device| device.kind == DeviceKind::Adapter);
    match (old, adapter) {
        (Some(version), Some(device)) => {
            Err(AttachError::NoVfioUser { port: device.port.clone(), version })
        }
        _ => Ok(()),
    }
}

/// Returns the version that the arguments are for, and conditions of the arguments.
fn notes(machine: &Machine, choice: &QemuChoice) -> Vec<String> {
    let mut notes = vec![version_note(machine, choice)];
    let size = machine.memory();
    notes.push(match machine.memory {
        Some(_) => format!("All memory of the guest is one shared file of {size}; omit -m."),
        None => format!(
            "All memory of the guest is one shared file of {size}; --memory SIZE prints another \
             size. Omit -m, or give it the same size."
        ),
    });
    notes.extend(machine.migration_note());
    if machine.nets().next().is_some()
        && choice.version().is_some_and(QemuVersion::needs_no_vectors)
    {
        notes.push(
            "This version crashes without KVM unless network devices have vectors=0. With KVM \
             (-accel kvm), delete vectors=0: the guest's interrupts are then faster."
                .into(),
        );
    }
    notes
}

/// Returns the version for which arguments are printed, and its source.
fn version_note(machine: &Machine, choice: &QemuChoice) -> String {
    match choice {
        QemuChoice::Named(version) => format!("For QEMU {version}."),
        QemuChoice::Installed(version, program) => format!(
            "For QEMU {version}, the version of {} on this host; --qemu-version VERSION prints \
             options for another version.",
            program.display()
        ),
        QemuChoice::Unknown if machine.nets().next().is_some() => {
            "No QEMU was found on this host. These options suit every version, and network devices \
             do not reconnect after a restart of causewayd; --qemu-version VERSION prints options \
             with which they do."
                .into()
        }
        QemuChoice::Unknown => {
            "No QEMU was found on this host; these options suit every version that has the devices."
                .into()
        }
    }
}

/// Returns the options of a device.
fn of_device(device: &Device, version: Option<QemuVersion>) -> Vec<Argument> {
    let id = device.id();
    match &device.kind {
        DeviceKind::Adapter => vec![Argument::new("-device", adapter(device).to_string())],
        DeviceKind::Vsock => vec![
            Argument::new("-chardev", chardev(device, version)),
            Argument::new("-device", format!("vhost-user-vsock-pci,chardev={id}")),
        ],
        DeviceKind::Net(net) => {
            let pairs = net.queue_pairs;
            let netdev = format!("vhost-user,id={id}-dev,chardev={id},queues={pairs}");
            vec![
                Argument::new("-chardev", chardev(device, version)),
                Argument::new("-netdev", netdev),
                Argument::new("-device", net_device(&id, net, version)),
            ]
        }
    }
}

/// Returns the network device.
fn net_device(id: &str, net: &NetDevice, version: Option<QemuVersion>) -> String {
    let mut device = format!("virtio-net-pci,netdev={id}-dev,mac={}", quote::qemu(&net.mac));
    if net.queue_pairs > 1 {
        device.push_str(",mq=on");
    }
    if let Some(mtu) = net.mtu {
        device.push_str(&format!(",host_mtu={mtu}"));
    }
    if !net.has_offloads {
        device.push_str(NO_OFFLOADS);
    }
    if version.is_some_and(QemuVersion::needs_no_vectors) {
        device.push_str(",vectors=0");
    }
    device
}

/// Returns the device of an adapter. A socket address can be given as JSON only. The function has
/// no ROM: without `rombar` the firmware would search for one.
pub fn adapter(device: &Device) -> serde_json::Value {
    serde_json::json!({
        "driver": "vfio-user-pci", "id": format!("{}-dev", device.id()), "rombar": 0,
        "socket": {"type": "unix", "path": device.socket},
    })
}

/// Returns the character device of the socket. QEMU's vsock device never reconnects.
pub fn chardev(device: &Device, version: Option<QemuVersion>) -> String {
    let path = quote::qemu(&device.socket);
    let chardev = format!("socket,id={},path={path}", device.id());
    match (version, &device.kind) {
        // A network device waits for its daemon by itself; the others need it at their creation.
        (_, DeviceKind::Net(_)) if device.is_listener => format!("{chardev},server=on,wait=off"),
        _ if device.is_listener => format!("{chardev},server=on"),
        (Some(version), DeviceKind::Net(_)) => format!("{chardev},{}", version.reconnect()),
        _ => chardev,
    }
}

#[cfg(test)]
mod tests {
    use super::super::device::samples::{
        adapter, listening, net, odd_vsock, usual_net, vsock, xdp_net,
    };
    use super::*;

    fn choice(text: &str) -> QemuChoice {
        QemuChoice::Named(text.parse().unwrap())
    }

    fn text(devices: Vec<Device>, choice: &QemuChoice) -> String {
        attachment(&Machine::new(devices, None), choice).unwrap().text()
    }

    #[test]
    fn attach_qemu_prints_the_golden_lines() {
        let machine = Machine::new(vec![net(1), usual_net(), vsock()], "2G".parse().ok());
        let shown = attachment(&machine, &choice("7.2")).unwrap();
        assert_eq!(
            shown.text(),
            "# For QEMU 7.2.\n\
             # All memory of the guest is one shared file of 2G; omit -m.\n\
             # Move this guest to another host by stop and start: QEMU does not migrate its socket \
             device.\n\
             # This version crashes without KVM unless network devices have vectors=0. With KVM \
             (-accel kvm),\n# delete vectors=0: the guest's interrupts are then faster.\n\
             -object memory-backend-memfd,id=causeway-mem,size=2G,share=on \\\n\
             -machine memory-backend=causeway-mem \\\n\
             -chardev socket,id=cw-1-net,path=/run/c/1.sock,reconnect=1 \\\n\
             -netdev vhost-user,id=cw-1-net-dev,chardev=cw-1-net,queues=1 \\\n\
             -device virtio-net-pci,netdev=cw-1-net-dev,mac=52:54:00:00:00:01,host_mtu=9000,\
             vectors=0 \\\n\
             -chardev socket,id=cw-2-net,path=/run/c/2.sock,reconnect=1 \\\n\
             -netdev vhost-user,id=cw-2-net-dev,chardev=cw-2-net,queues=1 \\\n\
             -device virtio-net-pci,netdev=cw-2-net-dev,mac=52:54:00:00:00:02,host_mtu=1500,\
             vectors=0 \\\n\
             -chardev socket,id=cw-1-vsock,path=/run/c/v.sock \\\n\
             -device vhost-user-vsock-pci,chardev=cw-1-vsock\n"
        );
        let lines = shown.lines().unwrap();
        assert!(
            lines.starts_with("-object\nmemory-backend-memfd,id=causeway-mem,size=2G"),
            "{lines}"
        );
        assert_eq!(lines.matches("memory-backend=").count(), 1, "memory once: {lines}");
        assert_eq!(shown.json()["version"], "7.2");
        assert_eq!(shown.json()["arguments"][0], "-object");
    }

    #[test]
    fn attach_net_device_reconnects_and_has_its_queues() {
        let shown = text(vec![net(4)], &choice("11.1"));
        assert!(shown.contains("path=/run/c/1.sock,reconnect-ms=1000 \\\n"), "{shown}");
        assert!(shown.contains("queues=4") && shown.contains(",mq=on"), "{shown}");
        assert!(!shown.contains("vectors"), "{shown}");
        assert!(shown.contains("size=1G") && shown.contains("--memory SIZE"), "{shown}");
    }

    #[test]
    fn attach_qemu_without_version_gets_options_of_every_version() {
        let shown = text(vec![net(1)], &QemuChoice::Unknown);
        let arguments = shown.lines().filter(|line| !line.starts_with('#'));
        let arguments: Vec<&str> = arguments.collect();
        assert!(!arguments.concat().contains("reconnect"), "{shown}");
        assert!(shown.contains("--qemu-version VERSION"), "{shown}");
        let installed = QemuChoice::Installed("7.2".parse().unwrap(), "/usr/bin/q".into());
        assert!(text(vec![vsock()], &installed).contains("QEMU 7.2, the version of /usr/bin/q on"));
    }

    #[test]
    fn attach_net_device_for_xdp_has_no_offloads_towards_the_guest() {
        let shown = text(vec![xdp_net(1)], &QemuChoice::Unknown);
        assert!(shown.contains(",guest_csum=off,guest_tso4=off,guest_tso6=off"), "{shown}");
        assert!(!text(vec![net(1)], &QemuChoice::Unknown).contains("guest_csum"));
    }

    #[test]
    fn attach_vsock_device_does_not_reconnect() {
        for version in ["7.2", "11.1"] {
            let shown = text(vec![vsock()], &choice(version));
            assert!(!shown.contains("reconnect") && !shown.contains("vectors"), "{shown}");
        }
    }

    #[test]
    fn attach_qemu_listens_for_ports_that_connect() {
        let shown = text(vec![listening(net(1)), listening(vsock())], &choice("11.1"));
        assert!(shown.contains("path=/run/c/1.sock,server=on,wait=off \\\n"), "{shown}");
        assert!(shown.contains("path=/run/c/v.sock,server=on \\\n"), "{shown}");
        assert!(!shown.contains("reconnect"), "{shown}");
    }

    #[test]
    fn attach_hca_is_a_vfio_user_device() {
        let shown = text(vec![adapter()], &choice("11.1"));
        let device = shown.lines().last().unwrap().strip_prefix("-device '").unwrap();
        let device: serde_json::Value =
            serde_json::from_str(device.strip_suffix('\'').unwrap()).unwrap();
        assert_eq!((&device["driver"], &device["rombar"]), (&"vfio-user-pci".into(), &0.into()));
        assert_eq!(device["socket"]["path"], "/run/c/r.sock", "{shown}");
        assert!(shown.contains("share=on") && !shown.contains("chardev"), "{shown}");
        assert!(shown.contains("# Do not migrate this guest"), "{shown}");
        let sockets = text(vec![net(1), vsock()], &choice("11.1"));
        assert!(
            sockets.contains("# Move this guest to another host by stop and start"),
            "{sockets}"
        );
        assert!(!text(vec![net(1)], &choice("11.1")).contains("migrate"));
        let machine = Machine::new(vec![net(1), adapter()], None);
        let error = attachment(&machine, &choice("10.0")).unwrap_err().to_string();
        assert!(error.contains("QEMU 10.0") && error.contains("10.1 or later"), "{error}");
        assert!(error.contains("port 1-rdma"), "{error}");
        assert!(attachment(&machine, &QemuChoice::Unknown).is_ok());
    }

    #[test]
    fn attach_hostile_paths_stay_one_word() {
        let shown = text(vec![odd_vsock()], &QemuChoice::Unknown);
        assert!(shown.contains(r"'socket,id=cw-1-net,path=/a b,,c'\''d<&>'"), "{shown}");
    }
}
