//! Forwards: listeners of the host that connect clients to guests, and guests to services.
//!
//! A forward has a source, at which a process of `causeway forward --all` listens, and a target, to
//! which the process connects for each accepted connection. The operator lists forwards as
//! `[[forward]]`; the socket service keeps the list and the last report of the process, and
//! forwards nothing itself. [`ForwardAddress`] checks the form of an address alone: whether the
//! port of causewayd exists, and whether the process can listen, is the state of the forward
//! ([`ForwardView`](crate::ForwardView)). Paths of `[[forward]]` must be absolute; `causeway
//! forward --from` and `--to` accept relative ones, which its process resolves. A forward is not
//! changed in place; names and sources in use are refused by the service
//! ([`crate::commands::forwards`]).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits::{FORWARD_CONNECTIONS_DEFAULT, FORWARD_CONNECTIONS_MAX};
use crate::schema::{self, DefaultValue, Problem, ValueType, table, text};
use crate::{Name, SpecError};

/// A source or target as an operator writes it: `tcp:HOST:PORT`, `unix:PATH`, `vsock:NAME:PORT`,
/// `vsock:/PATH:PORT`, or as a target `vsock:CID@NAME:PORT` or `vsock:CID@/PATH:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ForwardAddress {
    /// Host and port.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// An AF_VSOCK port of a guest.
    Vsock {
        /// The name of a port of causewayd or of a VM with one socket device, or the path of the
        /// port's host socket: a text with a `/`.
        guest: String,
        /// The CID of a guest of the group, if the port is one for processes.
        cid: Option<u32>,
        /// The port number in the guest, at most 4294967294.
        port: u32,
    },
}

impl FromStr for ForwardAddress {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = |why: &str| {
            SpecError(format!(
                "{text:?}: {why}; expected tcp:HOST:PORT, unix:PATH, vsock:NAME:PORT (a port of \
                 causewayd, or a VM), vsock:/PATH:PORT (its host socket), or vsock:CID@NAME:PORT (a \
                 guest by its CID, through a port for processes)"
            ))
        };
        let (kind, rest) = text.split_once(':').ok_or_else(|| wrong("it has no kind"))?;
        if text.contains('\0') {
            return Err(wrong("it has a zero byte"));
        }
        match kind {
            "tcp" => match rest.rsplit_once(':') {
                Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                    Ok(Self::Tcp(rest.to_owned()))
                }
                _ => Err(wrong("it has no host, or no port from 0 to 65535")),
            },
            "unix" if rest.is_empty() => Err(wrong("it has no path")),
            "unix" => Ok(Self::Unix(rest.into())),
            "vsock" => match rest.rsplit_once(':') {
                Some((guest, port)) if !guest.is_empty() => {
                    let port = port.parse().ok().filter(|port| *port != u32::MAX);
                    let port =
                        port.ok_or_else(|| wrong("the port is no number below 4294967295"))?;
                    let (cid, guest) = split_cid(guest);
                    if !guest.contains('/') {
                        guest.parse::<Name>()?;
                    }
                    Ok(Self::Vsock { guest: guest.to_owned(), cid, port })
                }
                _ => Err(wrong("it has no guest, or no port")),
            },
            _ => Err(wrong("the kind is unknown")),
        }
    }
}

/// Splits `CID@NAME` into both. Of any other text, all is the name or the path of the host socket.
fn split_cid(text: &str) -> (Option<u32>, &str) {
    let split = text.split_once('@').and_then(|(cid, guest)| {
        let is_number = cid.bytes().all(|byte| byte.is_ascii_digit());
        let cid = cid.parse().ok().filter(|cid| is_number && *cid != u32::MAX)?;
        (!guest.is_empty()).then_some((Some(cid), guest))
    });
    split.unwrap_or((None, text))
}

impl TryFrom<String> for ForwardAddress {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<ForwardAddress> for String {
    fn from(address: ForwardAddress) -> String {
        address.to_string()
    }
}

impl fmt::Display for ForwardAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(at) => write!(f, "tcp:{at}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Vsock { guest, cid: None, port } => write!(f, "vsock:{guest}:{port}"),
            Self::Vsock { guest, cid: Some(cid), port } => write!(f, "vsock:{cid}@{guest}:{port}"),
        }
    }
}

impl ForwardAddress {
    /// Returns the name of the port or VM, if the address names one in place of a host socket.
    pub fn port_name(&self) -> Option<&str> {
        match self {
            Self::Vsock { guest, .. } if !guest.contains('/') => Some(guest),
            _ => None,
        }
    }

    /// Returns whether the address names a guest by its CID, which a target does only.
    pub fn has_cid(&self) -> bool {
        matches!(self, Self::Vsock { cid: Some(_), .. })
    }

    /// Returns whether the address names no file relative to a working directory.
    fn is_absolute(&self) -> bool {
        match self {
            Self::Tcp(_) => true,
            Self::Unix(path) => path.is_absolute(),
            Self::Vsock { guest, .. } => !guest.contains('/') || guest.starts_with('/'),
        }
    }
}

