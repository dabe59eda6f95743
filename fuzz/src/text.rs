//! What operators write: the configuration file, and requests to the control socket.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use causeway_daemon::api::{About, answer};
use causeway_daemon::config::{Config, ConfigError, Surroundings};
use causeway_daemon::fabric::Fabric;
use causeway_daemon::http::request;
use causeway_daemon::peer::Peer;
use causeway_fabric::Name;
use causeway_fabric::control::{
    Answer, Command, CommandError, GroupView, PortState, PortView, RuleView, TraceView,
};
use causeway_fabric::orders::{Forwarding, GroupSpec};
use causeway_fabric::spec::{PortSpec, RuleSpec};

/// A configuration: read, printed and read again it is the same; or every problem is told.
pub fn config(data: &[u8]) {
    let Ok(source) = std::str::from_utf8(data) else { return };
    let around = Surroundings { run_dir: Some("/run/causeway".into()) };
    let path = Path::new("causeway.toml");
    match Config::parse(path, source, &around) {
        Ok(config) => {
            for port in &config.ports {
                port.check().expect("a port of a checked configuration");
                assert!(config.groups.contains(&port.group), "{} has a group", port.name);
            }
            let printed = config.to_toml();
            let again = Config::parse(path, &printed, &around);
            assert_eq!(again.expect("what we printed"), config, "{printed}");
        }
        Err(ConfigError::Wrong(text)) => {
            assert!(text.starts_with("causeway.toml"), "names the file: {text}");
        }
        Err(other) => panic!("{other}"),
    }
}

/// Configurations: the packaged one and one with everything.
pub fn config_seeds() -> Vec<Vec<u8>> {
    let rich = r#"
[daemon]
run_dir = "/run/x"
log = "debug"
[dispatch]
dispatchers = 2
[[group]]
name = "blue"
[[port]]
name = "a"
group = "blue"
kind = "net"
mac = "52:54:00:00:00:01"
mtu = 9000
queue_pairs = 2
learn = true
[[port]]
name = "b"
group = "blue"
kind = "vsock"
cid = 3
host_socket = "/run/x/b"
[[rule]]
action = "deny"
from = "a"
to = "any"
"#;
    vec![include_bytes!("../../packaging/causeway.toml").to_vec(), rich.as_bytes().to_vec()]
}

/// A fabric in memory that keeps what it is told and carries nothing.
#[derive(Debug, Default)]
struct Model {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    groups: Vec<Name>,
    ports: BTreeMap<Name, PortSpec>,
    rules: Vec<RuleSpec>,
}

impl Fabric for Model {
    fn call(&self, command: Command) -> Result<Answer, CommandError> {
        self.state.lock().expect("one thread").call(command)
    }
}

impl State {
    fn call(&mut self, command: Command) -> Result<Answer, CommandError> {
        let missing = |what, name: String| CommandError::NotFound { what, name };
        Ok(match command {
            Command::PortList => Answer::Ports(self.ports.values().map(view).collect()),
            Command::PortShow(name) => {
                let spec = self.ports.get(&name).ok_or(missing("port", name.to_string()))?;
                Answer::Port(Box::new(view(spec)))
            }
            Command::PortAdd(spec) => {
                spec.check().expect("only checked ports reach the fabric");
                self.ports.insert(spec.name.clone(), spec.clone());
                Answer::Port(Box::new(view(&spec)))
            }
            Command::PortDel(name) => {
                self.ports.remove(&name).ok_or(missing("port", name.to_string()))?;
                Answer::Done
            }
            Command::GroupList => {
                let group = |name: &Name| GroupView {
                    name: name.clone(),
                    forwarding: Forwarding::default(),
                    ports: Vec::new(),
                    links: Vec::new(),
                };
                Answer::Groups(self.groups.iter().map(group).collect())
            }
            Command::GroupAdd(GroupSpec { name, .. }) => {
                self.groups.push(name);
                Answer::Done
            }
            Command::GroupDel(name) => {
                self.groups.retain(|group| *group != name);
                Answer::Done
            }
            Command::RuleList => Answer::Rules(self.rules()),
            Command::RuleAdd { index, rule } => {
                let at = index.unwrap_or(usize::MAX).min(self.rules.len());
                self.rules.insert(at, rule);
                Answer::Rules(self.rules())
            }
            Command::RuleDel { index } => {
                if index >= self.rules.len() {
                    return Err(missing("rule", index.to_string()));
                }
                self.rules.remove(index);
                Answer::Done
            }
            Command::Trace(query) => Answer::Trace(TraceView {
                verdict: "drop".into(),
                to: Vec::new(),
                steps: vec![format!("{query:?}")],
            }),
            _ => Answer::Dispatchers(Vec::new()),
        })
    }

