//! Ports, links and routes as an operator writes them, in the file or to the control socket, and
//! how what is left out is filled in.

pub mod link;
pub mod mac;
pub mod place;
pub mod route;

use std::path::{Path, PathBuf};

use crate::{
    FileMode, MxPeer, MxSpec, MxUdp, NetSpec, Offloads, PortKind, PortSpec, SocketAccess,
    SpecError, VsockSpec,
};
use crate::{Mac, Name};
use serde::{Deserialize, Serialize};

use crate::limits::SOCKET_PATH_BYTES_MAX;

pub use link::{LinkDraft, LinkWord};
pub use mac::derived_mac;
pub use place::{Place, Resolver};
pub use route::RouteDraft;

/// Payload bytes of a frame unless the operator says otherwise.
pub const MTU_DEFAULT: u16 = 1500;

/// The device of a port, by its name alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// virtio-net.
    Net,
    /// virtio-vsock.
    Vsock,
    /// A board of MX endpoints.
    Mx,
}

impl Kind {
    /// Every kind, as it is written.
    pub const WORDS: [&str; 3] = ["net", "vsock", "mx"];

    /// Which is meant by a word.
    pub fn of(word: &str) -> Option<Self> {
        match word {
            "net" => Some(Self::Net),
            "vsock" => Some(Self::Vsock),
            "mx" => Some(Self::Mx),
            _ => None,
        }
    }

    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Vsock => "vsock",
            Self::Mx => "mx",
        }
    }
}

/// A port with what the operator wrote and no more.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortDraft {
    /// Unique in the daemon.
    pub name: Name,
    /// Its group.
    pub group: Name,
    /// Its device.
    pub kind: Kind,
    /// Default: `<run_dir>/<name>.sock`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// net and vsock; default: none, see [`PortSpec::memory_max`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<u32>,
    /// Default: that of the daemon's configuration, or the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_owner: Option<String>,
    /// Default: as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_group: Option<String>,
    /// Default: as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_mode: Option<FileMode>,
    /// net and mx; default: [`derived_mac`] of the group and the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// net only; default: [`MTU_DEFAULT`], or what the links of its group carry if that is less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// net only; default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_pairs: Option<u16>,
    /// net only; default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learn: Option<bool>,
    /// net only; default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offloads: Option<Offloads>,
    /// vsock only; must be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cid: Option<u32>,
    /// vsock only; default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_socket: Option<PathBuf>,
    /// vsock only; default: that of the port's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_socket_owner: Option<String>,
    /// vsock only; default: that of the port's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_socket_group: Option<String>,
    /// vsock only; default: that of the port's socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_socket_mode: Option<FileMode>,
    /// mx only; default: the port's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// mx only; default: none, and boards of other hosts are not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// mx only; default: false. With an interface: processes are at it themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bypass: Option<bool>,
    /// mx only; default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<MxUdp>,
    /// mx only; default: none, boards announce themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<Vec<MxPeer>>,
}

/// The keys that only some kinds of ports have, and which.
pub const KEYS_OF_KINDS: [(&str, &[Kind]); 16] = [
    ("memory_max", &[Kind::Net, Kind::Vsock]),
    ("mac", &[Kind::Net, Kind::Mx]),
    ("mtu", &[Kind::Net]),
    ("queue_pairs", &[Kind::Net]),
    ("learn", &[Kind::Net]),
    ("offloads", &[Kind::Net]),
    ("cid", &[Kind::Vsock]),
    ("host_socket", &[Kind::Vsock]),
    ("host_socket_owner", &[Kind::Vsock]),
    ("host_socket_group", &[Kind::Vsock]),
    ("host_socket_mode", &[Kind::Vsock]),
    ("hostname", &[Kind::Mx]),
    ("interface", &[Kind::Mx]),
    ("bypass", &[Kind::Mx]),
    ("udp", &[Kind::Mx]),
    ("peers", &[Kind::Mx]),
];

