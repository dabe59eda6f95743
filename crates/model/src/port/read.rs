//! Reads ports as an operator writes them, in the file or to the control socket.
//!
//! The daemon calls [`read`] with the table of one port: keys, types and ranges are checked against
//! the fields of its kind, then defaults are filled in, then conditions between values are checked.
//! The resulting [`PortSpec`] goes to the registry of the fabric. The function runs in the daemon's
//! main thread (configuration file), in `lifecycle` (state file), or in that of a connection.
//!
//! All problems of keys and values are reported at once, a later failed condition alone. Unknown
//! keys are refused, with a suggestion. The module does not compare ports with each other and does
//! not check that the group exists. The only files that it reads are those of the machine's
//! identity and host name, for derived defaults. JSON's `null` counts as not given.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::kind::{KindDefinition, PortContext};
use super::{PORT_FIELDS, PortSpec};
use crate::limits::SOCKET_PATH_BYTES_MAX;
use crate::schema::{Problem, ProblemKind, check};
use crate::{Name, SocketAccess};

/// The values that reading a port depends on.
#[derive(Clone, Copy)]
pub struct ReadContext<'a> {
    /// The kinds of ports of this daemon.
    pub kinds: &'a [&'static KindDefinition],
    /// Directory of the ports' sockets.
    pub run_dir: &'a Path,
    /// Returns the largest payload that all links of a group carry without fragmentation, in bytes.
    pub links_mtu: &'a dyn Fn(&Name) -> u16,
}

impl std::fmt::Debug for ReadContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadContext").field("run_dir", &self.run_dir).finish_non_exhaustive()
    }
}

/// The keys that are not options of a kind.
#[derive(Debug, Deserialize)]
struct CommonKeys {
    name: Name,
    group: Name,
    socket: Option<PathBuf>,
    memory_max: Option<u32>,
    #[serde(flatten)]
    access: SocketAccess,
}

/// Returns the port that a table describes, with defaults filled in.
///
/// # Errors
/// All problems of the table.
pub fn read(values: &Map<String, Value>, cx: &ReadContext<'_>) -> Result<PortSpec, Vec<Problem>> {
    let mut problems = Vec::new();
    let kind = find_kind(values, cx.kinds, &mut problems);
    let mut rest = values.clone();
    rest.remove("kind");
    match kind {
        Some(kind) => {
            refuse_foreign_keys(kind, cx.kinds, &mut rest, &mut problems);
            problems.extend(check(PORT_FIELDS.iter().chain(kind.fields()), &rest));
        }
        // The table may use the keys of any kind.
        None => problems.extend(check_without_kind(cx.kinds, &rest)),
    }
    let (Some(kind), true) = (kind, problems.is_empty()) else { return Err(problems) };
    rest.retain(|_, value| !value.is_null());
    build(kind, rest, cx).map_err(|text| vec![Problem::wrong("", text)])
}

/// Returns the kind that a table names; reports a missing or unknown kind.
fn find_kind(
    values: &Map<String, Value>,
    kinds: &[&'static KindDefinition],
    problems: &mut Vec<Problem>,
) -> Option<&'static KindDefinition> {
    let names = |separator| kinds.iter().map(|kind| kind.name).collect::<Vec<_>>().join(separator);
    let Some(value) = values.get("kind").filter(|value| !value.is_null()) else {
        let (path, kind) = ("kind".to_owned(), ProblemKind::Missing);
        problems.push(Problem { path, kind, text: format!("expected one of {}", names(", ")) });
        return None;
    };
    let found = kinds.iter().find(|kind| value.as_str() == Some(kind.name)).copied();
    if found.is_none() {
        let text = format!("expected one of {}; found {value}", names(", "));
        problems.push(Problem::wrong("kind", text));
    }
    found
}

