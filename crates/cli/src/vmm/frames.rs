//! How the peer of a port of kind `stream` or `dgram` attaches: frames on a socket, without shared
//! memory.
//!
//! The peer is a VMM (QEMU, libvirt, libkrun, vfkit and krunkit) or a user-mode network stack
//! (passt). A port has one peer, so that the options have one network device and no memory. The
//! side that listens follows from `connect`: a peer that cannot take that side is refused with the
//! remedy; so are Cloud Hypervisor, crosvm and Firecracker, which have no such device. passt needs
//! a port with `learn`. Offloads must be off, because a frame on a socket has no header that
//! describes them; QEMU and passt have none there. The arguments of QEMU are tried by tests of
//! guests; the others follow the documentation. The options of vfkit cannot quote a path with a
//! comma: such a port is refused.
//!
//! `commands::vm` makes a [`FramePort`] if its command has a single port, and calls
//! [`super::attach_frames`], which calls [`attachment`]. It runs in the main thread of the tool; a
//! repeated call returns the same.

use serde_json::Value;

use super::output::{Argument, Attachment, Element, Parts};
use super::quote::{c, qemu as quoted, xml};
use super::version::{QemuChoice, QemuVersion};
use super::{AttachError, Vmm, untried};
use crate::view::{PortView, cell};

/// A port with frames on a socket.
#[derive(Debug)]
pub struct FramePort {
    name: String,
    mac: String,
    mtu: u32,
    is_dgram: bool,
    /// The daemon connects, and the peer listens.
    connects: bool,
    learns: bool,
    socket: String,
    /// TCP address, or local UDP address.
    address: Option<String>,
    /// Remote UDP address.
    remote: Option<String>,
    /// Configured socket of the peer.
    peer: Option<String>,
}

impl FramePort {
    /// Returns the port of a view, or `None` if the port is of another kind.
    pub fn of(port: &PortView) -> Option<Self> {
        let text = |key: &str| port.spec.text(key).map(str::to_owned);
        let is_set = |key: &str| port.spec.0.get(key).and_then(Value::as_bool) == Some(true);
        let is_dgram = match port.spec.text("kind") {
            Some("stream") => false,
            Some("dgram") => true,
            _ => return None,
        };
        Some(Self {
            name: cell(&port.spec, "name"),
            mac: text("mac").unwrap_or_default(),
            mtu: port.spec.number("mtu").unwrap_or(1500),
            is_dgram,
            connects: is_set("connect"),
            learns: is_set("learn"),
            socket: cell(&port.spec, "socket"),
            address: text("tcp").or_else(|| text("udp")),
            remote: text("remote"),
            peer: text("peer"),
        })
    }

    fn id(&self) -> String {
        format!("cw-{}", self.name)
    }

    /// Returns the socket of the peer of a datagram port.
    fn peer(&self) -> String {
        self.peer.clone().unwrap_or_else(|| format!("{}.peer", self.socket))
    }

    fn refused(&self, vmm: &'static str, reason: &'static str) -> AttachError {
        AttachError::WrongSocket { port: self.name.clone(), vmm, reason }
    }
}

/// Returns the options that attach the peer of a port.
///
/// # Errors
/// [`AttachError::WrongSocket`]: the peer has no such socket.
pub fn attachment(
    vmm: Vmm,
    port: &FramePort,
    choice: &QemuChoice,
) -> Result<Attachment, AttachError> {
    let version = choice.version();
    let arguments = |vmm, notes, arguments| Attachment {
        vmm,
        version: None,
        notes,
        parts: Parts::Arguments(arguments),
    };
    Ok(match vmm {
        Vmm::Qemu => Attachment {
            version: version.map(|version| version.to_string()),
            ..arguments("qemu", qemu_notes(port, version), qemu(port, version))
        },
        Vmm::Libvirt => {
            let parts = Parts::Elements(vec![libvirt(port, version)]);
            let notes = qemu_notes(port, version);
            Attachment { vmm: "libvirt", version: None, notes, parts }
        }
        Vmm::Libkrun => {
            let notes = vec![
                untried("the library", "libkrun of June 2026"),
                "Each call returns 0, or a negative error number. No feature is given: offloads must \
                 be off."
                    .into(),
            ];
            let parts = Parts::Calls(libkrun(port)?);
            Attachment { vmm: "libkrun", version: None, notes, parts }
        }
        Vmm::Vfkit => {
            let notes = vec![
                untried("the program", "krunkit and vfkit of 2026"),
                "vfkit has unixSocketPath in place of type and path. unixSocketPath of krunkit \
                 enables offloads, which the port cannot carry."
                    .into(),
            ];
            arguments("vfkit", notes, vec![Argument::new("--device", vfkit(port)?)])
        }
        Vmm::Passt => arguments("passt", passt_notes(port), passt(port)?),
        Vmm::CloudHypervisor => return Err(port.refused("Cloud Hypervisor", NO_SOCKETS)),
        Vmm::Crosvm => return Err(port.refused("crosvm", NO_SOCKETS)),
        Vmm::Firecracker => {
            return Err(
                port.refused("Firecracker", "it has TAP interfaces only; add a port of kind tap")
            );
        }
    })
}

