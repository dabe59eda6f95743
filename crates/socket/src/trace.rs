//! Traces of connects: the decision and its reasons, without a connect.
//!
//! For `causeway trace connect` the fabric asks each service; the shard of a vsock group calls
//! [`connect`] in the thread of its dispatcher (an empty shard, in the thread of the control
//! socket, if the group has no vsock port), and other queries are left to other services. The steps
//! are those of a real connect in `crate::transmit` and `crate::host` (rules, destination, socket
//! type; a real connect of a process checks the destination first), and must be changed together
//! with them.
//!
//! An unknown port or group is an error; a refused connect is an answer with its reason. A trace
//! sends nothing, counts no rule and checks no limit on connections. It does not show whether an
//! application in the guest listens, nor whether a process listens at a socket file; the steps
//! state this.

use std::collections::HashMap;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use causeway_fabric::{GroupId, Port, PortId, Ports, RuleEnd, RuleMatch, Rules};
use causeway_model::commands::trace::Connect;
use causeway_model::{CID_HOST, Name, RuleAction, RuleOrigin, VsockSpec};
use causeway_model::{CommandError, SocketKind, TraceQuery, TraceView};

use crate::remote::Peers;
use crate::service::VSOCK_F_SEQPACKET;

/// The ports of CIDs, and the linked daemons.
type Places<'a> = (&'a HashMap<(GroupId, u32), PortId>, &'a Peers);

/// The caller as the rules match it.
struct TraceCaller {
    /// Group of the caller, or the group that the host connects to.
    group: GroupId,
    /// CID of the caller.
    cid: u32,
    /// The caller is a process with the CID of a port.
    is_process: bool,
    /// First step of the trace.
    text: String,
}

/// Returns the caller: port `from`, or the host towards `group`.
fn caller(
    ports: &Ports,
    from: Option<&Name>,
    group: Option<&Name>,
) -> Result<TraceCaller, CommandError> {
    let missing = |what, name: &Name| CommandError::NotFound { what, name: name.to_string() };
    if let Some(name) = from {
        let port = ports.by_name(name).ok_or_else(|| missing("port", name))?;
        let Some(vsock) = port.spec.kind.get::<VsockSpec>() else {
            return Err(CommandError::Invalid(format!("port {name} is not a vsock port")));
        };
        let mut text = format!("port {name} of group {} has CID {}", port.spec.group, vsock.cid);
        if let Some(guest) = vsock.guest_cid {
            text.push_str(&format!("; its guest has CID {guest}, exchanged with it"));
        }
        if vsock.processes {
            text.push_str(", for host processes at its host socket");
        }
        let is_process = vsock.processes;
        return Ok(TraceCaller { group: port.group, cid: vsock.cid, is_process, text });
    }
    let wanted = || CommandError::Invalid("a connect from the host needs a group".into());
    let name = group.ok_or_else(wanted)?;
    let group = ports.group(name).ok_or_else(|| missing("group", name))?;
    let text = format!("the host, towards group {name}");
    Ok(TraceCaller { group, cid: CID_HOST, is_process: false, text })
}

/// Answers a connect query; `None` for other queries.
pub(crate) fn connect(
    directory: Places<'_>,
    ports: &Ports,
    rules: &Rules,
    query: &TraceQuery,
) -> Option<Result<TraceView, CommandError>> {
    Some(query.get::<Connect>()?.and_then(|connect| explain(directory, ports, rules, &connect)))
}

/// Returns the decision about a connect.
fn explain(
    directory: Places<'_>,
    ports: &Ports,
    rules: &Rules,
    Connect { from, group, cid, port, socket_type }: &Connect,
) -> Result<TraceView, CommandError> {
    let kind = socket_type.unwrap_or(SocketKind::Stream);
    let caller = caller(ports, from.as_ref(), group.as_ref())?;
    let mut steps = vec![caller.text.clone()];
    let verdict = decide(directory, ports, rules, &caller, (*cid, *port, kind), &mut steps);
    let (verdict, to) = match verdict {
        Some(to) => ("accept", vec![to]),
        None => ("reject", Vec::new()),
    };
    Ok(TraceView { verdict: verdict.into(), to, steps })
}

/// Returns whether `path` is a socket. Only a connect could show whether a process listens.
fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

