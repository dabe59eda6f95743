//! Elements of a libvirt domain that attach the devices of a guest.
//!
//! Network devices are `<interface type='vhostuser'>`; libvirt has no element for the others, which
//! become arguments of QEMU in one `<qemu:commandline>`. Properties that libvirt has no element for
//! stand in one `<qemu:override>` (libvirt 8.2 and later). The memory must be a shared file:
//! `<memoryBacking>` is printed once. The test `crates/cli/tests/tool/libvirt.rs` checks the elements
//! with the schema of the installed libvirt.
//!
//! The version of QEMU, given or installed, and the presence of KVM on this host decide whether
//! network devices need a property without KVM. An adapter is refused only for a version that the
//! operator gave, because libvirt may start another QEMU than the installed one. [`super::attach`]
//! is the caller.

use super::device::{Device, DeviceKind, NetDevice};
use super::output::{Attachment, Element, Parts};
use super::quote::xml;
use super::version::{QemuChoice, Vectors};
use super::{AttachError, Machine, qemu};

/// The offloads that a guest which attaches XDP programs must not have.
const NO_OFFLOADS: &str = "<guest csum='off' tso4='off' tso6='off' ecn='off'/>";
const DOMAIN: &str = "domain";
const DEVICES: &str = "domain/devices";

/// Returns the elements of a machine, to insert with `virsh edit`.
///
/// # Errors
/// [`AttachError`]: the version of QEMU has no device of a kind.
pub fn attachment(
    machine: &Machine,
    choice: &QemuChoice,
    has_kvm: bool,
) -> Result<Attachment, AttachError> {
    // libvirt may start another QEMU than that on PATH, so only a version that the operator gave
    // refuses.
    let named = matches!(choice, QemuChoice::Named(_)).then(|| choice.version()).flatten();
    qemu::check(machine, named)?;
    let mut elements = memory(machine);
    elements.extend(machine.nets().map(|(device, net)| element(DEVICES, interface(device, net))));
    elements.extend(commandline(machine));
    elements.extend(overrides(machine, choice.vectors(has_kvm)));
    let version = choice.version().map(|version| version.to_string());
    let notes = notes(machine, choice);
    Ok(Attachment { vmm: "libvirt", version, notes, parts: Parts::Elements(elements) })
}

fn element(parent: &'static str, xml: String) -> Element {
    Element { parent, condition: None, xml }
}

/// Returns conditions of the elements. Comments of XML cannot contain two hyphens.
fn notes(machine: &Machine, choice: &QemuChoice) -> Vec<String> {
    let mut notes = Vec::new();
    if let (QemuChoice::Installed(version, program), true) =
        (choice, machine.nets().next().is_some())
    {
        let program = program.display();
        notes.push(format!("For QEMU {version}, the version of {program} on this host."));
    }
    if machine.has_adapter() {
        notes.push(
            "The RDMA adapter needs QEMU 10.1 or later: older versions have no vfio-user-pci."
                .into(),
        );
    }
    notes.extend(machine.migration_note());
    let further: Vec<&str> = machine.further().map(|device| device.socket.as_str()).collect();
    if !further.is_empty() {
        notes.push(format!(
            "Where AppArmor confines guests (Debian, Ubuntu), the devices in qemu:commandline are \
             denied their sockets until /etc/apparmor.d/local/abstractions/libvirt-qemu has: {}",
            further.iter().map(|path| format!("\"{path}\" rw,")).collect::<Vec<_>>().join(" ")
        ));
    }
    notes
}

/// Returns the memory: its size if the operator gave one, and its file.
fn memory(machine: &Machine) -> Vec<Element> {
    let size = machine.memory.map(|size| format!("<memory unit='MiB'>{}</memory>\n", size.mib()));
    let backing = "<memoryBacking>\n  <source type='memfd'/>\n  <access mode='shared'/>\n\
                   </memoryBacking>\n";
    let all = size.into_iter().chain([backing.to_owned()]);
    all.map(|xml| element(DOMAIN, xml)).collect()
}

