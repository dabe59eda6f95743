//! The control API: maps each HTTP request to a command and each answer to JSON.
//!
//! [`answer`] runs on the thread of one connection of [`crate::http::server`], after the peer was
//! admitted. It finds the noun of the path, parses the body, calls [`crate::fabric::FabricControl`]
//! and waits for the answer. Unknown fields of a body are refused (422), as are invalid values;
//! malformed or missing JSON is 400.
//!
//! An unknown path or object is 404, as is a noun that no service registered; another method is
//! 405, a conflict or a full table 409, an error of the host 500. Services register nouns of their
//! own ([`NounDefinition`]), of which the list below has those of this daemon. The module keeps no
//! state, does not retry and sets no time limit: a dispatcher that hangs makes all requests wait
//! that need a command. A command runs to its end also if its client disconnects meanwhile.
//! Requests of several clients run concurrently, their commands one at a time in no defined order;
//! as a whole only `POST /v1/apply` is serialised with itself. Nothing that the API changes is
//! written to the configuration file; added objects are kept in the state file ([`crate::kept`]),
//! unless the query has `ephemeral=true`. The reply to a change that is kept waits for the state
//! file, at most 4 s, and its headers `Causeway-Note` name changes that do not outlast the next
//! start. Access rights are checked before ([`crate::peer`]). Paths, JSON fields and status codes
//! are a contract: docs/control-api.md describes them.
//!
//! ```text
//! GET  /v1/info                       GET  /v1/stats        POST /v1/trace
//! GET  /v1/ports    POST /v1/ports    GET  /v1/ports/NAME   DELETE /v1/ports/NAME
//! GET  /v1/groups   POST /v1/groups   GET  /v1/groups/NAME  DELETE /v1/groups/NAME
//! GET  /v1/dispatchers                POST /v1/dispatchers/NUMBER
//! GET  /v1/peers                      GET  /v1/kinds
//! GET  /v1/hcas                       GET  /v1/hcas/PORT
//! GET  /v1/nics                       GET  /v1/nics/PORT
//! GET  /v1/rules    POST /v1/rules                          DELETE /v1/rules/INDEX
//! GET  /v1/links    POST /v1/links    GET  /v1/links/NAME   DELETE /v1/links/NAME
//! GET  /v1/routes   POST /v1/routes                         DELETE /v1/routes/INDEX
//! GET  /v1/forwards POST /v1/forwards GET  /v1/forwards/NAME DELETE /v1/forwards/NAME
//! GET  /v1/connections                POST /v1/connections  POST /v1/forwarder
//! GET  /v1/traffic/GROUP              POST /v1/apply        POST /v1/vnet
//! GET  /v1/config                     POST /v1/config/diff
//! GET  /v1/cluster                    GET  /v1/cluster/hosts GET /v1/cluster/addresses
//! POST /v1/cluster/local              POST /v1/cluster/remote
//! POST /v1/shutdown
//! POST /v1/captures                   GET  /v1/captures/N   DELETE /v1/captures/N
//! POST /v1/captures/N/stop           GET  /metrics
//! ```

mod apply;
mod config;
pub(crate) mod replies;
mod vnet;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use causeway_model::Name;
use causeway_model::{Answer, Command, CommandError, GroupView, PortView};
use causeway_model::{
    GROUP_FIELDS, KindDefinition, KindInfo, PortSpec, RuleSpec, RuleView, schema,
};
use causeway_model::{InfoView, LogStats, ObjectStats, PortStats, RefusalStats, StatsView};
use causeway_model::{
    NounCall, NounDefaults, NounDefinition, NounError, NounReply, SectionDefinition,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use self::replies::{invalid, refused, unexpected, wrong_body};
use crate::fabric::{FabricControl, ask_service};
use crate::http::{HttpReply, HttpRequest};
use crate::kept::Kept;
use crate::logger;
use crate::metrics::Metrics;
use crate::peer::ControlPeer;
use crate::refusals::ControlRefusals;
use crate::stop::StopRequest;
use causeway_model::draft::Resolver;
use causeway_model::port::{self, ReadContext};
use causeway_model::schema::{joined, named};

/// Properties of the daemon that the API needs beside the fabric.
#[derive(Debug, Clone)]
pub struct ApiContext {
    /// When the daemon started.
    pub started: Instant,
    /// The kinds of ports of this daemon.
    pub kinds: &'static [&'static KindDefinition],
    /// The sections of the configuration file that services registered.
    pub sections: &'static [SectionDefinition],
    /// The nouns that services registered.
    pub nouns: &'static [NounDefinition],
    /// Directory of ports' sockets.
    pub run_dir: PathBuf,
    /// The control socket.
    pub control: PathBuf,
    /// File of the private key of links that give none.
    pub key_file: PathBuf,
    /// Resolves the names of links' peers.
    pub resolve: Resolver,
    /// Counters of refused clients.
    pub refusals: Arc<ControlRefusals>,
    /// Requests a stop of the daemon.
    pub stop: Arc<StopRequest>,
    /// Keeps changes across a restart; `None` for a fabric without a state file.
    pub kept: Option<Arc<Kept>>,
    /// The metrics, with the last sample.
    pub metrics: Arc<Metrics>,
}