/// Returns the name of the destination; `None` if the connect would be answered with a reset. The
/// triple is CID, port number and socket type of the destination. Appends the steps.
fn decide(
    (directory, peers): Places<'_>,
    ports: &Ports,
    rules: &Rules,
    caller: &TraceCaller,
    (cid, port, kind): (u32, u32, SocketKind),
    steps: &mut Vec<String>,
) -> Option<String> {
    let group = ports.group_name(caller.group)?;
    // The caller's kernel chooses its port number; 0 stands for any.
    let (from, to) = (RuleEnd { group, cid: caller.cid, port: 0 }, RuleEnd { group, cid, port });
    match rules.find(from, to) {
        Some(RuleMatch { origin, index, action }) => {
            let name = match origin {
                RuleOrigin::Host => format!("rule {index}"),
                RuleOrigin::Cluster => format!("rule {group}:{index} of the site"),
            };
            if action == RuleAction::Reject {
                steps.push(format!("{name} rejects it"));
                return None;
            }
            steps.push(format!("{name} accepts it"));
        }
        None => steps.push("no rule matches, so it is accepted".into()),
    }
    if cid == caller.cid {
        // Linux connects such sockets inside the guest; packets that reach the host are refused.
        steps.push(format!("CID {cid} is the caller's own"));
        return None;
    }
    let port_of = |cid: u32| directory.get(&(caller.group, cid)).and_then(|id| ports.get(*id));
    if cid == CID_HOST && caller.is_process {
        steps.push("CID 2 is the host, which processes do not reach through a port".into());
        return None;
    }
    if cid == CID_HOST {
        return decide_host(port_of(caller.cid)?, port, kind, steps);
    }
    let is_running = |port: &&Port| port.is_running(0) && port.is_running(1);
    let target = port_of(cid);
    if let Some((_, link)) = peers.find(cid)
        && target.as_ref().is_none_or(|port| !is_running(port))
    {
        return decide_remote(caller, (cid, port, kind), link, steps);
    }
    let Some(target) = target else {
        steps.push(format!("no port of group {group} has CID {cid}; no traffic crosses groups"));
        return None;
    };
    decide_guest(target, caller, (cid, port, kind), steps)
}

/// Decides a connect of the guest at `own` to a host process.
fn decide_host(own: &Port, port: u32, kind: SocketKind, steps: &mut Vec<String>) -> Option<String> {
    let vsock: VsockSpec = own.spec.kind.get()?;
    let Some(path) = &vsock.host_socket else {
        steps.push("CID 2 is the host, but the port has no host_socket".into());
        return None;
    };
    let path = format!("{}_{port}", path.display());
    if !is_socket(Path::new(&path)) {
        steps.push(format!("CID 2 is the host, and no process listens at {path}"));
        return None;
    }
    let wanted = match kind {
        SocketKind::Stream => "SOCK_STREAM",
        SocketKind::Seqpacket => "SOCK_SEQPACKET",
    };
    if kind == SocketKind::Seqpacket {
        steps.push(
            "empty messages are dropped: the process would read them as the end of the connection"
                .into(),
        );
    }
    steps.push(format!(
        "CID 2 is the host: {path} is a socket; it takes the connect if its process listens with \
         {wanted}"
    ));
    Some("host".into())
}

/// Decides a connect to a guest of the peer behind `link`.
fn decide_remote(
    caller: &TraceCaller,
    (cid, port, kind): (u32, u32, SocketKind),
    link: &Name,
    steps: &mut Vec<String>,
) -> Option<String> {
    if caller.cid == CID_HOST {
        steps.push(format!(
            "CID {cid} is at the peer of link {link}; processes of this host reach it by the host \
             socket of a port with the key processes"
        ));
        return None;
    }
    if caller.is_process && kind == SocketKind::Seqpacket {
        steps.push(format!(
            "CID {cid} is at the peer of link {link}; messages of processes reach guests of this host \
             only"
        ));
        return None;
    }
    steps.push(format!("CID {cid} is at the peer of link {link}"));
    steps.push(
        "the peer checks its own rules, and its guest whether an application listens on".into(),
    );
    if let Some(last) = steps.last_mut() {
        last.push_str(&format!(" port {port}"));
    }
    Some(link.to_string())
}

/// Decides a connect to the guest at `target`.
fn decide_guest(
    target: &Port,
    caller: &TraceCaller,
    (cid, port, kind): (u32, u32, SocketKind),
    steps: &mut Vec<String>,
) -> Option<String> {
    let name = target.spec.name.to_string();
    if target.spec.kind.get::<VsockSpec>().is_some_and(|vsock| vsock.processes) {
        steps.push(format!("port {name} has CID {cid}, for host processes, which only connect"));
        return None;
    }
    let has_host_socket = target.spec.kind.sockets().next().is_some();
    if caller.cid == CID_HOST && !has_host_socket {
        steps.push(format!("port {name} has CID {cid}, but no host_socket to connect by"));
        return None;
    }
    if !(target.is_running(0) && target.is_running(1)) {
        steps.push(format!("port {name} has CID {cid}, but no guest runs it now"));
        return None;
    }
    if kind == SocketKind::Seqpacket && target.features() & VSOCK_F_SEQPACKET == 0 {
        steps.push(format!("port {name} has CID {cid}, but its guest takes no SEQPACKET sockets"));
        return None;
    }
    steps.push(format!("port {name} has CID {cid} and its guest runs it"));
    steps.push(format!("only the guest knows whether an application listens on port {port}"));
    Some(name)
}
