//! What each request of the control socket means.
//!
//! ```text
//! GET  /v1/info                       GET  /v1/stats        POST /v1/trace
//! GET  /v1/ports    POST /v1/ports    GET  /v1/ports/NAME   DELETE /v1/ports/NAME
//! GET  /v1/groups   POST /v1/groups   GET  /v1/groups/NAME  DELETE /v1/groups/NAME
//! GET  /v1/dispatchers                POST /v1/dispatchers/NUMBER
//! GET  /v1/peers                     GET  /v1/kinds
//! GET  /v1/rules    POST /v1/rules                          DELETE /v1/rules/INDEX
//! GET  /v1/links    POST /v1/links    GET  /v1/links/NAME   DELETE /v1/links/NAME
//! GET  /v1/routes   POST /v1/routes                         DELETE /v1/routes/INDEX
//! GET  /v1/traffic/GROUP              POST /v1/apply        POST /v1/vnet
//! POST /v1/shutdown
//! POST /v1/captures                   GET  /v1/captures/N   DELETE /v1/captures/N
//! ```

mod apply;
mod capture;
mod vnet;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use causeway_model::Name;
use causeway_model::port::{self, ReadContext};
use causeway_model::schema::Problem;
use causeway_model::{Answer, Command, CommandError, GroupView, PortView, TraceQuery};
use causeway_model::{Forwarding, GroupKind, GroupSpec, weight_default};
use causeway_model::{Kind, KindInfo, PortSpec, RuleAction, RuleSide, RuleSpec};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::fabric::Fabric;
use crate::http::{Reply, Request};
use crate::logger;
use crate::peer::Peer;
use crate::refusals::Doors;
use crate::stop::StopRequest;
use causeway_model::draft::{LinkDraft, Resolver, RouteDraft};