const NO_SOCKETS: &str = "it has no network device on a socket; add a port of kind net";

/// Returns address and port number.
fn split(address: &str) -> (&str, &str) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    (host.trim_start_matches('[').trim_end_matches(']'), port)
}

/// Returns the arguments of QEMU.
fn qemu(port: &FramePort, version: Option<QemuVersion>) -> Vec<Argument> {
    let (id, mac) = (port.id(), quoted(&port.mac));
    let mut device = format!("virtio-net-pci,netdev={id},mac={mac}");
    if port.mtu != 1500 {
        device.push_str(&format!(",host_mtu={}", port.mtu));
    }
    vec![Argument::new("-netdev", netdev(port, version)), Argument::new("-device", device)]
}

/// Returns the network backend of QEMU.
fn netdev(port: &FramePort, version: Option<QemuVersion>) -> String {
    let id = port.id();
    let inet = |key: &str, address: &str| {
        let (host, port) = split(address);
        format!("{key}.type=inet,{key}.host={},{key}.port={port}", quoted(host))
    };
    let unix = |key: &str, path: &str| format!("{key}.type=unix,{key}.path={}", quoted(path));
    if port.is_dgram {
        let (local, remote) = match (&port.address, &port.remote) {
            (Some(ours), Some(theirs)) => (inet("local", theirs), inet("remote", ours)),
            _ => (unix("local", &port.peer()), unix("remote", &port.socket)),
        };
        return format!("dgram,id={id},{local},{remote}");
    }
    let address = match &port.address {
        Some(address) => inet("addr", address),
        None => unix("addr", &port.socket),
    };
    let server = if port.connects { "on" } else { "off" };
    let reconnect = version.filter(|_| !port.connects).and_then(QemuVersion::stream_reconnect);
    let reconnect = reconnect.map(|option| format!(",{option}")).unwrap_or_default();
    format!("stream,id={id},server={server},{address}{reconnect}")
}

fn qemu_notes(port: &FramePort, version: Option<QemuVersion>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(version) = version {
        notes.push(format!("For QEMU {version}; --qemu-version VERSION prints another."));
    }
    notes.push("The guest needs no shared memory.".into());
    let reconnects = version.is_some_and(|version| version.stream_reconnect().is_some());
    if !port.is_dgram && !port.connects && !reconnects {
        notes.push(
            "QEMU before 8.0 does not reconnect after a restart of causewayd: add the port with \
             connect, so that QEMU listens."
                .into(),
        );
    }
    if port.address.is_some() {
        notes.push("TCP and UDP carry the frames without encryption.".into());
    }
    notes
}

/// Returns the element of libvirt: an interface for TCP and UDP, arguments of QEMU for Unix
/// sockets.
fn libvirt(port: &FramePort, version: Option<QemuVersion>) -> Element {
    let Some(address) = &port.address else {
        let words = [
            "-netdev".to_owned(),
            netdev(port, version),
            "-device".to_owned(),
            serde_json::json!({
                "driver": "virtio-net-pci", "id": format!("{}-dev", port.id()),
                "netdev": port.id(), "mac": port.mac,
            })
            .to_string(),
        ];
        let lines = words.iter().map(|word| format!("  <qemu:arg value='{}'/>\n", xml(word)));
        let lines: String = lines.collect();
        let text = format!("<qemu:commandline>\n{lines}</qemu:commandline>\n");
        return Element { parent: "domain", condition: None, xml: text };
    };
    let (host, number) = split(address);
    let (kind, source) = match &port.remote {
        Some(remote) => {
            let (theirs, their_port) = split(remote);
            let local = format!("<local address='{}' port='{}'/>", xml(theirs), xml(their_port));
            let source = format!(
                "<source address='{}' port='{}'>\n    {local}\n  </source>",
                xml(host),
                xml(number)
            );
            ("udp", source)
        }
        None => {
            let kind = if port.connects { "server" } else { "client" };
            (kind, format!("<source address='{}' port='{}'/>", xml(host), xml(number)))
        }
    };
    let xml = format!(
        "<interface type='{kind}'>\n  <mac address='{}'/>\n  {source}\n  <model type='virtio'/>\n\
         </interface>\n",
        xml(&port.mac)
    );
    Element { parent: "domain/devices", condition: None, xml }
}