/// The body of `POST /v1/shutdown`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShutdownBody {
    /// Disconnect the guests of held ports too.
    #[serde(default)]
    release: bool,
}

/// The body of `POST /v1/dispatchers/NUMBER`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MoveBody {
    /// Group whose shards move.
    group: Name,
    /// Service of the shard to move; absent for all shards of the group.
    #[serde(default)]
    service: Option<String>,
}

/// Answers the requests of one noun. The slice holds the path segments after the noun.
type NounHandler = fn(&ApiCall<'_>, &[&str]) -> Result<HttpReply, HttpReply>;

/// The nouns of the fabric and of the daemon, in alphabetical order; services register others
/// ([`ApiContext::nouns`]).
const NOUNS: &[(&str, NounHandler)] = &[
    ("apply", apply::apply),
    ("config", config::config),
    ("dispatchers", dispatchers),
    ("groups", groups),
    ("info", info),
    ("kinds", kinds),
    ("ports", ports),
    ("rules", rules),
    ("shutdown", shutdown),
    ("stats", stats),
    ("trace", trace),
    ("vnet", vnet::vnet),
];

/// A request, with the fabric and the daemon that answer it.
#[derive(Clone, Copy)]
struct ApiCall<'a> {
    fabric: &'a dyn FabricControl,
    about: &'a ApiContext,
    request: &'a HttpRequest,
}

impl ApiCall<'_> {
    /// Answers the request by the noun at the start of its path.
    fn answer(&self) -> Result<HttpReply, HttpReply> {
        if self.request.path == "/metrics" {
            self.only(&[], "GET")?;
            return Ok(self.about.metrics.reply(self.fabric, &self.request.accept));
        }
        let path = self.request.path.strip_prefix("/v1/").ok_or_else(|| self.no_path())?;
        let mut parts = path.split('/');
        let first = parts.next().unwrap_or_default();
        let rest: Vec<&str> = parts.collect();
        if let Some((_, noun)) = NOUNS.iter().find(|(name, _)| *name == first) {
            return noun(self, &rest);
        }
        let registered = self.about.nouns.iter().find(|noun| noun.name == first);
        self.answer_registered(registered.ok_or_else(|| self.no_path())?, &rest)
    }

    /// Answers the request by a noun that a service registered.
    fn answer_registered(
        &self,
        noun: &NounDefinition,
        rest: &[&str],
    ) -> Result<HttpReply, HttpReply> {
        let asker = |request| ask_service(self.fabric, request);
        let ApiContext { key_file, resolve, .. } = self.about;
        let defaults = NounDefaults { key_file, resolve: *resolve };
        let call = NounCall::new(self.method(), rest, &self.request.body, defaults, &asker);
        match (noun.answer)(&call) {
            Ok(NounReply::Shown(value)) => Ok(HttpReply::json(200, &value)),
            Ok(NounReply::Added(value)) => Ok(HttpReply::json(201, &value)),
            Ok(NounReply::Done) => Ok(HttpReply::done()),
            Err(NounError::Path) => Err(self.no_path()),
            Err(NounError::Method(methods)) => Err(HttpReply::method_not_allowed(methods)),
            Err(NounError::Body(error)) => Err(wrong_body(&error)),
            Err(NounError::Command(error)) => Err(refused(error)),
        }
    }

    /// Returns the reply for an unknown path: 404 with the list of nouns.
    fn no_path(&self) -> HttpReply {
        let registered = self.about.nouns.iter().map(|noun| noun.name);
        let mut nouns: Vec<&str> = NOUNS.iter().map(|(name, _)| *name).chain(registered).collect();
        nouns.sort_unstable();
        let path = &self.request.path;
        let text = format!("{path}: expected /v1/ and one of {}", nouns.join(", "));
        HttpReply::error(404, "no_such_path", text)
    }

    fn method(&self) -> &str {
        self.request.method.as_str()
    }

    /// Refuses path segments after the noun, and every method but `method`.
    fn only(&self, rest: &[&str], method: &'static str) -> Result<(), HttpReply> {
        match rest {
            [] if self.method() == method => Ok(()),
            [] => Err(HttpReply::method_not_allowed(method)),
            _ => Err(self.no_path()),
        }
    }

    /// Reads the body of the request.
    fn body<T: DeserializeOwned>(&self) -> Result<T, HttpReply> {
        serde_json::from_slice(&self.request.body).map_err(|error| wrong_body(&error))
    }

    /// Executes a command of the fabric and replies with its answer and `status`, or with 204 if
    /// the answer is empty.
    fn run(&self, command: Command, status: u16) -> Result<HttpReply, HttpReply> {
        match self.fabric.call(command).map_err(refused)? {
            Answer::Done => Ok(HttpReply::done()),
            Answer::Port(view) => Ok(HttpReply::json(status, &self.completed(*view))),
            Answer::Ports(views) => {
                let views: Vec<_> = views.into_iter().map(|view| self.completed(view)).collect();
                Ok(HttpReply::json(status, &views))
            }
            answer => Ok(HttpReply::json(status, &answer)),
        }
    }

    /// Returns the JSON of a port's view, with the fields `held` and `cut_off`: the fabric knows
    /// neither the holder nor earlier daemons.
    fn completed(&self, mut view: PortView) -> Value {
        view.held = self.fabric.is_held(&view.spec.name);
        view.cut_off = self.about.kept.as_ref().and_then(|kept| kept.cut_off(&view));
        json!(view)
    }
}

