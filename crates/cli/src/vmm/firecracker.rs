//! Commands by which a guest of Firecracker joins a group: a bridge between two TAP interfaces.
//!
//! Firecracker shares no guest memory and opens a TAP interface of its own, so that it attaches to
//! no socket of a port. A Linux bridge connects its interface with that of a port of kind `tap`,
//! which must have `learn`: frames of the guest come from the guest's address. The commands need
//! root; the last one is a request to Firecracker's API. Names of interfaces are at most 15 bytes,
//! and derive from the interface of the port. The commands follow the documentation of Firecracker
//! 1.13.
//!
//! `commands::vm` makes a [`TapPort`] if its command has a single port, and calls
//! [`super::attach_tap`], which calls [`attachment`]. Both run in the main thread of the tool; a
//! repeated call returns the same.

use serde_json::{Value, json};

use super::output::{Attachment, Parts};
use super::quote::shell;
use super::{AttachError, untried};
use crate::view::{PortView, cell};

/// Bytes of the port's interface that the names of the bridge and of the guest's interface have.
const NAME_BYTES: usize = 12;
/// Default MTU of a guest's interface, in bytes.
const MTU_USUAL: u32 = 1500;

/// A port of kind `tap`.
#[derive(Debug)]
pub struct TapPort {
    pub(super) name: String,
    interface: String,
    mtu: u32,
    learns: bool,
}

impl TapPort {
    /// Returns the port of a view, or `None` if the port is of another kind.
    pub fn of(port: &PortView) -> Option<Self> {
        (port.spec.text("kind") == Some("tap")).then(|| Self {
            name: cell(&port.spec, "name"),
            interface: cell(&port.spec, "interface"),
            mtu: port.spec.number("mtu").unwrap_or(MTU_USUAL),
            learns: port.spec.0.get("learn").and_then(Value::as_bool) == Some(true),
        })
    }

    /// Returns the name of an interface beside that of the port.
    fn beside(&self, prefix: &str) -> String {
        let mut lengths = (0..=NAME_BYTES.min(self.interface.len())).rev();
        let part = lengths.find_map(|end| self.interface.get(..end));
        format!("{prefix}-{}", part.unwrap_or_default())
    }
}

/// Returns the commands that attach a guest.
///
/// # Errors
/// [`AttachError::WrongSocket`]: the port does not learn addresses.
pub fn attachment(port: &TapPort) -> Result<Attachment, AttachError> {
    if !port.learns {
        return Err(AttachError::WrongSocket {
            port: port.name.clone(),
            vmm: "Firecracker",
            reason: "frames of the guest come from the guest's address, which the port drops; add the \
                     port with learn",
        });
    }
    let (bridge, guest) = (port.beside("br"), port.beside("fc"));
    let (own, to, tap) = (shell(&port.interface), shell(&bridge), shell(&guest));
    let mtu = if port.mtu == MTU_USUAL { String::new() } else { format!(" mtu {}", port.mtu) };
    let body = json!({ "iface_id": "eth0", "host_dev_name": guest });
    let commands = vec![
        format!("ip link add {to} type bridge"),
        format!("ip link set {to}{mtu} up"),
        format!("ip link set {own} master {to}"),
        format!("ip tuntap add {tap} mode tap vnet_hdr user \"$VM_USER\""),
        format!("ip link set {tap}{mtu} master {to} up"),
        format!(
            "curl --unix-socket \"$API_SOCKET\" -X PUT http://localhost/network-interfaces/eth0 -d {}",
            shell(&body.to_string())
        ),
    ];
    let mut notes = vec![
        untried("the program", "Firecracker 1.13"),
        "Run the commands as root, before the guest boots. VM_USER is the user of Firecracker, \
         API_SOCKET its --api-sock. The port's interface must exist: see `causeway port show`."
            .into(),
        format!(
            "A further guest gets an interface of its own in the same bridge, {bridge}; guests at one \
             bridge reach each other without the daemon and its rules."
        ),
    ];
    if port.mtu != MTU_USUAL {
        notes.push(format!(
            "Firecracker sets no MTU: give the guest's interface {} bytes.",
            port.mtu
        ));
    }
    Ok(Attachment { vmm: "firecracker", version: None, notes, parts: Parts::Commands(commands) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(interface: &str, mtu: u32, learns: bool) -> TapPort {
        TapPort { name: "fc".into(), interface: interface.into(), mtu, learns }
    }

    #[test]
    fn attach_firecracker_prints_the_golden_commands() {
        let all = attachment(&port("cw-fc", 1500, true)).unwrap();
        assert_eq!(
            all.lines().unwrap(),
            "ip link add br-cw-fc type bridge\n\
             ip link set br-cw-fc up\n\
             ip link set cw-fc master br-cw-fc\n\
             ip tuntap add fc-cw-fc mode tap vnet_hdr user \"$VM_USER\"\n\
             ip link set fc-cw-fc master br-cw-fc up\n\
             curl --unix-socket \"$API_SOCKET\" -X PUT http://localhost/network-interfaces/eth0 -d \
             '{\"host_dev_name\":\"fc-cw-fc\",\"iface_id\":\"eth0\"}'\n"
        );
        assert!(all.text().starts_with("# ") && all.text().contains("as root"), "{}", all.text());
        assert_eq!(all.json()["commands"].as_array().unwrap().len(), 6);
    }

    #[test]
    fn attach_firecracker_cuts_names_sets_the_mtu_and_needs_learn() {
        let all = attachment(&port("a-long-name$-äö", 9000, true)).unwrap();
        let lines = all.lines().unwrap();
        assert!(lines.contains("ip link set 'br-a-long-name$' mtu 9000 up\n"), "{lines}");
        assert!(all.text().contains("9000 bytes"), "{}", all.text());
        let error = attachment(&port("ct0", 1500, false)).unwrap_err().to_string();
        assert!(error.contains("port fc") && error.contains("with learn"), "{error}");
    }
}
