//! Configuration of a daemon: ports of guests, NICs, adapters, links, and a namespace.
//!
//! Tests, the demo, the matrix and [`crate::rdma`] fill a [`Setup`], and [`crate::daemon`] turns it
//! into a configuration file and the namespace of causewayd. The values are plain data: causewayd
//! checks them, and a refused configuration is an error of the daemon's start with its log.
//!
//! The caller chooses the numbers. A number must be unique among the members, the NICs or the
//! adapters of a setup; each of these lists has MAC addresses of its own. causewayd refuses two
//! equal MAC addresses of a kind of port in one group, but does not see the IPv4 addresses, which
//! guests use with a prefix of 24 bits: members have numbers from 1 to 254.

use std::fmt::Write;
use std::path::Path;

/// A guest's two ports, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The guest's name, a prefix of its ports' names.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Number, unique among the members: the last byte of its MAC and IPv4 address.
    pub number: u8,
    /// Its AF_VSOCK address.
    pub cid: u32,
    /// Largest packet of its network port, in bytes.
    pub mtu: u16,
    /// Whether the guest has the addresses of a snapshot, [`SNAPSHOT_MAC`] and [`SNAPSHOT_CID`], as
    /// all its clones; its ports have the addresses of the member.
    pub is_clone: bool,
}

/// MAC address of the guests of all clones.
pub const SNAPSHOT_MAC: &str = "52:54:00:77:ff:ff";
/// AF_VSOCK address of the guests of all clones.
pub const SNAPSHOT_CID: u32 = 3;

impl Member {
    /// Creates a guest of `group`: its CID is 100 + `number`.
    #[must_use]
    pub fn new(name: &str, group: &str, number: u8) -> Self {
        let cid = 100 + u32::from(number);
        Self { name: name.into(), group: group.into(), number, cid, mtu: 1500, is_clone: false }
    }

    /// Returns the member as a clone.
    #[must_use]
    pub fn clone_of_snapshot(self) -> Self {
        Self { is_clone: true, ..self }
    }

    /// Returns the MAC that the guest has.
    #[must_use]
    pub fn guest_mac(&self) -> String {
        if self.is_clone { SNAPSHOT_MAC.into() } else { self.mac() }
    }

    /// Returns the MAC of its network port.
    #[must_use]
    pub fn mac(&self) -> String {
        format!("52:54:00:77:00:{:02x}", self.number)
    }

    /// Returns its IPv4 address on the network port.
    #[must_use]
    pub fn ip(&self) -> String {
        format!("10.77.0.{}", self.number)
    }
}

/// A NIC with MX endpoints, as configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MxNic {
    /// Its name, also for other hosts.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Number, unique among the NICs: the last byte of its MAC.
    pub number: u8,
    /// The interface to other hosts; `None`: this host only.
    pub interface: Option<String>,
    /// Processes use the interface themselves (direct mode); ignored without an interface.
    pub bypass: bool,
    /// The adapter through which processes of its guest use the NIC.
    pub adapter: Option<String>,
}

impl MxNic {
    /// Returns the MAC of the NIC.
    #[must_use]
    pub fn mac(&self) -> String {
        format!("52:54:00:79:00:{:02x}", self.number)
    }
}

/// A host channel adapter of a guest, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adapter {
    /// The port's name.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Number, unique among the adapters: the last byte of its MAC.
    pub number: u8,
}

/// Configuration of a daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setup {
    /// Guests with ports.
    pub members: Vec<Member>,
    /// NICs of processes.
    pub nics: Vec<MxNic>,
    /// Host channel adapters of guests.
    pub adapters: Vec<Adapter>,
    /// Its files lie in memory: records of adapters are kept on tmpfs only.
    pub in_memory: bool,
    /// Further tables such as `[[link]]`, appended to its configuration file.
    pub links: String,
    /// Most verbose level of its log.
    pub log: Option<String>,
    /// The process in the network namespace (and user namespace) of which the daemon runs.
    pub namespace_of: Option<u32>,
}

impl Setup {
    /// Creates ports for members, without links, in this process's namespaces.
    #[must_use]
    pub fn new(members: &[Member]) -> Self {
        Self { members: members.to_vec(), ..Self::default() }
    }