/// Answers with the decision about a described frame or connection; sends none.
fn trace(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    call.only(rest, "POST")?;
    call.run(Command::Trace(call.body()?), 200)
}

/// Answers a request, and logs it with the client's user and process: a `GET`, and a report that
/// succeeds, at level debug, all others at level info.
pub fn answer(
    fabric: &dyn FabricControl,
    about: &ApiContext,
    peer: &ControlPeer,
    request: &HttpRequest,
) -> HttpReply {
    let is_report = is_report(about, &request.path);
    let reply = match (&about.kept, is_ephemeral(&request.query)) {
        (Some(kept), Ok(is_ephemeral)) if request.method != "GET" && !is_report => {
            let scope = kept.scope(is_ephemeral);
            let call = ApiCall { fabric: &scope, about, request };
            let mut reply = call.answer().unwrap_or_else(|refusal| refusal);
            reply.notes = scope.finish();
            reply
        }
        (_, Err(text)) => invalid(text),
        _ => {
            let call = ApiCall { fabric, about, request };
            call.answer().unwrap_or_else(|refusal| refusal)
        }
    };
    let (method, path) = (request.method.as_str(), request.path.as_str());
    let (pid, uid, status) = (peer.pid, peer.uid, reply.status);
    if method == "GET" || is_report && status < 300 {
        log::debug!(method, path, status, pid, uid; "control request");
    } else {
        log::info!(method, path, status, pid, uid; "control request");
    }
    reply
}

/// Returns whether a path is that of a noun to which programs report.
fn is_report(about: &ApiContext, path: &str) -> bool {
    let noun = path.strip_prefix("/v1/").and_then(|path| path.split('/').next());
    about.nouns.iter().any(|known| known.is_report && Some(known.name) == noun)
}

/// Returns the value of `ephemeral` in a query; other keys are ignored.
fn is_ephemeral(query: &str) -> Result<bool, String> {
    let mut values = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    match values.rfind(|(key, _)| *key == "ephemeral").map(|(_, value)| value) {
        Some("" | "true" | "1") => Ok(true),
        None | Some("false" | "0") => Ok(false),
        Some(other) => Err(format!("ephemeral={other}: expected true or false")),
    }
}

/// Answers `/v1/ports`.
fn ports(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    match (rest, call.method()) {
        ([], "GET") => call.run(Command::PortList, 200),
        ([], "POST") => {
            let values: Map<String, Value> = call.body()?;
            call.run(Command::PortAdd(port_spec(call, &values)?), 201)
        }
        ([name], "GET") => call.run(Command::PortShow(parse_name(name)?), 200),
        ([name], "DELETE") => call.run(Command::PortDel(parse_name(name)?), 200),
        ([], _) => Err(HttpReply::method_not_allowed("GET, POST")),
        ([_], _) => Err(HttpReply::method_not_allowed("GET, DELETE")),
        _ => Err(call.no_path()),
    }
}