    fn rules(&self) -> Vec<RuleView> {
        let rules = self.rules.iter().cloned().enumerate();
        rules.map(|(index, rule)| RuleView { index, rule, hits_total: 0 }).collect()
    }
}

fn view(spec: &PortSpec) -> PortView {
    PortView {
        spec: spec.clone(),
        state: PortState::Listening,
        dispatcher: 0,
        fault: None,
        faults_total: 0,
        connects_total: 0,
        features: "0x0".into(),
        memory_bytes: 0,
        queues: Vec::new(),
        counters: BTreeMap::new(),
    }
}

/// Requests, a zero byte between them: each gets a reply that is whole.
pub fn control(data: &[u8]) {
    let model = Model::default();
    let about = About {
        started: Instant::now(),
        run_dir: "/run/causeway".into(),
        control: "/run/causeway/control".into(),
    };
    let peer = Peer { pid: 1, uid: 0, gid: 0 };
    for bytes in data.split(|&byte| byte == 0).take(16) {
        let (mut ours, mut theirs) = UnixStream::pair().expect("two descriptors");
        // A sender that sends and closes: nothing is waited for.
        ours.write_all(bytes).expect("it fits the socket's buffer");
        ours.shutdown(Shutdown::Write).expect("it is open");
        let reply = match request::read(&mut theirs, Instant::now() + Duration::from_secs(60)) {
            Ok(None) => {
                assert!(bytes.is_empty());
                continue;
            }
            Ok(Some(request)) => {
                assert!(request.body.len() <= bytes.len());
                answer(&model, &about, &peer, &request)
            }
            Err(reply) => reply,
        };
        assert!(matches!(reply.status, 200..=204 | 400..=431), "status {}", reply.status);
        if reply.status != 204 {
            let json: Result<serde_json::Value, _> = serde_json::from_str(&reply.body);
            let json = json.expect("a body of JSON");
            assert_eq!(reply.status >= 400, json.get("error").is_some(), "{}", reply.body);
        }
        let mut out = Vec::new();
        reply.write(&mut out).expect("memory");
        assert!(out.starts_with(b"HTTP/1.1 "));
    }
}

/// A conversation that uses every path.
pub fn control_seeds() -> Vec<Vec<u8>> {
    let request = |line: &str, body: &str| {
        let len = body.len();
        format!("{line} HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n\r\n{body}").into_bytes()
    };
    let all = [
        request("POST /v1/groups", r#"{"name":"g"}"#),
        request("POST /v1/ports", r#"{"name":"a","group":"g","kind":"net","mtu":9000}"#),
        request("POST /v1/ports", r#"{"name":"v","group":"g","kind":"vsock","cid":3}"#),
        request("POST /v1/rules", r#"{"index":0,"action":"deny","from":"a","to":"any"}"#),
        request("POST /v1/trace", r#"{"what":"connect","from":"v","cid":4,"port":22}"#),
        request("GET /v1/ports/a", ""),
        request("GET /v1/stats?x", ""),
        request("GET /v1/info", ""),
        request("GET /v1/dispatchers", ""),
        request("DELETE /v1/rules/0", ""),
        request("DELETE /v1/ports/a", ""),
        request("DELETE /v1/groups/g", ""),
    ];
    all.chunks(4).map(|some| some.join(&0)).chain([all.join(&0)]).collect()
}
