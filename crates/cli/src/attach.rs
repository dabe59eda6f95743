//! How a virtual machine is attached to a port: what to add to QEMU or libvirt.

use crate::view::Port;

/// Where the guest's memory must be shared, for every port of one guest once.
const QEMU_MEMORY: &str = "-object memory-backend-memfd,id=causeway-mem,size=1G,share=on \\\n\
                           -machine memory-backend=causeway-mem";

/// QEMU arguments for a port, to paste behind `qemu-system-x86_64`.
pub fn qemu(port: &Port) -> String {
    let mut out = String::from(
        "# The first two lines once per guest: all its memory in one shared file, size as -m.\n",
    );
    out.push_str(&format!("{QEMU_MEMORY} \\\n"));
    let arguments = qemu_device(port);
    let lines: Vec<String> =
        arguments.iter().map(|(option, value)| format!("{option} {}", shell(value))).collect();
    out.push_str(&lines.join(" \\\n"));
    out.push('\n');
    out
}

/// The options that make the device, without the memory.
fn qemu_device(port: &Port) -> Vec<(&'static str, String)> {
    // QEMU's ids start with a letter; port names may start with a digit.
    let id = format!("cw-{}", port.name);
    let path = port.socket.replace(',', ",,");
    let mut options = Vec::new();
    if port.kind == "vsock" {
        options.push(("-chardev", format!("socket,id={id},path={path}")));
        options.push(("-device", format!("vhost-user-vsock-pci,chardev={id}")));
        return options;
    }
    let pairs = port.queue_pairs.unwrap_or(1);
    options.push(("-chardev", format!("socket,id={id},path={path},reconnect=1")));
    options.push(("-netdev", format!("vhost-user,id={id}-dev,chardev={id},queues={pairs}")));
    let mac = port.mac.as_deref().unwrap_or_default();
    let mut device = format!("virtio-net-pci,netdev={id}-dev,mac={mac}");
    if pairs > 1 {
        device.push_str(",mq=on");
    }
    if let Some(mtu) = port.mtu {
        device.push_str(&format!(",host_mtu={mtu}"));
    }
    options.push(("-device", device));
    options
}

/// A word for a POSIX shell.
fn shell(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-=.,:/+@%".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// libvirt domain XML for a port, to paste with `virsh edit`.
pub fn libvirt(port: &Port) -> String {
    let mut out = String::from(
        "<!-- once per domain, inside <domain>: its memory in a shared file -->\n\
         <memoryBacking>\n  <source type='memfd'/>\n  <access mode='shared'/>\n</memoryBacking>\n",
    );
    if port.kind == "vsock" {
        out.push_str(
            "<!-- inside <domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>, at its \
             end:\n     libvirt has no element of its own for this device -->\n<qemu:commandline>\n",
        );
        for (option, value) in qemu_device(port) {
            for word in [option, &value] {
                out.push_str(&format!("  <qemu:arg value='{}'/>\n", xml(word)));
            }
        }
        out.push_str("</qemu:commandline>\n");
        return out;
    }
    let path = xml(&port.socket);
    let mac = xml(port.mac.as_deref().unwrap_or_default());
    out.push_str(&format!(
        "<!-- inside <devices> -->\n<interface type='vhostuser'>\n  <mac address='{mac}'/>\n  \
         <source type='unix' path='{path}' mode='client'>\n    \
         <reconnect enabled='yes' timeout='1'/>\n  </source>\n  <model type='virtio'/>\n"
    ));
    if let Some(pairs @ 2..) = port.queue_pairs {
        out.push_str(&format!("  <driver queues='{pairs}'/>\n"));
    }
    if let Some(mtu) = port.mtu {
        out.push_str(&format!("  <mtu size='{mtu}'/>\n"));
    }
    out.push_str("</interface>\n");
    out
}

/// Text inside an XML attribute.
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

    fn port(json: serde_json::Value) -> Port {
        let mut base = serde_json::json!({
            "name": "1-net", "group": "g", "state": "listening", "socket": "/run/c/1.sock",
        });
        base.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
        serde_json::from_value(base).unwrap()
    }

    fn net(pairs: u32) -> Port {
        port(serde_json::json!({
            "kind": "net", "mac": "52:54:00:00:00:01", "mtu": 9000, "queue_pairs": pairs,
        }))
    }

    #[test]
    fn a_network_card_reconnects_and_has_its_queues() {
        let text = qemu(&net(1));
        assert!(text.contains("memory-backend-memfd,id=causeway-mem,size=1G,share=on"), "{text}");
        assert!(text.contains("-chardev socket,id=cw-1-net,path=/run/c/1.sock,reconnect=1 \\\n"));
        assert!(text.contains("-netdev vhost-user,id=cw-1-net-dev,chardev=cw-1-net,queues=1 \\\n"));
        assert!(text.ends_with("mac=52:54:00:00:00:01,host_mtu=9000\n"), "{text}");
        assert!(qemu(&net(4)).contains("queues=4") && qemu(&net(4)).contains(",mq=on"));
        let text = libvirt(&net(4));
        assert!(text.contains("<driver queues='4'/>") && text.contains("<mtu size='9000'/>"));
        assert!(text.contains("<reconnect enabled='yes' timeout='1'/>"), "{text}");
    }

    #[test]
    fn a_vsock_device_does_not_reconnect() {
        let vsock = port(serde_json::json!({"kind": "vsock", "cid": 3}));
        let text = qemu(&vsock);
        assert!(text.contains("-device vhost-user-vsock-pci,chardev=cw-1-net\n"), "{text}");
        assert!(!text.contains("reconnect"), "{text}");
        assert!(
            libvirt(&vsock).contains("<qemu:arg value='vhost-user-vsock-pci,chardev=cw-1-net'/>")
        );
    }

    #[test]
    fn hostile_paths_stay_one_word() {
        let odd = port(serde_json::json!({"kind": "vsock", "socket": "/a b,c'd<&>"}));
        assert!(
            qemu(&odd).contains(r"'socket,id=cw-1-net,path=/a b,,c'\''d<&>'"),
            "{}",
            qemu(&odd)
        );
        let text = libvirt(&odd);
        assert!(text.contains("path=/a b,,c&apos;d&lt;&amp;&gt;'"), "{text}");
    }
}