/// Answers with the kinds of ports and their options.
fn kinds(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    match (rest, call.method()) {
        ([], "GET") => {
            let kinds = call.about.kinds.iter().map(|kind| KindInfo::from(*kind));
            Ok(HttpReply::json(200, &kinds.collect::<Vec<_>>()))
        }
        ([], _) => Err(HttpReply::method_not_allowed("GET")),
        _ => Err(call.no_path()),
    }
}

/// Returns the largest payload that the running objects of each group carry, in bytes.
fn running_mtus(call: &ApiCall<'_>) -> Result<HashMap<Name, u16>, CommandError> {
    let mut mtus = HashMap::new();
    for mtu in call.about.sections.iter().filter_map(|section| section.relations.group_mtu) {
        for (group, own) in (mtu.running)(&|request| ask_service(call.fabric, request))? {
            mtus.entry(group).and_modify(|least: &mut u16| *least = own.min(*least)).or_insert(own);
        }
    }
    Ok(mtus)
}

/// Returns the port that a request describes.
fn port_spec(call: &ApiCall<'_>, values: &Map<String, Value>) -> Result<PortSpec, HttpReply> {
    let mtus = running_mtus(call).map_err(refused)?;
    let links_mtu = |group: &Name| mtus.get(group).copied().unwrap_or(u16::MAX);
    let ApiContext { kinds, run_dir, .. } = call.about;
    let cx = ReadContext { kinds, run_dir, links_mtu: &links_mtu };
    port::read(values, &cx).map_err(|problems| invalid(named("port", values, &problems)))
}

/// Answers `/v1/groups`.
fn groups(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    match (rest, call.method()) {
        ([], "GET") => call.run(Command::GroupList, 200),
        ([], "POST") => {
            let values: Map<String, Value> = call.body()?;
            let spec = schema::read(GROUP_FIELDS, &values);
            let spec = spec.map_err(|problems| invalid(named("group", &values, &problems)))?;
            call.run(Command::GroupAdd(spec), 201)
        }
        ([name], "GET") => {
            let name = parse_name(name)?;
            Ok(HttpReply::json(200, &find_group(call.fabric, &name)?))
        }
        ([name], "DELETE") => call.run(Command::GroupDel(parse_name(name)?), 200),
        ([], _) => Err(HttpReply::method_not_allowed("GET, POST")),
        ([_], _) => Err(HttpReply::method_not_allowed("GET, DELETE")),
        _ => Err(call.no_path()),
    }
}

/// Returns the view of a group: the fabric has no command for a single group.
fn find_group(fabric: &dyn FabricControl, name: &Name) -> Result<GroupView, HttpReply> {
    match fabric.call(Command::GroupList).map_err(refused)? {
        Answer::Groups(groups) => groups.into_iter().find(|g| g.name == *name).ok_or_else(|| {
            refused(CommandError::NotFound { what: "group", name: name.to_string() })
        }),
        other => Err(unexpected(&other)),
    }
}

/// Answers `/v1/rules`; refuses a rule between two groups, and the deletion of a rule of the site.
fn rules(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    match (rest, call.method()) {
        ([], "GET") => call.run(Command::RuleList, 200),
        ([], "POST") => {
            let (index, rule) = RuleSpec::read_with_index(&call.body()?)
                .map_err(|problems| invalid(joined("rule", &problems)))?;
            if let (Some(a), Some(b)) = (&rule.from.group, &rule.to.group)
                && a != b
            {
                let text = format!("rule from group {a} to group {b}: no traffic crosses groups");
                return Err(invalid(text));
            }
            call.run(Command::RuleAdd { index, rule }, 201)
        }
        ([index], "DELETE") => {
            let index = index.parse().map_err(|_| no_rule(call, index))?;
            call.run(Command::RuleDel { index }, 200)
        }
        ([], _) => Err(HttpReply::method_not_allowed("GET, POST")),
        ([_], _) => Err(HttpReply::method_not_allowed("DELETE")),
        _ => Err(call.no_path()),
    }
}