table! {
    /// A forward: clients of `from` are connected to `to`.
    pub struct ForwardSpec, pub const FORWARD_FIELDS {
        /// Unique name.
        name: Name => text::<Name>("NAME"), DefaultValue::Required("expected name = \"ssh-vm1\", say");
        /// Where clients connect. From vsock, connections of the guest to CID 2 are accepted.
        from: ForwardAddress => text::<ForwardAddress>("ADDRESS"),
            DefaultValue::Required("expected from = \"tcp:127.0.0.1:2222\", say");
        /// Where their connections go. To vsock, a program in the guest must listen.
        to: ForwardAddress => text::<ForwardAddress>("ADDRESS"),
            DefaultValue::Required("expected to = \"vsock:vm1:22\", say");
        /// Most connections at a time; further clients wait.
        #[serde(default = "connections_default")]
        connections_max: u16 => ValueType::Integer { min: 1, max: FORWARD_CONNECTIONS_MAX as u64, unit: "N" },
            DefaultValue::Number(FORWARD_CONNECTIONS_DEFAULT as u64);
    }
}

fn connections_default() -> u16 {
    FORWARD_CONNECTIONS_DEFAULT
}

impl ForwardSpec {
    /// Reads the table of a forward. Paths must be absolute, because the forwarder has a working
    /// directory of its own.
    ///
    /// # Errors
    /// All problems of the table.
    pub fn read(values: &Map<String, Value>) -> Result<Self, Vec<Problem>> {
        let spec: Self = schema::read_filled(FORWARD_FIELDS, values)?;
        let ends = [("from", &spec.from), ("to", &spec.to)];
        let relative = ends.into_iter().filter(|(_, address)| !address.is_absolute());
        let mut problems: Vec<_> =
            relative.map(|(key, _)| Problem::wrong(key, "expected an absolute path")).collect();
        if spec.from.has_cid() {
            problems.push(Problem::wrong("from", "expected no CID: a target has one"));
        }
        if problems.is_empty() { Ok(spec) } else { Err(problems) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forward_addresses_are_parsed_and_printed() {
        let of = |text: &str| text.parse::<ForwardAddress>();
        assert_eq!(of("tcp:[::1]:22").unwrap(), ForwardAddress::Tcp("[::1]:22".into()));
        let unix = ForwardAddress::Unix("/run/x:y.sock".into());
        assert_eq!(of("unix:/run/x:y.sock").unwrap(), unix);
        let vsock =
            |guest: &str, port| ForwardAddress::Vsock { guest: guest.into(), cid: None, port };
        assert_eq!(of("vsock:vm1:22").unwrap(), vsock("vm1", 22));
        assert_eq!(of("vsock:/run/a:b.vsock:4294967294").unwrap().port_name(), None);
        assert_eq!(of("vsock:vm1:22").unwrap().port_name(), Some("vm1"));
        let texts = ["tcp:host:0", "unix:/a b", "vsock:vm1:22", "vsock:/run/vm1.vsock:22"];
        for text in texts.into_iter().chain(["vsock:4@apps:22", "vsock:4@/run/apps.vsock:22"]) {
            assert_eq!(of(text).unwrap().to_string(), text);
        }
        let by_cid = of("vsock:4@apps:22").unwrap();
        assert_eq!((by_cid.port_name(), by_cid.has_cid()), (Some("apps"), true));
        // A path may have the character too.
        assert!(!of("vsock:/run/vm@1.vsock:22").unwrap().has_cid());
        for bad in [
            "",
            "tcp",
            "tcp:",
            "tcp::22",
            "tcp:host",
            "tcp:host:65536",
            "tcp:host:",
            "unix:",
            "unix:/a\0b",
            "vsock:vm1",
            "vsock::22",
            "vsock:vm1:4294967295",
            "vsock:vm1:-1",
            "vsock:vm1:x",
            "udp:host:1",
        ] {
            let error = of(bad).unwrap_err().to_string();
            assert!(error.contains("expected tcp:HOST:PORT"), "{bad}: {error}");
        }
        assert!(of("vsock:4@:22").unwrap_err().to_string().contains("name \"4@\""));
        assert!(of("vsock:a b:22").unwrap_err().to_string().contains("name \"a b\""));
    }

    #[test]
    fn forward_tables_have_absolute_paths_and_a_default() {
        let read = |json: Value| {
            let read = ForwardSpec::read(json.as_object().unwrap());
            read.map_err(|all| schema::joined("forward", &all))
        };
        let table = |from: &str, to: &str| serde_json::json!({"name": "f", "from": from, "to": to});
        let spec = read(table("tcp:127.0.0.1:2222", "vsock:vm1:22")).unwrap();
        assert_eq!(spec.connections_max, FORWARD_CONNECTIONS_DEFAULT);
        assert_eq!(schema::values(&spec)["to"], "vsock:vm1:22");
        let error = read(table("unix:x.sock", "vsock:./vm1.vsock:22")).unwrap_err();
        assert_eq!(error.matches("expected an absolute path").count(), 2, "{error}");
        let error = read(table("vsock:4@vm1:22", "tcp:127.0.0.1:2222")).unwrap_err();
        assert!(error.contains("expected no CID"), "{error}");
        let mut many = table("tcp:127.0.0.1:2222", "vsock:vm1:22");
        many["connections_max"] = 1025.into();
        assert!(read(many).unwrap_err().contains("from 1 to 1024"));
    }
}