impl PortDraft {
    /// The full port, with defaults filled in and every range checked. `links` is the largest
    /// payload that all links of its group carry uncut.
    pub fn into_spec(self, run_dir: &Path, links: u16) -> Result<PortSpec, SpecError> {
        self.refuse_foreign_keys()?;
        let socket = self.socket.unwrap_or_else(|| default_socket(run_dir, &self.name));
        check_socket_path("socket", &socket)?;
        let kind = match self.kind {
            Kind::Net => PortKind::Net(NetSpec {
                mac: self.mac.unwrap_or_else(|| derived_mac(&self.group, &self.name)),
                mtu: self.mtu.unwrap_or(MTU_DEFAULT.min(links)),
                queue_pairs: self.queue_pairs.unwrap_or(1),
                learn: self.learn.unwrap_or(false),
                offloads: self.offloads.unwrap_or_default(),
            }),
            Kind::Vsock => {
                if let Some(path) = &self.host_socket {
                    check_socket_path("host_socket", path)?;
                }
                if self.host_socket.is_none()
                    && (self.host_socket_owner.is_some()
                        || self.host_socket_group.is_some()
                        || self.host_socket_mode.is_some())
                {
                    return Err(SpecError(format!(
                        "port {}: host_socket_owner, host_socket_group and host_socket_mode need \
                         host_socket",
                        self.name
                    )));
                }
                let cid = self.cid.ok_or_else(|| {
                    SpecError(format!("port {}: cid: expected for kind \"vsock\"", self.name))
                })?;
                PortKind::Vsock(VsockSpec { cid, host_socket: self.host_socket })
            }
            Kind::Mx => PortKind::Mx(MxSpec {
                mac: self.mac.unwrap_or_else(|| derived_mac(&self.group, &self.name)),
                hostname: self.hostname.unwrap_or_else(|| self.name.to_string()),
                interface: self.interface,
                bypass: self.bypass.unwrap_or(false),
                udp: self.udp,
                peers: self.peers.unwrap_or_default(),
            }),
        };
        let access = SocketAccess {
            socket_owner: self.socket_owner,
            socket_group: self.socket_group,
            socket_mode: self.socket_mode,
            host_socket_owner: self.host_socket_owner,
            host_socket_group: self.host_socket_group,
            host_socket_mode: self.host_socket_mode,
        };
        let (name, group, memory_max) = (self.name, self.group, self.memory_max);
        let spec = PortSpec { name, group, socket, access, memory_max, kind };
        spec.check()?;
        Ok(spec)
    }

    fn refuse_foreign_keys(&self) -> Result<(), SpecError> {
        let given = [
            self.memory_max.is_some(),
            self.mac.is_some(),
            self.mtu.is_some(),
            self.queue_pairs.is_some(),
            self.learn.is_some(),
            self.offloads.is_some(),
            self.cid.is_some(),
            self.host_socket.is_some(),
            self.host_socket_owner.is_some(),
            self.host_socket_group.is_some(),
            self.host_socket_mode.is_some(),
            self.hostname.is_some(),
            self.interface.is_some(),
            self.bypass.is_some(),
            self.udp.is_some(),
            self.peers.is_some(),
        ];
        let foreign = KEYS_OF_KINDS
            .iter()
            .zip(given)
            .find(|((_, kinds), given)| *given && !kinds.contains(&self.kind));
        match foreign {
            None => Ok(()),
            Some(((key, _), _)) => Err(SpecError(format!(
                "port {}: {key}: a port of kind {:?} has no such key",
                self.name,
                self.kind.word()
            ))),
        }
    }
}

/// Where a port's socket is unless the operator says otherwise.
pub fn default_socket(run_dir: &Path, name: &Name) -> PathBuf {
    run_dir.join(format!("{name}.sock"))
}