/// Reports and removes keys that only other kinds have.
fn refuse_foreign_keys(
    kind: &KindDefinition,
    kinds: &[&'static KindDefinition],
    values: &mut Map<String, Value>,
    problems: &mut Vec<Problem>,
) {
    let is_known = |key: &str| {
        PORT_FIELDS.iter().any(|field| field.key == key) || kind.fields().any(|f| f.key == key)
    };
    values.retain(|key, _| {
        let is_common = PORT_FIELDS.iter().any(|field| field.key == key);
        if is_common && !kind.has_frontend && !["name", "group"].contains(&key.as_str()) {
            let text = format!("a port of kind {:?} has no socket", kind.name);
            problems.push(Problem { path: key.clone(), kind: ProblemKind::Foreign, text });
            return false;
        }
        let owners: Vec<String> = kinds
            .iter()
            .filter(|kind| kind.fields().any(|field| field.key == key))
            .map(|kind| format!("{:?}", kind.name))
            .collect();
        if is_known(key) || owners.is_empty() {
            return true;
        }
        let text = format!("only a port of kind {} has it", owners.join(" or "));
        problems.push(Problem { path: key.clone(), kind: ProblemKind::Foreign, text });
        false
    });
}

/// Checks a table whose kind is not known: each key by the first kind that has it.
fn check_without_kind(
    kinds: &[&'static KindDefinition],
    values: &Map<String, Value>,
) -> Vec<Problem> {
    let mut fields: Vec<_> = PORT_FIELDS.to_vec();
    for field in kinds.iter().flat_map(|kind| kind.fields()) {
        if !fields.iter().any(|known| known.key == field.key) {
            fields.push(field.or(crate::schema::DefaultValue::None));
        }
    }
    // "kind" is no field, but suggestions for misspelt keys must know it.
    fields.push(crate::schema::Field::new(
        "kind",
        "",
        crate::schema::ValueType::Boolean,
        crate::schema::DefaultValue::None,
    ));
    check(fields.iter(), values)
}

/// Returns the port of a table without problems: fills in defaults, and checks conditions between
/// values.
fn build(
    kind: &'static KindDefinition,
    values: Map<String, Value>,
    cx: &ReadContext<'_>,
) -> Result<PortSpec, String> {
    let common: CommonKeys =
        serde_json::from_value(Value::Object(values.clone())).map_err(|error| error.to_string())?;
    let CommonKeys { name, group, socket, memory_max, access } = common;
    let links_mtu = (cx.links_mtu)(&group);
    let context = PortContext { name: &name, group: &group, links_mtu };
    let kind = kind.options(values, &context)?;
    let is_default = socket.is_none();
    let default = || default_socket(cx.run_dir, &name);
    let socket = match kind.kind().has_frontend {
        true => socket.unwrap_or_else(default),
        false => PathBuf::new(),
    };
    let bytes = socket.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        let remedy = if is_default { "; give \"socket\" or a shorter run_dir" } else { "" };
        return Err(format!(
            "port {name}: socket: a path of {bytes} bytes: expected at most \
             {SOCKET_PATH_BYTES_MAX} for a Unix socket{remedy}"
        ));
    }
    let spec = PortSpec { name, group, socket, memory_max, access, kind };
    spec.check().map_err(|error| error.to_string())?;
    Ok(spec)
}

/// Returns the default path of a port's socket.
pub fn default_socket(run_dir: &Path, name: &Name) -> PathBuf {
    run_dir.join(format!("{name}.sock"))
}

#[cfg(test)]
mod tests {
    use super::super::{KINDS, MxSpec, NetSpec, VsockSpec};
    use super::*;
    use crate::draft::{derived_mac, derived_nic_name};

    fn port(json: &str) -> Result<PortSpec, String> {
        let values: Map<String, Value> = serde_json::from_str(json).unwrap();
        let run_dir = Path::new("/run/causeway");
        let cx = ReadContext { kinds: &KINDS, run_dir, links_mtu: &|_| u16::MAX };
        read(&values, &cx)
            .map_err(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn port_defaults_are_filled_in() {
        let spec = port(r#"{"name":"a","group":"blue","kind":"net"}"#).unwrap();
        assert_eq!(spec.socket, Path::new("/run/causeway/a.sock"));
        let net: NetSpec = spec.kind.get().unwrap();
        assert_eq!((net.mtu, net.queue_pairs, net.learn), (1500, 1, false));
        assert_eq!(net.mac, derived_mac(&spec.group, &spec.name));
        assert_eq!(spec.kind.get::<MxSpec>(), None, "another kind's type");
    }

    #[test]
    fn port_memory_limit_needs_a_guest() {
        let of = |kind: &str, mib: u64| {
            port(&format!(r#"{{"name":"a","group":"b",{kind},"memory_max":{mib}}}"#))
        };
        assert_eq!(of(r#""kind":"net""#, 64).unwrap().memory_max, Some(64));
        assert_eq!(of(r#""kind":"vsock","cid":3"#, 64).unwrap().memory_max, Some(64));
        assert!(of(r#""kind":"mx""#, 64).unwrap_err().contains("memory_max"));
        for wrong in [0, 1 << 25] {
            assert!(of(r#""kind":"net""#, wrong).unwrap_err().contains("memory_max: expected"));
        }
    }

    #[test]
    fn port_vm_is_kept_for_ports_with_a_guest() {
        let of = |kind: &str, vm: &str| {
            port(&format!(r#"{{"name":"a","group":"b",{kind},"vm":"{vm}"}}"#))
        };
        for kind in [r#""kind":"net""#, r#""kind":"vsock","cid":3"#, r#""kind":"hca""#] {
            let spec = of(kind, "web-1").unwrap();
            let shown = serde_json::to_value(&spec).unwrap();
            assert_eq!(shown["vm"], "web-1", "{kind}");
            assert_eq!(port(&shown.to_string()).unwrap(), spec, "{kind}");
            assert!(of(kind, "a b").unwrap_err().contains("vm: name"), "{kind}");
        }
        assert!(of(r#""kind":"mx""#, "web-1").unwrap_err().contains("vm: only a port of kind"));
    }

    #[test]
    fn port_of_a_clone_has_the_address_of_its_guest_beside_its_own() {
        let net = r#"{"name":"a","group":"b","kind":"net","guest_mac":"52:54:00:00:00:09"}"#;
        let spec = port(net).unwrap();
        let options: NetSpec = spec.kind.get().unwrap();
        assert_eq!(options.mac, derived_mac(&spec.group, &spec.name));
        assert_eq!(options.shown_mac().to_string(), "52:54:00:00:00:09");
        let vsock = r#"{"name":"a","group":"b","kind":"vsock","cid":10,"guest_cid":3}"#;
        let options: VsockSpec = port(vsock).unwrap().kind.get().unwrap();
        assert_eq!((options.cid, options.shown_cid()), (10, 3));
        for text in [net, vsock] {
            let spec = port(text).unwrap();
            assert_eq!(port(&serde_json::to_string(&spec).unwrap()).unwrap(), spec);
            // The address of the guest may occur several times in a group.
            assert!(spec.kind.unique().all(|(key, _)| matches!(key, "mac" | "cid")));
            // The device that the guest sees does not depend on the group's address.
            let identity = spec.kind.device().unwrap().identity;
            assert!(identity.contains("52:54:00:00:00:09") || identity == "vsock 3", "{identity}");
        }
        for (text, expected) in [
            (r#""kind":"net","guest_mac":"01:00:00:00:00:01""#, "guest_mac: expected a unicast"),
            (r#""kind":"net","guest_cid":3"#, "only a port of kind \"vsock\""),
            (r#""kind":"vsock","cid":3,"guest_cid":2"#, "guest_cid: expected an integer from 3"),
        ] {
            let error = port(&format!(r#"{{"name":"a","group":"b",{text}}}"#)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn nic_without_a_name_has_that_of_host_and_port() {
        let spec = port(r#"{"name":"mx0","group":"b","kind":"mx"}"#).unwrap();
        let mx: MxSpec = spec.kind.get().unwrap();
        assert_eq!(
            (&*mx.hostname, mx.mac),
            (&*derived_nic_name(&spec.name), derived_mac(&spec.group, &spec.name))
        );
        let named = r#"{"name":"mx0","group":"b","kind":"mx","hostname":"n1:0"}"#;
        assert_eq!(port(named).unwrap().kind.get::<MxSpec>().unwrap().hostname, "n1:0");
    }

    #[test]
    fn port_serialises_as_it_is_read() {
        for json in [
            r#"{"name":"a","group":"b","kind":"net","learn":true,"socket_mode":"0660"}"#,
            r#"{"name":"a","group":"b","kind":"vsock","cid":7,"host_socket":"/h"}"#,
            r#"{"name":"a","group":"b","kind":"mx","interface":"eth0","bypass":true}"#,
        ] {
            let spec = port(json).unwrap();
            let again = serde_json::to_string(&spec).unwrap();
            assert_eq!(port(&again).unwrap(), spec, "{again}");
        }
    }

    #[test]
    fn port_problems_name_the_expected_form() {
        for (json, expected) in [
            (r#"{"name":"a","group":"b","kind":"net","cid":3}"#, "only a port of kind \"vsock\""),
            (r#"{"name":"a","group":"b","kind":"vsock","cid":3,"learn":true}"#, "kind \"net\""),
            (
                r#"{"name":"a","group":"b","kind":"vsock"}"#,
                "cid: a port of kind \"vsock\" needs one",
            ),
            (r#"{"name":"a","group":"b","kind":"vsock","cid":2}"#, "from 3 to 4294967294, found 2"),
            (r#"{"name":"a","group":"b","kind":"vsock","cid":-1}"#, "found -1"),
            (r#"{"name":"a","group":"b","kind":"net","socket":"x.sock"}"#, "absolute path"),
            (r#"{"name":"a","group":"b","kind":"net","mtu":65536}"#, "68 to 65535, found 65536"),
            (r#"{"name":"a","group":"b","kind":"net","macc":"x"}"#, "unknown key \"macc\""),
            (r#"{"name":"a/b","group":"b","kind":"net"}"#, "expected 1 to 63 letters"),
            (r#"{"name":"a","group":"b","kind":"ib"}"#, "kind: expected one of net, vsock, mx"),
            (r#"{"name":"a","group":"b","kind":"mx","mtu":1500}"#, "only a port of kind \"net\""),
            (r#"{"name":"a","group":"b","kind":"mx","hostname":"a b"}"#, "without spaces"),
            (r#"{"name":"a","group":"b","kind":"mx","mac":"01:00:00:00:00:01"}"#, "unicast"),
            (r#"{"name":"a","group":"b","kind":"mx","bypass":true}"#, "bypass: expected interface"),
            (
                r#"{"name":"a","group":"b","kind":"vsock","cid":3,"host_socket_mode":"0600"}"#,
                "host_socket_mode: expected host_socket beside it",
            ),
        ] {
            let error = port(json).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
        let long =
            format!(r#"{{"name":"a","group":"b","kind":"net","socket":"/{}"}}"#, "x".repeat(107));
        assert!(port(&long).unwrap_err().contains("at most 107"));
    }
}
