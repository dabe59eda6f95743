//! Prints how a guest is attached to a port: arguments of QEMU, or XML of libvirt.
//!
//! [`qemu`] returns the shared memory and the device of a `net`, `vsock` or `hca` port, quoted for
//! a POSIX shell, with the character device of the former two; [`libvirt`] returns elements to
//! insert into a domain. Both are pure functions of the port's view and the version of QEMU:
//! nothing is started, edited or checked, and an attached guest does not change the output.
//!
//! The memory size is an example (1G), and the port's socket must be reachable for QEMU's user.
//! `mx` ports have no guest: their processes attach by the libraries. For them, and for kinds that
//! this release does not have, the output is that of a `net` port and meaningless. `causeway port
//! show --qemu` and `--libvirt` are the callers; [`crate::qemu`] determines the version before.

use crate::qemu::{QemuVersion, Vectors};
use crate::view::{PortView, cell};

/// Default MTU of a guest's interface.
const MTU_USUAL: u32 = 1500;
/// Attribute of `<domain>` that enables elements of the QEMU namespace.
const LIBVIRT_NAMESPACE: &str = "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'";
/// Shared guest memory, needed once per guest by all ports.
const QEMU_MEMORY: &str = "-object memory-backend-memfd,id=causeway-mem,size=1G,share=on \\\n\
                           -machine memory-backend=causeway-mem";

/// Device options for a guest that attaches XDP programs, which would drop frames with pending
/// offloads. QEMU reads them from the device's arguments.
const QEMU_NO_OFFLOADS: &str = ",guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off";
/// The same options for libvirt.
const LIBVIRT_NO_OFFLOADS: &str = "<guest csum='off' tso4='off' tso6='off' ecn='off'/>";

/// Condition of a device that attaches by vfio-user.
const HCA_NEEDS: &str = "QEMU 10.1 or later is needed: older versions have no vfio-user-pci.";

/// Returns whether a port offers its guest no offloads.
fn is_for_xdp(port: &PortView) -> bool {
    port.spec.text("offloads") == Some("xdp")
}

/// Returns QEMU arguments for a port, to append to `qemu-system-x86_64`.
///
/// Without a version, only options that every version accepts are printed.
pub fn qemu(port: &PortView, version: Option<QemuVersion>) -> String {
    let mut out = notes(port, version);
    out.push_str(
        "# The first two lines once per guest: all its memory in one shared file, size as -m.\n",
    );
    out.push_str(&format!("{QEMU_MEMORY} \\\n"));
    let arguments = qemu_device(port, version);
    let lines: Vec<String> =
        arguments.iter().map(|(option, value)| format!("{option} {}", shell(value))).collect();
    out.push_str(&lines.join(" \\\n"));
    out.push('\n');
    out
}

/// Returns comment lines: the version that the arguments are for, and its limits.
fn notes(port: &PortView, version: Option<QemuVersion>) -> String {
    if port.spec.text("kind") == Some("hca") {
        return match version {
            Some(version) if !version.has_vfio_user() => format!("# {HCA_NEEDS}\n"),
            _ => String::new(),
        };
    }
    if port.spec.text("kind") != Some("net") {
        return String::new();
    }
    let Some(version) = version else {
        return "# No QEMU is installed here. These arguments suit every version, and the device \
                does not\n# reconnect after a restart of causewayd; --qemu=VERSION prints arguments \
                with which it does.\n"
            .into();
    };
    let mut out = format!("# For QEMU {version}; for another version: --qemu=VERSION.\n");
    if version.needs_no_vectors() {
        out.push_str(
            "# This version crashes without KVM unless the device has vectors=0. With KVM (-accel \
             kvm),\n# delete vectors=0: the guest's interrupts are then faster.\n",
        );
    }
    out
}

/// Returns the options of the device, without the memory.
fn qemu_device(port: &PortView, version: Option<QemuVersion>) -> Vec<(&'static str, String)> {
    if port.spec.text("kind") == Some("hca") {
        return vec![("-device", hca_device(port).to_string())];
    }
    let id = id(port);
    let mut options = vec![("-chardev", chardev(port, version))];
    if port.spec.text("kind") == Some("vsock") {
        options.push(("-device", format!("vhost-user-vsock-pci,chardev={id}")));
        return options;
    }
    let pairs = port.spec.number("queue_pairs").unwrap_or(1);
    options.push(("-netdev", format!("vhost-user,id={id}-dev,chardev={id},queues={pairs}")));
    let mac = port.spec.text("mac").unwrap_or_default();
    let mut device = format!("virtio-net-pci,netdev={id}-dev,mac={mac}");
    if pairs > 1 {
        device.push_str(",mq=on");
    }
    if let Some(mtu) = port.spec.number("mtu") {
        device.push_str(&format!(",host_mtu={mtu}"));
    }
    if is_for_xdp(port) {
        device.push_str(QEMU_NO_OFFLOADS);
    }
    if version.is_some_and(QemuVersion::needs_no_vectors) {
        device.push_str(",vectors=0");
    }
    options.push(("-device", device));
    options
}