fn check_socket_path(key: &str, path: &Path) -> Result<(), SpecError> {
    let bytes = path.as_os_str().len();
    if !path.is_absolute() {
        return Err(SpecError(format!("{key} {}: expected an absolute path", path.display())));
    }
    if bytes > SOCKET_PATH_BYTES_MAX {
        return Err(SpecError(format!(
            "{key}: a path of {bytes} bytes: expected at most {SOCKET_PATH_BYTES_MAX} for a Unix \
             socket"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(json: &str) -> Result<PortSpec, String> {
        let draft: PortDraft = serde_json::from_str(json).map_err(|e| e.to_string())?;
        draft.into_spec(Path::new("/run/causeway"), u16::MAX).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_left_out_is_filled_in() {
        let spec = draft(r#"{"name":"a","group":"blue","kind":"net"}"#).unwrap();
        assert_eq!(spec.socket, Path::new("/run/causeway/a.sock"));
        let PortKind::Net(net) = &spec.kind else { panic!("not net") };
        assert_eq!((net.mtu, net.queue_pairs, net.learn), (1500, 1, false));
        assert_eq!(net.mac, derived_mac(&spec.group, &spec.name));
    }

    #[test]
    fn memory_max_is_for_ports_of_guests_and_in_range() {
        let of = |kind: &str, mib: u64| {
            draft(&format!(r#"{{"name":"a","group":"b",{kind},"memory_max":{mib}}}"#))
        };
        assert_eq!(of(r#""kind":"net""#, 64).unwrap().memory_max, Some(64));
        assert_eq!(of(r#""kind":"vsock","cid":3"#, 64).unwrap().memory_max, Some(64));
        assert!(of(r#""kind":"mx""#, 64).unwrap_err().contains("memory_max"));
        for wrong in [0, 1 << 25] {
            assert!(of(r#""kind":"net""#, wrong).unwrap_err().contains("memory_max: expected"));
        }
    }

    #[test]
    fn a_board_is_called_as_its_port_unless_it_is_told() {
        let spec = draft(r#"{"name":"mx0","group":"b","kind":"mx"}"#).unwrap();
        let PortKind::Mx(mx) = &spec.kind else { panic!("not mx") };
        assert_eq!((&*mx.hostname, mx.mac), ("mx0", derived_mac(&spec.group, &spec.name)));
        let told = r#"{"name":"mx0","group":"b","kind":"mx","hostname":"n1:0"}"#;
        let PortKind::Mx(mx) = draft(told).unwrap().kind else { panic!("not mx") };
        assert_eq!(mx.hostname, "n1:0");
    }

    #[test]
    fn hostile_drafts_say_what_was_expected() {
        for (json, expected) in [
            (r#"{"name":"a","group":"b","kind":"net","cid":3}"#, "cid: a port of kind \"net\""),
            (r#"{"name":"a","group":"b","kind":"vsock","cid":3,"learn":true}"#, "learn: a port"),
            (r#"{"name":"a","group":"b","kind":"vsock"}"#, "cid: expected"),
            (r#"{"name":"a","group":"b","kind":"vsock","cid":2}"#, "expected 3 to 4294967294"),
            (r#"{"name":"a","group":"b","kind":"vsock","cid":-1}"#, "expected u32"),
            (r#"{"name":"a","group":"b","kind":"net","socket":"x.sock"}"#, "absolute path"),
            (r#"{"name":"a","group":"b","kind":"net","mtu":65536}"#, "expected u16"),
            (r#"{"name":"a","group":"b","kind":"net","macc":"x"}"#, "unknown field `macc`"),
            (r#"{"name":"a/b","group":"b","kind":"net"}"#, "expected 1 to 63 letters"),
            (r#"{"name":"a","group":"b","kind":"ib"}"#, "unknown variant `ib`"),
            (r#"{"name":"a","group":"b","kind":"mx","mtu":1500}"#, "mtu: a port of kind \"mx\""),
            (r#"{"name":"a","group":"b","kind":"mx","hostname":"a b"}"#, "hostname \"a b\""),
            (r#"{"name":"a","group":"b","kind":"mx","mac":"01:00:00:00:00:01"}"#, "unicast"),
        ] {
            let error = draft(json).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
        let long =
            format!(r#"{{"name":"a","group":"b","kind":"net","socket":"/{}"}}"#, "x".repeat(107));
        assert!(draft(&long).unwrap_err().contains("at most 107"));
    }
}