/// Returns the calls of libkrun.
fn libkrun(port: &FramePort) -> Result<Vec<String>, AttachError> {
    if port.address.is_some() {
        return Err(
            port.refused("libkrun", "it has Unix sockets only; add the port without tcp or udp")
        );
    }
    if port.connects {
        return Err(port.refused("libkrun", "it cannot listen; add the port without connect"));
    }
    let bytes: Vec<String> = port.mac.split(':').map(|byte| format!("0x{byte}")).collect();
    let (mac, path) = (bytes.join(", "), c(&port.socket));
    let call = match port.is_dgram {
        true => format!(
            "krun_add_net_unixgram(ctx, {path}, -1, mac, 0 /* offloads */, NET_FLAG_VFKIT);"
        ),
        false => format!("krun_add_net_unixstream(ctx, {path}, -1, mac, 0 /* offloads */, 0);"),
    };
    Ok(vec![format!("uint8_t mac[] = {{ {mac} }};"), call])
}

/// Returns the device of vfkit and krunkit.
fn vfkit(port: &FramePort) -> Result<String, AttachError> {
    if port.address.is_some() || port.connects {
        let reason = "it connects to Unix sockets; add the port without connect, tcp and udp";
        return Err(port.refused("vfkit", reason));
    }
    let (path, mac) = (&port.socket, &port.mac);
    if path.contains(',') {
        let reason = "its options are separated by commas; give the port a socket without one";
        return Err(port.refused("vfkit", reason));
    }
    Ok(match port.is_dgram {
        true => {
            format!("virtio-net,type=unixgram,path={path},mac={mac},offloading=off,vfkitMagic=on")
        }
        false => format!("virtio-net,type=unixstream,path={path},mac={mac},offloading=off"),
    })
}

/// Returns the arguments of passt, which listens.
fn passt(port: &FramePort) -> Result<Vec<Argument>, AttachError> {
    if port.is_dgram || !port.connects || port.address.is_some() {
        let reason = "it listens at a Unix stream socket; add a port of kind stream with connect";
        return Err(port.refused("passt", reason));
    }
    if !port.learns {
        let reason = "it sends from an address of its own; add the port with learn";
        return Err(port.refused("passt", reason));
    }
    Ok(vec![Argument {
        option: "--foreground",
        values: vec!["--socket".into(), port.socket.clone()],
    }])
}