/// Returns an interface element. It has no `<mtu>`: libvirt refuses to start a domain that has one
/// with `type='vhostuser'`.
fn interface(device: &Device, net: &NetDevice) -> String {
    let (path, mac, alias) = (xml(&device.socket), xml(&net.mac), alias(device));
    let queues = Some(net.queue_pairs).filter(|pairs| *pairs > 1);
    let queues = queues.map(|pairs| format!(" queues='{pairs}'")).unwrap_or_default();
    let driver = match (net.has_offloads, queues.is_empty()) {
        (false, _) => format!("  <driver{queues}>\n    {NO_OFFLOADS}\n  </driver>\n"),
        (true, false) => format!("  <driver{queues}/>\n"),
        (true, true) => String::new(),
    };
    let source = if device.is_listener {
        format!("<source type='unix' path='{path}' mode='server'/>")
    } else {
        format!(
            "<source type='unix' path='{path}' mode='client'>\n    \
             <reconnect enabled='yes' timeout='1'/>\n  </source>"
        )
    };
    format!(
        "<interface type='vhostuser'>\n  <mac address='{mac}'/>\n  {source}\n  \
         <model type='virtio'/>\n{driver}  <alias name='{alias}'/>\n</interface>\n"
    )
}

/// Returns an alias: libvirt accepts aliases of operators that start with `ua-`.
fn alias(device: &Device) -> String {
    format!("ua-{}", device.id())
}

/// Returns the arguments of QEMU for all devices without an element of their own.
fn commandline(machine: &Machine) -> Option<Element> {
    let words: Vec<String> = machine.further().flat_map(arguments).collect();
    if words.is_empty() {
        return None;
    }
    let lines = words.iter().map(|word| format!("  <qemu:arg value='{}'/>\n", xml(word)));
    let lines: String = lines.collect();
    Some(element(DOMAIN, format!("<qemu:commandline>\n{lines}</qemu:commandline>\n")))
}

/// Returns a device as JSON. libvirt passes its own devices as JSON, and QEMU creates devices in
/// the older syntax first, so that such a device would take a PCI slot that libvirt assigned to
/// another device.
fn arguments(device: &Device) -> Vec<String> {
    let id = device.id();
    match device.kind {
        DeviceKind::Adapter => vec!["-device".into(), qemu::adapter(device).to_string()],
        _ => {
            let vsock = serde_json::json!({
                "driver": "vhost-user-vsock-pci", "id": format!("{id}-dev"), "chardev": id,
            });
            let chardev = qemu::chardev(device, None);
            vec!["-chardev".into(), chardev, "-device".into(), vsock.to_string()]
        }
    }
}

/// Returns properties of devices that libvirt has no element for; nothing if the defaults are
/// right. Without KVM, an older QEMU needs devices without vectors: on a host with KVM, the element
/// for a domain of type `qemu` is a comment.
fn overrides(machine: &Machine, vectors: Vectors) -> Vec<Element> {
    let block = |without_vectors: bool| {
        let devices = machine.nets().filter_map(|(device, net)| {
            let mtu = net.unusual_mtu().map(|mtu| ("host_mtu", mtu));
            let none = without_vectors.then_some(("vectors", 0));
            let properties: Vec<_> = mtu.into_iter().chain(none).collect();
            (!properties.is_empty()).then(|| override_of(device, &properties))
        });
        let devices: String = devices.collect();
        let xml = format!("<qemu:override>\n{devices}</qemu:override>\n");
        (!devices.is_empty()).then(|| element(DOMAIN, xml))
    };
    match vectors {
        Vectors::Work => block(false).into_iter().collect(),
        Vectors::Crash => block(true).into_iter().collect(),
        Vectors::CrashWithoutKvm => {
            let with_kvm = block(false);
            let instead = if with_kvm.is_some() { ", instead of the element before" } else { "" };
            let condition = format!(
                "Without KVM (<domain type='qemu'>) this QEMU crashes unless network devices have \
                 no vectors. For such a domain{instead}"
            );
            let without = block(true);
            let without = without.map(|element| Element { condition: Some(condition), ..element });
            with_kvm.into_iter().chain(without).collect()
        }
    }
}