    /// Returns the configuration file, with all sockets in `dir`.
    pub(crate) fn configuration(&self, dir: &Path) -> String {
        let path = |name: String| format!("{:?}", dir.join(name).display().to_string());
        let mut text = format!("[daemon]\ncontrol = {}\n", path("control.sock".into()));
        if let Some(level) = &self.log {
            let _ = writeln!(text, "log = {level:?}");
        }
        let members = self.members.iter().map(|m| m.group.as_str());
        let nics = self.nics.iter().map(|b| b.group.as_str());
        let adapters = self.adapters.iter().map(|a| a.group.as_str());
        let mut groups: Vec<&str> = members.chain(nics).chain(adapters).collect();
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            let _ = write!(text, "\n[[group]]\nname = {group:?}\n");
        }
        for m in &self.members {
            let (name, group, mac) = (&m.name, &m.group, m.mac());
            let (guest_mac, guest_cid) = match m.is_clone {
                true => (
                    format!("guest_mac = {SNAPSHOT_MAC:?}\n"),
                    format!("guest_cid = {SNAPSHOT_CID}\n"),
                ),
                false => Default::default(),
            };
            let _ = write!(
                text,
                "\n[[port]]\nname = \"{name}-net\"\ngroup = {group:?}\nkind = \"net\"\n\
                 socket = {}\nmac = \"{mac}\"\n{guest_mac}mtu = {}\n\
                 \n[[port]]\nname = \"{name}-vsock\"\ngroup = {group:?}\nkind = \"vsock\"\n\
                 {guest_cid}cid = {}\nsocket = {}\nhost_socket = {}\n",
                path(format!("{name}-net.sock")),
                m.mtu,
                m.cid,
                path(format!("{name}-vsock.sock")),
                path(format!("{name}.vsock")),
            );
        }
        for nic in &self.nics {
            let MxNic { name, group, interface, bypass, adapter, .. } = nic;
            let _ = write!(
                text,
                "\n[[port]]\nname = {name:?}\ngroup = {group:?}\nkind = \"mx\"\nsocket = {}\n\
                 mac = \"{}\"\n",
                path(format!("{name}.sock")),
                nic.mac(),
            );
            if let Some(adapter) = adapter {
                let _ = writeln!(text, "adapter = {adapter:?}");
            }
            if let Some(interface) = interface {
                let _ = writeln!(text, "interface = {interface:?}\nbypass = {bypass}");
            }
        }
        for Adapter { name, group, number } in &self.adapters {
            let _ = write!(
                text,
                "\n[[port]]\nname = {name:?}\ngroup = {group:?}\nkind = \"hca\"\nsocket = {}\n\
                 mac = \"52:54:00:7a:00:{number:02x}\"\n",
                path(format!("{name}.sock")),
            );
        }
        text.push_str(&self.links);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_configuration_has_each_group_once_and_the_ports_of_members_and_nics() {
        let members = [Member::new("a", "blue", 1), Member::new("b", "blue", 2)];
        let mut setup = Setup::new(&members);
        setup.links = "\n[[link]]\nname = \"to-b\"\n".into();
        let interface = Some("eth0".into());
        let (name, group) = ("mx0".into(), "blue".into());
        let adapter = Some("hca0".into());
        setup.nics = vec![MxNic { name, group, number: 3, interface, bypass: true, adapter }];
        setup.adapters = vec![Adapter { name: "hca0".into(), group: "blue".into(), number: 4 }];
        let text = setup.configuration(Path::new("/run/x"));
        assert_eq!(text.matches("[[group]]").count(), 1);
        assert_eq!(text.matches("[[port]]").count(), 6);
        for want in [
            "control = \"/run/x/control.sock\"",
            "name = \"b-vsock\"",
            "mac = \"52:54:00:77:00:02\"",
            "cid = 102",
            "host_socket = \"/run/x/a.vsock\"",
            "name = \"to-b\"",
            "socket = \"/run/x/mx0.sock\"",
            "interface = \"eth0\"",
            "kind = \"hca\"\nsocket = \"/run/x/hca0.sock\"\nmac = \"52:54:00:7a:00:04\"",
        ] {
            assert!(text.contains(want), "{want} not in:\n{text}");
        }
    }
}