/// Returns the refusal to delete a rule that has no number of this host: `GROUP:NUMBER` is a rule of
/// the site, and another text is no rule.
fn no_rule(call: &ApiCall<'_>, text: &str) -> HttpReply {
    let number = || {
        let (group, index) = text.split_once(':')?;
        Some((group.parse::<Name>().ok()?, index.parse::<usize>().ok()?))
    };
    let Some((group, index)) = number() else {
        return invalid(format!("rule {text:?}: expected its number, from 0"));
    };
    let all = match call.fabric.call(Command::RuleList) {
        Ok(Answer::Rules(all)) => all,
        Ok(other) => return unexpected(&other),
        Err(error) => return refused(error),
    };
    let is_meant = |view: &RuleView| view.group.as_ref() == Some(&group) && view.index == index;
    if !all.iter().any(is_meant) {
        return refused(CommandError::NotFound { what: "rule", name: text.to_owned() });
    }
    refused(CommandError::Conflict(format!(
        "rule {text} is in the site's record of group {group}, which this host cannot change: \
         `causeway cluster group set {group} --rules FILE` replaces the rules on all hosts, and \
         `--no-rules` deletes them. If this host has left the site, stop causewayd and remove the \
         file beside its state file that ends with .site"
    )))
}

/// Lists the dispatchers, or moves shards of a group to a dispatcher.
fn dispatchers(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    match (rest, call.method()) {
        ([], "GET") => call.run(Command::DispatcherList, 200),
        ([number], "POST") => {
            let text = || format!("dispatcher {number:?}: expected its number, from 0");
            let dispatcher = number.parse().map_err(|_| invalid(text()))?;
            let MoveBody { group, service } = call.body()?;
            call.run(Command::ShardMove { group, service, dispatcher }, 200)
        }
        ([], _) => Err(HttpReply::method_not_allowed("GET")),
        ([_], _) => Err(HttpReply::method_not_allowed("POST")),
        _ => Err(call.no_path()),
    }
}

/// Requests a stop of the daemon and replies before it takes place.
fn shutdown(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    call.only(rest, "POST")?;
    let ShutdownBody { release } =
        if call.request.body.is_empty() { ShutdownBody::default() } else { call.body()? };
    call.about.stop.ask(release);
    Ok(HttpReply::done())
}

/// Answers with the version, the processes and the paths of the daemon.
fn info(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    call.only(rest, "GET")?;
    let ApiCall { fabric, about, .. } = *call;
    let view = InfoView {
        name: "causewayd".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        holder_pid: fabric.holder(),
        uptime_seconds: about.started.elapsed().as_secs_f64(),
        control: about.control.display().to_string(),
        run_dir: about.run_dir.display().to_string(),
        config: about.kept.as_ref().map(|kept| kept.config_file().display().to_string()),
        state_file: about
            .kept
            .as_ref()
            .and_then(|kept| Some(kept.state_file()?.display().to_string())),
        state_error: about.kept.as_ref().and_then(|kept| kept.error()),
    };
    Ok(HttpReply::json(200, &json!(view)))
}

/// Answers with the counters of ports, objects of sections, refusals and the log. The counters are read one
/// after the other, not at one moment.
fn stats(call: &ApiCall<'_>, rest: &[&str]) -> Result<HttpReply, HttpReply> {
    call.only(rest, "GET")?;
    let ApiCall { fabric, about, .. } = *call;
    let ports = match fabric.call(Command::PortList).map_err(refused)? {
        Answer::Ports(ports) => ports,
        other => return Err(unexpected(&other)),
    };
    let ports = ports.into_iter().map(|port| PortStats {
        object: ObjectStats {
            name: port.spec.name,
            group: port.spec.group,
            kind: port.spec.kind.name().into(),
            counters: port.counters,
        },
        state: port.state,
        faults_total: port.faults_total,
        connects_total: port.connects_total,
    });
    let refusals = about.refusals.by_interface();
    let doors = refusals.map(|(name, counters)| RefusalStats { name: name.into(), counters });
    let log = LogStats { dropped_lines_total: logger::dropped_total() };
    let mut view = StatsView::new(about.started.elapsed().as_secs_f64(), doors.into(), log);
    view.ports.extend(ports);
    for stats in about.sections.iter().filter_map(|section| section.requests.stats) {
        stats(&|request| ask_service(fabric, request), &mut view).map_err(refused)?;
    }
    Ok(HttpReply::json(200, &json!(view)))
}

/// Parses a name of a path; the error is the reply 422.
fn parse_name(text: &str) -> Result<Name, HttpReply> {
    text.parse().map_err(|error: causeway_model::SpecError| invalid(error.to_string()))
}