/// Returns the element that sets unsigned properties of a device.
fn override_of(device: &Device, properties: &[(&str, u32)]) -> String {
    let lines = properties.iter().map(|(name, value)| {
        format!("      <qemu:property name='{name}' type='unsigned' value='{value}'/>\n")
    });
    format!(
        "  <qemu:device alias='{}'>\n    <qemu:frontend>\n{}    </qemu:frontend>\n  \
         </qemu:device>\n",
        alias(device),
        lines.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::super::device::samples::{
        adapter, listening, net, odd_vsock, usual_net, vsock, xdp_net,
    };
    use super::*;

    /// The elements of a guest with two network devices and a socket device.
    const GOLDEN: &str = include_str!("../../tests/golden/libvirt.xml");

    fn shown(devices: Vec<Device>, choice: &str, has_kvm: bool) -> String {
        let choice = QemuChoice::Named(choice.parse().unwrap());
        attachment(&Machine::new(devices, None), &choice, has_kvm).unwrap().text()
    }

    #[test]
    fn attach_libvirt_prints_the_golden_elements() {
        let machine = Machine::new(vec![net(4), usual_net(), vsock()], "2G".parse().ok());
        let choice = QemuChoice::Named("7.2".parse().unwrap());
        let all = attachment(&machine, &choice, false).unwrap();
        assert_eq!(all.text(), GOLDEN, "\n{}", all.text());
        let json = all.json();
        let parents: Vec<&str> = json["elements"]
            .as_array()
            .unwrap()
            .iter()
            .map(|element| element["parent"].as_str().unwrap())
            .collect();
        assert_eq!(parents, [DOMAIN, DOMAIN, DEVICES, DEVICES, DOMAIN, DOMAIN]);
        assert_eq!(all.lines(), None);
    }

    #[test]
    fn attach_libvirt_gets_no_mtu_element_and_needed_properties_only() {
        let text = shown(vec![net(1)], "11.1", true);
        assert!(!text.contains("<mtu"), "{text}");
        assert!(text.contains("<alias name='ua-cw-1-net'/>"), "{text}");
        assert!(text.contains("<qemu:device alias='ua-cw-1-net'>"), "{text}");
        assert!(text.contains("name='host_mtu' type='unsigned' value='9000'"), "{text}");
        assert!(!shown(vec![usual_net()], "11.1", false).contains("override"));
        let none = "name='vectors' type='unsigned' value='0'";
        assert!(shown(vec![usual_net()], "7.2", false).contains(none));
        let text = shown(vec![net(1), usual_net()], "7.2", true);
        let (with_kvm, without) = text.split_once("<!-- Without KVM").unwrap();
        assert!(with_kvm.contains("host_mtu") && !with_kvm.contains("'vectors'"), "{text}");
        assert_eq!(without.matches(none).count(), 2, "{text}");
        assert!(without.contains("host_mtu") && without.contains("instead of"), "{text}");
        assert_eq!(without.matches("-->").count(), 1, "one comment: {text}");
    }

    #[test]
    fn attach_libvirt_for_xdp_has_no_offloads_towards_the_guest() {
        let guest = "<guest csum='off' tso4='off' tso6='off' ecn='off'/>";
        let text = shown(vec![xdp_net(1)], "11.1", true);
        assert!(text.contains(&format!("<driver>\n    {guest}\n  </driver>")), "{text}");
        let text = shown(vec![xdp_net(4)], "11.1", true);
        assert!(text.contains(&format!("<driver queues='4'>\n    {guest}")), "{text}");
    }

    #[test]
    fn attach_libvirt_vsock_and_adapter_are_json_arguments() {
        let text = shown(vec![vsock(), adapter()], "11.1", true);
        let words = text.lines().filter_map(|line| line.trim().strip_prefix("<qemu:arg value='"));
        let words: Vec<String> =
            words.map(|word| word.trim_end_matches("'/>").replace("&quot;", "\"")).collect();
        let json = |at: usize| serde_json::from_str::<serde_json::Value>(&words[at]).unwrap();
        assert_eq!(words.len(), 6, "{text}");
        assert_eq!(json(3)["driver"], "vhost-user-vsock-pci", "{text}");
        assert_eq!(json(3)["chardev"], "cw-1-vsock", "{text}");
        assert_eq!(json(5), qemu::adapter(&adapter()));
        assert!(!text.contains("vhostuser") && !text.contains("override"), "{text}");
        assert_eq!(text.matches("<qemu:commandline>").count(), 1, "{text}");
        assert!(text.contains("\"/run/c/v.sock\" rw,"), "{text}");
        let machine = Machine::new(vec![adapter()], None);
        let old = QemuChoice::Named("7.2".parse().unwrap());
        assert!(attachment(&machine, &old, true).is_err());
        let old = QemuChoice::Installed("7.2".parse().unwrap(), "/usr/bin/q".into());
        assert!(attachment(&machine, &old, true).is_ok(), "libvirt may start another QEMU");
    }

    #[test]
    fn attach_libvirt_listens_for_ports_that_connect() {
        let text = shown(vec![listening(net(1)), listening(vsock())], "11.1", true);
        let source = "<source type='unix' path='/run/c/1.sock' mode='server'/>";
        assert!(text.contains(source) && !text.contains("reconnect"), "{text}");
        assert!(text.contains("path=/run/c/v.sock,server=on'"), "{text}");
    }

    #[test]
    fn attach_libvirt_hostile_paths_stay_one_word() {
        let text = shown(vec![odd_vsock()], "11.1", true);
        assert!(text.contains("path=/a b,,c&apos;d&lt;&amp;&gt;'"), "{text}");
    }
}