/// Returns the device of an adapter. A socket address can be given as JSON only. The function has no
/// ROM: without `rombar` the firmware would search for one.
fn hca_device(port: &PortView) -> serde_json::Value {
    serde_json::json!({
        "driver": "vfio-user-pci", "id": format!("{}-dev", id(port)), "rombar": 0,
        "socket": {"type": "unix", "path": cell(&port.spec, "socket")},
    })
}

/// Returns an id for QEMU, which must start with a letter; port names may start with a digit.
fn id(port: &PortView) -> String {
    format!("cw-{}", cell(&port.spec, "name"))
}

/// Returns the character device of the socket. QEMU's vsock device never reconnects.
fn chardev(port: &PortView, version: Option<QemuVersion>) -> String {
    let chardev =
        format!("socket,id={},path={}", id(port), cell(&port.spec, "socket").replace(',', ",,"));
    match version {
        Some(version) if port.spec.text("kind") == Some("net") => {
            format!("{chardev},{}", version.reconnect())
        }
        _ => chardev,
    }
}

/// Quotes a word for a POSIX shell.
fn shell(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-=.,:/+@%".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns libvirt domain XML for a port, to insert with `virsh edit`.
pub fn libvirt(port: &PortView, vectors: Vectors) -> String {
    let mut out = String::from(
        "<!-- once per domain, inside <domain>: its memory in a shared file -->\n\
         <memoryBacking>\n  <source type='memfd'/>\n  <access mode='shared'/>\n</memoryBacking>\n",
    );
    if port.spec.text("kind") == Some("vsock") {
        out.push_str(&libvirt_vsock(port));
    } else if port.spec.text("kind") == Some("hca") {
        out.push_str(&format!("<!-- {HCA_NEEDS} -->\n"));
        out.push_str(&libvirt_arguments(&["-device", &hca_device(port).to_string()]));
    } else {
        out.push_str(&libvirt_net(port));
        out.push_str(&libvirt_override(port, vectors));
    }
    out
}

/// Returns the device as JSON. libvirt passes its own devices as JSON, and QEMU creates devices in
/// the older syntax first, so that such a device would take a PCI slot that libvirt assigned to
/// another device.
fn libvirt_vsock(port: &PortView) -> String {
    let device = serde_json::json!({
        "driver": "vhost-user-vsock-pci", "id": format!("{}-dev", id(port)), "chardev": id(port),
    });
    libvirt_arguments(&["-chardev", &chardev(port, None), "-device", &device.to_string()])
}

/// Returns an element with arguments of QEMU, for a device without an element of its own.
fn libvirt_arguments(words: &[&str]) -> String {
    let mut out = format!(
        "<!-- inside <domain {LIBVIRT_NAMESPACE}>, at its end:\n     \
         libvirt has no element of its own for this device -->\n<qemu:commandline>\n",
    );
    for word in words {
        out.push_str(&format!("  <qemu:arg value='{}'/>\n", xml(word)));
    }
    out.push_str("</qemu:commandline>\n");
    out
}

/// Returns an interface element. It has no `<mtu>`: libvirt refuses to start a domain that has one
/// with `type='vhostuser'`.
fn libvirt_net(port: &PortView) -> String {
    let (path, alias) = (xml(&cell(&port.spec, "socket")), libvirt_alias(port));
    let mac = xml(port.spec.text("mac").unwrap_or_default());
    let queues = port.spec.number("queue_pairs").filter(|pairs| *pairs > 1);
    let queues = queues.map(|pairs| format!(" queues='{pairs}'")).unwrap_or_default();
    let driver = match (is_for_xdp(port), queues.is_empty()) {
        (true, _) => format!("  <driver{queues}>\n    {LIBVIRT_NO_OFFLOADS}\n  </driver>\n"),
        (false, false) => format!("  <driver{queues}/>\n"),
        (false, true) => String::new(),
    };
    format!(
        "<!-- inside <devices> -->\n<interface type='vhostuser'>\n  <mac address='{mac}'/>\n  \
         <source type='unix' path='{path}' mode='client'>\n    \
         <reconnect enabled='yes' timeout='1'/>\n  </source>\n  <model type='virtio'/>\n\
         {driver}  <alias name='{alias}'/>\n</interface>\n"
    )
}

/// Returns properties of the device that libvirt has no element for; empty if the defaults are
/// right.
fn libvirt_override(port: &PortView, vectors: Vectors) -> String {
    let mtu = port.spec.number("mtu").filter(|mtu| *mtu != MTU_USUAL).map(|mtu| ("host_mtu", mtu));
    let none = ("vectors", 0);
    match (mtu, vectors) {
        (None, Vectors::Work) => String::new(),
        (Some(mtu), Vectors::Work) => override_block(port, &[mtu]),
        (mtu, Vectors::Crash) => {
            override_block(port, &mtu.into_iter().chain([none]).collect::<Vec<_>>())
        }
        (mtu, Vectors::CrashWithoutKvm) => {
            let with_kvm = mtu.map(|mtu| override_block(port, &[mtu])).unwrap_or_default();
            let all: Vec<_> = mtu.into_iter().chain([none]).collect();
            let without = override_block(port, &all);
            let without = without.lines().skip(1).collect::<Vec<_>>().join("\n");
            let instead = if mtu.is_some() { ", instead of that" } else { "" };
            format!(
                "{with_kvm}<!-- without KVM (<domain type='qemu'>) this QEMU crashes unless the \
                 device has no vectors; for such\n     a domain, inside <domain \
                 {LIBVIRT_NAMESPACE}>, at its end{instead}:\n{without}\n-->\n"
            )
        }
    }
}

/// Returns the `<qemu:override>` element that sets unsigned properties of the port's device.
fn override_block(port: &PortView, properties: &[(&str, u32)]) -> String {
    let lines = properties.iter().map(|(name, value)| {
        format!("      <qemu:property name='{name}' type='unsigned' value='{value}'/>\n")
    });
    format!(
        "<!-- inside <domain {LIBVIRT_NAMESPACE}>, at its end; libvirt 8.2 and later -->\n\
         <qemu:override>\n  <qemu:device alias='{}'>\n    <qemu:frontend>\n{}    \
         </qemu:frontend>\n  </qemu:device>\n</qemu:override>\n",
        libvirt_alias(port),
        lines.collect::<String>()
    )
}

/// Returns an alias: libvirt accepts aliases of operators that start with `ua-`.
fn libvirt_alias(port: &PortView) -> String {
    format!("ua-{}", id(port))
}

/// Escapes a text for an XML attribute.
fn xml(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&apos;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(json: serde_json::Value) -> PortView {
        let mut base = serde_json::json!({
            "name": "1-net", "group": "g", "state": "listening", "socket": "/run/c/1.sock",
        });
        base.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
        serde_json::from_value(base).unwrap()
    }

    fn net(pairs: u32) -> PortView {
        port(serde_json::json!({
            "kind": "net", "mac": "52:54:00:00:00:01", "mtu": 9000, "queue_pairs": pairs,
        }))
    }

    fn version(text: &str) -> Option<QemuVersion> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn attach_net_device_reconnects_and_has_its_queues() {
        let text = qemu(&net(1), version("7.2"));
        assert!(text.contains("memory-backend-memfd,id=causeway-mem,size=1G,share=on"), "{text}");
        assert!(text.contains("-chardev socket,id=cw-1-net,path=/run/c/1.sock,reconnect=1 \\\n"));
        assert!(text.contains("-netdev vhost-user,id=cw-1-net-dev,chardev=cw-1-net,queues=1 \\\n"));
        assert!(text.ends_with("mac=52:54:00:00:00:01,host_mtu=9000,vectors=0\n"), "{text}");
        let text = qemu(&net(4), version("11.1"));
        assert!(text.contains("path=/run/c/1.sock,reconnect-ms=1000 \\\n"), "{text}");
        assert!(text.contains("queues=4") && text.contains(",mq=on"), "{text}");
        assert!(!text.contains("vectors"), "{text}");
        let text = libvirt(&net(4), Vectors::Work);
        assert!(text.contains("<driver queues='4'/>"), "{text}");
        assert!(text.contains("<reconnect enabled='yes' timeout='1'/>"), "{text}");
    }

    #[test]
    fn attach_qemu_without_version_gets_options_of_every_version() {
        let text = qemu(&net(1), None);
        let arguments = text.lines().filter(|line| !line.starts_with('#'));
        let arguments: Vec<&str> = arguments.collect();
        assert!(!arguments.concat().contains("reconnect"), "{text}");
        assert!(text.contains("--qemu=VERSION"), "{text}");
    }

    #[test]
    fn attach_libvirt_gets_no_mtu_element_and_needed_properties_only() {
        let text = libvirt(&net(1), Vectors::Work);
        assert!(!text.contains("<mtu"), "{text}");
        assert!(text.contains("<alias name='ua-cw-1-net'/>"), "{text}");
        assert!(text.contains("<qemu:device alias='ua-cw-1-net'>"), "{text}");
        assert!(text.contains("name='host_mtu' type='unsigned' value='9000'"), "{text}");
        let usual = port(serde_json::json!({"kind": "net", "mtu": 1500, "queue_pairs": 1}));
        assert!(!libvirt(&usual, Vectors::Work).contains("override"));
        let none = "name='vectors' type='unsigned' value='0'";
        assert!(libvirt(&usual, Vectors::Crash).contains(none));
        let text = libvirt(&net(1), Vectors::CrashWithoutKvm);
        let (with_kvm, without) = text.split_once("<!-- without KVM").unwrap();
        assert!(with_kvm.contains("host_mtu") && !with_kvm.contains("'vectors'"), "{text}");
        assert!(without.contains(none) && without.contains("host_mtu"), "{text}");
        assert_eq!(without.matches("-->").count(), 1, "one comment: {text}");
    }

    #[test]
    fn attach_net_device_for_xdp_has_no_offloads_towards_the_guest() {
        let xdp = |pairs| {
            let mut port = net(pairs);
            port.spec.0.insert("offloads".into(), "xdp".into());
            port
        };
        let text = qemu(&xdp(1), None);
        assert!(text.contains(",guest_csum=off,guest_tso4=off,guest_tso6=off"), "{text}");
        assert!(!qemu(&net(1), None).contains("guest_csum"));
        let guest = "<guest csum='off' tso4='off' tso6='off' ecn='off'/>";
        let text = libvirt(&xdp(1), Vectors::Work);
        assert!(text.contains(&format!("<driver>\n    {guest}\n  </driver>")), "{text}");
        assert!(
            libvirt(&xdp(4), Vectors::Work).contains(&format!("<driver queues='4'>\n    {guest}"))
        );
    }

    #[test]
    fn attach_vsock_device_does_not_reconnect() {
        let vsock = port(serde_json::json!({"kind": "vsock", "cid": 3}));
        let text = qemu(&vsock, version("7.2"));
        assert!(text.contains("-device vhost-user-vsock-pci,chardev=cw-1-net\n"), "{text}");
        assert!(!text.contains("reconnect"), "{text}");
        let text = libvirt(&vsock, Vectors::Work);
        let mut words =
            text.lines().filter_map(|line| line.trim().strip_prefix("<qemu:arg value='"));
        let device = words.next_back().unwrap().trim_end_matches("'/>").replace("&quot;", "\"");
        let device: serde_json::Value = serde_json::from_str(&device).unwrap();
        assert_eq!(device["driver"], "vhost-user-vsock-pci", "{text}");
        assert_eq!(device["chardev"], "cw-1-net", "{text}");
    }

    #[test]
    fn attach_hca_is_a_vfio_user_device() {
        let hca = port(serde_json::json!({"kind": "hca", "mac": "52:54:00:00:00:01"}));
        let text = qemu(&hca, version("11.1"));
        let device = text.lines().last().unwrap().strip_prefix("-device '").unwrap();
        let device: serde_json::Value =
            serde_json::from_str(device.strip_suffix('\'').unwrap()).unwrap();
        assert_eq!((&device["driver"], &device["rombar"]), (&"vfio-user-pci".into(), &0.into()));
        assert_eq!(device["socket"]["path"], "/run/c/1.sock", "{text}");
        assert!(text.contains("share=on") && !text.contains("chardev"), "{text}");
        assert!(!text.contains("10.1") && !qemu(&hca, None).contains("reconnect"), "{text}");
        assert!(qemu(&hca, version("10.0")).contains("# QEMU 10.1 or later"));
        let text = libvirt(&hca, Vectors::Crash);
        let mut words =
            text.lines().filter_map(|line| line.trim().strip_prefix("<qemu:arg value='"));
        let last = words.next_back().unwrap().trim_end_matches("'/>").replace("&quot;", "\"");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&last).unwrap(), device, "{text}");
        assert!(!text.contains("vhostuser") && !text.contains("override"), "{text}");
    }

    #[test]
    fn attach_hostile_paths_stay_one_word() {
        let odd = port(serde_json::json!({"kind": "vsock", "socket": "/a b,c'd<&>"}));
        assert!(
            qemu(&odd, None).contains(r"'socket,id=cw-1-net,path=/a b,,c'\''d<&>'"),
            "{}",
            qemu(&odd, None)
        );
        let text = libvirt(&odd, Vectors::Work);
        assert!(text.contains("path=/a b,,c&apos;d&lt;&amp;&gt;'"), "{text}");
    }
}
