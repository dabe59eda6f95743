//! Operator input: the configuration file, and requests to the control socket. Targets `config` and
//! `control`. A configuration is read twice, by its printed form; a request gets a complete reply.
//! No socket, file or service runs: commands stop at a model of the control plane.

use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use causeway_daemon::api::{ApiContext, answer};
use causeway_daemon::config::{Config, ConfigContext, ConfigError};
use causeway_daemon::http::{REQUEST_LIMITS, ReplyBody, request};
use causeway_daemon::metrics::Metrics;
use causeway_daemon::metrics::help::HelpTexts;
use causeway_daemon::peer::ControlPeer;
use causeway_daemon::refusals::ControlRefusals;
use causeway_daemon::services::{Registered, SERVICES};
use causeway_model::draft::host::assume_resolved;

use crate::model::Model;

/// Parses a configuration: it is printed and parsed again to the same value, or every problem is
/// reported.
pub fn config(data: &[u8]) {
    let Ok(source) = std::str::from_utf8(data) else { return };
    let around = ConfigContext {
        run_dir: Some("/run/causeway".into()),
        state_dir: Some("/var/lib/causeway".into()),
        underlay: Some(|_| None),
        kinds: &causeway_model::port::KINDS,
        sections: REGISTERED.sections,
    };
    let path = Path::new("causeway.toml");
    match Config::parse(path, source, &around) {
        Ok(config) => {
            for port in &config.ports {
                port.check().expect("a port of a checked configuration");
                assert!(
                    config.groups.iter().any(|group| group.name == port.group),
                    "{} has a group",
                    port.name
                );
            }
            let printed = config.to_toml();
            let again = Config::parse(path, &printed, &around);
            assert_eq!(again.expect("the printed configuration"), config, "{printed}");
        }
        Err(ConfigError::Wrong(text)) => {
            assert!(text.starts_with("causeway.toml"), "names the file: {text}");
        }
        Err(other) => panic!("{other}"),
    }
}

/// Returns the packaged configuration and a configuration with every key.
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
action = "reject"
from = "blue/3:*"
to = "*"
[control]
vnet_listen = "127.0.0.1:9003"
vnet_password_file = "/etc/causeway/vnet"
vnet_group = "blue"
[[link]]
name = "l"
group = "blue"
remote = "far.example"
key = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
[[link]]
name = "x"
group = "blue"
kind = "vxlan"
remote = "[fd00::2]:4790"
vni = 7
[[route]]
group = "blue"
source = "not-52:54:00:00:00:01"
to = { edge = "l" }
from = { interface = "a" }
"#;
    vec![include_bytes!("../../packaging/causeway.toml").to_vec(), rich.as_bytes().to_vec()]
}

/// What the services of the daemon register; collected once.
static REGISTERED: LazyLock<Registered> = LazyLock::new(|| Registered::of(SERVICES));

/// Sends requests separated by zero bytes: each gets a complete reply.
pub fn control(data: &[u8]) {
    let model = Model::default();
    let (started, refusals) = (Instant::now(), Arc::<ControlRefusals>::default());
    let metrics = Metrics::new((started, refusals.clone()), HelpTexts::default(), &[]);
    let about = ApiContext {
        kinds: &causeway_model::port::KINDS,
        sections: REGISTERED.sections,
        nouns: REGISTERED.nouns,
        started,
        run_dir: "/run/causeway".into(),
        control: "/run/causeway/control".into(),
        key_file: "/etc/causeway/key".into(),
        resolve: assume_resolved,
        refusals,
        metrics: Arc::new(metrics),
        stop: Arc::default(),
        kept: None,
    };
    let peer = ControlPeer { pid: 1, uid: 0, gid: 0 };
    for bytes in data.split(|&byte| byte == 0).take(16) {
        let (mut ours, mut theirs) = UnixStream::pair().expect("two descriptors");
        // The client sends and closes at once, so that the server never waits for input.
        ours.write_all(bytes).expect("room in the socket");
        ours.shutdown(Shutdown::Write).expect("an open socket");
        let deadline = Instant::now() + Duration::from_secs(60);
        let reply = match request::read(&mut theirs, &REQUEST_LIMITS, deadline) {
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
        match &reply.body {
            ReplyBody::Json(body) if reply.status != 204 => {
                let json: Result<serde_json::Value, _> = serde_json::from_str(body);
                let json = json.expect("a body of JSON");
                assert_eq!(reply.status >= 400, json.get("error").is_some(), "{body}");
            }
            ReplyBody::Json(_) => {}
            ReplyBody::Text { text, .. } => assert!(reply.status == 200 && text.ends_with('\n')),
        }
        let mut out = Vec::new();
        reply.write(&mut out).expect("memory");
        assert!(out.starts_with(b"HTTP/1.1 "));
    }
}

/// Returns requests for every path.
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
        request("GET /metrics", ""),
        request("POST /v1/connections", r#"{"port":"v","after":"g/0","limit":1}"#),
        request("GET /v1/dispatchers", ""),
        request("POST /v1/links", r#"{"name":"l","group":"g","kind":"vnet","remote":"far"}"#),
        request("POST /v1/routes", r#"{"group":"g","to":{"edge":"l"},"from":{"interface":"a"}}"#),
        request("GET /v1/traffic/g", ""),
        request("DELETE /v1/routes/1", ""),
        request("DELETE /v1/rules/0", ""),
        request("DELETE /v1/ports/a", ""),
        request("DELETE /v1/groups/g", ""),
    ];
    all.chunks(4).map(|some| some.join(&0)).chain([all.join(&0)]).collect()
}