fn passt_notes(port: &FramePort) -> Vec<String> {
    vec![format!(
        "passt gives addresses by DHCP and forwards to the host's network, for one guest: group of \
         port {} should have one guest beside it.",
        port.name
    )]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::device::samples;
    use super::*;

    fn port(values: Value) -> FramePort {
        let mut all = json!({"mac": "52:54:00:00:00:01", "mtu": 1500});
        all.as_object_mut().unwrap().extend(values.as_object().unwrap().clone());
        FramePort::of(&samples::port(all)).unwrap()
    }

    fn text(vmm: Vmm, values: Value, version: Option<&str>) -> String {
        let choice = version
            .map_or(QemuChoice::Unknown, |version| QemuChoice::Named(version.parse().unwrap()));
        match attachment(vmm, &port(values), &choice) {
            Ok(attachment) => attachment.text(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn attach_frames_prints_the_options_of_qemu() {
        let stream = json!({"kind": "stream"});
        let shown = text(Vmm::Qemu, stream.clone(), Some("11.1"));
        assert!(
            shown.ends_with(
                "-netdev stream,id=cw-1-net,server=off,addr.type=unix,addr.path=/run/c/1.sock,\
                 reconnect-ms=1000 \\\n-device virtio-net-pci,netdev=cw-1-net,\
                 mac=52:54:00:00:00:01\n"
            ),
            "{shown}"
        );
        assert!(!shown.contains("share=on"), "{shown}");
        assert!(text(Vmm::Qemu, stream.clone(), Some("8.1")).contains(",reconnect=1 "));
        let old = text(Vmm::Qemu, stream, Some("7.2"));
        assert!(!old.contains("reconnect=") && old.contains("does not reconnect"), "{old}");
        let tcp = json!({"kind": "stream", "tcp": "[::1]:7", "connect": true, "mtu": 9000});
        let shown = text(Vmm::Qemu, tcp, Some("11.1"));
        let expected = "server=on,addr.type=inet,addr.host=::1,addr.port=7 \\\n";
        assert!(shown.contains(expected) && shown.contains(",host_mtu=9000"), "{shown}");
        let shown = text(Vmm::Qemu, json!({"kind": "dgram"}), None);
        let expected = "dgram,id=cw-1-net,local.type=unix,local.path=/run/c/1.sock.peer,\
                        remote.type=unix,remote.path=/run/c/1.sock \\\n";
        assert!(shown.contains(expected), "{shown}");
        let udp = json!({"kind": "dgram", "udp": "10.0.0.1:7", "remote": "10.0.0.2:8"});
        let shown = text(Vmm::Qemu, udp, None);
        let expected = "local.type=inet,local.host=10.0.0.2,local.port=8,\
                        remote.type=inet,remote.host=10.0.0.1,remote.port=7 \\\n";
        assert!(shown.contains(expected), "{shown}");
    }

    #[test]
    fn attach_frames_prints_the_options_of_other_peers() {
        let (stream, dgram) = (json!({"kind": "stream"}), json!({"kind": "dgram"}));
        let shown = text(Vmm::Libvirt, stream.clone(), Some("11.1"));
        assert!(shown.contains("<qemu:arg value='-netdev'/>"), "{shown}");
        let tcp = json!({"kind": "stream", "tcp": "127.0.0.1:7"});
        let shown = text(Vmm::Libvirt, tcp, None);
        assert!(shown.contains("<interface type='client'>"), "{shown}");
        assert!(shown.contains("<source address='127.0.0.1' port='7'/>"), "{shown}");
        let udp = json!({"kind": "dgram", "udp": "127.0.0.1:7", "remote": "127.0.0.2:8"});
        let shown = text(Vmm::Libvirt, udp.clone(), None);
        assert!(shown.contains("<local address='127.0.0.2' port='8'/>"), "{shown}");
        let shown = text(Vmm::Libkrun, dgram.clone(), None);
        assert!(shown.contains("uint8_t mac[] = { 0x52, 0x54, 0x00, 0x00, 0x00, 0x01 };"));
        assert!(shown.contains("krun_add_net_unixgram(ctx, \"/run/c/1.sock\", -1, mac, 0"));
        assert!(text(Vmm::Libkrun, stream.clone(), None).contains("krun_add_net_unixstream("));
        let shown = text(Vmm::Vfkit, dgram.clone(), None);
        assert!(shown.contains("offloading=off,vfkitMagic=on"), "{shown}");
        let passt = json!({"kind": "stream", "connect": true, "learn": true});
        let shown = text(Vmm::Passt, passt, None);
        assert!(shown.ends_with("--foreground --socket /run/c/1.sock\n"), "{shown}");
        // What a peer cannot do is refused with the remedy.
        for (vmm, values, remedy) in [
            (Vmm::Passt, stream.clone(), "kind stream with connect"),
            (Vmm::Passt, json!({"kind": "stream", "connect": true}), "with learn"),
            (Vmm::Libkrun, udp, "without tcp or udp"),
            (Vmm::Vfkit, json!({"kind": "stream", "connect": true}), "without connect"),
            (Vmm::Vfkit, json!({"kind": "dgram", "socket": "/run/a,b"}), "socket without one"),
            (Vmm::Crosvm, stream, "kind net"),
            (Vmm::CloudHypervisor, dgram, "kind net"),
        ] {
            let shown = text(vmm, values, None);
            assert!(shown.contains(remedy) && shown.contains("port 1-net"), "{shown}");
        }
    }
}