/// What the API knows of the daemon beside the fabric.
#[derive(Debug, Clone)]
pub struct About {
    /// When the daemon started.
    pub started: Instant,
    /// The kinds of ports that there are.
    pub kinds: &'static [&'static Kind],
    /// Where ports' sockets go by default.
    pub run_dir: PathBuf,
    /// The control socket.
    pub control: PathBuf,
    /// File of the private key of links that name none.
    pub key_file: PathBuf,
    /// Who looks up hosts of links.
    pub resolve: Resolver,
    /// What clients were refused.
    pub doors: Arc<Doors>,
    /// Stops the daemon.
    pub stop: Arc<StopRequest>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShutdownBody {
    #[serde(default)]
    release: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupBody {
    name: Name,
    #[serde(default)]
    forwarding: Forwarding,
    #[serde(default = "weight_default")]
    weight: u32,
    #[serde(default)]
    kind: GroupKind,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleBody {
    #[serde(default)]
    index: Option<usize>,
    action: RuleAction,
    #[serde(default)]
    from: RuleSide,
    #[serde(default)]
    to: RuleSide,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MoveBody {
    group: Name,
    #[serde(default)]
    service: Option<String>,
}

/// Answers one request; changes are logged with who asked for them.
pub fn answer(fabric: &dyn Fabric, about: &About, peer: &Peer, request: &Request) -> Reply {
    let reply = route(fabric, about, request).unwrap_or_else(|refusal| refusal);
    let (method, path) = (request.method.as_str(), request.path.as_str());
    let (pid, uid, status) = (peer.pid, peer.uid, reply.status);
    if method == "GET" {
        log::debug!(method, path, status, pid, uid; "control request");
    } else {
        log::info!(method, path, status, pid, uid; "control request");
    }
    reply
}

fn route(fabric: &dyn Fabric, about: &About, request: &Request) -> Result<Reply, Reply> {
    let Some(path) = request.path.strip_prefix("/v1/") else { return Err(no_path(request)) };
    let parts: Vec<&str> = path.split('/').collect();
    let method = request.method.as_str();
    match (parts.as_slice(), method) {
        (["info"], "GET") => Ok(info(fabric, about)),
        (["stats"], "GET") => stats(fabric, about),
        (["trace"], "POST") => {
            let query: TraceQuery = body(request)?;
            call(fabric, Command::Trace(query), 200)
        }
        (["ports", rest @ ..], _) => ports(fabric, about, request, rest),
        (["groups", rest @ ..], _) => groups(fabric, request, rest),
        (["rules", rest @ ..], _) => rules(fabric, request, rest),
        (["links", rest @ ..], _) => links(fabric, about, request, rest),
        (["routes", rest @ ..], _) => routes(fabric, request, rest),
        (["captures", rest @ ..], _) => capture::captures(fabric, request, rest),
        (["shutdown"], "POST") => shutdown(about, request),
        (["kinds"], "GET") => {
            let kinds: Vec<KindInfo> = about.kinds.iter().map(|kind| (*kind).into()).collect();
            Ok(Reply::json(200, &kinds))
        }
        (["kinds"], _) => Err(Reply::method_not_allowed("GET")),
        (["peers"], "GET") => call(fabric, Command::PeerList, 200),
        (["peers"], _) => Err(Reply::method_not_allowed("GET")),
        (["traffic", group], "GET") => call(fabric, Command::Traffic(parse_name(group)?), 200),
        (["apply"], "POST") => apply::apply(fabric, about, request),
        (["vnet"], "POST") => vnet::vnet(fabric, about, request),
        (["traffic", _], _) => Err(Reply::method_not_allowed("GET")),
        (["dispatchers", rest @ ..], _) => dispatchers(fabric, request, rest),
        (["info" | "stats"], _) => Err(Reply::method_not_allowed("GET")),
        (["trace" | "apply" | "vnet" | "shutdown"], _) => Err(Reply::method_not_allowed("POST")),
        _ => Err(no_path(request)),
    }
}

fn ports(
    fabric: &dyn Fabric,
    about: &About,
    request: &Request,
    rest: &[&str],
) -> Result<Reply, Reply> {
    match (rest, request.method.as_str()) {
        ([], "GET") => call(fabric, Command::PortList, 200),
        ([], "POST") => {
            let values: Map<String, Value> = body(request)?;
            call(fabric, Command::PortAdd(port_spec(fabric, about, &values)?), 201)
        }
        ([name], "GET") => call(fabric, Command::PortShow(parse_name(name)?), 200),
        ([name], "DELETE") => call(fabric, Command::PortDel(parse_name(name)?), 200),
        ([], _) => Err(Reply::method_not_allowed("GET, POST")),
        ([_], _) => Err(Reply::method_not_allowed("GET, DELETE")),
        _ => Err(no_path(request)),
    }
}

/// Returns the port that a request describes.
fn port_spec(
    fabric: &dyn Fabric,
    about: &About,
    values: &Map<String, Value>,
) -> Result<PortSpec, Reply> {
    let links = match fabric.call(Command::LinkList).map_err(refused)? {
        Answer::Links(links) => links,
        other => return Err(unexpected(&other)),
    };
    let links_mtu = |group: &Name| {
        let of = links.iter().filter(|link| link.spec.group == *group);
        of.map(|link| link.mtu).min().unwrap_or(u16::MAX)
    };
    let cx = ReadContext { kinds: about.kinds, run_dir: &about.run_dir, links_mtu: &links_mtu };
    port::read(values, &cx).map_err(|problems| invalid(named("port", values, &problems)))
}

/// Problems of a table as one line that begins with its name.
fn named(table: &str, values: &Map<String, Value>, problems: &[Problem]) -> String {
    let name = values.get("name").and_then(Value::as_str).unwrap_or("?");
    let prefix = format!("{table} {name}: ");
    let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let text = all.join("; ");
    if text.starts_with(&prefix) { text } else { prefix + &text }
}

fn groups(fabric: &dyn Fabric, request: &Request, rest: &[&str]) -> Result<Reply, Reply> {
    match (rest, request.method.as_str()) {
        ([], "GET") => call(fabric, Command::GroupList, 200),
        ([], "POST") => {
            let GroupBody { name, forwarding, weight, kind } = body(request)?;
            call(fabric, Command::GroupAdd(GroupSpec { name, forwarding, weight, kind }), 201)
        }
        ([name], "GET") => {
            let name = parse_name(name)?;
            Ok(Reply::json(200, &find_group(fabric, &name)?))
        }
        ([name], "DELETE") => call(fabric, Command::GroupDel(parse_name(name)?), 200),
        ([], _) => Err(Reply::method_not_allowed("GET, POST")),
        ([_], _) => Err(Reply::method_not_allowed("GET, DELETE")),
        _ => Err(no_path(request)),
    }
}

fn find_group(fabric: &dyn Fabric, name: &Name) -> Result<GroupView, Reply> {
    match fabric.call(Command::GroupList).map_err(refused)? {
        Answer::Groups(groups) => groups.into_iter().find(|g| g.name == *name).ok_or_else(|| {
            refused(CommandError::NotFound { what: "group", name: name.to_string() })
        }),
        other => Err(unexpected(&other)),
    }
}

fn rules(fabric: &dyn Fabric, request: &Request, rest: &[&str]) -> Result<Reply, Reply> {
    match (rest, request.method.as_str()) {
        ([], "GET") => call(fabric, Command::RuleList, 200),
        ([], "POST") => {
            let RuleBody { index, action, from, to } = body(request)?;
            if let (Some(a), Some(b)) = (&from.group, &to.group)
                && a != b
            {
                let text = format!("rule from group {a} to group {b}: no traffic crosses groups");
                return Err(invalid(text));
            }
            let rule = RuleSpec { action, from, to };
            call(fabric, Command::RuleAdd { index, rule }, 201)
        }
        ([index], "DELETE") => {
            let index = index
                .parse()
                .map_err(|_| invalid(format!("rule {index:?}: expected its number, from 0")))?;
            call(fabric, Command::RuleDel { index }, 200)
        }
        ([], _) => Err(Reply::method_not_allowed("GET, POST")),
        ([_], _) => Err(Reply::method_not_allowed("DELETE")),
        _ => Err(no_path(request)),
    }
}

fn links(
    fabric: &dyn Fabric,
    about: &About,
    request: &Request,
    rest: &[&str],
) -> Result<Reply, Reply> {
    match (rest, request.method.as_str()) {
        ([], "GET") => call(fabric, Command::LinkList, 200),
        ([], "POST") => {
            let values: Map<String, Value> = body(request)?;
            let draft = LinkDraft::read(&values);
            let draft = draft.map_err(|problems| invalid(named("link", &values, &problems)))?;
            let spec = draft.into_spec(&about.key_file, about.resolve);
            let spec = spec.map_err(|e| invalid(e.to_string()))?;
            call(fabric, Command::LinkAdd(Box::new(spec)), 201)
        }
        ([name], "GET") => call(fabric, Command::LinkShow(parse_name(name)?), 200),
        ([name], "DELETE") => call(fabric, Command::LinkDel(parse_name(name)?), 200),
        ([], _) => Err(Reply::method_not_allowed("GET, POST")),
        ([_], _) => Err(Reply::method_not_allowed("GET, DELETE")),
        _ => Err(no_path(request)),
    }
}

fn routes(fabric: &dyn Fabric, request: &Request, rest: &[&str]) -> Result<Reply, Reply> {
    match (rest, request.method.as_str()) {
        ([], "GET") => call(fabric, Command::RouteList, 200),
        ([], "POST") => {
            let draft: RouteDraft = body(request)?;
            let spec = draft.into_spec().map_err(|e| invalid(e.to_string()))?;
            call(fabric, Command::RouteAdd(spec), 201)
        }
        ([index], "DELETE") => {
            let index = index
                .parse()
                .map_err(|_| invalid(format!("route {index:?}: expected its number, from 1")))?;
            call(fabric, Command::RouteDel(index), 200)
        }
        ([], _) => Err(Reply::method_not_allowed("GET, POST")),
        ([_], _) => Err(Reply::method_not_allowed("DELETE")),
        _ => Err(no_path(request)),
    }
}

fn dispatchers(fabric: &dyn Fabric, request: &Request, rest: &[&str]) -> Result<Reply, Reply> {
    match (rest, request.method.as_str()) {
        ([], "GET") => call(fabric, Command::DispatcherList, 200),
        ([number], "POST") => {
            let text = || format!("dispatcher {number:?}: expected its number, from 0");
            let dispatcher = number.parse().map_err(|_| invalid(text()))?;
            let MoveBody { group, service } = body(request)?;
            call(fabric, Command::ShardMove { group, service, dispatcher }, 200)
        }
        ([], _) => Err(Reply::method_not_allowed("GET")),
        ([_], _) => Err(Reply::method_not_allowed("POST")),
        _ => Err(no_path(request)),
    }
}

/// Stops the daemon once this request is answered.
fn shutdown(about: &About, request: &Request) -> Result<Reply, Reply> {
    let ShutdownBody { release } =
        if request.body.is_empty() { ShutdownBody::default() } else { body(request)? };
    about.stop.ask(release);
    Ok(Reply::done())
}

fn info(fabric: &dyn Fabric, about: &About) -> Reply {
    let value = json!({
        "name": "causewayd",
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "holder_pid": fabric.holder(),
        "uptime_seconds": about.started.elapsed().as_secs_f64(),
        "control": about.control.display().to_string(),
        "run_dir": about.run_dir.display().to_string(),
    });
    Reply::json(200, &value)
}

fn stats(fabric: &dyn Fabric, about: &About) -> Result<Reply, Reply> {
    let ports = match fabric.call(Command::PortList).map_err(refused)? {
        Answer::Ports(ports) => ports,
        other => return Err(unexpected(&other)),
    };
    let ports: Vec<_> = ports
        .iter()
        .map(|port| {
            json!({
                "name": port.spec.name,
                "group": port.spec.group,
                "kind": port.spec.kind.name(),
                "state": port.state,
                "faults_total": port.faults_total,
                "connects_total": port.connects_total,
                "counters": port.counters,
            })
        })
        .collect();
    let links = match fabric.call(Command::LinkList).map_err(refused)? {
        Answer::Links(links) => links,
        other => return Err(unexpected(&other)),
    };
    let links: Vec<_> = links
        .iter()
        .map(|link| {
            json!({
                "name": link.spec.name,
                "group": link.spec.group,
                "kind": link.spec.kind.name(),
                "state": link.state,
                "ups_total": link.ups_total,
                "certificate_expires": link.certificate_expires,
                "counters": link.counters,
            })
        })
        .collect();
    let uptime = about.started.elapsed().as_secs_f64();
    let doors = json!([
        { "name": "control socket", "counters": about.doors.control.by_name() },
        { "name": "VNET control", "counters": about.doors.vnet.by_name() },
    ]);
    let all = json!({
        "uptime_seconds": uptime, "ports": ports, "links": links, "doors": doors,
        "log": { "dropped_lines_total": logger::dropped_total() },
    });
    Ok(Reply::json(200, &all))
}

/// A port with what the holder does for it.
fn held(fabric: &dyn Fabric, view: &PortView) -> serde_json::Value {
    let mut value = json!(view);
    if let Some(map) = value.as_object_mut() {
        map.insert("held".into(), fabric.is_held(&view.spec.name).into());
    }
    value
}

/// Runs a command; its answer goes out with `status`, or as 204 if it has nothing to tell.
fn call(fabric: &dyn Fabric, command: Command, status: u16) -> Result<Reply, Reply> {
    match fabric.call(command).map_err(refused)? {
        Answer::Done => Ok(Reply::done()),
        Answer::Port(view) => Ok(Reply::json(status, &held(fabric, &view))),
        Answer::Ports(views) => {
            let views: Vec<_> = views.iter().map(|view| held(fabric, view)).collect();
            Ok(Reply::json(status, &views))
        }
        answer => Ok(Reply::json(status, &answer)),
    }
}

fn body<T: DeserializeOwned>(request: &Request) -> Result<T, Reply> {
    serde_json::from_slice(&request.body).map_err(|error| {
        let status = if error.is_data() { 422 } else { 400 };
        let kind = if error.is_data() { "invalid" } else { "bad_request" };
        Reply::error(status, kind, format!("body: {error}"))
    })
}

fn parse_name(text: &str) -> Result<Name, Reply> {
    text.parse().map_err(|error: causeway_model::SpecError| invalid(error.to_string()))
}

fn invalid(text: String) -> Reply {
    Reply::error(422, "invalid", text)
}

fn no_path(request: &Request) -> Reply {
    let text = format!(
        "{}: expected /v1/ and one of apply, captures, dispatchers, groups, info, kinds, links, peers, ports, routes, \
         rules, shutdown, stats, trace, traffic, vnet",
        request.path
    );
    Reply::error(404, "no_such_path", text)
}

fn unexpected(answer: &Answer) -> Reply {
    log::error!(answer:? = answer; "the fabric answered another question");
    Reply::error(500, "internal", "the fabric answered another question")
}

/// Status and kind of a refusal.
pub(crate) fn kind_of(error: &CommandError) -> (u16, &'static str) {
    match error {
        CommandError::NotFound { .. } => (404, "not_found"),
        CommandError::Conflict(_) => (409, "conflict"),
        CommandError::Full(_) => (409, "full"),
        CommandError::Invalid(_) => (422, "invalid"),
        CommandError::Host(_) => (500, "host"),
    }
}

fn refused(error: CommandError) -> Reply {
    let (status, kind) = kind_of(&error);
    Reply::error(status, kind, error.to_string())
}
